"""A disk that hangs is noticed, and waiting threads get an error; the test makes the looks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logstore import LogConfig, LogDirOfflineError, LogDirSuspectError, LogStore
from logstore.disk import calls, files
from logstore.disk.calls import call, under_way
from logstore.log.log import Log
from logstore.store.dirs.watchdog import GOOD_PROBES
from support.hanging import LATE, QUIET, Caller, Hang, Watch, hang
from support.inside import keepers_of, watchdog_of
from support.interrupts import InterruptAt


class Scene:
    """A store of two log dirs with a log on each; the disk of the first one will hang."""

    def __init__(self, root: Path) -> None:
        self.dirs = [str(root / "sick"), str(root / "well")]
        self.store = LogStore.open(self.dirs, config=QUIET)
        config = LogConfig(segment_bytes=1024)
        self.log = self.store.create("orders", 0, log_dir=self.dirs[0], config=config)
        self.other = self.store.create("orders", 1, log_dir=self.dirs[1])
        self.sick = self.store.host.replicas.dir_of(self.dirs[0])
        self.watch = Watch(self.store)

    def answer(self, *, later: float = 0.0) -> None:
        """Let the disk answer often enough."""
        self.sick.good_probes = GOOD_PROBES
        self.watch.look(later=later)

    def check_well(self) -> None:
        """The other log dir neither waits nor fails."""
        assert self.other.append(b"well", durable=True) == self.other.log_end_offset - 1
        assert self.other[-1].value == b"well"

    def check_refused(self) -> None:
        """Each new call to the bad dir is refused at once, with a retriable error."""
        log, store = self.log, self.store
        calls: list[Callable[[], object]] = [
            lambda: log.append(b"x"),
            lambda: log.append(b"x", durable=True),
            lambda: log.extend([b"x"]),
            lambda: log.read(0),
            lambda: log[0],
            log.flush,
            lambda: log.truncate_to(0),
            lambda: log.delete_records_before(0),
            lambda: store.delete("orders", 0),
            lambda: store.create("new", 0, log_dir=self.dirs[0]),
        ]
        for attempt in calls:
            with pytest.raises(LogDirSuspectError) as raised:
                attempt()
            assert raised.value.retriable


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Return a store whose first disk can hang."""
    one = Scene(tmp_path)
    try:
        yield one
    finally:
        one.store.close()


def append(scene: Scene) -> object:
    return scene.log.append(b"it")


def roll(scene: Scene) -> object:
    return scene.log.append(b"r" * 1000)


def flush(scene: Scene) -> object:
    return scene.log.flush()


def durable(scene: Scene) -> object:
    return scene.log.append(b"it", durable=True)


def truncate(scene: Scene) -> None:
    scene.log.truncate_to(1)


def delete_before(scene: Scene) -> None:
    scene.log.delete_records_before(1)


def checkpoint(scene: Scene) -> None:
    scene.log.checkpoint(is_closing=True)


def read(scene: Scene) -> object:
    return len(scene.log.read(0))


STUCK = (
    (append, "pwrite"),
    (roll, "open_file"),
    (flush, "fdatasync"),
    (flush, "fsync"),
    (durable, "pwrite"),
    (durable, "fdatasync"),
    (truncate, "rename"),
    (truncate, "open_file"),
    (delete_before, "fsync"),
    (checkpoint, "open_file"),
    (read, "pread"),
)


