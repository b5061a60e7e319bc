"""Answer Produce (0): append the batches of each partition, as the client encoded them.

The log checks every batch. This module checks only the header fields that a client must not set. If
one partition has an error, the other partitions are still appended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from broker.catalog.client_appends import ALL_ACKS, LEADER_ACKS, NO_ACKS, Wait
from broker.catalog.leadership import NotServedError
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
from broker.wire.client_batches import (
    HEADER,
    TRANSACTIONAL,
    code_of_bytes,
    fault_of_batch,
)
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import ProduceResponse
from broker.wire.produce import decode_produce, encode_produced
from logstore import LogStoreError, MissingKeyError

BY_ID = 13  # the first version that names topics by their ids
ABORTABLE_FROM = 11  # the first version that knows the error TRANSACTION_ABORTABLE
ADDING_FROM = 12  # the first version that adds partitions to the transaction
PLAIN = Verified(None)  # the batch belongs to no transaction
UNVERIFIED = Verified(OPEN)  # the batch may continue a transaction, but not begin one

Result = ProduceResponse.PartitionProduceResponse
RecordError = ProduceResponse.BatchIndexAndErrorMessage
Leader = ProduceResponse.LeaderIdAndEpoch


class _Appended(NamedTuple):
    """The result of one append: the row of the answer, and a wait for other replicas.

    For a batch of an idempotent producer, `sent` identifies the batch and its partition.
    """

    row: Any
    wait: Wait | None = None
    sent: tuple[Partition, Sent] | None = None


class _Topic(NamedTuple):
    """The results of one topic, with its name, and its name or id in the request.

    This object does not refer to the records, because a waiting request must not keep them.
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
        unknown = UNKNOWN_ID if services.topics.is_known else NOT_KNOWN_YET
        name = services.topics.name_of(topic.topic_id) if version >= BY_ID else topic.name
        code = code_for_write(call.rights, asked.transactional_id, name)
        tokens = {} if code else _verified(call, name, topic, asked)
        rows = [
            _failed(one.index, code, MESSAGE)
            if code
            else _append(call, name, topic, one, asked, tokens, unknown)
            for one in topic.partition_data
        ]
        topics.append(_Topic(topic.name, topic.topic_id, name, rows))
    if services.quotas.is_active:
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
    """Return the size of all records of a request, including refused records."""
    return sum(
        len(one.records or b"") for topic in asked.topic_data for one in topic.partition_data
    )


def _verified(call: Call, name: str | None, topic: Any, asked: Any) -> Mapping[Place, Verified]:
    """Ask the coordinator about the batches of a topic that belong to a transaction.

    From version 12 on, the coordinator adds the partitions to the transaction. The version of the
    request decides, not the level of `transaction.version`, because a client learns this level only
    when it connects. The coordinator is not asked about internal topics: the append refuses their
    batches, so these topics must not get a marker either.
    """
    if asked.transactional_id is None or name is None or name in INTERNAL_TOPICS:
        return {}
    version, batches = call.request.version, {}
    for index, records in topic.partition_data:
        fault = fault_of_batch(records, version, is_transactional=True)
        if fault is None and HEADER.unpack_from(records)[4] & TRANSACTIONAL:
            *_, producer_id, epoch, sequence, _ = HEADER.unpack_from(records)
            with suppress(LogStoreError):  # the append reports this error
                log = call.services.leadership.log(name, index)
                token = log.transaction_token(producer_id, epoch, sequence)
                batches[name, index] = token, Asker(producer_id, epoch)
    return verified(
        call.services.transactions.verifier,
        asked.transactional_id,
        batches,
        knows_abortable=version >= ABORTABLE_FROM,
        is_adding=version >= ADDING_FROM,
    )


def _append(
    call: Call,
    name: str | None,
    topic: Any,
    data: Any,
    asked: Any,
    tokens: Mapping[Place, Verified],
    unknown: tuple[ErrorCode, str],
) -> _Appended:
    """Append the batch of one partition, unless a refused batch has to come first.

    Args:
        unknown: the error if no topic with the id in the request is known here.
    """
    services, (index, records) = call.services, data
    fault = _fault_of_request(name, asked.acks) or fault_of_batch(
        records, call.request.version, is_transactional=asked.transactional_id is not None
    )
    if fault is not None:
        return _failed(index, *fault)
    *_, attributes, _, producer_id, epoch, sequence, count = HEADER.unpack_from(records)
    if producer_id < 0 or sequence < 0:
        if name is None:
            return _failed(index, *unknown)
        return _append_next(services, name, index, records, asked.acks)
    default = UNVERIFIED if attributes & TRANSACTIONAL else PLAIN
    permit = tokens.get((name or "", index), default)
    refused, sent = call.client.refused, Sent(producer_id, epoch, sequence)
    partition = topic.topic_id if call.request.version >= BY_ID else topic.name, index
    if refused:
        now = services.running_time.at(services.clock())
        code = refused.code_for(partition, sent, now, count)
        if code is not None and _is_replicated(call, name, index, partition, producer_id):
            code = refused.code_for(partition, sent, now, count)
        if code is not None:
            return _failed(index, ErrorCode(code), OVERTAKES)
    if permit.fault:
        appended = _failed(index, permit.fault, WHY)
    elif name is None:
        appended = _failed(index, *unknown)
    else:
        appended = _append_next(services, name, index, records, asked.acks, permit.token)
    appended = appended._replace(sent=(partition, sent))
    _note(call, appended)
    return appended


