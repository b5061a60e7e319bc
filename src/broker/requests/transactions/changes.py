"""Answer AddPartitionsToTxn (24), AddOffsetsToTxn (25) and EndTxn (26)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from broker.catalog.topics import INTERNAL_TOPICS
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.offsets_topic import NAME as OFFSETS
from broker.coordinator.waiter import Asked, Gathering
from broker.machines.exchange import Answer, Pending
from broker.requests.security import peers
from broker.requests.services import Call, Services
from broker.requests.transactions.replies import waiting
from broker.transaction_coordinator.hosted_transaction import Reply
from broker.transactions import steps
from broker.transactions.steps import Asker
from broker.transactions.transaction import Place, Transaction
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
)

RAISING_FROM = 5  # the first version of EndTxn that raises the epoch
BATCHED = 4  # the first version of AddPartitionsToTxn with several transactional ids
ABORTABLE_FROM = 5  # the first version of AddPartitionsToTxn that knows TRANSACTION_ABORTABLE
FENCED_FROM = 2  # the first version of each of the three APIs that knows PRODUCER_FENCED

Row = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
Topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
Codes = Mapping[Place, ErrorCode]


def places_of(topics: Iterable[Any]) -> list[Place]:
    """List the partitions that a request names, in its order."""
    return [(topic.name, number) for topic in topics for number in topic.partitions]


def faults_of(
    services: Services, places: Iterable[Place], *, has_offsets: bool = False
) -> dict[Place, ErrorCode]:
    """Return the errors of partitions that no transaction can have.

    Args:
        has_offsets: whether the partitions of `__consumer_offsets` are allowed.
    """
    faults = {}
    for name, number in places:
        is_known = services.topics.is_known
        topic = services.topics.get(name)
        if name in INTERNAL_TOPICS and not (has_offsets and name == OFFSETS):
            faults[name, number] = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif topic is None or number not in topic.partitions:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            faults[name, number] = unknown if is_known else ErrorCode.COORDINATOR_NOT_AVAILABLE
    return faults


def _rows(topics: Iterable[Any], codes: Codes) -> list[Any]:
    return [
        Topic(topic.name, [Row(number, codes[topic.name, number]) for number in topic.partitions])
        for topic in topics
    ]


def _refused(places: Iterable[Place], faults: Codes) -> Codes:
    """Return the codes of a request that adds nothing because some partitions are refused."""
    return {place: faults.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED) for place in places}


def answer_add(call: Call) -> Answer | Pending:
    """Add partitions to a transaction, or check that the transaction has them."""
    if call.request.version >= BATCHED:
        if not call.services.peers.accepts(call.client.principal):
            return peers.refused(call.request)
        return _answer_batched(call)
    asked = call.request.message()
    topics, places = asked.v3_and_below_topics, places_of(asked.v3_and_below_topics)
    asker = Asker(asked.v3_and_below_producer_id, asked.v3_and_below_producer_epoch)
    name = asked.v3_and_below_transactional_id

    def answer(codes: Codes) -> Answer:
        rows = _rows(topics, codes)
        return call.answer(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows))

    faults = faults_of(call.services, places)
    if faults:
        return answer(_refused(places, faults))
    coordinator = call.services.transactions.coordinator
    return waiting(
        call, name,
        lambda reply: coordinator.add_partitions(name, asker, frozenset(places), reply),
        lambda code, _: answer(dict.fromkeys(places, code)),
        FENCED_FROM,
    )  # fmt: skip


def _answer_batched(call: Call) -> Answer | Pending:
    """Answer a request about several transactional ids. Only brokers send such requests."""
    asked = call.request.message()
    results: dict[int, Codes | Asked] = {
        number: _add_one(call, one) for number, one in enumerate(asked.transactions)
    }

    def encode(codes: Mapping[Any, Any]) -> Answer:
        rows = []
        for number, one in enumerate(asked.transactions):
            found = codes[number]
            if isinstance(found, ErrorCode):
                found = dict.fromkeys(places_of(one.topics), found)
            rows.append(Result(one.transactional_id, _rows(one.topics, found)))
        return call.answer(AddPartitionsToTxnResponse(results_by_transaction=rows))

    deadline = call.services.clock() + call.services.transactions.coordinator.commit_seconds
    return Gathering(deadline, results, encode, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _add_one(call: Call, one: Any) -> Codes | Asked:
    """Add the partitions of one transactional id. The result may come later."""
    services, places = call.services, places_of(one.topics)
    coordinator = services.transactions.coordinator
    name, asker = one.transactional_id, Asker(one.producer_id, one.producer_epoch)
    result = Asked()
    try:
        if one.verify_only:
            codes = coordinator.faults_of_batches(name, asker, places)
            if call.request.version < ABORTABLE_FROM:
                codes = {place: _older(code) for place, code in codes.items()}
            return codes
        faults = faults_of(services, places, has_offsets=True)
        if faults:
            return _refused(places, faults)
        coordinator.add_for_client(name, asker, frozenset(places), lambda code, _: result.put(code))
    except CoordinatorError as error:
        return dict.fromkeys(places, error.code)
    return result


def _older(code: ErrorCode) -> ErrorCode:
    is_new = code is ErrorCode.TRANSACTION_ABORTABLE
    return ErrorCode.INVALID_TXN_STATE if is_new else code


def answer_add_offsets(call: Call) -> Answer | Pending:
    """Add the partition that stores a group's offsets to a transaction."""
    services, asked = call.services, call.request.message()

    def encode(code: ErrorCode, _: object = None) -> Answer:
        return call.answer(AddOffsetsToTxnResponse(error_code=code))

    if not asked.group_id:
        return encode(ErrorCode.INVALID_GROUP_ID)
    name, asker = asked.transactional_id, Asker(asked.producer_id, asked.producer_epoch)

    def ask(reply: Reply) -> None:
        place = OFFSETS, services.groups.partition_of(asked.group_id)
        services.transactions.coordinator.add_partitions(name, asker, frozenset({place}), reply)

    return waiting(call, name, ask, encode, FENCED_FROM)


def answer_end(call: Call) -> Answer | Pending:
    """Commit or abort a transaction; the markers are written after the answer.

    The newer protocol gives the client the epoch for its next transaction.
    """
    asked, is_raising = call.request.message(), call.request.version >= RAISING_FROM
    name, asker = asked.transactional_id, Asker(asked.producer_id, asked.producer_epoch)
    coordinator = call.services.transactions.coordinator
    end = coordinator.end_raising if is_raising else coordinator.end

    def encode(code: ErrorCode, found: Transaction | None) -> Answer:
        if code or found is None or not is_raising:
            return call.answer(EndTxnResponse(error_code=code))
        producer_id, epoch = steps.given(found)
        return call.answer(EndTxnResponse(producer_id=producer_id, producer_epoch=epoch))

    return waiting(
        call, name, lambda reply: end(name, asker, reply, is_commit=asked.committed),
        encode, FENCED_FROM,
    )  # fmt: skip