@pytest.mark.parametrize(("operation", "name"), STUCK, ids=lambda it: getattr(it, "__name__", it))
def test_who_waits_for_one_that_hangs_is_told(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    operation: Callable[[Scene], object],
    name: str,
) -> None:
    """All threads get an error while the disk hangs; when it is back, calls and log work.

    Nothing that was refused stands in the log, and nothing that was acknowledged is missing.
    """
    log = scene.log
    log.extend([b"a", b"b", b"c"], durable=name == "open_file" and operation is checkpoint)
    before = [record.value for record in log] if operation is not read else []
    with hang(monkeypatch, scene.dirs[0], name) as disk:
        stuck = Caller(lambda: operation(scene))
        assert disk.began.wait(60)
        waiting = [Caller(lambda: log.append(b"waiter")) for _ in range(3)]
        if operation is not read:  # a flush reads too, and would hang by itself
            waiting += [Caller(log.flush), Caller(lambda: log.append(b"waiter", durable=True))]
        scene.watch.suspect()
        assert scene.sick.is_suspect
        scene.watch.look(6)
        outcomes = [caller.outcome() for caller in waiting]
        scene.check_refused()
        scene.check_well()
        assert not stuck.is_back()
        scene.answer(later=LATE)
        assert scene.sick.is_suspect, "it serves though a call hangs"
        disk.released.set()
        outcome = stuck.outcome()
        if operation is read or (operation, name) == (durable, "pwrite"):
            assert not isinstance(outcome, BaseException) or isinstance(outcome, LogDirSuspectError)
        else:
            assert not isinstance(outcome, BaseException)
    scene.answer()
    assert not scene.sick.is_suspect
    assert not log._state.in_custody
    taken = [outcome for outcome in outcomes if isinstance(outcome, int)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert all(isinstance(error, LogDirSuspectError) for error in refused), refused
    found = [record.value for record in log]
    if operation in (append, roll, durable):
        assert not [value for value in found[3:] if value == b"waiter"] or taken
    assert found[: len(before)] == before or operation in (truncate, delete_before)
    assert log.append(b"more", durable=True) == log.log_end_offset - 1
    assert not log.verify()


def test_group_commit_lets_its_followers_go(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of the hanging group may be in the log; records of later groups are not."""
    log, callers = scene.log, []
    with hang(monkeypatch, scene.dirs[0], "fdatasync") as disk:
        callers.append(Caller(lambda: log.append(b"alone", durable=True)))
        assert disk.began.wait(60)
        callers += [Caller(lambda: log.append(b"group", durable=True)) for _ in range(7)]
        commit = log._group_commit()
        waiting = threading.Event()
        while sum(len(group.records) for group in commit._waiting) < 7:
            waiting.wait(0.001)
        scene.watch.suspect()
        scene.watch.look(4)
        for caller in callers[1:]:
            error = caller.outcome()
            assert isinstance(error, LogDirSuspectError)
            assert error.retriable and "nothing was written" in str(error)
        disk.released.set()
        assert callers[0].outcome() == 0
    scene.answer()
    assert [record.value for record in log] == [b"alone"]
    assert [log.append(b"x", durable=True) for _ in range(3)] == [1, 2, 3]


def test_followers_of_the_group_that_hangs_may_stand(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their leader is writing their records, so the error says that they may be in the log."""
    log = scene.log
    commit = log._group_commit()
    with hang(monkeypatch, scene.dirs[0], "fdatasync") as first:
        alone = Caller(lambda: log.append(b"alone", durable=True))
        assert first.began.wait(60)
        followers = [Caller(lambda: log.append(b"group", durable=True)) for _ in range(5)]
        pause = threading.Event()
        while sum(len(group.records) for group in commit._waiting) < 5:
            pause.wait(0.001)
        second = Hang(scene.dirs[0], "fdatasync")
        with monkeypatch.context() as patch:
            second.install(patch)
            first.released.set()
            assert alone.outcome() == 0
            assert second.began.wait(60)
            scene.watch.suspect()
            scene.watch.look(4)
            while sum(caller.is_back() for caller in followers) < 4:
                pause.wait(0.001)
            second.released.set()
            outcomes = [caller.outcome() for caller in followers]
    told = [outcome for outcome in outcomes if isinstance(outcome, LogDirSuspectError)]
    assert len(told) == 4
    assert all("may be in the log" in str(error) and not error.retriable for error in told)
    scene.answer()
    assert not scene.sick.is_suspect
    assert [record.value for record in log] == [b"alone", *[b"group"] * 5]
    assert log.append(b"x", durable=True) == 6


def follower_bytes(scene: Scene) -> bytes:
    """Return a batch that begins at offset 2."""
    source = scene.store.create("source", 0, log_dir=scene.dirs[1])
    source.extend([b"a", b"b"])
    source.append(b"c")
    return source.read_raw(2)


def test_a_follower_that_hangs_as_it_begins_is_waited_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This also holds for an empty log that takes its leader's first offset."""
    raw, log = follower_bytes(scene), scene.log
    with hang(monkeypatch, scene.dirs[0], "fsync") as disk:
        stuck = Caller(lambda: log.append_as_follower(raw))
        assert disk.began.wait(60)
        waiting = [Caller(lambda: log.append(b"waiter")) for _ in range(3)]
        scene.watch.suspect()
        scene.watch.look(6)
        told = [caller.outcome() for caller in waiting]
        assert all(isinstance(error, LogDirSuspectError) for error in told)
        disk.released.set()
        assert stuck.outcome() == range(2, 3)
    scene.answer()
    assert not scene.sick.is_suspect and not log._state.in_custody
    assert [record.value for record in log] == [b"c"]
    assert log.append(b"more", durable=True) == 3


def test_a_follower_that_hangs_and_then_fails_says_why(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock was released for it, but the error is that of the disk."""
    raw, log = follower_bytes(scene), scene.log

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(files, "fsync", fail)
        with hang(monkeypatch, scene.dirs[0], "fsync") as disk:
            stuck = Caller(lambda: log.append_as_follower(raw))
            assert disk.began.wait(60)
            scene.watch.suspect()
            scene.watch.look(6)
            assert log._state.in_custody == {"flush_lock", "lock"}
            disk.released.set()
            assert isinstance(stuck.outcome(), LogDirOfflineError)
    assert not log._state.in_custody


def test_the_store_goes_on_without_it(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """`flush` reports the skipped dir, and returns if a dir begins to hang."""
    scene.log.append(b"x")
    with hang(monkeypatch, scene.dirs[0], "fdatasync") as disk:
        flushing = Caller(scene.store.flush)
        assert disk.began.wait(60)
        scene.watch.suspect()
        assert isinstance(flushing.outcome(), LogDirSuspectError)
        assert scene.store.flush() == (scene.dirs[0],)
        assert scene.store.create("new", 0).log_dir == scene.dirs[1]
        assert len(scene.store.describe_dirs().log_dirs) == len(scene.store.metrics().log_dirs) == 2
        assert len(list(scene.store)) == 3
        assert scene.store.close() == (scene.dirs[0],)
        disk.released.set()
    with pytest.raises(Exception, match="closed"):
        scene.other.append(b"x")


def test_an_append_that_gets_on_is_not_stuck(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that writes at each look, at another position, is not stuck."""
    with hang(monkeypatch, scene.dirs[0], "pwrite") as disk:
        first = Caller(lambda: scene.log.append(b"x"))
        assert disk.began.wait(60)
        scene.watch.look()
        position = scene.log._state.writing
        scene.log._state.writing = position + 8
        scene.watch.look(later=10_000)
        assert not scene.sick.is_suspect
        disk.released.set()
        assert first.outcome() == 0
    assert scene.log._state.writing == -1


def test_work_on_a_whole_log_may_take_longer(scene: Scene) -> None:
    """Each kind of call has its own limit, and a call with progress does not hang."""
    with call(f"{scene.dirs[0]}/orders-0", patience=3.0) as work:
        scene.watch.look(later=3 * 3600 - 60)
        assert not scene.sick.is_suspect
        work.since += 7200
        scene.watch.look(later=600)
        assert not scene.sick.is_suspect
        scene.watch.look(later=5 * 3600 + 60)
        assert scene.sick.is_suspect
        assert scene.dirs[0] in (scene.sick.reason or "")
    assert not under_way
    scene.answer()


def test_a_call_to_a_dir_with_a_longer_name_is_not_this_ones(tmp_path: Path) -> None:
    """`/disk1` is not blamed for `/disk10`."""
    with LogStore.open([tmp_path / "d", tmp_path / "d0"], config=QUIET) as store:
        watch = Watch(store)
        with call(f"{tmp_path}/d0/orders-0"):
            watch.look(later=8000)
            states = [row.state for row in store.describe_dirs().log_dirs]
            assert states == ["online", "suspect"]


def test_a_slow_probe_is_not_a_good_one(scene: Scene) -> None:
    """Only probes that return in time count, and only in a row."""
    keeper = keepers_of(scene.store)[scene.dirs[0]]
    keeper.run_one("probe")
    keeper.run_one("probe")
    assert scene.sick.good_probes == 2
    keeper._suspect_seconds = 0.0
    keeper.run_one("probe")
    assert scene.sick.good_probes == 0


def test_a_suspect_dir_that_fails_is_offline(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe that raises EIO ends the waiting."""
    with hang(monkeypatch, scene.dirs[0], "pwrite") as disk:
        stuck = Caller(lambda: scene.log.append(b"x"))
        assert disk.began.wait(60)
        scene.watch.suspect()
        scene.sick.take_offline("burnt")
        scene.watch.look()
        disk.released.set()
        stuck.outcome()
    assert scene.sick.is_offline
    scene.check_well()


def test_threads_of_a_store_end_with_it(tmp_path: Path) -> None:
    """The watchdog ends when the store is closed."""
    before = set(threading.enumerate())
    with LogStore.open(tmp_path, config=QUIET) as store:
        thread = watchdog_of(store)._thread
        assert thread in threading.enumerate()
    assert thread not in threading.enumerate()
    assert not [t for t in set(threading.enumerate()) - before if "watchdog" in t.name]


def test_logs_are_locks_of_their_own(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another log of the same dir is refused, too, and serves again with the dir."""
    second: Log = scene.store.create("orders", 2, log_dir=scene.dirs[0])
    with hang(monkeypatch, f"{scene.dirs[0]}/orders-0", "pwrite") as disk:
        stuck = Caller(lambda: scene.log.append(b"x"))
        assert disk.began.wait(60)
        assert second.append(b"y") == 0
        scene.watch.suspect()
        with pytest.raises(LogDirSuspectError):
            second.append(b"y")
        disk.released.set()
        assert stuck.outcome() == 0
    scene.answer()
    assert second.append(b"y") == 1


def test_a_call_that_was_interrupted_is_no_call_that_hangs() -> None:
    """At whatever line Ctrl-C comes, no entry of the call is left."""
    number, was_hit = 1, True
    while was_hit:
        try:
            with InterruptAt(number, calls) as interrupt, call("/disk/orders-0"):
                pass
        except KeyboardInterrupt:
            pass
        was_hit, number = interrupt.was_hit, number + 1
        assert not calls.calls_under_way() and not under_way
    assert number > 5
