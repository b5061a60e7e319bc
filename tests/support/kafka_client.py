"""Speak Kafka's protocol over a bare socket, one frame at a time."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from crc32c import crc32c

from broker.wire import messages
from broker.wire.frames import decode_response, encode_request
from broker.wire.schemas import api_names
from logstore.format.kafka import record_batch as kafka

API_KEYS = {name: key for key, name in api_names().items()}
# The newest version of each API that this broker accepts.
NEWEST = {
    "Produce": 13, "Fetch": 18, "ListOffsets": 10, "Metadata": 13, "FindCoordinator": 6,
    "ApiVersions": 4, "CreateTopics": 7, "DeleteTopics": 6, "InitProducerId": 5,
    "OffsetForLeaderEpoch": 4, "DescribeConfigs": 4, "DescribeCluster": 2,
    "DescribeTopicPartitions": 0, "JoinGroup": 9, "SyncGroup": 5, "Heartbeat": 4, "LeaveGroup": 5,
    "OffsetCommit": 9, "OffsetFetch": 9, "OffsetDelete": 0, "DescribeGroups": 6, "ListGroups": 5,
    "DeleteGroups": 2, "DeleteRecords": 2, "AlterConfigs": 2, "IncrementalAlterConfigs": 1,
    "AlterReplicaLogDirs": 2, "DescribeLogDirs": 4, "CreatePartitions": 3, "ElectLeaders": 2,
    "AddPartitionsToTxn": 5, "AddOffsetsToTxn": 4, "EndTxn": 5, "TxnOffsetCommit": 5,
    "WriteTxnMarkers": 1, "DescribeProducers": 0, "DescribeTransactions": 0, "ListTransactions": 2,
    "AlterPartitionReassignments": 1, "ListPartitionReassignments": 0, "ListConfigResources": 1,
    "SaslHandshake": 1, "SaslAuthenticate": 2, "AlterUserScramCredentials": 0,
    "DescribeUserScramCredentials": 0,
    "DescribeClientQuotas": 1, "AlterClientQuotas": 1,
    "ConsumerGroupHeartbeat": 1, "ConsumerGroupDescribe": 1,
    "DescribeAcls": 3, "CreateAcls": 3, "DeleteAcls": 3,
    "UpdateFeatures": 2,
}  # fmt: skip


class KafkaClient:
    """One connection. `call` sends a request and reads its answer; the parts are there, too."""

    def __init__(self, servers: str, timeout: float = 20.0, source: str = "") -> None:
        """Connect; `source` is this client's own address, such as 127.0.0.2."""
        host, port = servers.split(",", maxsplit=1)[0].rsplit(":", 1)
        own = (source, 0) if source else None
        self.socket = socket.create_connection((host, int(port)), timeout, source_address=own)
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def frame(self, name: str, version: int | None = None, **fields: Any) -> tuple[int, bytes]:
        """Encode a request; returns its correlation id, too."""
        number = next(self._numbers)
        version = NEWEST[name] if version is None else version
        message = getattr(messages, name + "Request")(**fields)
        return number, bytes(encode_request(API_KEYS[name], version, number, "raw", message))

    def send(self, name: str, version: int | None = None, **fields: Any) -> int:
        """Send a request; returns its correlation id."""
        number, frame = self.frame(name, version, **fields)
        self.socket.sendall(frame)
        return number

    def receive(self, name: str, version: int | None = None) -> tuple[int, Any]:
        """Read the next answer: the correlation id and the message."""
        data = self.read_frame()
        return decode_response(API_KEYS[name], NEWEST[name] if version is None else version, data)

    def call(self, name: str, version: int | None = None, **fields: Any) -> Any:
        """Send a request and return the message of its answer."""
        number = self.send(name, version, **fields)
        answered, message = self.receive(name, version)
        assert answered == number
        return message

    def read_frame(self) -> bytes:
        """Read one frame without its size."""
        (size,) = struct.unpack(">i", self.read(4))
        return self.read(size)

    def read(self, size: int) -> bytes:
        """Read some bytes; raises EOFError if the broker closes the connection."""
        data = b""
        while len(data) < size:
            more = self.socket.recv(min(size - len(data), 1 << 20))
            if not more:
                raise EOFError(f"closed after {len(data)} of {size} bytes")
            data += more
        return data

    @property
    def is_closed_by_broker(self) -> bool:
        """Wait until the broker closes the connection, or sends something."""
        with contextlib.suppress(ConnectionResetError):
            return self.socket.recv(1) == b""
        return True

    # --- the requests that most tests need ------------------------------------------------------

    def create(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Create a topic; returns its id."""
        request = messages.CreateTopicsRequest
        rows = [
            request.CreatableTopicConfig(key.replace("_", "."), text)
            for key, text in configs.items()
        ]
        topic = request.CreatableTopic(name, partitions, -1, (), rows)
        (row,) = self.call("CreateTopics", topics=[topic]).topics
        assert not row.error_code, row.error_message
        return bytes(row.topic_id)

    def produce(
        self,
        topic: str,
        records: bytes | None,
        partition: int = 0,
        version: int = 12,
        **fields: Any,
    ) -> Any:
        """Append a batch; returns the row of the partition."""
        (row,) = self.call(
            "Produce", version, **produce_fields({(topic, partition): records}, **fields)
        ).responses
        return row.partition_responses[0]

    def fetch(
        self, topic: str, offset: int, partition: int = 0, version: int = 12, **fields: Any
    ) -> Any:
        """Read a partition; returns its row."""
        answer = self.call("Fetch", version, **fetch_fields({(topic, partition): offset}, **fields))
        assert not answer.error_code
        return answer.responses[0].partitions[0]


def produce_fields(
    batches: dict[tuple[str | bytes, int], bytes | None], acks: int = -1, **fields: Any
) -> dict[str, Any]:
    """Give the fields of a Produce request; topics are named by names or ids."""
    request = messages.ProduceRequest
    topics = []
    for (topic, partition), records in batches.items():
        named = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
        data = [request.PartitionProduceData(partition, records)]
        topics.append(request.TopicProduceData(**named, partition_data=data))
    return {"acks": acks, "timeout_ms": 5000, "topic_data": topics, **fields}


def fetch_fields(offsets: dict[tuple[str | bytes, int], int], **fields: Any) -> dict[str, Any]:
    """Give the fields of a Fetch request; a field of one partition applies to all."""
    request = messages.FetchRequest
    own = {name: fields.pop(name) for name in request.FetchPartition._fields if name in fields}
    own.setdefault("partition_max_bytes", 1 << 20)
    topics = []
    for (topic, partition), offset in offsets.items():
        named = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
        one = request.FetchPartition(partition=partition, fetch_offset=offset, **own)
        topics.append(request.FetchTopic(**named, partitions=[one]))
    return {"max_wait_ms": 0, "min_bytes": 1, "topics": topics, **fields}


def batch_of(
    *values: bytes | None,
    keys: list[bytes | None] | None = None,
    timestamp: int = 1000,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
    magic: int = 2,
) -> bytes:
    """Encode a batch as clients do: base offset 0, leader epoch -1.

    Args:
        producer: its id, epoch and first sequence.
    """
    payload = kafka.build_payload(list(values), keys, timestamp, None)
    data = bytearray(b"".join(kafka.frame(payload, 0, -1)))
    (own,) = struct.unpack_from(">H", data, 21)
    struct.pack_into(">H", data, 21, own | attributes)
    struct.pack_into(">qhi", data, 43, *producer)
    struct.pack_into(">B", data, 16, magic)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def batches_in(records: bytes | memoryview | None) -> Iterator[tuple[int, int]]:
    """Step over the batches of an answer; yields the base offset and the number of records."""
    data = memoryview(records or b"")
    while data:
        base_offset, length = struct.unpack_from(">qi", data)
        assert len(data) >= 12 + length, "a batch is cut"
        (count,) = struct.unpack_from(">i", data, 57)
        yield base_offset, count
        data = data[12 + length :]


def values_in(records: bytes | memoryview | None) -> list[bytes | None]:
    """Decode the values of all batches of an answer."""
    from logstore.format import layouts

    data, values = bytes(records or b""), []
    while data:
        header = layouts.read_header(data, 0)
        values += layouts.kafka_layout().decode_all(data, 0, header).values.to_list()
        data = data[header.size_bytes :]
    return values
