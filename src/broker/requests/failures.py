"""Translate the errors of the store into error codes for clients.

After some codes, a client tries again; after other codes, it gives up (`broker.wire.error_codes`).
So the code of each error must make the client do the right thing. If a disk is offline, slow or
full, the code is KAFKA_STORAGE_ERROR (56): the client fetches metadata and tries again.
"""

from __future__ import annotations

import logging

from broker.catalog.leadership import NotServedError
from broker.catalog.topic_store import TopicLimitError
from broker.machines.decompression import DecompressionError
from broker.wire.error_codes import ErrorCode
from logstore import (
    CorruptRecordBatchError,
    FencedLeaderEpochError,
    InvalidTimestampError,
    InvalidTransactionStateError,
    LogClosedError,
    LogDirError,
    LogStoreError,
    MissingKeyError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionExistsError,
    ProducerFencedError,
    RecordExpansionError,
    RecordTooLargeError,
    ReplicaError,
    UnknownPartitionError,
    UnsupportedFormatError,
)

LOG = logging.getLogger("broker")
# The first row whose class matches the error gives the code.
CODES: tuple[tuple[type[Exception], ErrorCode], ...] = (
    (UnknownPartitionError, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (OffsetOutOfRangeError, ErrorCode.OFFSET_OUT_OF_RANGE),
    (RecordTooLargeError, ErrorCode.MESSAGE_TOO_LARGE),
    (RecordExpansionError, ErrorCode.MESSAGE_TOO_LARGE),
    (InvalidTimestampError, ErrorCode.INVALID_TIMESTAMP),
    (MissingKeyError, ErrorCode.INVALID_RECORD),
    (OutOfOrderSequenceError, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (ProducerFencedError, ErrorCode.INVALID_PRODUCER_EPOCH),
    (InvalidTransactionStateError, ErrorCode.INVALID_TXN_STATE),
    (FencedLeaderEpochError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (PartitionExistsError, ErrorCode.TOPIC_ALREADY_EXISTS),
    (UnsupportedFormatError, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    (CorruptRecordBatchError, ErrorCode.CORRUPT_MESSAGE),
    (LogClosedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (TopicLimitError, ErrorCode.POLICY_VIOLATION),
    (LogDirError, ErrorCode.KAFKA_STORAGE_ERROR),
    (ReplicaError, ErrorCode.KAFKA_STORAGE_ERROR),
    (LogStoreError, ErrorCode.KAFKA_STORAGE_ERROR),
)


def code_of(error: Exception) -> ErrorCode:
    """Return the code for an error. If the error is unexpected, log it and return -1."""
    if isinstance(error, NotServedError | DecompressionError):
        return error.code
    for kind, code in CODES:
        if isinstance(error, kind):
            return code
    LOG.error("a request met an unexpected error", exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR
