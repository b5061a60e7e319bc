"""Answer InitProducerId (22): give an id to an idempotent or a transactional producer.

The coordinator of a transactional id decides about its producer. If a producer has no transactional
id, it always gets a new id with epoch 0, even if it names its present id (KIP-360). So the old
batches of a producer cannot be confused with its new batches.
"""

from __future__ import annotations

from typing import Any

from broker.machines.exchange import Answer, Pending
from broker.requests.services import Call
from broker.requests.transactions.replies import waiting
from broker.transactions.steps import Asker
from broker.transactions.transaction import Transaction
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import InitProducerIdResponse
from logstore import LogStoreError

NO_PRODUCER = -1


FENCED_FROM = 4  # the first version that knows the error PRODUCER_FENCED


def answer(call: Call) -> Answer | Pending:
    """Return a new id, or an error."""
    asked = call.request.message()
    if (asked.producer_id == NO_PRODUCER) != (asked.producer_epoch == NO_PRODUCER):
        return call.answer(_failed(ErrorCode.INVALID_REQUEST))
    if asked.transactional_id is not None:
        return _answer_transactional(call, asked)
    try:
        producer_id = call.services.producer_ids.take()
    except LogStoreError:
        return call.answer(_failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    return call.answer(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))


def _answer_transactional(call: Call, asked: Any) -> Pending:
    name, asker = asked.transactional_id, Asker(asked.producer_id, asked.producer_epoch)
    coordinator, timeout_ms = call.services.transactions.coordinator, asked.transaction_timeout_ms

    def encode(code: ErrorCode, found: Transaction | None) -> Answer:
        if code or found is None:
            return call.answer(_failed(code))
        return call.answer(
            InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.epoch)
        )

    return waiting(
        call, name, lambda reply: coordinator.init_producer(name, asker, timeout_ms, reply),
        encode, FENCED_FROM,
    )  # fmt: skip


def _failed(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER, producer_epoch=NO_PRODUCER
    )
