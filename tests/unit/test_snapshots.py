"""A flush, a close and a truncation write snapshots of producers; wrong ones are removed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore import Log, LogConfig, LogDirError, LogStore
from logstore.disk import files
from logstore.format import producer_file
from logstore.log.producers import snapshot_files
from logstore.log.producers.producer_state import Producers
from logstore.log.producers.walk import batches_of_producers
from logstore.log.write import roll
from support.hanging import QUIET
from support.inside import abandon
from support.producers import known, marker_of, sent, snapshots_of, told

KAFKA = LogConfig(record_format="kafka", segment_bytes=1024)


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Callable[[], LogStore]]:
    """Return a function that opens the same store again."""
    opened: list[LogStore] = []

    def open_it() -> LogStore:
        opened.append(LogStore.open(tmp_path / "d", config=QUIET, admin_socket=False))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], LogStore]) -> LogStore:
    return open_store()


@pytest.fixture
def log(store: LogStore) -> Log:
    return store.create("t", 0, config=KAFKA)


def fill(log: Log, count: int, producer_id: int = 7) -> None:
    """Append batches of one record with the next sequences of a producer."""
    states = {state.producer_id: state.last_sequence for state in log.producer_states()}
    first = states.get(producer_id, -1) + 1
    for number in range(count):
        log.append_encoded(sent(producer_id, first + number))


def again(store: LogStore, open_store: Callable[[], LogStore], *, is_killed: bool) -> Log:
    """Open the log again, after a kill or a clean close."""
    if is_killed:
        abandon(store)
    else:
        store.close()
    return open_store().log("t", 0)


def test_a_log_without_producers_has_no_snapshot(
    store: LogStore, open_store: Callable[[], LogStore], log: Log
) -> None:
    """The open of such a log looks for none, even after a kill."""
    log.extend([b"v"] * 50)
    log.flush()
    log = again(store, open_store, is_killed=True)
    assert not log._state.producers.are_known
    log.close()
    assert snapshots_of(log) == []


def test_the_first_flush_writes_one_and_then_each_roll(log: Log) -> None:
    """The two newest snapshots are kept."""
    fill(log, 1)
    assert snapshots_of(log) == []
    log.flush()
    fill(log, 1)
    log.flush()
    assert snapshots_of(log) == [1]
    found: list[int] = []
    while len(found) < 4:
        fill(log, 1)
        rolled = log._state.active.base_offset
        log.flush()
        if rolled not in found and rolled:
            found.append(rolled)
            assert snapshots_of(log)[-1] == log.log_end_offset
    assert len(snapshots_of(log)) == 2
    assert tuple(snapshots_of(log)) == log._state.producers.snapshots


def test_a_close_writes_one_at_the_end_and_an_open_replays_nothing(
    store: LogStore,
    open_store: Callable[[], LogStore],
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log without new records gets no further snapshot."""
    fill(log, 30)
    before = known(log)
    monkeypatch.setattr("logstore.log.producers.walk.Cursor", None)  # would fail
    reopened = again(store, open_store, is_killed=False)
    assert snapshots_of(reopened)[-1] == 30 and known(reopened) == before
    names = set(os.listdir(reopened.directory))
    reopened.close()
    assert set(os.listdir(reopened.directory)) == names


@pytest.mark.parametrize("flushed", [0, 1, 29])
def test_a_killed_process_loses_no_producer(
    store: LogStore, open_store: Callable[[], LogStore], log: Log, flushed: int
) -> None:
    """This also holds if the process never flushed, or flushed long ago."""
    fill(log, flushed)
    if flushed:
        log.flush()
    fill(log, 40)
    log.append_encoded(sent(8, 0, transactional=True))
    before = known(log)
    log = again(store, open_store, is_killed=True)
    assert known(log) == before == told(log)
    assert log.last_stable_offset == flushed + 40
    assert log.append_encoded(sent(7, flushed + 39)) == range(flushed + 39, flushed + 40)