def _is_replicated(
    call: Call, name: str | None, index: int, partition: Partition, producer_id: int
) -> bool:
    """Check whether this log has a refused batch, replicated: another leader may have written it.

    If the log has the refused batch, the batch that follows in the log must come first. The
    following batch may have been refused, too.
    """
    refused, services = call.client.refused, call.services
    now = services.running_time.at(services.clock())
    earlier = refused.to_look_for(partition, producer_id, now)
    if earlier is None or name is None:
        return False
    try:
        log = services.leadership.log(name, index)
        states = [one for one in log.producer_states() if one[:2] == earlier[:2]]
        high_watermark = log.high_watermark
    except LogStoreError:
        return False
    for one in states:
        for batch in one.batches:  # the newest batch is first
            last = earlier._replace(sequence=batch.last_sequence)
            if batch.last_offset < high_watermark and not earlier.is_after(last):
                refused.advance(partition, last.after(1))
                return True
    return False


def _note(call: Call, appended: _Appended) -> None:
    """Store a batch that its producer will send again, so that no later batch overtakes it.

    Raises:
        CloseConnectionError: too many batches are stored. After the client connects again, it sends
            all unacknowledged batches again.
    """
    code = appended.row.error_code
    if appended.sent is None or (code not in SENT_AGAIN and code not in OF_ONE_BATCH):
        return
    kept_seconds = KEPT_SECONDS
    if code in OF_ONE_BATCH:
        code, kept_seconds = ErrorCode.NOT_ENOUGH_REPLICAS, TIMED_OUT_KEPT_SECONDS
    now = call.services.running_time.at(call.services.clock())
    if not call.client.refused.note(*appended.sent, code, now, kept_seconds):
        raise CloseConnectionError(
            f"more than {COUNT_MAX} partitions have refused batches of idempotent producers"
        )


def _append_next(
    services: Services,
    name: str,
    index: int,
    records: Any,
    acks: int,
    token: int | None = None,
) -> _Appended:
    """Append a batch; the caller has checked that it overtakes no other batch."""
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
    """Check the topic and the acks of a request; return the error, or None."""
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
    return _failed(index, code_of_bytes(records), str(error))


UNKNOWN_ID = (ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this topic id")
NOT_KNOWN_YET = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not know the topics of its cluster yet",
)  # fmt: skip
OVERTAKES = "an earlier batch of this producer was not acknowledged; send it first"
# After an error of this set, clients send a batch again.
SENT_AGAIN = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}  # fmt: skip
# After these errors, too.
# But for a later batch, such an error would mean that the log may have the batch. They could also
# mean that the bytes of the later batch are wrong.
OF_ONE_BATCH = {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.CORRUPT_MESSAGE}


def _failed(index: int, code: ErrorCode, message: str, rows: Any = ()) -> _Appended:
    return _Appended(Result(index, code, -1, record_errors=rows, error_message=message))


def _rows_of(topics: list[_Topic]) -> list[_Appended]:
    return [row for topic in topics for row in topic.rows]


def _check_all_written(topics: list[_Topic]) -> None:
    """If an append failed, raise CloseConnectionError, because acks=0 has no answer."""
    for appended in _rows_of(topics):
        if appended.row.error_code:
            code = ErrorCode(appended.row.error_code)
            raise CloseConnectionError(
                f"a Produce request with acks=0 failed: {code.name}, {appended.row.error_message}"
            )


def _encode(call: Call, topics: list[_Topic]) -> Answer:
    """Encode the answer. If other brokers lead partitions, name the leaders (KIP-951)."""
    leadership = call.services.leadership
    leaders: set[int] = set()
    responses = []
    for asked_name, asked_id, name, appended in topics:
        rows = [one.row for one in appended]
        for place, row in enumerate(rows):
            if row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and name is not None:
                leader = leadership.leader_of(name, row.index)
                leaders.add(leader.id)
                rows[place] = row._replace(current_leader=Leader(*leader))
        responses.append(ProduceResponse.TopicProduceResponse(asked_name, asked_id, rows))
    nodes = [
        ProduceResponse.NodeEndpoint(*node)
        for node in (leadership.nodes(call.client.endpoint) if leaders else ())
        if node.id in leaders
    ]
    return call.answer(ProduceResponse(responses, node_endpoints=nodes), encode_produced)


class _WaitingProduce(Pending):
    """A Produce request with acks=all: it waits until all in-sync replicas have its records."""

    def __init__(self, call: Call, topics: list[_Topic], deadline: float) -> None:
        super().__init__(deadline)
        self._call = call
        self._topics = topics

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` when the records of a partition are acknowledged or refused."""
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
            if appended.wait is not None:  # batches without a wait are already noted
                _note(self._call, appended)
        return _encode(self._call, settled)

    def close(self) -> None:
        """Stop watching."""
        for wait in self._waits():
            wait.close()


def _settled(rows: list[_Appended]) -> list[_Appended]:
    """Replace the rows of unacknowledged records by rows with errors."""
    return [
        one._replace(row=_failed(one.row.index, one.wait.error.code, str(one.wait.error)).row)
        if one.wait is not None and one.wait.error is not None
        else one
        for one in rows
    ]
