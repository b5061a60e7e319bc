"""Keep partition logs on several disks: append, read, flush, recover.

    from logstore import LogStore

    with LogStore.open(["/disk1/logs", "/disk2/logs"]) as store:
        log = store.create("orders", 0, exist_ok=True)
        offset = log.append(b"a value", key=b"a key")
        log.flush()
        print(log[offset])

Importing this package takes a few milliseconds. The engine and NumPy are loaded when `LogStore`,
`Log`, `Record` or `RecordBatch` is first used. The library of an extra is loaded when the extra is
first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.config import LogConfig, StoreConfig
from logstore.errors import (
    CoordinatorFencedError,
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptionError,
    CorruptRecordBatchError,
    DuplicateLogError,
    FencedLeaderEpochError,
    InvalidTimestampError,
    InvalidTransactionStateError,
    LogClosedError,
    LogDirError,
    LogDirFullError,
    LogDirIdentityError,
    LogDirLockedError,
    LogDirOfflineError,
    LogDirSuspectError,
    LogStoreError,
    MissingKeyError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionExistsError,
    ProducerFencedError,
    ReadOnlyStoreError,
    RecordExpansionError,
    RecordTooLargeError,
    ReplicaError,
    ReplicaIncompleteError,
    ReplicaOfflineError,
    UnknownPartitionError,
    UnsupportedFormatError,
)
from logstore.names import TopicPartition

if TYPE_CHECKING:
    from logstore.disk.documents.facts import Facts
    from logstore.format.batch import Record, RecordBatch
    from logstore.log.encoded.idempotent_producer import IdempotentProducer
    from logstore.log.environment import Clock
    from logstore.log.log import Log
    from logstore.log.producers.producer_state import ProducerState
    from logstore.log.read.file_range import FileRange
    from logstore.log.subscription import LogEvent, Subscription
    from logstore.log.write.outcome import AppendInfo
    from logstore.store.store import LogStore
    from logstore.store.upkeep.events import StoreEvent, StoreEventKind

__version__ = "0.1.0"

__all__ = [
    "AppendInfo",
    "Clock",
    "CoordinatorFencedError",
    "CorruptCheckpointError",
    "CorruptIndexError",
    "CorruptRecordBatchError",
    "CorruptionError",
    "DuplicateLogError",
    "Facts",
    "FencedLeaderEpochError",
    "FileRange",
    "IdempotentProducer",
    "InvalidTimestampError",
    "InvalidTransactionStateError",
    "Log",
    "LogClosedError",
    "LogConfig",
    "LogDirError",
    "LogDirFullError",
    "LogDirIdentityError",
    "LogDirLockedError",
    "LogDirOfflineError",
    "LogDirSuspectError",
    "LogEvent",
    "LogStore",
    "LogStoreError",
    "MissingKeyError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "PartitionExistsError",
    "ProducerFencedError",
    "ProducerState",
    "ReadOnlyStoreError",
    "Record",
    "RecordBatch",
    "RecordExpansionError",
    "RecordTooLargeError",
    "ReplicaError",
    "ReplicaIncompleteError",
    "ReplicaOfflineError",
    "StoreConfig",
    "StoreEvent",
    "StoreEventKind",
    "Subscription",
    "TopicPartition",
    "UnknownPartitionError",
    "UnsupportedFormatError",
]

_ROOMS = {
    "AppendInfo": "logstore.log.write.outcome",
    "Clock": "logstore.log.environment",
    "Facts": "logstore.disk.documents.facts",
    "FileRange": "logstore.log.read.file_range",
    "IdempotentProducer": "logstore.log.encoded.idempotent_producer",
    "Log": "logstore.log.log",
    "LogEvent": "logstore.log.subscription",
    "LogStore": "logstore.store.store",
    "ProducerState": "logstore.log.producers.producer_state",
    "Record": "logstore.format.batch",
    "RecordBatch": "logstore.format.batch",
    "StoreEvent": "logstore.store.upkeep.events",
    "StoreEventKind": "logstore.store.upkeep.events",
    "Subscription": "logstore.log.subscription",
}

if not TYPE_CHECKING:  # without this check, a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Load the engine when one of its names is first used (PEP 562)."""
        if name not in _ROOMS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return globals().setdefault(name, getattr(import_module(_ROOMS[name]), name))

    def __dir__() -> list[str]:
        """List the public names, even if the modules of some names are not loaded yet."""
        return sorted({*globals(), *__all__})
