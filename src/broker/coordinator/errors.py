"""Define the error with which a coordinator refuses a request; list the errors of appends."""

from __future__ import annotations

from broker.catalog.leadership import NotServedError
from broker.wire.error_codes import ErrorCode
from logstore import (
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    ProducerFencedError,
)

# With these errors, a log refuses a batch of a producer and writes nothing.
OF_PRODUCER = (ProducerFencedError, OutOfOrderSequenceError, InvalidTransactionStateError)


class CoordinatorError(Exception):
    """Report a refused request. `code` is the error code for the client."""

    def __init__(self, code: ErrorCode, reason: str = "") -> None:
        super().__init__(reason or code.name)
        self.code = code


def is_refused(error: BaseException) -> bool:
    """Report whether nothing was written, because too few replicas are in sync."""
    return isinstance(error, NotServedError) and error.code is ErrorCode.NOT_ENOUGH_REPLICAS
