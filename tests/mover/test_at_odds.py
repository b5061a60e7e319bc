"""Test requests about moves at bad moments: from two threads, after a close, during a roll."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from logstore import Log, LogConfig, LogStore, TopicPartition
from logstore.log import relocation
from logstore.log.epochs import LeaderEpochs
from logstore.log.metadata import PartitionMetadata
from logstore.store.kafka.adoption import adopt
from mover import MoveError, MoveState, ReplicaMover, job
from mover.copying.target import Target
from mover.move import Move
from support.gate import SECONDS_MAX, gated
from support.kafka_golden import given, log_dirs
from support.moving import check_whole, fill, replica_dirs, settle

DONE, PAUSED = MoveState.DONE, MoveState.PAUSED
CANCELLED, FAILED = MoveState.CANCELLED, MoveState.FAILED


@pytest.mark.parametrize("record_format", ["columnar", "kafka"])
@pytest.mark.parametrize("verify", [True, False])
def test_a_log_knows_itself_after_a_move(base: Path, record_format: str, verify: bool) -> None:
    """After a move, a log has the same end, size, times and records, with and without checks."""
    config = LogConfig(
        segment_bytes=16 << 10, index_interval_bytes=512, record_format=record_format
    )
    with LogStore.open([base / "a", base / "b"]) as store:
        log = store.create("orders", 0, log_dir=base / "a", config=config)
        fill(log, 60)
        before = [(r.offset, r.value) for r in log]
        facts = log.log_end_offset, log.size_bytes, log.offset_for_timestamp(0)
        with ReplicaMover(store, verify=verify) as mover:
            move = mover.move("orders", 0, base / "b")
            assert move.wait(SECONDS_MAX) is DONE, move.error
        assert (log.log_end_offset, log.size_bytes, log.offset_for_timestamp(0)) == facts
        assert [(r.offset, r.value) for r in log] == before
        assert log.append(b"600:on", durable=True) == 600
        assert log.verify() == []
    with LogStore.open([base / "a", base / "b"]) as store:
        assert [(r.offset, r.value) for r in store["orders", 0]][:600] == before


def test_a_cancel_meets_a_pause(
    store: LogStore, log: Log, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a cancellation comes when the move is about to be paused, the move is cancelled."""
    leave, threads, asked = job.Job.leave, list[threading.Thread](), threading.Event()

    def leave_and_cancel(one: job.Job) -> None:
        leave(one)
        # What a cancellation calls after it has made its request.
        monkeypatch.setattr(mover._moves, "wake", asked.set)
        threads.append(threading.Thread(target=move.cancel, daemon=True))
        threads[0].start()
        assert asked.wait(SECONDS_MAX)

    monkeypatch.setattr(job.Job, "leave", leave_and_cancel)
    with gated(store) as (mover, gate):
        gate.hold(after=5)
        move = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        move.pause()
        threads[0].join(SECONDS_MAX)
        assert not threads[0].is_alive()
    assert move.state is CANCELLED
    assert replica_dirs(base) == ["a/orders-0"]


def test_a_retry_takes_the_place_of_another_move(store: LogStore, log: Log, base: Path) -> None:
    """A replica has only one move at a time, however the move was requested."""
    with gated(store) as (mover, gate):
        store.cordon(base / "b")
        failed = mover.move("orders", 0, base / "b")
        assert failed.state is FAILED
        store.uncordon(base / "b")
        gate.hold(after=5)
        other = mover.move("orders", 0, base / "c")
        gate.wait_until_held()
        failed.retry()
        assert other.state is CANCELLED
        gate.open()
        assert failed.wait(SECONDS_MAX) is DONE
    settle(store)
    assert replica_dirs(base) == ["b/orders-0"]
    check_whole(log, base, "b")


def test_a_retry_of_a_move_to_where_it_is(store: LogStore, log: Log, base: Path) -> None:
    """If another move has already reached the target, a retry copies nothing."""
    with ReplicaMover(store) as mover:
        store.cordon(base / "b")
        failed = mover.move("orders", 0, base / "b")
        assert failed.state is FAILED
        store.uncordon(base / "b")
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
        settle(store)
        failed.retry()
        assert failed.wait(SECONDS_MAX) is DONE
    settle(store)
    assert replica_dirs(base) == ["b/orders-0"]
    check_whole(log, base, "b")


def test_a_closed_mover_has_no_say(store: LogStore, log: Log, base: Path) -> None:
    """A closed mover refuses requests about its moves: the moves belong to the next mover."""
    with gated(store) as (mover, gate):
        gate.hold(after=5)
        move = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        mover.close()
        assert move.state is PAUSED
        for call in (move.resume, move.cancel):
            with pytest.raises(MoveError):
                call()
    assert any(".move" in name for name in replica_dirs(base))
    with ReplicaMover(store) as mover:
        (resumed,) = mover.moves()
        assert resumed.wait(SECONDS_MAX) is DONE
    check_whole(log, base, "b")


