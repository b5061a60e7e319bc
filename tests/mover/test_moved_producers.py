"""A move takes along what a log knows of its producers, whatever happens during the move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logstore import Log, LogStore
from logstore.log.producers import snapshot_files
from logstore.log.producers.producer_state import Producers
from mover.job import Job
from mover.swap import Swap
from support.hanging import QUIET
from support.inside import abandon
from support.moving import CONFIG, job_of
from support.producers import known, sent, snapshots_of, told

Open = Callable[[], LogStore]


@pytest.fixture
def open_store(base: Path) -> Iterator[Open]:
    """Return a function that opens the store of two log dirs again."""
    opened: list[LogStore] = []

    def open_it() -> LogStore:
        opened.append(LogStore.open([base / "a", base / "b"], config=QUIET, admin_socket=False))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Open) -> LogStore:
    return open_store()


@pytest.fixture
def log(store: LogStore, base: Path) -> Log:
    config = CONFIG.replace(record_format="kafka")
    log = store.create("orders", 0, log_dir=base / "a", config=config)
    log.extend([b"v" * 50] * 10)
    return log


def send(log: Log, first: int, count: int = 1) -> None:
    for number in range(first, first + count):
        log.append_encoded(sent(7, number))


def job_to(store: LogStore, base: Path) -> Job:
    """Return a job to the second log dir whose copy is complete."""
    job = job_of(store, base / "b", lambda log_dir, path: None)
    job.begin()
    job.copy()
    job.catch_up()
    return job


def swap_of(job: Job) -> Swap:
    return Swap(job.log, job.target, job.ends, job.move.key)


def after_a_kill(store: LogStore, open_store: Open) -> Log:
    """Open the log in its present state on the disk."""
    abandon(store)
    return open_store().log("orders", 0)


def test_a_moved_log_knows_its_producers(
    store: LogStore, log: Log, base: Path, open_store: Open
) -> None:
    """This also holds after a kill, before anything is flushed in the new log dir."""
    send(log, 0, 3)
    job = job_to(store, base)
    send(log, 3)
    assert swap_of(job).run()
    assert snapshots_of(log) == [log.log_end_offset] and log.log_dir == str(base / "b")
    send(log, 4)
    before = known(log)
    log = after_a_kill(store, open_store)
    assert log.log_dir == str(base / "b") and known(log) == before == told(log)


def test_the_first_producer_comes_just_before_the_lock(
    store: LogStore, log: Log, base: Path, open_store: Open
) -> None:
    """The copy then has no snapshot of producers, so it catches up again."""
    job = job_to(store, base)

    class Late(Swap):
        def prepare(self) -> None:
            super().prepare()
            send(log, 0)

    assert not Late(job.log, job.target, job.ends, job.move.key).run()
    job.catch_up()
    assert swap_of(job).run() and snapshots_of(log)
    before = known(log)
    log = after_a_kill(store, open_store)
    assert known(log) == before == told(log) != []


def test_a_truncation_between_takes_the_snapshot_of_the_copy_away(
    store: LogStore, log: Log, base: Path, open_store: Open
) -> None:
    """The snapshot would be after the end of the copy, and wrong when the copy grows."""
    send(log, 0, 30)
    job = job_to(store, base)

    class Late(Swap):
        def prepare(self) -> None:
            super().prepare()
            log.truncate_to(12)

    assert not Late(job.log, job.target, job.ends, job.move.key).run()
    log.extend([b"another history"] * 5)
    job.catch_up()
    target = Path(job.target.path)
    assert list(target.glob("*.producers")) == [] and job.target.snapshot_offset is None
    assert swap_of(job).run()
    assert snapshots_of(log) == [17]
    before = known(log)
    log = after_a_kill(store, open_store)
    assert known(log) == before == told(log)


def test_a_copy_that_an_earlier_run_left_loses_its_snapshot(
    store: LogStore, log: Log, base: Path, open_store: Open
) -> None:
    """It is unknown which records were truncated since the snapshot."""
    send(log, 0, 3)
    job = job_to(store, base)
    ahead = Producers().snapshot(99)
    snapshot_files.write(job.target.path, ahead, log._state.metadata)
    job.target.let_go()
    again = type(job.target)(job.ends, job.move.key, job.target.move_id, 512)
    again.begin(log._state.metadata)
    assert list(Path(again.path).glob("*.producers")) == [] and again.copies
