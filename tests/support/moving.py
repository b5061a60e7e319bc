"""Make logs to move, and look at what moves leave behind."""

from __future__ import annotations

from pathlib import Path

from logstore import Log, LogConfig, LogStore
from support.keepers import wait_for_keepers

from .reader import read_partition

CONFIG = LogConfig(segment_bytes=16 << 10, index_interval_bytes=512)


def fill(log: Log, count: int) -> None:
    for _ in range(count):
        number = log.log_end_offset
        log.extend([b"%d:" % (number + i) + b"v" * (number % 90) for i in range(10)])


def replica_dirs(base: Path) -> list[str]:
    """List the directories of replicas, below the base."""
    return sorted(str(p.relative_to(base)) for p in base.glob("?/*-*") if p.is_dir())


def settle(store: LogStore) -> None:
    """Wait until everything that was asked for in the background is done."""
    wait_for_keepers(store)


def records_on_disk(partition_dir: Path) -> list[tuple[int, bytes | None]]:
    """Read a partition by the document alone."""
    return [(r.offset, r.value) for batch in read_partition(partition_dir) for r in batch.records]


def check_whole(log: Log, base: Path, log_dir: str) -> None:
    """A log is in a dir, alone, with all its records, by its own word and by its bytes."""
    assert log.log_dir == str(base / log_dir)
    values = [(r.offset, r.value) for r in log]
    assert [o for o, _ in values] == list(range(log.log_start_offset, log.log_end_offset))
    assert all(value.startswith(b"%d:" % offset) for offset, value in values if value)
    on_disk = records_on_disk(base / log_dir / "orders-0")
    assert [row for row in on_disk if row[0] >= log.log_start_offset] == values
    assert log.verify() == []