def test_an_epoch_that_begins_before_the_lock(
    store: LogStore, log: Log, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target has the log's leader epochs, including an epoch that began at the last moment."""
    write_marks = relocation.write_marks

    def write_and_append(one: Log, *marks: object) -> None:
        write_marks(one, *marks)  # type: ignore[arg-type]
        if one.leader_epoch < 7:
            one.leader_epoch = 7
            one.append(b"600:x", durable=True)

    monkeypatch.setattr(relocation, "write_marks", write_and_append)
    with ReplicaMover(store) as mover:
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
    known = log._state.replication.epochs.entries
    assert known[-1] == (7, 600)
    on_disk = LeaderEpochs.read(str(base / "b" / "orders-0"))
    assert on_disk is not None
    assert on_disk.entries == known


def test_a_truncation_to_where_a_segment_begins(store: LogStore, log: Log, base: Path) -> None:
    """A copy follows a truncation that removes whole segments that were already rolled."""

    def cut() -> None:
        bases = [s.base_offset for s in log._state.segments]
        if gate.passed > 20 and len(bases) > 2:
            log.truncate_to(bases[-2])

    with gated(store) as (mover, gate):
        gate.before = cut
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
    check_whole(log, base, "b")


def test_regression_a_truncation_into_a_segment_that_was_copied_and_sealed(
    store: LogStore, log: Log, base: Path
) -> None:
    """After the truncation, the last segment is read again; its earlier seal does not count."""
    cuts = [5]

    def cut() -> None:
        if gate.passed > 20 and cuts:
            log.truncate_to(cuts.pop())

    with gated(store) as (mover, gate):
        gate.before = cut
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
    assert not cuts
    check_whole(log, base, "b")
    fill(log, 1)
    check_whole(log, base, "b")


def test_a_truncation_behind_the_mark(
    store: LogStore, log: Log, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the log is cut after the mark was written, the mark is not used: a new one is written."""
    mark, marks = Target.mark_caught_up, list[int]()

    def mark_and_cut(target: Target, source: PartitionMetadata, end: int) -> PartitionMetadata:
        clean = mark(target, source, end)
        marks.append(end)
        if len(marks) == 1:
            log.truncate_to(500)
            fill(log, 2)
        return clean

    monkeypatch.setattr(Target, "mark_caught_up", mark_and_cut)
    with ReplicaMover(store) as mover:
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
    assert len(marks) == 2 and marks[1] == log.log_end_offset
    check_whole(log, base, "b")


@pytest.mark.parametrize("verify", [True, False])
def test_a_compacted_log_of_a_broker_is_moved(base: Path, verify: bool) -> None:
    """Offsets that a broker's compaction removed are no gap: the move continues after them."""
    key = TopicPartition("compacted", 0)
    expected = given("stopped")["compacted", 0].uncommitted  # type: ignore[index]
    homes = [base / "a", base / "b"]
    (base / "broker").mkdir()
    with LogStore.open(homes) as store, ReplicaMover(store, verify=verify) as mover:
        with LogStore.open_kafka(log_dirs("stopped", base / "broker")) as broker:
            adopt(store, broker, key, lambda _: None)
        log = store.log(*key)
        end = log.log_end_offset
        assert len(expected) < end - log.log_start_offset
        (target,) = (home for home in homes if str(home) != log.log_dir)
        move = mover.move(*key, target)
        assert move.wait(SECONDS_MAX) is DONE, move.error
        assert [tuple(record[:5]) for record in log] == expected
        assert (log.log_end_offset, log.verify()) == (end, [])
        assert log.append(b"on", durable=True) == end
    with LogStore.open(homes) as store:
        assert store.recovery_report.problems == []
        assert [tuple(record[:5]) for record in store.log(*key)][:-1] == expected


def test_a_cancel_meets_a_retry(
    store: LogStore, log: Log, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A move that is cancelled before its retry is queued stays cancelled, and reserves nothing."""
    with ReplicaMover(store) as mover:
        store.cordon(base / "b")
        failed = mover.move("orders", 0, base / "b")
        assert failed.state is FAILED
        store.uncordon(base / "b")
        renew = mover._moves.renew

        def cancel_first(move: Move) -> None:
            move.cancel()
            renew(move)

        monkeypatch.setattr(mover._moves, "renew", cancel_first)
        failed.retry()
        assert failed.state is CANCELLED
        assert not store.host.replicas.running_moves and not mover._moves.queued()
        assert mover.move("orders", 0, base / "c").wait(SECONDS_MAX) is DONE
    check_whole(log, base, "c")
