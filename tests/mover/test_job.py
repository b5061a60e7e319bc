"""Run the steps of one move in the test's own thread, and stop between any two of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logstore import Log, LogClosedError, LogStore, LogStoreError, UnknownPartitionError
from logstore.disk.log_dir import LogDir
from logstore.disk.states import Event
from logstore.errors import LogDirFullError, LogDirOfflineError, LogDirSuspectError
from logstore.log import relocation
from mover import MoveCancelledError, MoveState
from mover.copying.copy_segments import StoppedError
from mover.errors import TargetUnfitError
from mover.job import Job, check_fit, run, without_frames
from mover.move import Wanted
from support.moving import check_whole, fill, job_of, replica_dirs

Purges = list[tuple[str, str]]


@pytest.fixture
def purges() -> Purges:
    """Return the list of what jobs have purged: the log dir and the directory."""
    return []


def job_to(store: LogStore, target: Path, purges: Purges, move_id: str = "") -> Job:
    """Make a job that records what it has purged."""
    return job_of(store, target, lambda d, path: purges.append((d.path, path)), move_id)


def test_each_step_leaves_what_the_next_begins_with(
    store: LogStore, log: Log, base: Path, purges: Purges
) -> None:
    """The order is: marks, then bytes, then later appends, then one live directory."""
    job = job_to(store, base / "b", purges)
    name = os.path.relpath(job.target.path, base)
    job.begin()
    assert replica_dirs(base) == ["a/orders-0", name]
    assert job.target.path in store.host.replicas.copies.begun
    assert (moved := relocation.metadata_of(log).moving) and moved.move_id == job.move.move_id
    assert (job.move.state, job.move.bytes_done) == (MoveState.COPYING, 0)

    job.copy()
    assert (job.move.state, job.move.bytes_done) == (MoveState.CATCHING_UP, log.size_bytes)
    fill(log, 3)
    assert job.move.lag_bytes > 0
    job.catch_up()
    assert (job.move.lag_bytes, log.log_dir) == (0, str(base / "a"))

    assert job.swap()
    ((source, doomed),) = purges
    assert source == str(base / "a") and doomed.endswith(".delete")
    assert replica_dirs(base) == [os.path.relpath(doomed, base), "b/orders-0"]
    assert job.target.path not in store.host.replicas.copies.begun
    check_whole(log, base, "b")


REFUSALS: dict[Event, type[LogStoreError]] = {
    Event.FULL: LogDirFullError,
    Event.STUCK: LogDirSuspectError,
    Event.CORDON: TargetUnfitError,
    Event.FAILED: LogDirOfflineError,
}


@pytest.mark.parametrize("event", REFUSALS, ids=lambda event: event.name)
def test_a_target_that_takes_nothing_is_refused(
    store: LogStore,
    log: Log,
    base: Path,
    purges: Purges,
    event: Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither a mark nor a directory is made for a target that accepts nothing."""
    # A keeper looks for room as soon as a disk is full.
    monkeypatch.setattr(LogDir, "_look_for_room", lambda _: False)
    job = job_to(store, base / "b", purges)
    check_fit(job.move, job.ends.target)
    job.ends.target.change(event, "as a test has it")
    with pytest.raises(REFUSALS[event]):
        check_fit(job.move, job.ends.target)
    with pytest.raises(REFUSALS[event]):
        job.run()
    assert relocation.metadata_of(log).moving is None
    assert replica_dirs(base) == ["a/orders-0"]


def test_a_replica_that_is_not_served_has_no_job(
    store: LogStore, log: Log, base: Path, purges: Purges
) -> None:
    """The error names the partition."""
    job = job_to(store, base / "b", purges)
    store.delete("orders", 0)
    with pytest.raises(UnknownPartitionError, match="orders"):
        Job(job.move, job.replicas, job.ends.target, job.purge, is_verified=True)


