"""Define every error of this library; the details of an error are its attributes.

    LogStoreError
    ├── CorruptionError(path, position, reason)
    │   ├── CorruptRecordBatchError
    │   ├── CorruptIndexError        rebuilt on open, never reaches the user
    │   └── CorruptCheckpointError
    ├── LogDirError(path)
    │   ├── LogDirOfflineError       raised from the OSError
    │   ├── LogDirFullError          retriable; nothing was written
    │   ├── LogDirSuspectError       slow or hung; retriable if nothing was written
    │   ├── LogDirLockedError(pid)
    │   ├── LogDirIdentityError      missing, foreign, swapped, or named twice
    │   └── DuplicateLogError(paths)
    ├── ReplicaError(topic, partition)
    │   ├── ReplicaOfflineError      concerns this replica only; its log dir is good
    │   └── ReplicaIncompleteError   readable, not writable, until promoted
    ├── UnsupportedFormatError(path, version)
    ├── FencedLeaderEpochError(leader_epoch, current_epoch)
    ├── OutOfOrderSequenceError(producer_id, epoch, sequence, expected_sequence)
    ├── ProducerFencedError(producer_id, epoch, current_epoch)
    ├── InvalidTransactionStateError(producer_id, epoch, reason)
    ├── CoordinatorFencedError(producer_id, coordinator_epoch, current_epoch)
    ├── RecordExpansionError(size_bytes, record_expansion_bytes_max)      also a ValueError
    ├── OffsetOutOfRangeError(offset, log_start_offset, log_end_offset, topic, partition)
    │                                                                     also a LookupError
    ├── RecordTooLargeError(size_bytes, max_message_bytes)                also a ValueError
    ├── InvalidTimestampError(timestamp, timestamp_min, timestamp_max)    also a ValueError
    ├── MissingKeyError(number)                                           also a ValueError
    ├── UnknownPartitionError(topic, partition)                           also a LookupError
    ├── PartitionExistsError(topic, partition, differences)
    ├── ReadOnlyStoreError
    └── LogClosedError

A wrong argument gives a ValueError or TypeError; a broken invariant gives an AssertionError.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "CoordinatorFencedError",
    "CorruptCheckpointError",
    "CorruptIndexError",
    "CorruptRecordBatchError",
    "CorruptionError",
    "DuplicateLogError",
    "FencedLeaderEpochError",
    "InvalidTimestampError",
    "InvalidTransactionStateError",
    "LogClosedError",
    "LogDirError",
    "LogDirFullError",
    "LogDirIdentityError",
    "LogDirLockedError",
    "LogDirOfflineError",
    "LogDirSuspectError",
    "LogStoreError",
    "MissingKeyError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "PartitionExistsError",
    "ProducerFencedError",
    "ReadOnlyStoreError",
    "RecordExpansionError",
    "RecordTooLargeError",
    "ReplicaError",
    "ReplicaIncompleteError",
    "ReplicaOfflineError",
    "UnknownPartitionError",
    "UnsupportedFormatError",
]


class LogStoreError(Exception):
    """Serve as the base of every error that this library raises.

    Attributes:
        retriable: whether the same call may succeed later. If True, nothing was written.
        is_written: after an append of encoded batches, True if all batches are in the log, False if
            no batch is, None if this is unknown until the log is opened again. Every exception of
            such an append has this attribute, except a KeyboardInterrupt before the append starts.
    """

    retriable = False
    is_written: bool | None = None
    _template = "{reason}"
    _defaults: ClassVar[dict[str, Any]] = {"reason": ""}

    def __init__(self, message: str | None = None, **facts: Any) -> None:
        self.facts = {**self._defaults, **facts}
        for name, value in self.facts.items():
            setattr(self, name, value)
        self._message = message
        text = self._text() if message is None else message
        # If there is no path, the text begins with ": ".
        super().__init__(text.removeprefix(": ").rstrip())

    def _text(self) -> str:
        return self._template.format(**self.facts)

    def __reduce__(self) -> tuple[Any, ...]:
        # Without this method, pickle rebuilds an error from its text alone.
        # The last item restores the added lines (`__notes__`) of the error.
        return _rebuild, (type(self), self._message, self.facts), self.__dict__


def _rebuild(
    kind: type[LogStoreError], message: str | None, facts: dict[str, Any]
) -> LogStoreError:
    return kind(message, **facts)


class CorruptionError(LogStoreError):
    """Report bytes on disk that differ from what was written."""

    path: str
    position: int
    reason: str
    _template = "{path} is corrupt at position {position}: {reason}"
    _defaults: ClassVar[dict[str, Any]] = {"position": 0, "reason": ""}


class CorruptRecordBatchError(CorruptionError):
    """Report a damaged record batch.

    `logstore verify` lists all damaged batches, `repair` removes them.
    """


class CorruptIndexError(CorruptionError):
    """Report a faulty index; the index is rebuilt, and no user sees this error."""


class CorruptCheckpointError(CorruptionError):
    """Report a faulty small file; its contents count as unknown."""


class LogDirError(LogStoreError):
    """Report a problem with a whole log dir."""

    path: str
    reason: str
    _template = "log dir {path}: {reason}"
    _defaults: ClassVar[dict[str, Any]] = {"path": "", "reason": ""}


class LogDirOfflineError(LogDirError):
    """Report that a log dir is OFFLINE after an I/O error (KIP-112's KafkaStorageException)."""

    _template = "log dir {path} is offline: {reason}"


class LogDirFullError(LogDirError):
    """Report that a disk is full; nothing was written, and writes work again when there is room."""

    retriable = True
    _template = "log dir {path} is full: free some space, or try again later. {reason}"


class LogDirSuspectError(LogDirError):
    """Report that a disk is slow or hangs; nothing was written, unless `retriable` is False.

    If the disk hangs during a durable append, it is unknown whether the records are in the log. So
    `retriable` is False. The caller must check the log before it appends the records again.
    """

    retriable = True
    _template = "log dir {path} is slow or hangs: {reason}"


class LogDirLockedError(LogDirError):
    """Report that another process owns a log dir."""

    pid: int | None
    _template = "log dir {path} is owned by process {pid}; stop it, or open with read_only=True"
    _defaults: ClassVar[dict[str, Any]] = {"path": "", "reason": "", "pid": None}


class LogDirIdentityError(LogDirError):
    """Report that a directory is missing, foreign, swapped, or named twice."""


class DuplicateLogError(LogDirError):
    """Report two live copies of one replica."""

    paths: list[str]
    topic: str
    partition: int
    _template = (
        "{topic}-{partition} is live in more than one directory: {paths}; close the store, and "
        "move the unwanted directory out of its log dir"
    )
    _defaults: ClassVar[dict[str, Any]] = {
        "path": "", "reason": "", "paths": [], "topic": "", "partition": -1,
    }  # fmt: skip


class ReplicaError(LogStoreError):
    """Report a problem with one replica; the log dir and its other replicas are good."""

    topic: str
    partition: int
    reason: str
    _template = "{topic}-{partition}: {reason}"
    _defaults: ClassVar[dict[str, Any]] = {"topic": "", "partition": -1, "reason": ""}


class ReplicaOfflineError(ReplicaError):
    """Report that this replica cannot be used as requested."""


class ReplicaIncompleteError(ReplicaError):
    """Report that a replica lacks records: until it is promoted, it can be read but not written."""


class UnsupportedFormatError(LogStoreError):
    """Report bytes in a format, version or codec that this installation cannot read."""

    path: str
    version: Any
    reason: str
    _template = "{path}: unsupported format {version!r}. {reason}"
    _defaults: ClassVar[dict[str, Any]] = {"path": "", "version": None, "reason": ""}


class FencedLeaderEpochError(LogStoreError):
    """Report an append for a leader that a newer leader has replaced; nothing was written."""

    leader_epoch: int
    current_epoch: int
    _template = "leader epoch {leader_epoch} is fenced: the log has leader epoch {current_epoch}"
    _defaults: ClassVar[dict[str, Any]] = {}


class OutOfOrderSequenceError(LogStoreError):
    """Report a batch that does not follow its producer's last batch: the log lacks batches."""

    producer_id: int
    epoch: int
    sequence: int
    expected_sequence: int
    _template = (
        "producer {producer_id} of epoch {epoch} sent sequence {sequence}, but {expected_sequence} "
        "is next: send the missing batches first, or begin again with a new epoch"
    )
    _defaults: ClassVar[dict[str, Any]] = {}


class ProducerFencedError(LogStoreError):
    """Report a producer that another producer with a higher epoch has replaced."""

    producer_id: int
    epoch: int
    current_epoch: int
    _template = (
        "producer {producer_id} of epoch {epoch} is fenced: its epoch in the log is {current_epoch}"
    )
    _defaults: ClassVar[dict[str, Any]] = {}


class InvalidTransactionStateError(LogStoreError):
    """Report a batch that does not fit the state of its producer's transaction."""

    producer_id: int
    epoch: int
    reason: str
    _template = "producer {producer_id} of epoch {epoch}: {reason}"
    _defaults: ClassVar[dict[str, Any]] = {"reason": ""}


class CoordinatorFencedError(LogStoreError):
    """Report a transaction marker from a coordinator that a newer coordinator has replaced."""

    producer_id: int
    coordinator_epoch: int
    current_epoch: int
    _template = (
        "a coordinator of epoch {coordinator_epoch} cannot end a transaction of producer "
        "{producer_id}: the log has a marker of epoch {current_epoch}"
    )
    _defaults: ClassVar[dict[str, Any]] = {}


class RecordExpansionError(LogStoreError, ValueError):
    """Report a batch that needs more memory than is allowed; no memory was allocated for it."""

    size_bytes: int
    record_expansion_bytes_max: int
    path: str
    position: int
    _template = (
        "{path}: the record batch at position {position} needs at least {size_bytes} bytes of "
        "memory, more than record_expansion_bytes_max={record_expansion_bytes_max}; raise this "
        "limit in the StoreConfig, or append fewer records at once"
    )
    _defaults: ClassVar[dict[str, Any]] = {"path": "", "position": 0}


class OffsetOutOfRangeError(LogStoreError, LookupError):
    """Report that there is no record at an offset."""

    offset: int
    log_start_offset: int
    log_end_offset: int
    topic: str
    partition: int
    _defaults: ClassVar[dict[str, Any]] = {"topic": "", "partition": -1}

    def _text(self) -> str:
        name = f" in {self.topic}-{self.partition}" if self.topic else ""
        begin, end = self.log_start_offset, self.log_end_offset
        if begin >= end:
            there = f"the log is empty, the next offset is {end}"
        else:
            gap = "; some of these offsets have no record" if begin <= self.offset < end else ""
            there = f"offsets are {begin} to {end - 1}, the next is {end}{gap}"
        return f"no record at {self.offset}{name}: {there}"


class RecordTooLargeError(LogStoreError, ValueError):
    """Report that records do not fit into one batch."""

    size_bytes: int
    max_message_bytes: int
    _template = (
        "{size_bytes} bytes of records are more than max_message_bytes={max_message_bytes}; "
        "append fewer records at once, or raise the limit in the partition's LogConfig"
    )
    _defaults: ClassVar[dict[str, Any]] = {}


class InvalidTimestampError(LogStoreError, ValueError):
    """Report a record whose timestamp is too far from the time of its append."""

    timestamp: int
    timestamp_min: int | None
    timestamp_max: int | None
    _defaults: ClassVar[dict[str, Any]] = {"timestamp_min": None, "timestamp_max": None}

    def _text(self) -> str:
        least = "any" if self.timestamp_min is None else self.timestamp_min
        most = "any" if self.timestamp_max is None else self.timestamp_max
        return (
            f"timestamp {self.timestamp} is not between {least} and {most}: correct the producer's "
            "clock, or raise message_timestamp_before_max_ms or message_timestamp_after_max_ms in "
            "the partition's LogConfig"
        )


class MissingKeyError(LogStoreError, ValueError):
    """Report that record `number` of an append, or of one of its batches, has no key."""

    number: int

    def _text(self) -> str:
        return (
            f"record {self.number} of the append has no key, and a compacted log keeps the latest "
            "record of each key: give the record a key, or set cleanup_policy=delete"
        )


class UnknownPartitionError(LogStoreError, LookupError):
    """Report that a partition does not exist."""

    topic: str
    partition: int
    _template = "there is no partition {topic}-{partition} in this store"
    _defaults: ClassVar[dict[str, Any]] = {}


class PartitionExistsError(LogStoreError):
    """Report that a partition exists already, or exists with another configuration.

    Attributes:
        differences: for each key that differs, the stored value and the given value.
    """

    topic: str
    partition: int
    differences: dict[str, tuple[Any, Any]]
    _template = "partition {topic}-{partition} exists already; exist_ok=True (--exist-ok) uses it"
    _defaults: ClassVar[dict[str, Any]] = {"differences": {}}


class ReadOnlyStoreError(LogStoreError):
    """Report a change to a store that was opened read-only."""

    path: str
    _template = "the store was opened with read_only=True: {path}"
    _defaults: ClassVar[dict[str, Any]] = {"path": ""}


class LogClosedError(LogStoreError):
    """Report that a log or a store was closed, or was opened before a fork."""

    reason: str
    _template = "closed: {reason}"
    _defaults: ClassVar[dict[str, Any]] = {"reason": "it cannot be used after close()"}
