"""Name everything that can go wrong, with its facts as attributes.

    LogStoreError
    ├── CorruptionError(path, position, reason)
    │   ├── CorruptRecordBatchError
    │   ├── CorruptIndexError        rebuilt on open, never reaches the user
    │   └── CorruptCheckpointError
    ├── LogDirError(path)
    │   ├── LogDirOfflineError       raised from the OSError
    │   ├── LogDirFullError          retriable; nothing was written
    │   ├── LogDirSuspectError       slow or hung; retriable where nothing was written
    │   ├── LogDirLockedError(pid)
    │   ├── LogDirIdentityError      missing, foreign, swapped, twice
    │   └── DuplicateLogError(paths)
    ├── ReplicaError(topic, partition)
    │   ├── ReplicaOfflineError      this replica only; its dir is good
    │   └── ReplicaIncompleteError   readable, not writable, until promoted
    ├── UnsupportedFormatError(path, version)
    ├── RecordExpansionError(size_bytes, record_expansion_bytes_max)      also a ValueError
    ├── OffsetOutOfRangeError(offset, log_start_offset, log_end_offset, topic, partition)
    │                                                                     also a LookupError
    ├── RecordTooLargeError(size_bytes, max_message_bytes)                also a ValueError
    ├── UnknownPartitionError(topic, partition)                           also a LookupError
    ├── PartitionExistsError(topic, partition, differences)
    ├── ReadOnlyStoreError
    └── LogClosedError

A wrong argument is a ValueError or TypeError; a broken invariant is an assertion.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "CorruptCheckpointError",
    "CorruptIndexError",
    "CorruptRecordBatchError",
    "CorruptionError",
    "DuplicateLogError",
    "LogClosedError",
    "LogDirError",
    "LogDirFullError",
    "LogDirIdentityError",
    "LogDirLockedError",
    "LogDirOfflineError",
    "LogDirSuspectError",
    "LogStoreError",
    "OffsetOutOfRangeError",
    "PartitionExistsError",
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
    """Base of every error that this library raises by itself.

    Attributes:
        retriable: whether the same call may succeed later; nothing was written.
    """

    retriable = False
    _template = "{reason}"
    _defaults: ClassVar[dict[str, Any]] = {"reason": ""}

    def __init__(self, message: str | None = None, **facts: Any) -> None:
        self.facts = {**self._defaults, **facts}
        for name, value in self.facts.items():
            setattr(self, name, value)
        self._message = message
        text = self._text() if message is None else message
        super().__init__(text.removeprefix(": ").rstrip())  # where no path is known

    def _text(self) -> str:
        return self._template.format(**self.facts)

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception would be rebuilt from its text alone; the last item brings notes along.
        return _rebuild, (type(self), self._message, self.facts), self.__dict__


def _rebuild(
    kind: type[LogStoreError], message: str | None, facts: dict[str, Any]
) -> LogStoreError:
    return kind(message, **facts)


class CorruptionError(LogStoreError):
    """Tell of bytes on disk that are not what was written."""

    path: str
    position: int
    reason: str
    _template = "{path} is corrupt at position {position}: {reason}"
    _defaults: ClassVar[dict[str, Any]] = {"position": 0, "reason": ""}


class CorruptRecordBatchError(CorruptionError):
    """Tell of a record batch that is damaged; `logstore verify` lists all, `repair` mends."""


class CorruptIndexError(CorruptionError):
    """Tell of an index that does not check out; it is made anew and nobody sees this."""


class CorruptCheckpointError(CorruptionError):
    """Tell of a small file that does not check out; what it said counts as unknown."""


class LogDirError(LogStoreError):
    """Tell of trouble with a whole log dir."""

    path: str
    reason: str
    _template = "log dir {path}: {reason}"
    _defaults: ClassVar[dict[str, Any]] = {"path": "", "reason": ""}


class LogDirOfflineError(LogDirError):
    """Tell that a log dir is offline after an I/O error (KIP-112's KafkaStorageException)."""

    _template = "log dir {path} is offline: {reason}"


class LogDirFullError(LogDirError):
    """Tell that a disk is full; nothing was written, and it works again when there is space."""

    retriable = True
    _template = "log dir {path} is full: free some space, or try again later. {reason}"


class LogDirSuspectError(LogDirError):
    """Tell that a disk is slow or hangs; nothing was written, unless it is not retriable.

    A durable append that waits for the disk when it comes to hang may stand or not: `retriable` is
    False on its error, so that nobody appends it a second time without looking.
    """

    retriable = True
    _template = "log dir {path} is slow or hangs: {reason}"


class LogDirLockedError(LogDirError):
    """Tell that another process owns a log dir."""

    pid: int | None
    _template = "log dir {path} is owned by process {pid}; stop it, or open with read_only=True"
    _defaults: ClassVar[dict[str, Any]] = {"path": "", "reason": "", "pid": None}


class LogDirIdentityError(LogDirError):
    """Tell that a directory is missing, foreign, swapped, or named twice."""


class DuplicateLogError(LogDirError):
    """Tell of two live copies of one replica."""

    paths: list[str]
    topic: str
    partition: int
    _template = "{topic}-{partition} is live in more than one directory: {paths}"
    _defaults: ClassVar[dict[str, Any]] = {
        "path": "", "reason": "", "paths": [], "topic": "", "partition": -1,
    }  # fmt: skip


class ReplicaError(LogStoreError):
    """Tell of trouble with one replica; its log dir and all others are good."""

    topic: str
    partition: int
    reason: str
    _template = "{topic}-{partition}: {reason}"
    _defaults: ClassVar[dict[str, Any]] = {"topic": "", "partition": -1, "reason": ""}


class ReplicaOfflineError(ReplicaError):
    """Tell that this replica cannot be used as asked."""


class ReplicaIncompleteError(ReplicaError):
    """Tell that this replica lacks records: it is readable, not writable, until promoted."""


class UnsupportedFormatError(LogStoreError):
    """Tell of bytes in a format, version or codec that this installation cannot read."""

    path: str
    version: Any
    reason: str
    _template = "{path}: unsupported format {version!r}. {reason}"
    _defaults: ClassVar[dict[str, Any]] = {"path": "", "version": None, "reason": ""}


class RecordExpansionError(LogStoreError, ValueError):
    """Report a record batch that would need more memory than the store allows for one batch.

    Nothing was allocated for it. An append writes nothing; a read gives the batches before it.
    """

    size_bytes: int
    record_expansion_bytes_max: int
    path: str
    position: int
    _template = (
        "{path}: the record batch at position {position} needs at least {size_bytes} bytes of "
        "memory, more than record_expansion_bytes_max={record_expansion_bytes_max}; raise it in "
        "the StoreConfig, or append fewer records at once"
    )
    _defaults: ClassVar[dict[str, Any]] = {"path": "", "position": 0}


class OffsetOutOfRangeError(LogStoreError, LookupError):
    """Tell that there is no record at an offset."""

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
            gap = " with a gap here" if begin <= self.offset < end else ""
            there = f"offsets are {begin} to {end - 1}{gap}, the next is {end}"
        return f"no record at {self.offset}{name}: {there}"


class RecordTooLargeError(LogStoreError, ValueError):
    """Tell that records do not fit into one batch."""

    size_bytes: int
    max_message_bytes: int
    _template = (
        "{size_bytes} bytes of records are more than max_message_bytes={max_message_bytes}; "
        "append fewer at once, or raise it in the partition's LogConfig"
    )
    _defaults: ClassVar[dict[str, Any]] = {}


class UnknownPartitionError(LogStoreError, LookupError):
    """Tell that a partition does not exist."""

    topic: str
    partition: int
    _template = "there is no partition {topic}-{partition} in this store"
    _defaults: ClassVar[dict[str, Any]] = {}


class PartitionExistsError(LogStoreError):
    """Tell that a partition exists already, or exists with another configuration than the given.

    Attributes:
        differences: by key of the configuration, the value stored and the value given.
    """

    topic: str
    partition: int
    differences: dict[str, tuple[Any, Any]]
    _template = "partition {topic}-{partition} exists already; exist_ok=True (--exist-ok) uses it"
    _defaults: ClassVar[dict[str, Any]] = {"differences": {}}


class ReadOnlyStoreError(LogStoreError):
    """Tell that the store was opened to be read."""

    path: str
    _template = "the store was opened with read_only=True: {path}"
    _defaults: ClassVar[dict[str, Any]] = {"path": ""}


class LogClosedError(LogStoreError):
    """Tell that a log or store was closed, or opened before a fork."""

    reason: str
    _template = "closed: {reason}"
    _defaults: ClassVar[dict[str, Any]] = {"reason": "use it before close()"}
