"""Move replicas while their logs are read, appended to, truncated and trimmed."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from logstore import CorruptRecordBatchError, Log, LogConfig, LogStore
from mover import (
    MoveState,
    ReplicaMover,
)
from support.gate import SECONDS_MAX, gated
from support.moving import CONFIG, check_whole, fill, replica_dirs, settle

DONE, PAUSED = MoveState.DONE, MoveState.PAUSED
CANCELLED, FAILED = MoveState.CANCELLED, MoveState.FAILED


def test_a_replica_moves(store: LogStore, log: Log, base: Path) -> None:
    """The log object stays usable, the records are the same, and the source is removed."""
    before = list(log)
    with ReplicaMover(store) as mover:
        move = mover.move("orders", 0, base / "b")
        assert move.wait(SECONDS_MAX) is DONE
    assert (move.error, move.progress().lag_bytes) == (None, 0)
    assert list(log) == before
    check_whole(log, base, "b")
    settle(store)
    assert replica_dirs(base) == ["b/orders-0"]
    assert store["orders", 0] is log
    assert log.append(b"600:on", durable=True) == 600
    sizes = {d.path: [p.size for p in d.partitions] for d in store.describe_dirs().log_dirs}
    assert sizes == {str(base / "a"): [], str(base / "b"): [log.size_bytes], str(base / "c"): []}


def test_a_moved_replica_opens_without_a_scan(base: Path) -> None:
    """After a move and a clean close, the next open scans nothing and finds every record."""
    with LogStore.open([base / "a", base / "b"]) as store:
        log = store.create("orders", 0, log_dir=base / "a", config=CONFIG)
        fill(log, 60)
        with ReplicaMover(store) as mover:
            assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
        before = list(log)
    with LogStore.open([base / "a", base / "b"]) as store:
        assert store.recovery_report.is_sound
        assert sum(entry.scanned_bytes for entry in store.recovery_report.entries) == 0
        assert list(store["orders", 0]) == before
        assert store["orders", 0]._state.metadata.generation == 1


def test_a_move_to_where_it_is_does_nothing(store: LogStore, log: Log, base: Path) -> None:
    """The move is DONE at once, whatever path names the log dir, and no byte is copied."""
    os.symlink(base / "a", base / "link")
    with ReplicaMover(store) as mover:
        for name in (base / "a", f"{base}/a/", f"{base}/../{base.name}/a", base / "link"):
            move = mover.move("orders", 0, name)
            assert (move.state, move.bytes_done, move.progress().lag_bytes) == (DONE, 0, 0)
    assert replica_dirs(base) == ["a/orders-0"]


def test_the_newest_move_of_a_partition_is_found(store: LogStore, log: Log, base: Path) -> None:
    """A move that has ended is found, too; a partition that was never moved has no move."""
    store.create("other", 0)
    with ReplicaMover(store) as mover:
        assert mover.move_of("orders", 0) is None
        first = mover.move("orders", 0, base / "b")
        assert mover.move_of("orders", 0) is first
        first.wait(SECONDS_MAX)
        assert mover.move_of("orders", 0) is first
        second = mover.move("orders", 0, base / "a")
        assert mover.move_of("orders", 0) is second
        second.wait(SECONDS_MAX)
        assert mover.move_of("other", 0) is mover.move_of("unknown", 3) is None


def test_what_is_appended_meanwhile_comes_along(store: LogStore, log: Log, base: Path) -> None:
    """Appends and rolls between any two chunks are in the copy."""
    with gated(store) as (mover, gate):
        gate.before = lambda: fill(log, 1) if gate.passed < 40 else None
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
    assert log.log_end_offset >= 600 + 10 * 30
    check_whole(log, base, "b")


def test_the_configuration_changes_meanwhile(store: LogStore, log: Log, base: Path) -> None:
    """The moved log has the last configuration in memory, on the disk, and after a start."""
    sizes = [4096, 8192, 12288]

    def change() -> None:
        if gate.passed > 3 and sizes:
            store.set_config("orders", 0, {"segment_bytes": sizes.pop(0), "retention_ms": "7d"})

    with gated(store) as (mover, gate):
        gate.before = change
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
    assert not sizes
    wanted = CONFIG.replace(segment_bytes=12288, retention_ms="7d")
    assert log.config == wanted and log._state.rules.segment_bytes == 12288
    check_whole(log, base, "b")
    store.close()
    with LogStore.open([base / "a", base / "b", base / "c"]) as again:
        assert again.log("orders", 0).config == wanted


def test_a_truncation_is_followed(store: LogStore, log: Log, base: Path) -> None:
    """The copy loses the truncated records, and gets the records that replace them."""
    cuts = [555, 301, 300, 123]

    def cut() -> None:
        if gate.passed > 5 and cuts:
            log.truncate_to(cuts.pop(0))
            fill(log, 3)

    with gated(store) as (mover, gate):
        gate.before = cut
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
    assert not cuts
    check_whole(log, base, "b")


def test_deleted_records_stay_deleted(store: LogStore, log: Log, base: Path) -> None:
    """The move keeps the log start, even inside a batch; retention may run during the move."""
    starts = [7, 250, 433]

    def delete() -> None:
        if gate.passed > 3 and starts:
            log.delete_records_before(starts.pop(0))

    with gated(store) as (mover, gate):
        gate.before = delete
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
    assert log.log_start_offset == 433
    check_whole(log, base, "b")


def test_readers_go_on(store: LogStore, log: Log, base: Path) -> None:
    """A reader that began before the swap continues after it, on the old or the new files."""
    batches, records = log.read_batches(), iter(log)
    first = next(batches)
    next(records)
    with ReplicaMover(store) as mover:
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
    settle(store)
    assert first.count + sum(batch.count for batch in batches) == 600
    assert 1 + sum(1 for _ in records) == 600


def test_everything_of_a_log_comes_along(store: LogStore, base: Path) -> None:
    """A moved log keeps its configuration, topic id, epochs, log start, offsets and times."""
    log = store.create("orders", 0, log_dir=base / "a", config=CONFIG)
    for epoch in (1, 5, 9):
        log.leader_epoch = epoch
        fill(log, 20)
    log.delete_records_before(33)

    def known() -> list[Any]:
        names = "topic partition topic_id config log_start_offset log_end_offset high_watermark"
        values = [getattr(log, name) for name in [*names.split(), "size_bytes", "leader_epoch"]]
        epochs = log._state.replication.epochs.entries
        return [*values, epochs, log.offset_for_timestamp(0), log.read(100)[:3]]

    before = known()
    with ReplicaMover(store) as mover:
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
    assert known() == before
    assert log.recovery_point == log.log_end_offset


@pytest.mark.parametrize("change", [1 << 8, -1], ids=["larger", "smaller"])
def test_a_move_refuses_a_wrong_base_offset_of_the_last_batch(
    store: LogStore, base: Path, change: int
) -> None:
    """No checksum covers this offset, and no batch follows. Only the log knows where it ends."""
    config = LogConfig(record_format="kafka")
    log = store.create("orders", 0, log_dir=base / "a", config=config)
    fill(log, 2)
    position = log.size_bytes
    fill(log, 1)
    segment = base / "a" / "orders-0" / f"{0:020d}.log"
    with segment.open("r+b") as file:
        file.seek(position)
        file.write(struct.pack(">q", 20 + change))
    with ReplicaMover(store) as mover:
        move = mover.move("orders", 0, base / "b")
        assert move.wait(SECONDS_MAX) is FAILED
    error = move.error
    assert isinstance(error, CorruptRecordBatchError), error
    assert (error.path, error.position) == (str(segment), position)
    assert (log.log_dir, log.log_end_offset) == (str(base / "a"), 30)
