"""Answer Produce (0): append the batches of each partition, as the client encoded them.

The log checks every batch. This module checks only the header fields that a client must not set.
An error of one partition does not affect the other partitions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from crc32c import crc32c

from broker.catalog.topics import INTERNAL_TOPICS
from broker.machines.exchange import Answer, CloseConnectionError, Pending
from broker.requests.failures import code_of
from broker.requests.services import Call, Services
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import ProduceResponse
from broker.wire.produce import decode_produce
from logstore import Log, LogStoreError, MissingKeyError, Subscription

BY_ID = 13  # the first version that names topics by their ids
ZSTD_FROM = 7  # the first version in which batches are allowed to use zstd
NO_ACKS, LEADER_ACKS, ALL_ACKS = 0, 1, -1
# This struct reads the header of a record batch after its base offset: length, leader epoch, magic,
# checksum and attributes.
HEADER = struct.Struct(">8xiiBIH")
HEADER_BYTES, CHECKED_FROM, LENGTH_END, MAGIC = 61, 21, 12, 2
CODEC_MASK, ZSTD, TRANSACTIONAL, CONTROL = 0x07, 4, 0x10, 0x20

Result = ProduceResponse.PartitionProduceResponse
RecordError = ProduceResponse.BatchIndexAndErrorMessage
Leader = ProduceResponse.LeaderIdAndEpoch


class _Appended(NamedTuple):
    """Hold the result of one append: the answer's row, and the end offset of the records."""

    row: Any
    log: Log | None = None
    end_offset: int = 0


def answer(call: Call) -> Answer | Pending:
    """Append the records of all partitions."""
    services, version = call.services, call.request.version
    asked = decode_produce(call.request.body, version)
    topics = []
    for topic in asked.topic_data:
        name = services.topics.name_of(topic.topic_id) if version >= BY_ID else topic.name
        rows = [
            _append(services, name, one.index, one.records, asked, version)
            for one in topic.partition_data
        ]
        topics.append((topic, rows))
    if asked.acks == NO_ACKS:
        _check_all_written(topics)
        return []
    if asked.acks == ALL_ACKS and any(map(_is_early, _rows_of(topics))):
        deadline = services.clock() + max(asked.timeout_ms, 0) / 1000
        return _WaitingProduce(call, topics, deadline)
    return _encode(call, topics)


def _append(
    services: Services, name: str | None, index: int, records: Any, asked: Any, version: int
) -> _Appended:
    """Append the batch of one partition."""
    fault = _fault_of_request(name, asked.acks) or fault_of_batch(
        records, version, is_transactional=asked.transactional_id is not None
    )
    if fault is not None or name is None:
        return _failed(index, *(fault or UNKNOWN_ID))
    try:
        log = services.topics.log(name, index)
        if log.config.record_format != "kafka":
            return _failed(index, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, COLUMNAR)
        info = log.append_encoded(records)
    except (LogStoreError, ValueError) as error:
        services.traffic.refused(name, is_fetch=False)
        return _refused(index, records, error)
    services.traffic.appended(name, len(records), len(info))
    row = Result(index, 0, info.base_offset, info.log_append_time, info.log_start_offset)
    return _Appended(row, log, info.last_offset + 1)


def _fault_of_request(name: str | None, acks: int) -> tuple[ErrorCode, str] | None:
    """Check the topic and the acks of a request; return None if nothing is wrong."""
    if name is None:
        return UNKNOWN_ID
    if acks not in (NO_ACKS, LEADER_ACKS, ALL_ACKS):
        return ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}"
    if name in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal"
    return None


def _refused(index: int, records: Any, error: Exception) -> _Appended:
    """Build the answer's row for an append that failed."""
    if isinstance(error, MissingKeyError):
        row = RecordError(error.number, str(error))
        return _failed(index, ErrorCode.INVALID_RECORD, str(error), [row])
    if isinstance(error, LogStoreError):
        return _failed(index, code_of(error), str(error))
    return _failed(index, _code_of_bytes(records), str(error))


