"""Subscribers of a log get all its events, and do not disturb other threads."""

from __future__ import annotations

import errno
import gc
import logging
import threading
import weakref
from collections.abc import Iterator

import pytest

from logstore import (
    Log,
    LogClosedError,
    LogConfig,
    LogDirOfflineError,
    LogEvent,
    LogStore,
    ReadOnlyStoreError,
    StoreConfig,
    Subscription,
    UnknownPartitionError,
)
from logstore.disk import files
from logstore.log.subscription import Subscriptions, tell
from mover import ReplicaMover
from support.bad_disk import failing
from support.faulty import no_thread_leaks
from support.places import fast_directory

SMALL = LogConfig(segment_bytes=1024, retention_bytes=2048)
SLOW = StoreConfig(log_flush_scheduler_interval_ms=3_600_000)


@pytest.fixture
def dirs() -> Iterator[list[str]]:
    with fast_directory() as base:
        yield [str(base / f"disk{number}") for number in range(2)]


class Ear:
    """Record the events of a log, each with its thread."""

    def __init__(self, log: Log) -> None:
        self.heard: list[LogEvent] = []
        self.threads: set[int] = set()
        self.changed = threading.Event()
        self.subscription = log.subscribe(self.hear)

    def hear(self, event: LogEvent) -> None:
        self.heard.append(event)
        self.threads.add(threading.get_ident())
        self.changed.set()

    def take(self) -> list[LogEvent]:
        heard, self.heard = self.heard, []
        return heard

    def ended(self) -> bool:
        """Wait for the last event."""
        while LogEvent.CLOSED not in self.heard and self.changed.wait(60):
            self.changed.clear()
        return self.subscription.is_closed and self.heard.count(LogEvent.CLOSED) == 1


def is_free(log: Log) -> bool:
    """Report whether this thread can take the locks of a log: it must not hold them itself."""
    locks = [log._state.flush_lock, log._state.lock]
    taken = [lock for lock in locks if lock.acquire(timeout=60)]
    for lock in taken:
        lock.release()
    return taken == locks


def test_each_way_to_append_is_told_once(dirs: list[str]) -> None:
    """The event comes in the thread that appended, when the record can be read."""
    with LogStore.open(dirs, config=SLOW) as store:
        log, source = store.create("t", 0), store.create("t", 1)
        source.extend([b"a", b"b"])
        ear = Ear(log)
        seen: list[int] = []
        with log.subscribe(lambda event: seen.append(log.log_end_offset)):
            log.append(b"plain")
            log.append(b"v", key=b"k")
            log.append(b"durable", durable=True)
            log.extend([b"1", b"2"])
            log.append_encoded(source.read_raw(0))
            with log.appender() as appender:
                appender.append(b"gathered")
                appender.flush()
        assert ear.take() == [LogEvent.APPENDED] * 6
        assert seen == [1, 2, 3, 5, 7, 8]
        assert ear.threads == {threading.get_ident()}
        log.extend([])
        log.flush()
        assert ear.take() == []


def test_a_truncation_and_a_new_log_start_are_told(dirs: list[str]) -> None:
    """A log start that a follower takes over, and retention, cause events, too; reads do not."""
    with LogStore.open(dirs, config=SLOW) as store:
        log, other = store.create("t", 0, config=SMALL), store.create("t", 1)
        log.extend([b"v"] * 5)
        ear, follower = Ear(log), Ear(other)
        log.truncate_to(5)
        assert ear.take() == []
        log.truncate_to(3)
        assert ear.take() == [LogEvent.TRUNCATED]
        log.delete_records_before(2)
        log.delete_records_before(2)
        assert ear.take() == [LogEvent.START_MOVED]
        for _ in range(8):
            log.append(b"x" * 600)
        ear.take()
        assert log.apply_retention() > 0
        assert ear.take() == [LogEvent.START_MOVED]
        assert log.apply_retention() == 0
        assert ear.take() == []
        start = log.log_start_offset
        other.append_as_follower(log.read_raw(start))
        assert set(follower.take()) == {LogEvent.START_MOVED, LogEvent.APPENDED}
        assert other.log_start_offset == start


