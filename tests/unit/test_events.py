"""Listeners of a store get each event once and in order, and block no other thread."""

from __future__ import annotations

import errno
import gc
import logging
import os
import queue
import threading
import weakref
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from functools import partial
from typing import Any

import pytest

from logstore import (
    LogClosedError,
    LogDirFullError,
    LogDirOfflineError,
    LogDirSuspectError,
    LogStore,
    ReadOnlyStoreError,
    StoreConfig,
    StoreEvent,
    StoreEventKind,
)
from logstore.disk import files
from logstore.store.dirs.watchdog import GOOD_PROBES
from logstore.store.upkeep import events
from mover import ReplicaMover
from support.bad_disk import failing
from support.faulty import no_thread_leaks
from support.hanging import QUIET, Caller, Watch, hang
from support.places import fast_directory

Kind = StoreEventKind
SLOW = StoreConfig(log_flush_scheduler_interval_ms=3_600_000)


@pytest.fixture
def dirs() -> Iterator[list[str]]:
    with fast_directory() as base:
        yield [str(base / f"disk{number}") for number in range(3)]


class Ear:
    """A listener that passes on each event."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[StoreEvent] = queue.SimpleQueue()
        self.threads: set[str] = set()

    def __call__(self, event: StoreEvent) -> None:
        self.threads.add(threading.current_thread().name)
        self.events.put(event)

    def next(self) -> StoreEvent:
        return self.events.get(timeout=60)

    def rest(self) -> list[StoreEvent]:
        """Return the events that are left; called after the store was closed."""
        return [self.events.get_nowait() for _ in range(self.events.qsize())]


def test_replicas_that_come_move_and_go_are_told(dirs: list[str]) -> None:
    """Each event comes once, in order, with its facts, in the listener's own thread."""
    ear = Ear()
    with no_thread_leaks(), LogStore.open(dirs[:2], config=SLOW) as store:
        with ReplicaMover(store) as mover:
            store.add_listener(ear)
            store.add_listener(ear)
            store.create("t", 3, log_dir=dirs[0]).append(b"v")
            store.create("t", 3, exist_ok=True)
            mover.move("t", 3, dirs[1]).wait(60)
            store.delete("t", 3)
        assert ear.next() == StoreEvent(Kind.REPLICA_CREATED, dirs[0], "", "t", 3)
        moved = ear.next()
        assert moved == StoreEvent(Kind.REPLICA_MOVED, dirs[1], "", "t", 3, dirs[0], dirs[1])
        assert ear.next() == StoreEvent(Kind.REPLICA_DELETED, dirs[1], "", "t", 3)
        assert ear.threads == {"logstore-listener"}
        with pytest.raises(FrozenInstanceError):
            moved.topic = "u"  # type: ignore[misc]
    assert ear.rest() == []


def test_regression_the_partitions_of_a_new_topic_are_told(dirs: list[str]) -> None:
    """A topic that was created as a whole caused no events; existing partitions cause none."""
    ear = Ear()
    with LogStore.open(dirs[:1], config=SLOW) as store:
        store.create("t", 1)
        store.add_listener(ear)
        store.create_topic("t", 3, exist_ok=True)
    created = [StoreEvent(Kind.REPLICA_CREATED, dirs[0], "", "t", number) for number in (0, 2)]
    assert ear.rest() == created


def test_log_dirs_that_come_and_go_are_told(dirs: list[str]) -> None:
    """Log dirs are added, go offline, come back, and are removed, also as lost."""
    ear = Ear()
    with LogStore.open(dirs[:1], config=SLOW) as store:
        store.add_listener(ear)
        store.add_dir(dirs[1])
        store.add_dir(dirs[2])
        store.take_offline(dirs[1])
        store.take_offline(dirs[1])
        store.reopen_dir(dirs[1])
        store.remove_dir(dirs[1])
        store.take_offline(dirs[2])
        store.remove_dir(dirs[2], lost=True)
    told = ear.rest()
    assert [(event.kind, event.log_dir) for event in told] == [
        (Kind.LOG_DIR_ADDED, dirs[1]),
        (Kind.LOG_DIR_ADDED, dirs[2]),
        (Kind.LOG_DIR_OFFLINE, dirs[1]),
        (Kind.LOG_DIR_RETURNED, dirs[1]),
        (Kind.LOG_DIR_REMOVED, dirs[1]),
        (Kind.LOG_DIR_OFFLINE, dirs[2]),
        (Kind.LOG_DIR_REMOVED, dirs[2]),
    ]
    assert told[2].reason == "the user took it offline"
    assert all((e.topic, e.partition, e.source, e.target) == (None,) * 4 for e in told)