UNKNOWN_ID = (ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
COLUMNAR = (
    "the partition keeps its records in columns (record_format=columnar), which clients of Kafka "
    "cannot read; set record_format=kafka"
)


def fault_of_batch(
    records: Any, version: int, *, is_transactional: bool
) -> tuple[ErrorCode, str] | None:
    """Check that a client may send a batch with this header; return None if nothing is wrong."""
    if records is None or len(records) < HEADER_BYTES:
        return ErrorCode.INVALID_RECORD, "the records are not one whole batch"
    length, _, magic, _, attributes = HEADER.unpack_from(records)
    if magic != MAGIC:
        return ErrorCode.INVALID_RECORD, f"a batch of magic {magic}, not {MAGIC}"
    if length != len(records) - LENGTH_END:
        return ErrorCode.INVALID_RECORD, "a partition does not have exactly one batch"
    if attributes & CONTROL:
        return ErrorCode.INVALID_RECORD, "a client must not write control batches"
    if attributes & TRANSACTIONAL or is_transactional:
        return ErrorCode.INVALID_TXN_STATE, "this broker has no transactions yet"
    if attributes & CODEC_MASK == ZSTD and version < ZSTD_FROM:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {ZSTD_FROM} or later"
    return None


def _code_of_bytes(records: Any) -> ErrorCode:
    """Choose the code for refused records; the code for a wrong checksum lets clients retry."""
    crc = HEADER.unpack_from(records)[3]
    if crc32c(records[CHECKED_FROM:]) != crc:
        return ErrorCode.CORRUPT_MESSAGE
    return ErrorCode.INVALID_RECORD


def _failed(index: int, code: ErrorCode, message: str, rows: Any = ()) -> _Appended:
    return _Appended(Result(index, code, -1, record_errors=rows, error_message=message))


def _rows_of(topics: list[tuple[Any, list[_Appended]]]) -> list[_Appended]:
    return [row for _, rows in topics for row in rows]


def _is_early(appended: _Appended) -> bool:
    """Report whether some in-sync replicas do not have the records yet."""
    log = appended.log
    return log is not None and log.high_watermark < appended.end_offset


def _check_all_written(topics: list[tuple[Any, list[_Appended]]]) -> None:
    """Raise CloseConnectionError if an append failed: no answer can report the failure."""
    for appended in _rows_of(topics):
        if appended.row.error_code:
            code = ErrorCode(appended.row.error_code)
            raise CloseConnectionError(
                f"a Produce request with acks=0 failed: {code.name}, {appended.row.error_message}"
            )


def _encode(call: Call, topics: list[tuple[Any, list[_Appended]]]) -> Answer:
    leadership, endpoint = call.services.leadership, call.client.endpoint
    is_elsewhere = False
    responses = []
    for topic, appended in topics:
        rows = []
        for one in appended:
            row = one.row
            if row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                is_elsewhere = True
                row = row._replace(current_leader=Leader(leadership.broker_id, -1))
            rows.append(row)
        responses.append(ProduceResponse.TopicProduceResponse(topic.name, topic.topic_id, rows))
    nodes = [ProduceResponse.NodeEndpoint(leadership.broker_id, endpoint.host, endpoint.port)]
    return call.answer(ProduceResponse(responses, node_endpoints=nodes if is_elsewhere else ()))


class _WaitingProduce(Pending):
    """A Produce request with acks=all: it waits until all in-sync replicas have its records."""

    def __init__(
        self, call: Call, topics: list[tuple[Any, list[_Appended]]], deadline: float
    ) -> None:
        super().__init__(deadline)
        self._call = call
        self._topics = topics
        self._subscriptions: list[Subscription] = []

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` when the high watermark of a partition rises."""
        for appended in _rows_of(self._topics):
            if appended.log is not None and _is_early(appended):
                try:
                    self._subscriptions.append(appended.log.subscribe(lambda _: wake()))
                except LogStoreError:  # its log dir failed: `look` notices the failure
                    wake()

    def look(self, *, is_last: bool) -> Answer | None:
        """Answer if all in-sync replicas have the records.

        If an in-sync replica lacks the records of a partition at the deadline, this partition gets
        the error REQUEST_TIMED_OUT (7).
        """
        early = [one for one in _rows_of(self._topics) if _is_early(one)]
        if early and not is_last:
            return None
        text = "not all replicas have the records yet"
        topics = [
            (
                topic,
                [
                    _failed(one.row.index, ErrorCode.REQUEST_TIMED_OUT, text)
                    if one in early
                    else one
                    for one in rows
                ],
            )
            for topic, rows in self._topics
        ]
        return _encode(self._call, topics)

    def close(self) -> None:
        """Stop watching."""
        for subscription in self._subscriptions:
            subscription.close()
        self._subscriptions.clear()