@pytest.mark.parametrize("harm", ["cut", "flipped", "of another log", "symlink", "huge", "all"])
def test_a_damaged_snapshot_only_makes_the_replay_longer(
    store: LogStore, open_store: Callable[[], LogStore], log: Log, harm: str, tmp_path: Path
) -> None:
    """The previous snapshot is read; if all are damaged, the whole log is replayed."""
    fill(log, 20)
    log.flush()
    fill(log, 30)
    before = known(log)
    store.close()
    offsets = snapshots_of(log)
    for offset in offsets if harm == "all" else offsets[-1:]:
        path = Path(snapshot_files.path_of(log.directory, offset))
        data = bytearray(path.read_bytes())
        if harm == "cut":
            path.write_bytes(data[:-1])
        elif harm == "symlink":
            path.rename(tmp_path / "elsewhere")
            path.symlink_to(tmp_path / "elsewhere")
        elif harm == "huge":
            os.truncate(path, producer_file.FILE_BYTES_MAX + 1)
        else:
            data[9 if harm == "of another log" else -20] ^= 1
            path.write_bytes(data)
    log = open_store().log("t", 0)
    assert known(log) == before
    warnings = [each for each in log._state.recovery.warnings if "producers" in each]
    assert len(warnings) == (2 if harm == "all" else 1)


def test_poison_is_removed_before_the_log_serves(
    store: LogStore, open_store: Callable[[], LogStore], log: Log
) -> None:
    """A snapshot after the log end describes records that do not exist."""
    fill(log, 3)
    log.flush()
    ahead = Producers()
    store.close()
    snapshot_files.write(log.directory, ahead.snapshot(4), log._state.metadata)
    log = open_store().log("t", 0)
    assert snapshots_of(log) == [3] and known(log) == told(log)
    assert any("offset after the log end" in each for each in log._state.recovery.warnings)


@pytest.mark.parametrize("cut_at", range(0, 40, 3))
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_truncation_makes_the_producers_as_they_were(
    store: LogStore, open_store: Callable[[], LogStore], log: Log, cut_at: int, is_killed: bool
) -> None:
    """This holds in memory and after a start, also within a batch and in a transaction."""
    fill(log, 5)
    log.flush()
    log.append_encoded(sent(8, 0, (b"a",) * 4, transactional=True))
    fill(log, 10)
    log.append_encoded(marker_of(8, commit=False))
    log.flush()
    fill(log, 20)
    log.truncate_to(cut_at)
    assert known(log) == told(log) and all(at <= cut_at for at in snapshots_of(log))
    fill(log, 2, producer_id=9)
    expected = known(log)
    log = again(store, open_store, is_killed=is_killed)
    assert known(log) == expected == told(log)


