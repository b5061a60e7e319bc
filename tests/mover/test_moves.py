"""Move replicas while they are read and written, and stop moves in every way."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore import Log, LogConfig, LogStore, UnknownPartitionError
from mover import (
    IllegalTransitionError,
    MoveCancelledError,
    MoveError,
    MoveState,
    ReplicaMover,
    TargetFullError,
)
from support.gate import SECONDS_MAX, Gate, gated
from support.places import fast_directory
from support.reader import read_partition

CONFIG = LogConfig(segment_bytes=16 << 10, index_interval_bytes=512)
DONE, PAUSED, CANCELLED, FAILED = (
    MoveState.DONE,
    MoveState.PAUSED,
    MoveState.CANCELLED,
    MoveState.FAILED,
)


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


@pytest.fixture
def store(base: Path) -> Iterator[LogStore]:
    with LogStore.open([base / "a", base / "b", base / "c"]) as store:
        yield store


@pytest.fixture
def log(store: LogStore, base: Path) -> Log:
    log = store.create("orders", 0, log_dir=base / "a", config=CONFIG)
    fill(log, 60)
    return log


def fill(log: Log, count: int) -> None:
    for _ in range(count):
        number = log.log_end_offset
        log.extend([b"%d:" % (number + i) + b"v" * (number % 90) for i in range(10)])


def replica_dirs(base: Path) -> list[str]:
    """List the directories of replicas, below the base."""
    return sorted(str(p.relative_to(base)) for p in base.glob("?/*-*") if p.is_dir())


def settle(store: LogStore) -> None:
    """Wait until everything that was asked for in the background is done."""
    for keeper in store._keepers.values():
        assert keeper.wait_idle(SECONDS_MAX)


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


# --- the way of a move ----------------------------------------------------------------------------


def test_a_replica_moves(store: LogStore, log: Log, base: Path) -> None:
    """The log object goes on, its records are the same, and nothing is left at the source."""
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
    """After a move and an orderly close nothing is scanned, and everything is there."""
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
        assert store["orders", 0]._metadata.generation == 1


def test_a_move_to_where_it_is_does_nothing(store: LogStore, log: Log, base: Path) -> None:
    """It is done at once, whatever name leads to the dir, and no byte was copied."""
    os.symlink(base / "a", base / "link")
    with ReplicaMover(store) as mover:
        for name in (base / "a", f"{base}/a/", f"{base}/../{base.name}/a", base / "link"):
            move = mover.move("orders", 0, name)
            assert (move.state, move.bytes_done) == (DONE, 0)
    assert replica_dirs(base) == ["a/orders-0"]


def test_what_is_appended_meanwhile_comes_along(store: LogStore, log: Log, base: Path) -> None:
    """Appends and rolls between any two chunks are in the copy."""
    with gated(store) as (mover, gate):
        gate.before = lambda: fill(log, 1) if gate.passed < 40 else None
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
    assert log.log_end_offset >= 600 + 10 * 30
    check_whole(log, base, "b")


def test_a_truncation_is_followed(store: LogStore, log: Log, base: Path) -> None:
    """What was copied and is truncated is not in the copy; what comes in its place is."""
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
    """The log start, in the middle of a batch too, goes along; so does retention on the way."""
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
    """A reader that began before the swap ends after it, on the old files or on the new."""
    batches, records = log.read_batches(), iter(log)
    first = next(batches)
    next(records)
    with ReplicaMover(store) as mover:
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
    settle(store)
    assert first.count + sum(batch.count for batch in batches) == 600
    assert 1 + sum(1 for _ in records) == 600


def test_everything_of_a_log_comes_along(store: LogStore, base: Path) -> None:
    """Configuration, topic id, epochs, log start, recovery point and times are those of before."""
    log = store.create("orders", 0, log_dir=base / "a", config=CONFIG)
    for epoch in (1, 5, 9):
        log.leader_epoch = epoch
        fill(log, 20)
    log.delete_records_before(33)

    def known() -> list[Any]:
        names = "topic partition topic_id config log_start_offset log_end_offset high_watermark"
        values = [getattr(log, name) for name in [*names.split(), "size_bytes", "leader_epoch"]]
        return [*values, log._epochs.entries, log.offset_for_timestamp(0), log.read(100)[:3]]

    before = known()
    with ReplicaMover(store) as mover:
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
    assert known() == before
    assert log.recovery_point == log.log_end_offset


# --- stopping it ----------------------------------------------------------------------------------


def test_a_pause_keeps_what_was_copied(store: LogStore, log: Log, base: Path) -> None:
    """It stops within a chunk; resumed, it copies only what is missing."""
    with gated(store) as (mover, gate):
        gate.close(after=5)
        move = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        move.pause()
        assert (move.state, gate.passed) == (PAUSED, 5)
        move.pause()
        fill(log, 1)
        gate.open()
        move.resume()
        assert move.wait(SECONDS_MAX) is DONE
        assert gate.passed * gate.chunk_bytes < log.size_bytes + 12 * gate.chunk_bytes
    check_whole(log, base, "b")


def test_a_cancel_leaves_nothing(store: LogStore, log: Log, base: Path) -> None:
    """The copy is gone when `cancel` returns, the log is where it was, and retention runs."""
    with gated(store) as (mover, gate):
        gate.close(after=5)
        move = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        move.cancel()
        assert move.state is CANCELLED
        assert isinstance(move.error, MoveCancelledError)
        assert replica_dirs(base) == ["a/orders-0"]
        assert log._metadata.moving is None
        assert not store._replicas.running_moves
        move.cancel()
        for call in (move.pause, move.resume, move.retry):
            with pytest.raises(IllegalTransitionError):
                call()
        log.delete_records_before(500)
        assert log.size_bytes < 16 << 10
    check_whole(log, base, "a")


def test_a_paused_and_a_planned_move_are_cancelled(store: LogStore, base: Path) -> None:
    """Neither runs, and of both nothing is left."""
    logs = [store.create("orders", n, log_dir=base / "a", config=CONFIG) for n in (0, 1)]
    for log in logs:
        fill(log, 60)
    with gated(store, num_replica_move_threads=1) as (mover, gate):
        gate.close(after=2)
        moves = [mover.move("orders", n, base / "b") for n in (0, 1)]
        gate.wait_until_held()
        assert moves[1].state is MoveState.PLANNED
        moves[1].cancel()
        assert moves[1].state is CANCELLED
        moves[0].pause()
        moves[0].cancel()
        assert moves[0].state is CANCELLED
        assert replica_dirs(base) == ["a/orders-0", "a/orders-1"]
        gate.open()
        again = mover.move("orders", 1, base / "c")
        assert again.wait(SECONDS_MAX) is DONE


def test_another_target_while_it_runs(store: LogStore, log: Log, base: Path) -> None:
    """Five changes of the target leave one copy, at the last one."""
    with gated(store) as (mover, gate):
        moves = []
        for number in range(5):
            gate.close(after=2)
            moves.append(mover.move("orders", 0, base / "bc"[number % 2]))
            gate.wait_until_held()
        assert mover.move("orders", 0, base / "b") is moves[-1]
        gate.open()
        assert moves[-1].wait(SECONDS_MAX) is DONE
        assert [move.state for move in moves[:-1]] == [CANCELLED] * 4
        assert mover.moves() == moves
    settle(store)
    assert replica_dirs(base) == ["b/orders-0"]
    check_whole(log, base, "b")


def test_a_deletion_takes_the_move_along(store: LogStore, log: Log, base: Path) -> None:
    """The partition is gone everywhere, and the move is cancelled with that reason."""
    with gated(store) as (mover, gate):
        gate.close(after=5)
        move = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        store.delete("orders", 0)
        assert move.state is CANCELLED
        assert "deleted" in str(move.error)
        settle(store)
        assert replica_dirs(base) == []
        with pytest.raises(UnknownPartitionError):
            mover.move("orders", 0, base / "b")
        assert len(mover.moves()) == 1


def test_a_closed_mover_leaves_moves_for_the_next(store: LogStore, log: Log, base: Path) -> None:
    """What ran is paused; the next mover goes on by itself and copies only the rest."""
    with gated(store) as (mover, gate):
        gate.close(after=5)
        move = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        mover.close()
        assert move.wait(0) is PAUSED
        with pytest.raises(MoveError):
            mover.move("orders", 0, base / "c")
    assert any(".move" in name for name in replica_dirs(base))
    with ReplicaMover(store) as mover:
        (resumed,) = mover.moves()
        assert resumed.move_id == move.move_id
        assert resumed.wait(SECONDS_MAX) is DONE
    check_whole(log, base, "b")


def test_a_closed_store_leaves_moves_for_the_next(base: Path) -> None:
    """The store closes in order under a move, and the next owner's mover ends it."""
    dirs = [base / "a", base / "b"]
    store = LogStore.open(dirs)
    log = store.create("orders", 0, log_dir=base / "a", config=CONFIG)
    fill(log, 60)
    mover = ReplicaMover(store)
    gate = Gate()
    mover.throttle = gate  # type: ignore[assignment]
    gate.close(after=5)
    move = mover.move("orders", 0, base / "b")
    gate.wait_until_held()
    assert store.close() == ()
    assert move.wait(0) is PAUSED
    with LogStore.open(dirs) as store:
        with ReplicaMover(store) as mover:
            (resumed,) = mover.moves()
            assert resumed.wait(SECONDS_MAX) is DONE
        settle(store)
        assert replica_dirs(base) == ["b/orders-0"]
        check_whole(store["orders", 0], base, "b")


