"""Answer InitProducerId (22): give an id to an idempotent producer.

Without a transactional id, a producer always gets a new id with epoch 0, even if it names its
present id (KIP-360). So old batches cannot be confused with batches of the new id.
"""

from __future__ import annotations

from broker.machines.exchange import Answer
from broker.requests.services import Call
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import InitProducerIdResponse
from logstore import LogStoreError

NO_PRODUCER = -1


def answer(call: Call) -> Answer:
    """Return a new id, or an error."""
    asked = call.request.message()
    # After this code, the client of a transactional producer does not search for a coordinator.
    if asked.transactional_id is not None:
        return call.answer(_failed(ErrorCode.INVALID_REQUEST))
    if (asked.producer_id == NO_PRODUCER) != (asked.producer_epoch == NO_PRODUCER):
        return call.answer(_failed(ErrorCode.INVALID_REQUEST))
    try:
        producer_id = call.services.producer_ids.take()
    except LogStoreError:
        return call.answer(_failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    return call.answer(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))


def _failed(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER, producer_epoch=NO_PRODUCER
    )
