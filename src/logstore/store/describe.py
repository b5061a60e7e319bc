"""Describe a store in the form of KIP-113's DescribeDirsResponse, from figures in memory only."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.disk.calls import longest_seconds
from logstore.log import host

if TYPE_CHECKING:
    from logstore.disk.log_dir import LogDir
    from logstore.store.replicas import Replicas


UNKNOWN_LAG = -1  # Kafka uses the same value


class PartitionDescription(NamedTuple):
    """One replica in one log dir; temporary if a move is building it (KIP-113)."""

    topic: str
    partition: int
    size: int
    is_temporary: bool
    offset_lag: int


class LogDirDescription(NamedTuple):
    """One log dir, its state and its replicas.

    Attributes:
        error: why the log dir does not work: the log dir is offline, or the store has no log dir
            with this path.
        reason: why the log dir is in its state, and what to do. The reason is None if the log dir
            is online and is not an old copy.
        since_ms: when the log dir entered its state, in ms since the epoch.
    """

    path: str
    is_live: bool
    error: str | None
    state: str
    total_bytes: int
    usable_bytes: int
    partitions: tuple[PartitionDescription, ...]
    reason: str | None = None
    since_ms: int = 0
    directory_id: str = ""


class DescribeDirsResponse(NamedTuple):
    """The descriptions of all requested log dirs."""

    log_dirs: tuple[LogDirDescription, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the response as a document of KIP-113, with additional keys of this library."""
        return {
            "version": 1,
            "log_dirs": [
                {
                    "is_live": log_dir.is_live,
                    "path": log_dir.path,
                    "partitions": [partition._asdict() for partition in log_dir.partitions],
                    "error": log_dir.error,
                    "state": log_dir.state,
                    "reason": log_dir.reason,
                    "since_ms": log_dir.since_ms,
                    "directory_id": log_dir.directory_id,
                    "total_bytes": log_dir.total_bytes,
                    "usable_bytes": log_dir.usable_bytes,
                }
                for log_dir in self.log_dirs
            ],
        }

    def to_json(self, indent: int | None = None) -> str:
        """Return the response as a document of KIP-113, in JSON."""
        import json

        return json.dumps(self.to_dict(), indent=indent)


class Whereabouts:
    """Record in which log dirs the replicas of a store were at one moment.

    If each log dir were described at a different moment, a replica that is swapped meanwhile could
    appear in no log dir, or in two. The list of moves is copied after the list of replicas. If a
    move ends after the first list is copied and before the second list is copied, the replica
    appears only in the old log dir.
    """

    def __init__(self, replicas: Replicas) -> None:
        self.opened = dict(replicas.opened)
        self.offline = dict(replicas.offline)
        self.moves = dict(replicas.running_moves)
        self.left = dict(replicas.copies.moves)

    def describe(self, log_dir: LogDir, topics: Collection[str] = ()) -> LogDirDescription:
        """Describe a log dir from memory, because its disk may hang."""
        found = [
            PartitionDescription(*key, replica.log.size_bytes, False, 0)
            for key, replica in self.opened.items()
            if replica.log_dir.path == log_dir.path
        ]
        found += [
            PartitionDescription(*key, 0, False, 0)
            for key, offline in self.offline.items()
            if offline.log_dir is log_dir
        ]
        found += self._temporary(log_dir)
        return LogDirDescription(
            log_dir.path,
            not log_dir.is_offline,
            log_dir.offline_reason,
            log_dir.state.value,
            log_dir.usage.total_bytes,
            log_dir.usage.usable_bytes,
            tuple(sorted(one for one in found if not topics or one.topic in topics)),
            log_dir.reason or log_dir.generation.old or None,
            log_dir.since_ms,
            log_dir.directory_id,
        )

    def _temporary(self, log_dir: LogDir) -> Iterator[PartitionDescription]:
        """Describe the unfinished copies in a log dir: moves build them, or will continue them."""
        for key, move in self.moves.items():
            live = self.opened.get(key)
            is_swapped = live is not None and live.log_dir.path == log_dir.path
            if move.target_dir == log_dir.path and not is_swapped:
                yield PartitionDescription(*key, move.size_bytes, True, UNKNOWN_LAG)
        for key, left in self.left.items():
            live = self.opened.get(key)
            is_over = live is not None and host.metadata_of(live.log).moving is None
            if left.log_dir is log_dir and key not in self.moves and not is_over:
                yield PartitionDescription(*key, left.size_bytes, True, UNKNOWN_LAG)


def describe_stranger(path: str) -> LogDirDescription:
    """Describe a path that is not a log dir of this store."""
    error = "it is not one of the log dirs of this store"
    return LogDirDescription(path, False, error, "unknown", 0, 0, ())


class LogDirMetrics(NamedTuple):
    """The gauges of one log dir; its counters begin at 0 when the log dir is opened.

    Attributes:
        longest_call_seconds: how long ago the oldest running call to the disk began.
        flush_count: the number of syncs of segments.
        flush_seconds: the total time of the syncs of segments.
        scrubbed_bytes: how many bytes the scrubber read.
        corrupt_batches: how many damaged batches the scrubber found.
        uncompacted_logs: how many logs could not be compacted, and will be tried again later.
    """

    path: str
    state: str
    partition_count: int
    size_bytes: int
    total_bytes: int
    usable_bytes: int
    longest_call_seconds: float = 0.0
    flush_count: int = 0
    flush_seconds: float = 0.0
    scrubbed_bytes: int = 0
    corrupt_batches: int = 0
    uncompacted_logs: int = 0


class StoreMetrics(NamedTuple):
    """A frozen snapshot of the store's gauges; the first two are defined by KIP-112."""

    OfflineLogDirectoryCount: int
    OfflineReplicaCount: int
    partition_count: int
    size_bytes: int
    log_dirs: tuple[LogDirMetrics, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the gauges as a dict from name to value."""
        return {**self._asdict(), "log_dirs": [row._asdict() for row in self.log_dirs]}


def measure(replicas: Replicas, rows: Collection[LogDirDescription]) -> StoreMetrics:
    """Compute the gauges of the store from the descriptions of all log dirs."""
    gauges = tuple(_measure_dir(replicas, row) for row in rows)
    # A log dir that is in the roster, but was not configured, counts as offline.
    bad = sum(log_dir.is_offline for log_dir in replicas.log_dirs)
    return StoreMetrics(
        max(bad, len(replicas.missing_ids)),
        replicas.offline_count(),
        len(replicas),
        sum(row.size_bytes for row in gauges),
        gauges,
    )


def _measure_dir(replicas: Replicas, row: LogDirDescription) -> LogDirMetrics:
    gauges = LogDirMetrics(
        row.path,
        row.state,
        len(row.partitions),
        sum(partition.size for partition in row.partitions),
        row.total_bytes,
        row.usable_bytes,
        longest_seconds(row.path),
    )
    log_dir, figures = replicas.find_dir(row.path), replicas.figures.get(row.path)
    if log_dir is None or figures is None:  # the log dir was removed from the store meanwhile
        return gauges
    return gauges._replace(
        flush_count=log_dir.flush_count,
        flush_seconds=log_dir.flush_seconds,
        scrubbed_bytes=figures.scrubbed_bytes,
        corrupt_batches=figures.corrupt_batches,
        uncompacted_logs=figures.uncompacted_logs,
    )