# --- room -----------------------------------------------------------------------------------------


def test_two_moves_that_fit_singly(
    store: LogStore, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is refused before a byte; it succeeds when the first was cancelled."""
    logs = [store.create("orders", n, log_dir=base / "a", config=CONFIG) for n in (0, 1)]
    for log in logs:
        fill(log, 60)
    room = logs[0].size_bytes + (2 << 20)
    target = store._replicas.find_dir(str(base / "b"))
    assert target is not None
    usage = target.refresh_usage()._replace(usable_bytes=room)
    monkeypatch.setattr(target, "refresh_usage", lambda: usage)
    with gated(store) as (mover, gate):
        gate.close()
        first = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        second = mover.move("orders", 1, base / "b")
        assert (second.state, second.bytes_done) == (FAILED, 0)
        assert isinstance(second.error, TargetFullError)
        assert second.error.usable_bytes == room
        assert second.error.reserved_bytes > 1 << 20
        first.cancel()
        gate.open()
        second.retry()
        assert second.wait(SECONDS_MAX) is DONE
    assert logs[1].log_dir == str(base / "b")


# --- many -----------------------------------------------------------------------------------------


def test_moves_go_in_order_and_few_at_once(store: LogStore, base: Path) -> None:
    """By topic and partition, or the smallest first; never more than allowed."""
    sizes = {("b", 1): 1, ("a", 2): 5, ("a", 0): 9}
    for (topic, partition), count in sizes.items():
        fill(store.create(topic, partition, log_dir=base / "a", config=CONFIG), count)
    for order, target, expected in (
        ("name", "b", [("a", 0), ("a", 2), ("b", 1)]),
        ("smallest", "c", [("b", 1), ("a", 2), ("a", 0)]),
    ):
        store.create("first", 0, log_dir=base / "a", config=CONFIG).append(b"0:")
        ends: list[tuple[str, int]] = []
        options = {"num_replica_move_threads": 1, "order": order, "moves_per_disk_max": 1}
        with gated(store, **options) as (mover, gate):
            gate.close()
            blocker = mover.move("first", 0, base / target)
            gate.wait_until_held()
            moves = [mover.move(*key, base / target) for key in sizes]
            swap = type(mover)._end

            def end(self: Any, move: Any, *rest: Any, swap: Any = swap, ends: Any = ends) -> None:
                ends.append(tuple(move.key))
                swap(self, move, *rest)

            mover._end = end.__get__(mover)  # type: ignore[method-assign]
            gate.open()
            for move in [blocker, *moves]:
                assert move.wait(SECONDS_MAX) is DONE
        assert ends == expected  # the first one began before it was looked at
        store.delete("first", 0)


def test_a_request_is_complete_when_every_result_is_known(
    store: LogStore, log: Log, base: Path
) -> None:
    """KIP-113's response: no error for what moved, an error for what could not."""
    with ReplicaMover(store) as mover:
        response = mover.change_replica_dirs({base / "b": [("orders", 0), ("orders", 7)]})
        assert response.wait(SECONDS_MAX)
        assert response.results["orders", 0] is None
        assert isinstance(response.results["orders", 7], UnknownPartitionError)
        rows = response.to_dict()["partitions"]
        assert [(row["partition"], row["error_code"]) for row in rows] == [(0, 0), (7, 3)]
        response = mover.change_replica_dirs({base / "nowhere": [("orders", 0)]})
        assert response.is_complete
        assert response.to_dict()["partitions"][0]["error_code"] == 57
    check_whole(log, base, "b")


def test_no_thread_and_no_file_is_left_open(base: Path) -> None:
    """After a mover was closed there are as many threads and descriptors as before."""
    with LogStore.open([base / "a", base / "b"]) as store:
        log = store.create("orders", 0, log_dir=base / "a", config=CONFIG)
        fill(log, 60)
        threads = set(threading.enumerate())
        for _ in range(3):
            with ReplicaMover(store, num_replica_move_threads=4) as mover:
                for target in ("b", "a"):
                    assert mover.move("orders", 0, base / target).wait(SECONDS_MAX) is DONE
        assert set(threading.enumerate()) == threads
        settle(store)
        gc.collect()
        opened = [
            os.readlink(f"/proc/self/fd/{fd}")
            for fd in os.listdir("/proc/self/fd")
            if os.path.lexists(f"/proc/self/fd/{fd}")
        ]
        left = [path for path in opened if ".move" in path or "deleted" in path]
        assert [path for path in left if path.startswith(str(base))] == []
