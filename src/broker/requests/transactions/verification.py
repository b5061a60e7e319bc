"""Ask the coordinator whether the batches of a request belong to a transaction (KIP-890).

If the log already has the transaction, the coordinator is not asked. If the log does not have the
transaction, it gives a token before the coordinator is asked, and then accepts the batch only with
this token. A marker makes the token invalid. So a late batch cannot begin a transaction that is
never ended.

With the older protocol, the client has already added the partition, and the coordinator only checks
this fact. With the newer protocol, the coordinator adds the partition now. With either protocol,
the coordinator has the partition before the batch is in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.coordinator.errors import CoordinatorError
from broker.transaction_coordinator.verification import Verifier
from broker.transactions.steps import Asker
from broker.transactions.transaction import Place
from broker.wire.error_codes import ErrorCode

OPEN = 0  # the token if the log already has the transaction
# After an error of this set, the client sends the batch again.
LATER = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.OPERATION_NOT_ATTEMPTED,  # the coordinator does not know some other partition yet
}  # fmt: skip
WHY = "the batch is not part of an ongoing transaction of its producer"


class Verified(NamedTuple):
    """The result for a batch: a `token` with which it is appended, or a `fault`."""

    token: int | None
    fault: ErrorCode = ErrorCode.NONE


def verified(
    verifier: Verifier,
    name: str,
    batches: Mapping[Place, tuple[int, Asker]],
    *,
    knows_abortable: bool,
    is_adding: bool = False,
) -> dict[Place, Verified]:
    """Verify batches of one request.

    Args:
        name: the transactional id.
        batches: for each partition, the token of its log, and the producer of the batch.
        knows_abortable: whether the client knows the error TRANSACTION_ABORTABLE.
        is_adding: whether the coordinator adds the partitions to the transaction.
    """
    tokens = {place: token for place, (token, _) in batches.items()}
    found = {place: Verified(OPEN) for place, token in tokens.items() if token == OPEN}
    unknown: dict[Asker, list[Place]] = {}
    for place in tokens.keys() - found.keys():
        unknown.setdefault(batches[place][1], []).append(place)
    for asker, places in unknown.items():
        try:
            codes = verifier.faults_of_batches(name, asker, places, is_adding=is_adding)
        except CoordinatorError as error:
            codes = dict.fromkeys(places, error.code)
        for place, code in codes.items():
            fault = fault_for_client(code, knows_abortable=knows_abortable, is_adding=is_adding)
            found[place] = Verified(tokens[place], fault)
    return found


def fault_for_client(
    code: ErrorCode, *, knows_abortable: bool, is_adding: bool = False
) -> ErrorCode:
    """Translate an error of the coordinator for the client of a partition.

    If the coordinator adds the partitions now (`is_adding`), the markers of the client's previous
    transaction are often not written yet. While markers are missing, the error is
    CONCURRENT_TRANSACTIONS, which clients of this protocol know.
    """
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and is_adding:
        return code
    if code in LATER:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE):
        return ErrorCode.TRANSACTION_ABORTABLE if knows_abortable else ErrorCode.INVALID_TXN_STATE
    return code