def test_a_log_dir_that_fails_is_told_once_by_many_threads(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many appends meet the dead disk at once; the older callback is called, too."""
    ear, failures = Ear(), list[LogDirOfflineError]()
    with LogStore.open(dirs[:2], config=SLOW, on_log_dir_failure=failures.append) as store:
        logs = [store.create("t", number, log_dir=dirs[0]) for number in range(8)]
        store.add_listener(ear)
        with monkeypatch.context() as patch:
            patch.setattr(files, "pwrite", failing("pwrite", dirs[0], errno.EIO))
            callers = [Caller(partial(log.append, b"v")) for log in logs]
            assert all(isinstance(one.outcome(), LogDirOfflineError) for one in callers)
        offline = ear.next()
        assert offline.kind is Kind.LOG_DIR_OFFLINE and offline.log_dir == dirs[0]
        assert "EIO" in offline.reason
    assert ear.rest() == []
    assert len(failures) == 1


def test_a_log_dir_that_fills_and_has_room_again_is_told(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one event for each change, however many appends are refused."""
    ear, real = Ear(), files.statvfs

    def full(path: str) -> Any:
        facts = real(path)
        return os.statvfs_result((*facts[:3], 0, 0, *facts[5:]))

    with LogStore.open(dirs[:1], config=SLOW) as store:
        log = store.create("t", 0)
        store.add_listener(ear)
        with monkeypatch.context() as patch:
            patch.setattr(files, "pwrite", failing("pwrite", dirs[0], errno.ENOSPC))
            patch.setattr(files, "statvfs", full)
            for _ in range(3):
                with pytest.raises(LogDirFullError):
                    log.append(b"v")
        log.append(b"v")
    told = ear.rest()
    assert [event.kind for event in told] == [Kind.LOG_DIR_FULL, Kind.LOG_DIR_HAS_ROOM]
    assert told[0].reason


def test_a_log_dir_that_hangs_and_answers_is_told(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event comes while the disk hangs, and no call waits for a listener."""
    ear = Ear()
    with LogStore.open(dirs[:2], config=QUIET) as store:
        log, watch = store.create("t", 0, log_dir=dirs[0]), Watch(store)
        store.add_listener(ear)
        with hang(monkeypatch, dirs[0], "pwrite") as hung:
            caller = Caller(lambda: log.append(b"v"))
            assert hung.began.wait(60)
            watch.suspect()
            event = ear.next()
            assert event.kind is Kind.LOG_DIR_SUSPECT and event.log_dir == dirs[0]
            assert "has not returned" in event.reason
            watch.suspect()
            with pytest.raises(LogDirSuspectError):
                log.append(b"v")
        caller.outcome()
        store.host.dir_of(dirs[0]).good_probes = GOOD_PROBES
        watch.look()
        assert ear.next() == StoreEvent(Kind.LOG_DIR_ANSWERING, dirs[0])
    assert ear.rest() == []


def test_a_listener_that_blocks_delays_nobody_and_loses_nothing(dirs: list[str]) -> None:
    """Neither the store nor another listener waits for it, and it gets every event later."""
    slow, quick, began, go_on = Ear(), Ear(), threading.Event(), threading.Event()

    def block(event: StoreEvent) -> None:
        began.set()
        assert go_on.wait(60)
        slow(event)

    with no_thread_leaks(), LogStore.open(dirs[:1], config=SLOW) as store:
        store.add_listener(block)
        store.add_listener(quick)
        for number in range(50):
            store.create("t", number)
        heard = [quick.next().partition for _ in range(50)]
        assert heard == list(range(50))
        assert began.wait(60)
        go_on.set()
    assert [event.partition for event in slow.rest()] == heard


def test_a_close_does_not_wait_for_ever_for_a_listener(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remaining events are delivered when the listener continues, after the close."""
    monkeypatch.setattr(events, "LAST_SECONDS_MAX", 0.05)
    ear, go_on = Ear(), threading.Event()

    def block(event: StoreEvent) -> None:
        assert go_on.wait(60)
        ear(event)

    with no_thread_leaks():
        with LogStore.open(dirs[:1], config=SLOW) as store:
            store.add_listener(block)
            for number in range(3):
                store.create("t", number)
        del store
        gc.collect()
        go_on.set()
        assert [ear.next().partition for _ in range(3)] == [0, 1, 2]


def test_a_listener_that_raises_is_logged_and_hears_on(
    dirs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Other listeners continue to get events, too."""
    ear = Ear()

    def fail(event: StoreEvent) -> None:
        ear(event)
        raise ZeroDivisionError("no")

    with (
        caplog.at_level(logging.WARNING, "logstore"),
        LogStore.open(dirs[:1], config=SLOW) as store,
    ):
        store.add_listener(fail)
        store.create("t", 0)
        store.delete("t", 0)
    assert [event.kind for event in ear.rest()] == [Kind.REPLICA_CREATED, Kind.REPLICA_DELETED]
    assert caplog.text.count("a listener raised at") == 2


def test_a_removed_listener_hears_nothing_more(dirs: list[str]) -> None:
    """Its thread ends; a listener may remove itself, and may change the store."""
    ear, others = Ear(), Ear()
    with no_thread_leaks(), LogStore.open(dirs[:1], config=SLOW) as store:

        def once(event: StoreEvent) -> None:
            store.remove_listener(once)
            store.remove_listener(once)
            store.create("made", 0)
            ear(event)

        store.add_listener(once)
        store.add_listener(others)
        store.create("t", 0)
        assert [others.next().topic for _ in range(2)] == ["t", "made"]
        assert ear.next().topic == "t"
        with pytest.raises(TypeError, match="listener"):
            store.add_listener(None)  # type: ignore[arg-type]
        with (
            LogStore.open(dirs[:1], read_only=True) as view,
            pytest.raises(ReadOnlyStoreError),
        ):
            view.add_listener(ear)
    assert ear.rest() == []
    with pytest.raises(LogClosedError):
        store.add_listener(ear)


def test_events_of_many_threads_come_once_and_in_the_same_order_to_all(dirs: list[str]) -> None:
    """The events of one partition come in the order of its changes."""
    ears = [Ear(), Ear()]
    with LogStore.open(dirs[:2], config=SLOW) as store:
        for ear in ears:
            store.add_listener(ear)

        def work(number: int) -> None:
            for _ in range(15):
                store.create("t", number)
                store.delete("t", number)

        callers = [Caller(partial(work, number)) for number in range(4)]
        assert [one.outcome() for one in callers] == [None] * 4
    first, second = (ear.rest() for ear in ears)
    assert first == second
    for number in range(4):
        kinds = [event.kind for event in first if event.partition == number]
        assert kinds == [Kind.REPLICA_CREATED, Kind.REPLICA_DELETED] * 15


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_listener_does_not_keep_a_dropped_store_open(dirs: list[str]) -> None:
    """This holds even if the listener refers to the store; its thread ends with the store."""

    class Broker:
        def __init__(self) -> None:
            self.store = LogStore.open(dirs, config=SLOW)
            self.heard = threading.Event()
            self.store.add_listener(self.hear)
            self.store.on_close(self.hear)

        def hear(self, event: StoreEvent | None = None) -> None:
            self.heard.set()

    with no_thread_leaks():
        broker = Broker()
        broker.store.create("t", 0)
        assert broker.heard.wait(60)
        store = weakref.ref(broker.store)
        threads = [one for one in threading.enumerate() if one.name == "logstore-listener"]
        del broker
        while store() is not None and threads[0].is_alive():
            gc.collect()
            threads[0].join(0.01)  # it may just have called the listener
        assert store() is None
    with LogStore.open(dirs) as again:
        assert len(again) == 1


# --- before a close -------------------------------------------------------------------------------


def test_a_close_calls_back_once_while_the_store_serves(
    dirs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The newest is called first; a callback that raises or closes the store ends nothing."""
    heard: list[object] = []
    store = LogStore.open(dirs[:1], config=SLOW)
    log = store.create("t", 0)
    store.on_close(lambda: heard.append(log.append(b"last")))
    store.on_close(lambda: heard.append(1 / 0))
    store.on_close(lambda: heard.append(store.close()))
    withdraw = store.on_close(lambda: heard.append("never"))
    withdraw()
    withdraw()
    with caplog.at_level(logging.WARNING, "logstore"):
        store.close()
        store.close()
    assert heard == [0, ()]
    assert "on_close raised" in caplog.text
    with pytest.raises(LogClosedError):
        store.on_close(print)
    with LogStore.open(dirs[:1]) as again:
        assert len(again["t", 0]) == 1


def test_a_second_close_waits_for_the_callbacks_of_the_first(dirs: list[str]) -> None:
    """No log is closed while a callback is still running."""
    store = LogStore.open(dirs[:1], config=SLOW)
    log, began, go_on = store.create("t", 0), threading.Event(), threading.Event()
    offsets: list[int] = []

    def work() -> None:
        began.set()
        assert go_on.wait(60)
        offsets.append(log.append(b"v"))

    store.on_close(work)
    first = Caller(store.close)
    assert began.wait(60)
    second = Caller(store.close)
    log.append(b"still open")
    go_on.set()
    assert first.outcome() == second.outcome() == ()
    assert offsets == [1]
