"""Speak Kafka's protocol over a bare socket, for requests that the clients' libraries cannot send.

The encoder is the broker's own (`broker.wire`). Kafka 4.1 accepts all versions that are used here.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from broker.wire import messages
from broker.wire.frames import decode_response, encode_request
from broker.wire.schemas import api_names
from logstore.format.kafka import record_batch

VERSIONS = {
    "Produce": 12, "Fetch": 12, "Metadata": 12, "CreateTopics": 7, "DeleteTopics": 5,
    "DescribeLogDirs": 4, "AlterReplicaLogDirs": 2, "IncrementalAlterConfigs": 1,
}  # fmt: skip
API_KEYS = {name: key for key, name in api_names().items()}
BROKER_RESOURCE, SET = 4, 0
TRY_SECONDS = 0.005


class RequestError(Exception):
    """Report that a broker answered with an error code."""


class RawClient:
    """One connection; `call` sends a request and reads its answer."""

    def __init__(self, address: str, timeout: float = 60.0) -> None:
        """Connect to an address such as 127.0.0.1:9092."""
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._numbers = itertools.count(1)

    def call(self, name: str, **fields: Any) -> Any:
        """Send a request and return the message of its answer."""
        self.socket.sendall(frame_of(name, next(self._numbers), **fields))
        _, message = decode_response(API_KEYS[name], VERSIONS[name], self.read_frame())
        return message

    def read_frame(self) -> bytes:
        """Read one frame without its size."""
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self.socket.recv(min(size - len(data), 1 << 20))
            if not more:
                raise ConnectionError(f"closed after {len(data)} of {size} bytes")
            data += more
        return bytes(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()


def frame_of(name: str, number: int, **fields: Any) -> bytes:
    """Encode a request with its correlation id."""
    message = getattr(messages, f"{name}Request")(**fields)
    return bytes(encode_request(API_KEYS[name], VERSIONS[name], number, "raw", message))


def checked(*codes: int) -> None:
    """Raise an error if a code is not 0.

    Raises:
        RequestError: a code is not 0; the message contains the code.
    """
    for code in codes:
        if code:
            raise RequestError(f"the broker answered with error {code}")


# --- topics and records ---------------------------------------------------------------------------


def create_topic(client: RawClient, name: str, partitions: int = 1, **configs: str) -> None:
    """Create a topic; the settings have Kafka's names, with _ for each dot."""
    request = messages.CreateTopicsRequest
    rows = [
        request.CreatableTopicConfig(key.replace("_", "."), text) for key, text in configs.items()
    ]
    topic = request.CreatableTopic(name, partitions, 1, (), rows)
    (row,) = client.call("CreateTopics", topics=[topic], timeout_ms=600_000).topics
    checked(row.error_code)


def delete_topic(client: RawClient, name: str) -> None:
    """Delete a topic."""
    (row,) = client.call("DeleteTopics", topic_names=[name], timeout_ms=60_000).responses
    checked(row.error_code)


def batch_of(values: Iterable[bytes]) -> bytes:
    """Encode a record batch as a producer without an id does."""
    now_ms = time.time_ns() // 1_000_000
    payload = record_batch.build_payload(list(values), None, now_ms, None)
    return b"".join(record_batch.frame(payload, 0, -1))


def produce_fields(topic: str, partition: int, batch: bytes) -> dict[str, Any]:
    """Return the fields of a Produce request with acks=all."""
    request = messages.ProduceRequest
    data = [request.PartitionProduceData(partition, batch)]
    rows = [request.TopicProduceData(name=topic, partition_data=data)]
    return {"acks": -1, "timeout_ms": 30_000, "topic_data": rows}


def fetch_fields(topic: str, partition: int, offset: int, **fields: Any) -> dict[str, Any]:
    """Return the fields of a Fetch request for one partition."""
    request = messages.FetchRequest
    place = request.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    topics = [request.FetchTopic(topic=topic, partitions=[place])]
    return {"min_bytes": 1, "max_bytes": 50 << 20, "topics": topics, **fields}


def acknowledge_first(
    address: str, topic: str, started: float, give_up: float, is_alive: Callable[[], bool]
) -> float:
    """Produce one record as soon as the broker accepts it; return the seconds since `started`.

    The topic is created if it is missing.

    Raises:
        RequestError: nothing was acknowledged in `give_up` seconds, or the broker ended.
    """
    batch = batch_of([b"first"])
    while time.perf_counter() - started < give_up and is_alive():
        try:
            with RawClient(address) as client:
                answer = client.call("Produce", **produce_fields(topic, 0, batch))
                if not answer.responses[0].partition_responses[0].error_code:
                    return time.perf_counter() - started
                create_topic(client, topic)
        except (OSError, RequestError):
            pass  # the broker does not listen yet, or does not lead the partition yet
        time.sleep(TRY_SECONDS)
    raise RequestError(f"no record was acknowledged within {give_up:g} s")


# --- log dirs -------------------------------------------------------------------------------------


def limit_moves(client: RawClient, bytes_per_second: int) -> None:
    """Set the rate of all moves between log dirs."""
    (node,) = client.call("Metadata", topics=[]).brokers
    request = messages.IncrementalAlterConfigsRequest
    rate = request.AlterableConfig(
        "replica.alter.log.dirs.io.max.bytes.per.second", SET, str(bytes_per_second)
    )
    resource = request.AlterConfigsResource(BROKER_RESOURCE, str(node.node_id), [rate])
    answer = client.call("IncrementalAlterConfigs", resources=[resource])
    checked(answer.responses[0].error_code)


def move_replica(client: RawClient, topic: str, partition: int, log_dir: str) -> None:
    """Begin the move of a replica to another log dir."""
    request = messages.AlterReplicaLogDirsRequest
    rows = [request.AlterReplicaLogDirTopic(topic, [partition])]
    answer = client.call("AlterReplicaLogDirs", dirs=[request.AlterReplicaLogDir(log_dir, rows)])
    checked(answer.results[0].partitions[0].error_code)


def copies_of(client: RawClient, topic: str) -> list[tuple[str, Any]]:
    """List the copies of a topic's partitions: the log dir, and the row of DescribeLogDirs."""
    answer = client.call("DescribeLogDirs", topics=None)
    checked(answer.error_code)
    return [
        (row.log_dir, partition)
        for row in answer.results
        for each in row.topics
        if each.name == topic
        for partition in each.partitions
    ]
