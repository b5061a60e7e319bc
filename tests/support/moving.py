"""Make logs to move, and look at what moves leave behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from logstore import Log, LogConfig, LogStore, TopicPartition
from logstore.disk.log_dir import LogDir
from mover.job import Job
from mover.move import Move
from support.gate import Gate
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


class Alone:
    """Controls moves that run in the caller's thread."""

    is_closed = False

    def __init__(self) -> None:
        self.changed = threading.Condition()

    def enqueue(self, move: Move) -> None:
        raise AssertionError("nothing is queued here")

    discard = enqueue

    def wake(self) -> None:
        """Nobody waits."""


def job_of(
    store: LogStore, target: Path, purge: Callable[[LogDir, str], None], move_id: str = ""
) -> Job:
    """Make the job of a move of orders-0 whose steps the test takes one by one."""
    replicas = store.host.replicas
    log_dir = replicas.find_dir(str(target))
    assert log_dir is not None
    key, size_bytes = TopicPartition("orders", 0), store["orders", 0].size_bytes
    move = Move(Alone(), key, "", str(target), Gate(), size_bytes)  # type: ignore[arg-type]
    move.move_id = move_id or move.move_id
    assert move.try_begin()
    return Job(move, replicas, log_dir, purge, is_verified=True)
