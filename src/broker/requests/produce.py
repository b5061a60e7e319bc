"""Answer Produce (0): append the batches of each partition, as the client encoded them.

The log checks every batch. This module checks only the header fields that a client must not set.
An error of one partition does not affect the other partitions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from crc32c import crc32c

from broker.catalog.client_appends import ALL_ACKS, LEADER_ACKS, NO_ACKS, Wait
from broker.catalog.leadership import NotServedError
from broker.catalog.producer_ids import EMBEDDED_IDS
from broker.catalog.topics import INTERNAL_TOPICS
from broker.machines.exchange import Answer, CloseConnectionError, Pending
from broker.machines.refused_batches import (
    COUNT_MAX,
    KEPT_SECONDS,
    TIMED_OUT_KEPT_SECONDS,
    Partition,
    Sent,
)
from broker.quotas.quotas import PRODUCE
from broker.requests.access.checks import MESSAGE
from broker.requests.access.record_checks import code_for_write
from broker.requests.failures import code_of
from broker.requests.services import Call, Services
from broker.requests.transactions.verification import OPEN, WHY, Verified, verified
from broker.transactions.steps import Asker
from broker.transactions.transaction import Place
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import ProduceResponse
from broker.wire.produce import decode_produce
from logstore import LogStoreError, MissingKeyError

BY_ID = 13  # the first version that names topics by their ids
ABORTABLE_FROM = 11  # the first version that knows the error TRANSACTION_ABORTABLE
ZSTD_FROM = 7  # the first version in which batches are allowed to use zstd
# This struct reads the header of a record batch after its base offset: length, leader epoch, magic,
# checksum, attributes, producer id, producer epoch and first sequence.
HEADER = struct.Struct(">8xiiBIH20xqhi")
HEADER_BYTES, CHECKED_FROM, LENGTH_END, MAGIC = 61, 21, 12, 2
CODEC_MASK, ZSTD, TRANSACTIONAL, CONTROL = 0x07, 4, 0x10, 0x20

NOT_FOR_CLIENTS = "a client must not write control batches, or transactions without a producer"
PLAIN = Verified(None)  # a batch without a transaction
UNVERIFIED = Verified(OPEN)  # a batch that continues a transaction, but begins none

Result = ProduceResponse.PartitionProduceResponse
RecordError = ProduceResponse.BatchIndexAndErrorMessage
Leader = ProduceResponse.LeaderIdAndEpoch


class _Appended(NamedTuple):
    """Hold the result of one append: the answer's row; and a wait for other replicas.

    For a batch of an idempotent producer, `sent` says which one it is, and of which partition.
    """

    row: Any
    wait: Wait | None = None
    sent: tuple[Partition, Sent] | None = None


class _Topic(NamedTuple):
    """Hold the results of one topic, with its name or id in the request, and its name.

    This object does not refer to the records: a request that waits must not keep its frame.
    """

    asked_name: str
    asked_id: bytes
    name: str | None
    rows: list[_Appended]


def answer(call: Call) -> Answer | Pending:
    """Append the records of all partitions."""
    services, version = call.services, call.request.version
    asked = decode_produce(call.request.body, version)
    topics = []
    for topic in asked.topic_data:
        name = services.topics.name_of(topic.topic_id) if version >= BY_ID else topic.name
        code = code_for_write(call.rights, asked.transactional_id, name)
        tokens = {} if code else _verified(call, name, topic, asked)
        rows = [
            _failed(one.index, code, MESSAGE)
            if code
            else _append(call, name, topic, one, asked, tokens)
            for one in topic.partition_data
        ]
        topics.append(_Topic(topic.name, topic.topic_id, name, rows))
    call.charge(PRODUCE, _size_of(asked))
    if asked.acks == NO_ACKS:
        call.charge_time()
        _check_all_written(topics)
        return []
    if asked.acks == ALL_ACKS and any(one.wait is not None for one in _rows_of(topics)):
        deadline = services.clock() + max(asked.timeout_ms, 0) / 1000
        return _WaitingProduce(call, topics, deadline)
    return _encode(call, topics)


def _size_of(asked: Any) -> int:
    """Return the bytes of all records of a request, also of those that are refused."""
    return sum(
        len(one.records or b"") for topic in asked.topic_data for one in topic.partition_data
    )


def _verified(call: Call, name: str | None, topic: Any, asked: Any) -> Mapping[Place, Verified]:
    """Ask the coordinator about the batches of a topic that belong to a transaction."""
    if asked.transactional_id is None or name is None:
        return {}
    version, batches = call.request.version, {}
    for index, records in topic.partition_data:
        fault = fault_of_batch(records, version, is_transactional=True)
        if fault is None and HEADER.unpack_from(records)[4] & TRANSACTIONAL:
            *_, producer_id, epoch, sequence = HEADER.unpack_from(records)
            with suppress(LogStoreError):  # the append reports this error
                log = call.services.leadership.log(name, index)
                token = log.transaction_token(producer_id, epoch, sequence)
                batches[name, index] = token, Asker(producer_id, epoch)
    verifier = call.services.transactions.verifier
    return verified(
        verifier, asked.transactional_id, batches, knows_abortable=version >= ABORTABLE_FROM
    )


def _append(
    call: Call,
    name: str | None,
    topic: Any,
    data: Any,
    asked: Any,
    tokens: Mapping[Place, Verified],
) -> _Appended:
    """Append the batch of one partition, unless an earlier batch has to come first."""
    services, (index, records) = call.services, data
    fault = _fault_of_request(name, asked.acks) or fault_of_batch(
        records, call.request.version, is_transactional=asked.transactional_id is not None
    )
    if fault is not None:
        return _failed(index, *fault)
    *_, attributes, producer_id, epoch, sequence = HEADER.unpack_from(records)
    if producer_id < 0 or sequence < 0:
        return _append_next(services, name, index, records, asked.acks)
    default = UNVERIFIED if attributes & TRANSACTIONAL else PLAIN
    permit = tokens.get((name or "", index), default)
    refused, sent = call.client.refused, Sent(producer_id, epoch, sequence)
    partition = topic.topic_id if call.request.version >= BY_ID else topic.name, index
    if refused:
        code = refused.code_for(partition, sent, services.clock())
        if code is not None:
            return _failed(index, ErrorCode(code), OVERTAKES)
    if permit.fault:
        appended = _failed(index, permit.fault, WHY)
    else:
        appended = _append_next(services, name, index, records, asked.acks, permit.token)
    appended = appended._replace(sent=(partition, sent))
    _note(call, appended)
    return appended


def _note(call: Call, appended: _Appended) -> None:
    """Remember a batch that its producer will send again, so that no later one overtakes it.

    Raises:
        CloseConnectionError: too many are remembered. The client sends all again after it has
            connected again.
    """
    code = appended.row.error_code
    if appended.sent is None or (code not in SENT_AGAIN and code != ErrorCode.REQUEST_TIMED_OUT):
        return
    kept_seconds = KEPT_SECONDS
    if code == ErrorCode.REQUEST_TIMED_OUT:  # it would say that a later batch may be written
        code, kept_seconds = ErrorCode.NOT_ENOUGH_REPLICAS, TIMED_OUT_KEPT_SECONDS
    now = call.services.clock()
    if not call.client.refused.note(*appended.sent, code, now, kept_seconds):
        raise CloseConnectionError(
            f"more than {COUNT_MAX} partitions have refused batches of idempotent producers"
        )


def _append_next(
    services: Services,
    name: str | None,
    index: int,
    records: Any,
    acks: int,
    token: int | None = None,
) -> _Appended:
    """Append a batch that overtakes no other."""
    if name is None:
        return _failed(index, *UNKNOWN_ID)
    try:
        with services.decompression.lease():
            info, wait = services.appends.append(name, index, records, acks, token)
    except NotServedError as error:
        return _failed(index, error.code, str(error))
    except (LogStoreError, ValueError) as error:
        services.traffic.refused(name, is_fetch=False)
        return _refused(index, records, error)
    services.traffic.appended(name, len(records), len(info))
    row = Result(index, 0, info.base_offset, info.log_append_time, info.log_start_offset)
    return _Appended(row, wait)


def _fault_of_request(name: str | None, acks: int) -> tuple[ErrorCode, str] | None:
    """Check the topic and the acks of a request; return None if nothing is wrong."""
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
OVERTAKES = "an earlier batch of this producer was not acknowledged; send it first"
# After these errors, clients send a batch again.
SENT_AGAIN = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR,
}  # fmt: skip


def fault_of_batch(
    records: Any, version: int, *, is_transactional: bool
) -> tuple[ErrorCode, str] | None:
    """Check that a client may send a batch with this header; return None if nothing is wrong."""
    if records is None or len(records) < HEADER_BYTES:
        return ErrorCode.INVALID_RECORD, "the records are not one whole batch"
    length, _, magic, _, attributes, producer_id, epoch, sequence = HEADER.unpack_from(records)
    if magic != MAGIC:
        return ErrorCode.INVALID_RECORD, f"a batch of magic {magic}, not {MAGIC}"
    if length != len(records) - LENGTH_END:
        return ErrorCode.INVALID_RECORD, "a partition does not have exactly one batch"
    if attributes & TRANSACTIONAL and not is_transactional:
        return ErrorCode.INVALID_TXN_STATE, "the request has no transactional id"
    if attributes & (CONTROL | TRANSACTIONAL) and (
        attributes & CONTROL or min(producer_id, epoch, sequence) < 0
    ):
        return ErrorCode.INVALID_RECORD, NOT_FOR_CLIENTS
    if producer_id >= EMBEDDED_IDS:
        code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return code, f"no broker has given the producer id {producer_id}"
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


def _rows_of(topics: list[_Topic]) -> list[_Appended]:
    return [row for topic in topics for row in topic.rows]


def _check_all_written(topics: list[_Topic]) -> None:
    """Raise CloseConnectionError if an append failed: no answer can report the failure."""
    for appended in _rows_of(topics):
        if appended.row.error_code:
            code = ErrorCode(appended.row.error_code)
            raise CloseConnectionError(
                f"a Produce request with acks=0 failed: {code.name}, {appended.row.error_message}"
            )


def _encode(call: Call, topics: list[_Topic]) -> Answer:
    """Encode the answer; the client learns who leads the partitions that others lead (KIP-951)."""
    leadership = call.services.leadership
    leaders: set[int] = set()
    responses = []
    for asked_name, asked_id, name, appended in topics:
        rows = []
        for one in appended:
            row = one.row
            if row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and name is not None:
                leader = leadership.leader_of(name, row.index)
                leaders.add(leader.id)
                row = row._replace(current_leader=Leader(*leader))
            rows.append(row)
        responses.append(ProduceResponse.TopicProduceResponse(asked_name, asked_id, rows))
    nodes = [
        ProduceResponse.NodeEndpoint(*node)
        for node in (leadership.nodes(call.client.endpoint) if leaders else ())
        if node.id in leaders
    ]
    return call.answer(ProduceResponse(responses, node_endpoints=nodes))


class _WaitingProduce(Pending):
    """A Produce request with acks=all: it waits until all in-sync replicas have its records."""

    def __init__(self, call: Call, topics: list[_Topic], deadline: float) -> None:
        super().__init__(deadline)
        self._call = call._replace(request=call.request._replace(body=memoryview(b"")))
        self._topics = topics

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` when the records of a partition are acknowledged, or are refused."""
        for wait in self._waits():
            wait.watch(wake)

    def _waits(self) -> list[Wait]:
        return [one.wait for one in _rows_of(self._topics) if one.wait is not None]

    def look(self, *, is_last: bool) -> Answer | None:
        """Answer if all in-sync replicas have the records.

        If an in-sync replica lacks the records of a partition at the deadline, this partition gets
        the error REQUEST_TIMED_OUT (7).
        """
        unfinished = [wait for wait in self._waits() if not wait.is_over]
        if unfinished and not is_last:
            return None
        for wait in unfinished:
            wait.give_up()
        settled = [one._replace(rows=_settled(one.rows)) for one in self._topics]
        for appended in _rows_of(settled):
            if appended.wait is not None:  # the others were noted at their append
                _note(self._call, appended)
        return _encode(self._call, settled)

    def close(self) -> None:
        """Stop watching."""
        for wait in self._waits():
            wait.close()


def _settled(rows: list[_Appended]) -> list[_Appended]:
    """Replace the rows of records that were not acknowledged."""
    return [
        one._replace(row=_failed(one.row.index, one.wait.error.code, str(one.wait.error)).row)
        if one.wait is not None and one.wait.error is not None
        else one
        for one in rows
    ]