def test_a_truncation_finds_a_snapshot_of_which_memory_does_not_know(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt came after the file was written."""
    fill(log, 9)
    write = snapshot_files.write

    def broken(*arguments: Any) -> None:
        write(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(snapshot_files, "write", broken)
        log.flush()
    assert snapshots_of(log) == [9] and log._state.producers.snapshots == ()
    log.truncate_to(4)
    assert snapshots_of(log) == [4]


def full_for(suffix: str) -> Callable[..., int]:
    """Make an `open_file` for which the disk is full for some files."""
    open_file = files.open_file

    def refuse(path: str, flags: int, *rest: Any) -> int:
        if suffix in os.path.basename(path) and flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return open_file(path, flags, *rest)

    return refuse


def test_nothing_counts_as_flushed_without_a_first_snapshot(
    store: LogStore,
    open_store: Callable[[], LogStore],
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise, after a crash, producers before the recovery point would not be found."""
    fill(log, 12)
    with monkeypatch.context() as patched:
        patched.setattr(files, "open_file", full_for(".producers"))
        with pytest.raises(LogDirError) as caught:
            log.flush()
        assert caught.value.retriable and log.recovery_point == 0
    assert log.flush() == 12 and snapshots_of(log) == [12]
    assert not log._state.unflushed


def test_a_full_disk_delays_a_later_snapshot(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records are durable anyway."""
    fill(log, 1)
    log.flush()
    fill(log, 30)
    with monkeypatch.context() as patched:
        patched.setattr(files, "open_file", full_for(".producers"))
        assert log.flush() == 31
    assert snapshots_of(log) == [1]
    fill(log, 1)
    log.flush()
    assert snapshots_of(log) == [1, 32]


def test_a_follower_that_begins_anew_forgets_all_producers(
    store: LogStore, open_store: Callable[[], LogStore], log: Log
) -> None:
    """The marker of an open transaction may be among the skipped records."""
    log.append_encoded(sent(8, 0, transactional=True))
    with log._state.lock:
        roll.roll(log._state, 1)
    log.flush()
    log.delete_records_before(1)
    assert log.last_stable_offset == 1 and known(log) and snapshots_of(log) == [1]
    data = bytearray(sent(9, 4))
    data[:8], data[12:16] = (70).to_bytes(8, "big"), bytes(4)
    log.append_as_follower(bytes(data))
    assert log.last_stable_offset == 71
    assert [state.producer_id for state in known(log)] == [9]
    log = again(store, open_store, is_killed=True)
    assert [state.producer_id for state in known(log)] == [9] and log.last_stable_offset == 71


def test_deleted_records_end_no_transaction(
    store: LogStore, open_store: Callable[[], LogStore], log: Log
) -> None:
    """Its other records and its marker are still to come."""
    log.append_encoded(sent(8, 0, transactional=True))
    fill(log, 40)
    log.delete_records_before(35)
    assert log.last_stable_offset == 35
    assert log.read(35, isolation_level="read_committed") == []
    log = again(store, open_store, is_killed=False)
    assert log.last_stable_offset == 35
    log.append_encoded(marker_of(8, commit=True))
    assert log.last_stable_offset == 42


@pytest.mark.parametrize("start", [5, 35])
def test_regression_a_transaction_that_ended_before_the_log_start_stays_ended(
    store: LogStore, open_store: Callable[[], LogStore], log: Log, start: int
) -> None:
    """After a truncation, it was open for ever, and readers of committed records saw no more.

    The snapshot from before the marker was used, but the marker was not replayed, because it was
    deleted. With 35, its segment was removed, too.
    """
    log.append_encoded(sent(8, 0, transactional=True))
    log.flush()
    log.append_encoded(marker_of(8, commit=True))
    fill(log, 40)
    log = again(store, open_store, is_killed=False)
    assert snapshots_of(log) == [1, 42]
    log.delete_records_before(start)
    log.append_encoded(sent(8, 1, transactional=True))
    log.truncate_to(40)
    assert all(one.open_offset == -1 for one in log.producer_states())
    assert log.last_stable_offset == log.log_end_offset == 40
    assert log.append_encoded(sent(7, 38)).base_offset == 40  # the sequence goes on


def test_a_damaged_batch_in_the_replay_makes_the_log_corrupt(
    store: LogStore, open_store: Callable[[], LogStore], log: Log
) -> None:
    """Whole batches stay readable; after a repair, the producers are found again."""
    fill(log, 30)
    log.flush()
    first = log._state.segments[0]
    store.close()
    for offset in snapshots_of(log):
        os.remove(snapshot_files.path_of(log.directory, offset))
    Path(snapshot_files.path_of(log.directory, 5)).write_bytes(b"damaged")
    with open(first.log_path, "r+b") as file:
        file.seek(first.last_position + 70)
        file.write(b"\xff\xff\xff\xff")
    store = open_store()
    log = store.log("t", 0)
    assert log._state.refusal and log._state.recovery.problems
    store.repair("t", 0)
    assert not log._state.refusal and known(log) == told(log) != []


def test_a_walk_passes_over_what_is_deleted_meanwhile(log: Log) -> None:
    """A rebuild after an interrupt holds only the lock of appends."""
    fill(log, 60)
    log.flush()
    walk = batches_of_producers(log._state, 0, 60)
    assert next(walk)[0].base_offset == 0
    log.delete_records_before(40)
    assert {header.base_offset for header, _ in walk} >= set(range(40, 60))
