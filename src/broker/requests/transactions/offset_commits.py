"""Answer TxnOffsetCommit (28): commit offsets of a group as a part of a transaction."""

from __future__ import annotations

from typing import Any

from broker.coordinator.errors import CoordinatorError
from broker.coordinator.group_logs import Producer
from broker.coordinator.offsets_topic import NAME as OFFSETS
from broker.coordinator.waiter import Waiter
from broker.groups.offsets import Committed, Key
from broker.machines.exchange import Answer, Pending
from broker.requests.group_offsets import fault_of_offset
from broker.requests.services import Call
from broker.requests.transactions.verification import OPEN, fault_for_client
from broker.transactions.steps import Asker
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import TxnOffsetCommitResponse
from logstore import LogStoreError

ABORTABLE_FROM = 4  # the first version that knows the error TRANSACTION_ABORTABLE
# The errors of coordinators that clients of this API do not expect.
TRANSLATED = {
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
ADDING_FROM = 5  # the first version that adds the group to the transaction


def answer(call: Call) -> Answer | Pending:
    """Write the offsets. The offsets become valid when the transaction is committed."""
    services, asked = call.services, call.request.message()
    now_ms = services.groups.now().wall_ms
    codes: dict[Key, ErrorCode] = {}
    wanted: dict[Key, Committed] = {}
    for topic in asked.topics:
        for one in topic.partitions:
            key = (topic.name, one.partition_index)
            metadata = one.committed_metadata or ""
            codes[key] = fault_of_offset(services, key, metadata)
            if not codes[key]:
                wanted[key] = Committed(
                    one.committed_offset, one.committed_leader_epoch, metadata, now_ms,
                    topic_id=services.topics.id_of(*key),
                )  # fmt: skip

    def encode(code: ErrorCode) -> Answer:
        Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic  # noqa: N806 - a class
        Row = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition  # noqa: N806 - a class
        topics = [
            Topic(
                topic.name,
                [
                    Row(one.partition_index, code or codes[topic.name, one.partition_index])
                    for one in topic.partitions
                ],
            )
            for topic in asked.topics
        ]
        return call.answer(TxnOffsetCommitResponse(topics=topics))

    deadline = services.clock() + services.groups.commit_seconds
    waiter = Waiter(deadline, encode, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not asked.group_id:
        return encode(ErrorCode.INVALID_GROUP_ID)
    try:
        code = _commit(call, asked, wanted, waiter)
    except CoordinatorError as error:
        code = TRANSLATED.get(error.code, error.code)
    except LogStoreError:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return waiter if code is None else encode(code)


def _commit(
    call: Call, asked: Any, wanted: dict[Key, Committed], waiter: Waiter
) -> ErrorCode | None:
    """Check that the transaction has the group, or add the group; then write the offsets.

    Returns:
        The code; None if `waiter` gets the code later.

    Raises:
        CoordinatorError, LogStoreError: the offsets were not written.
    """
    transactions, version = call.services.transactions, call.request.version
    asker = Asker(asked.producer_id, asked.producer_epoch)
    if asker.producer_id < 0 or asker.epoch < 0:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_adding = version >= ADDING_FROM
    number, token = transactions.offsets.token(asked.group_id, *asker)
    if token != OPEN:
        place = OFFSETS, number
        fault = transactions.verifier.faults_of_batches(
            asked.transactional_id, asker, [place], is_adding=is_adding
        )[place]
        if fault:
            return _fault(fault, version, is_adding=is_adding)
    member = asked.member_id, asked.group_instance_id, asked.generation_id
    code = transactions.offsets.commit(
        asked.group_id, member, Producer(*asker, token), wanted, waiter
    )
    return code and _fault(code, version)


def _fault(code: ErrorCode, version: int, *, is_adding: bool = False) -> ErrorCode:
    found = fault_for_client(code, knows_abortable=version >= ABORTABLE_FROM, is_adding=is_adding)
    # The client asks the coordinator of the group again.
    is_later = found is ErrorCode.NOT_ENOUGH_REPLICAS
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_later else found