def test_a_job_that_gives_up_leaves_nothing(
    store: LogStore, log: Log, base: Path, purges: Purges
) -> None:
    """The copy and its marks are removed, and the log is still served from the source."""
    job = job_to(store, base / "b", purges)
    job.begin()
    job.copy()
    job.give_up(is_cancelled=True)
    assert replica_dirs(base) == ["a/orders-0"] and not purges
    assert relocation.metadata_of(log).moving is None
    assert (job.move.bytes_done, store.host.replicas.copies.begun) == (0, {})
    fill(log, 1)
    check_whole(log, base, "a")


def test_the_next_job_goes_on_where_one_left(
    store: LogStore, log: Log, base: Path, purges: Purges
) -> None:
    """The bytes of a copy that was left count as done, and only new bytes are copied."""
    first = job_to(store, base / "b", purges)
    first.begin()
    first.copy()
    copied = first.move.bytes_done
    first.leave()
    assert store.host.replicas.copies.moves[first.move.key].path == first.target.path
    fill(log, 2)

    second = job_to(store, base / "b", purges, first.move.move_id)
    second.begin()
    assert second.move.bytes_done == copied
    second.copy()
    assert second.move.throttle.passed < first.move.throttle.passed  # type: ignore[attr-defined]
    while not second.swap():
        second.catch_up()
    check_whole(log, base, "b")
    assert [log_dir for log_dir, _ in purges] == [str(base / "a")]


def test_another_move_id_begins_anew(store: LogStore, log: Log, base: Path, purges: Purges) -> None:
    """The copy of an earlier move is purged, because the live copy no longer names that move."""
    first = job_to(store, base / "b", purges)
    first.begin()
    first.copy()
    first.leave()
    second = job_to(store, base / "c", purges)
    second.begin()
    assert purges == [(str(base / "b"), first.target.path)]
    assert second.move.bytes_done == 0 and not store.host.replicas.copies.moves


ENDS: list[tuple[Exception, Wanted | None, MoveState, bool]] = [
    (StoppedError(), Wanted.PAUSE, MoveState.PAUSED, True),
    (StoppedError(), Wanted.CANCEL, MoveState.CANCELLED, False),
    (LogClosedError("the store was closed"), None, MoveState.PAUSED, True),
    (LogDirSuspectError(path="/disk", reason="it hangs"), None, MoveState.PAUSED, True),
    (LogDirFullError(path="/disk"), None, MoveState.FAILED, False),
]


@pytest.mark.parametrize(("error", "wanted", "state", "is_left"), ENDS)
def test_what_stops_a_job_decides_what_becomes_of_the_copy(
    store: LogStore,
    log: Log,
    base: Path,
    purges: Purges,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    wanted: Wanted | None,
    state: MoveState,
    is_left: bool,
) -> None:
    """If the move will resume, the copy is kept; if it was cancelled or failed, it is removed."""
    job = job_to(store, base / "b", purges)
    told: list[tuple[MoveState, LogStoreError | None]] = []

    def stop() -> None:
        job.move.wanted = wanted
        raise error

    monkeypatch.setattr(job, "catch_up", stop)
    monkeypatch.setattr(job, "swap", lambda: False)
    run(job.move, job, lambda move, state, error: told.append((state, error)))
    ((became, why),) = told
    assert became is state
    assert (len(replica_dirs(base)) == 2) is is_left
    assert job.move.is_held_up is isinstance(error, LogDirSuspectError)
    if state is MoveState.CANCELLED:
        assert isinstance(why, MoveCancelledError)
    else:
        assert why is (error if state is MoveState.FAILED else None)
    check_whole(log, base, "a")


def test_an_error_that_is_kept_holds_no_frames() -> None:
    """Neither the error's own frames nor those of its causes are kept."""
    try:
        try:
            raise OSError("the disk is gone")
        except OSError as cause:
            raise LogDirFullError(path="/disk") from cause
    except LogStoreError as caught:
        error = without_frames(caught)
    assert error.__traceback__ is None
    assert error.__cause__ is not None and error.__cause__.__traceback__ is None
