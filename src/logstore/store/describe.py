"""Describe a store as KIP-113's DescribeDirsResponse does, from figures in memory only."""

from __future__ import annotations

from typing import Any, NamedTuple


class PartitionDescription(NamedTuple):
    """One replica in one log dir."""

    topic: str
    partition: int
    size: int
    is_temporary: bool
    offset_lag: int


class LogDirDescription(NamedTuple):
    """One log dir, its state and its replicas."""

    path: str
    is_live: bool
    error: str | None
    state: str
    total_bytes: int
    usable_bytes: int
    partitions: tuple[PartitionDescription, ...]


class DescribeDirsResponse(NamedTuple):
    """All log dirs that were asked for."""

    log_dirs: tuple[LogDirDescription, ...]

    def to_dict(self) -> dict[str, Any]:
        """Give KIP-113's document, with the further keys added."""
        return {
            "version": 1,
            "log_dirs": [
                {
                    "is_live": log_dir.is_live,
                    "path": log_dir.path,
                    "partitions": [partition._asdict() for partition in log_dir.partitions],
                    "error": log_dir.error,
                    "state": log_dir.state,
                    "total_bytes": log_dir.total_bytes,
                    "usable_bytes": log_dir.usable_bytes,
                }
                for log_dir in self.log_dirs
            ],
        }

    def to_json(self, indent: int | None = None) -> str:
        """Give KIP-113's document as JSON."""
        import json

        return json.dumps(self.to_dict(), indent=indent)


class LogDirMetrics(NamedTuple):
    """The gauges of one log dir."""

    path: str
    state: str
    partition_count: int
    size_bytes: int
    total_bytes: int
    usable_bytes: int


class StoreMetrics(NamedTuple):
    """A frozen snapshot of the store's gauges; the first two are KIP-112's."""

    OfflineLogDirectoryCount: int
    OfflineReplicaCount: int
    partition_count: int
    size_bytes: int
    log_dirs: tuple[LogDirMetrics, ...]
