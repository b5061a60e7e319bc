"""Keep partition logs on several disks: append, read, flush, recover.

    from logstore import LogStore

    with LogStore.open(["/disk1/logs", "/disk2/logs"]) as store:
        log = store.create("orders", 0)
        offset = log.append(b"a value", key=b"a key")
        log.flush()
        print(log[offset])

Only NumPy and xxhash are imported here; everything else waits until it is used.
"""

from __future__ import annotations

from logstore.config import LogConfig, StoreConfig
from logstore.errors import (
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptionError,
    CorruptRecordBatchError,
    DuplicateLogError,
    LogClosedError,
    LogDirError,
    LogDirFullError,
    LogDirIdentityError,
    LogDirLockedError,
    LogDirOfflineError,
    LogDirSuspectError,
    LogStoreError,
    OffsetOutOfRangeError,
    PartitionExistsError,
    ReadOnlyStoreError,
    RecordTooLargeError,
    ReplicaError,
    ReplicaIncompleteError,
    ReplicaOfflineError,
    UnknownPartitionError,
    UnsupportedFormatError,
)
from logstore.format.batch import Record, RecordBatch
from logstore.log.log import Log
from logstore.names import TopicPartition
from logstore.store.store import LogStore

__version__ = "0.1.0"

__all__ = [
    "CorruptCheckpointError",
    "CorruptIndexError",
    "CorruptRecordBatchError",
    "CorruptionError",
    "DuplicateLogError",
    "Log",
    "LogClosedError",
    "LogConfig",
    "LogDirError",
    "LogDirFullError",
    "LogDirIdentityError",
    "LogDirLockedError",
    "LogDirOfflineError",
    "LogDirSuspectError",
    "LogStore",
    "LogStoreError",
    "OffsetOutOfRangeError",
    "PartitionExistsError",
    "ReadOnlyStoreError",
    "Record",
    "RecordBatch",
    "RecordTooLargeError",
    "ReplicaError",
    "ReplicaIncompleteError",
    "ReplicaOfflineError",
    "StoreConfig",
    "TopicPartition",
    "UnknownPartitionError",
    "UnsupportedFormatError",
]
