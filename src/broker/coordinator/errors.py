"""Define the error with which a coordinator refuses a request; list the errors of appends."""

from __future__ import annotations

from broker.catalog.leadership import NotServedError
from broker.wire.error_codes import ErrorCode
from logstore import (
    InvalidTimestampError,
    InvalidTransactionStateError,
    LogStoreError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RecordExpansionError,
    RecordTooLargeError,
)

# With these errors, a log refuses a batch of a producer and writes nothing.
OF_PRODUCER = (ProducerFencedError, OutOfOrderSequenceError, InvalidTransactionStateError)


class CoordinatorError(Exception):
    """Report a refused request. `code` is the error code for the client."""

    def __init__(self, code: ErrorCode, reason: str = "") -> None:
        super().__init__(reason or code.name)
        self.code = code


class WriteRefusedError(CoordinatorError):
    """Report that the log refused records, and that the log has not changed."""


def write_refusal(error: BaseException, too_large: ErrorCode) -> WriteRefusedError | None:
    """Return the refusal if an append has certainly changed nothing; otherwise None.

    This is so if the disk is full or slow, the process lacks memory or descriptors, too few
    replicas are in sync, or the log does not accept such records.

    Args:
        too_large: the code for records that are too large.
    """
    if isinstance(error, RecordTooLargeError | RecordExpansionError):
        return WriteRefusedError(too_large, str(error))
    if isinstance(error, NotServedError):
        is_refused = error.code is ErrorCode.NOT_ENOUGH_REPLICAS
    else:
        is_refused = isinstance(error, InvalidTimestampError) or (
            isinstance(error, LogStoreError) and error.retriable
        )
    return (
        WriteRefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) if is_refused else None
    )
