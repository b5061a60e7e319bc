"""Let a request wait for the coordinator of its transactional id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.coordinator.errors import CoordinatorError
from broker.coordinator.waiter import Waiter
from broker.machines.exchange import Answer
from broker.requests.services import Call
from broker.transaction_coordinator.hosted_transaction import Reply
from broker.transactions.transaction import Transaction
from broker.wire.error_codes import ErrorCode

Said = tuple[ErrorCode, Transaction | None]
LATE: Said = (ErrorCode.COORDINATOR_NOT_AVAILABLE, None)


def waiting(
    call: Call,
    name: str,
    ask: Callable[[Reply], object],
    encode: Callable[[ErrorCode, Transaction | None], Answer],
    fenced_from: int,
) -> Waiter:
    """Ask the coordinator, and make the request that waits for its answer.

    Args:
        name: the transactional id.
        ask: asks the coordinator, which replies at once or later.
        fenced_from: the first version of the API that knows the error PRODUCER_FENCED.
    """
    is_old = call.request.version < fenced_from

    def encoded(said: Said) -> Answer:
        code, transaction = said
        if code is ErrorCode.PRODUCER_FENCED and is_old:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return encode(code, transaction)

    coordinator = call.services.transactions.coordinator
    waiter = Waiter(call.services.clock() + coordinator.commit_seconds, encoded, LATE)
    put: Callable[[Any], None] = waiter.put
    if not name:
        put((ErrorCode.INVALID_REQUEST, None))
        return waiter
    try:
        ask(lambda code, transaction: put((code, transaction)))
    except CoordinatorError as error:
        put((error.code, None))
    return waiter