def test_a_truncation_that_breaks_off_ends_the_subscription_if_it_ends_the_log(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails in the middle; the callback runs without the log's locks."""
    with LogStore.open(dirs, config=SLOW) as store:
        log = store.create("t", 0, log_dir=dirs[0])
        log.extend([b"v"] * 5)
        free: list[bool] = []
        ear = Ear(log)
        held = log.subscribe(lambda _: free.append(is_free(log)))
        with monkeypatch.context() as patch:
            patch.setattr(files, "rename", failing("rename", dirs[0], errno.EIO))
            with pytest.raises(LogDirOfflineError):
                log.truncate_to(2)
            assert ear.ended()
        assert held.is_closed
    assert free == [True]


def test_the_end_of_a_log_ends_its_subscriptions_once(dirs: list[str]) -> None:
    """A close, a deletion and an offline log dir end them; then nobody can subscribe."""
    store = LogStore.open(dirs, config=SLOW)
    closed, deleted = store.create("t", 0, log_dir=dirs[0]), store.create("t", 1, log_dir=dirs[0])
    offline = store.create("t", 2, log_dir=dirs[1])
    ears = [Ear(deleted), Ear(offline), Ear(closed)]
    store.delete("t", 1)
    assert ears[0].take() == [LogEvent.CLOSED]
    store.take_offline(dirs[1])
    assert ears[1].ended()
    assert ears[2].heard == []
    store.close()
    assert ears[2].take() == [LogEvent.CLOSED]
    assert all(ear.subscription.is_closed for ear in ears)
    for log, error in (
        (deleted, UnknownPartitionError),
        (offline, LogDirOfflineError),
        (closed, LogClosedError),
    ):
        with pytest.raises(error):
            log.subscribe(print)


def test_a_log_dir_that_fails_ends_the_subscriptions_of_its_logs_alone(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The append that noticed the failure does not wait for the subscribers."""
    with LogStore.open(dirs, config=SLOW) as store:
        logs = [store.create("t", number, log_dir=path) for number, path in enumerate(dirs)]
        ears = [Ear(log) for log in logs]
        with monkeypatch.context() as patch:
            patch.setattr(files, "pwrite", failing("pwrite", dirs[0], errno.EIO))
            with pytest.raises(LogDirOfflineError):
                logs[0].append(b"lost")
        assert ears[0].ended()
        assert ears[0].take() == [LogEvent.CLOSED]
        logs[1].append(b"well")
        assert ears[1].take() == [LogEvent.APPENDED]


def test_a_subscription_survives_a_move(dirs: list[str]) -> None:
    """The swap causes no event of the log; later appends cause events."""
    with LogStore.open(dirs, config=SLOW) as store, ReplicaMover(store) as mover:
        log = store.create("t", 0, log_dir=dirs[0])
        log.extend([b"v"] * 100)
        ear = Ear(log)
        mover.move("t", 0, dirs[1]).wait(60)
        assert log.log_dir == dirs[1]
        assert ear.take() == []
        log.append(b"more")
        assert ear.take() == [LogEvent.APPENDED]
        store.take_offline(dirs[1])
        assert ear.ended()


def test_what_a_callback_raises_is_logged_and_harms_nobody(
    dirs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The append succeeds, and other subscribers are called; an interrupt is raised later."""
    with LogStore.open(dirs, config=SLOW) as store:
        log = store.create("t", 0)
        errors: list[BaseException] = [ZeroDivisionError("no")]

        def fail(event: LogEvent) -> None:
            raise errors[0]

        first, ear = log.subscribe(fail), Ear(log)
        with caplog.at_level(logging.WARNING, "logstore"):
            assert log.append(b"v") == 0
        assert ear.take() == [LogEvent.APPENDED]
        assert "a subscriber of t-0 raised at APPENDED" in caplog.text
        errors[0] = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            log.append(b"v")
        assert ear.take() == [LogEvent.APPENDED]
        assert len(log) == 2
        first.close()
        log.append(b"v")
        with pytest.raises(TypeError, match="callback"):
            log.subscribe(None)  # type: ignore[arg-type]


def test_a_callback_may_close_and_subscribe(dirs: list[str]) -> None:
    """The callback runs without a lock, so it may also read the new records."""
    with LogStore.open(dirs, config=SLOW) as store:
        log = store.create("t", 0)
        found: list[object] = []

        def once(event: LogEvent) -> None:
            first.close()
            found.append(log[-1].value)
            found.append(log.subscribe(found.append))

        first = log.subscribe(once)
        log.append(b"one")
        log.append(b"two")
        assert found[0] == b"one"
        assert found[2:] == [LogEvent.APPENDED]
        assert first.is_closed
        assert "closed" in repr(first)


def test_a_dropped_subscription_has_ended(dirs: list[str]) -> None:
    """The log forgets the subscription at once, and appends no longer pay for it."""
    with LogStore.open(dirs, config=SLOW) as store:
        log = store.create("t", 0)
        heard: list[LogEvent] = []
        kept = [log.subscribe(heard.append) for _ in range(100)]
        assert len(log._state.subscriptions) == 100
        del kept
        assert not log._state.subscriptions
        log.append(b"v")
        assert heard == []


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_subscriber_does_not_keep_a_dropped_store_open(dirs: list[str]) -> None:
    """The subscriber may be kept, or may refer to the store and be dropped with it."""

    class Broker:
        def __init__(self) -> None:
            self.store = LogStore.open(dirs, config=SLOW)
            self.log = self.store.create("t", 0)
            self.subscription = self.log.subscribe(self.hear)

        def hear(self, event: LogEvent) -> None:
            """Do nothing."""

    with no_thread_leaks():
        broker = Broker()
        kept, store = broker.log.subscribe(print), weakref.ref(broker.store)
        del broker
        gc.collect()
        assert store() is None
        kept.close()
    with LogStore.open(dirs) as again:
        assert len(again) == 1


def test_a_view_refuses_subscribers(dirs: list[str]) -> None:
    """No call in the view's process changes the log: use `tail` to follow it."""
    with LogStore.open(dirs, config=SLOW) as store:
        store.create("t", 0)
        with LogStore.open(dirs, read_only=True) as view, pytest.raises(ReadOnlyStoreError):
            view["t", 0].subscribe(print)


def test_no_wake_up_is_lost(dirs: list[str]) -> None:
    """Threads that subscribe, look and wait follow the appends of other threads to the end."""
    rounds, waiters = 300, 4
    with LogStore.open(dirs, config=SLOW) as store:
        log = store.create("t", 0)
        done = threading.Barrier(waiters + 1)
        failures: list[int] = []

        def follow() -> None:
            for offset in range(rounds):
                woken = threading.Event()
                with log.subscribe(lambda event, woken=woken: woken.set()):  # type: ignore[misc]
                    while log.log_end_offset <= offset:
                        if not woken.wait(60):
                            failures.append(offset)
                            break
                        woken.clear()
                done.wait(60)

        threads = [threading.Thread(target=follow) for _ in range(waiters)]
        for thread in threads:
            thread.start()
        for _ in range(rounds):
            log.append(b"v")
            done.wait(60)
        for thread in threads:
            thread.join(60)
        assert not failures
        assert not log._state.subscriptions


def test_who_subscribes_as_the_log_ends_is_told_or_refused(dirs: list[str]) -> None:
    """A subscription never waits for a log that is gone."""
    with LogStore.open(dirs, config=SLOW) as store:
        for number in range(50):
            log = store.create("t", number)
            ready, outcomes = threading.Barrier(2), list[bool]()

            def subscribe(
                log: Log = log, ready: threading.Barrier = ready, outcomes: list[bool] = outcomes
            ) -> None:
                ready.wait(60)
                try:
                    ear = Ear(log)
                except UnknownPartitionError:
                    outcomes.append(True)
                else:
                    outcomes.append(ear.ended())

            thread = threading.Thread(target=subscribe)
            thread.start()
            ready.wait(60)
            store.delete("t", number)
            thread.join(60)
            assert outcomes == [True]


def test_subscriptions_come_and_go_while_others_are_told() -> None:
    """The list is copied in one step: no subscriber is called twice."""
    subscriptions: Subscriptions = {}
    is_over, errors = threading.Event(), list[Exception]()

    def churn() -> None:
        try:
            while not is_over.is_set():
                kept = [Subscription(subscriptions, "t-0", str) for _ in range(50)]
                kept[25].close()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    threads = [threading.Thread(target=churn) for _ in range(3)]
    for thread in threads:
        thread.start()
    counted: list[LogEvent] = []
    stays = Subscription(subscriptions, "t-0", counted.append)
    for _ in range(2000):
        tell(subscriptions, LogEvent.APPENDED)
    is_over.set()
    for thread in threads:
        thread.join(60)
    assert len(counted) == 2000
    assert not errors
    stays.close()
    assert not subscriptions
