"""Ctrl-C at any line of an Appender or a group commit loses no record and hangs no thread."""

from __future__ import annotations

import itertools
import signal
import threading
from contextlib import suppress
from typing import Any

import pytest

from logstore import Log, LogConfig, LogStore
from logstore.disk import files
from logstore.errors import LogClosedError, LogStoreError
from logstore.log import log as logs
from logstore.log.write import appender as appenders
from logstore.log.write import appending, group_commit
from support.interrupts import WRITING, InterruptAt

WAIT_SECONDS = 60
FOR_EVER = 3600.0


def check_taken(log: Log, start: int, taken: list[tuple[bytes, Any]]) -> None:
    """Check that each record with a future is in the log once, at its offset, with its key."""
    records = {record.offset: record for record in log[start:]}
    for value, future in taken:
        record = records[future.result(WAIT_SECONDS)]
        assert record.value == value
        assert record.key == (value if value.startswith(b"k") else None)
        assert record.timestamp == 5
    values = [record.value for record in records.values()]
    assert len(values) == len(set(values))


def test_an_appender_keeps_what_it_took(store: LogStore) -> None:
    """Append, flush, the wait for a future, and close are interrupted at each line."""
    log = store.create("orders", 0)
    for number in itertools.count(1):
        taken: list[tuple[bytes, Any]] = []
        start = len(log)
        appender = log.appender(linger=FOR_EVER, max_bytes=200)
        appender.append(b"a%d" % number, timestamp=5)  # starts the thread
        with InterruptAt(number, appenders, *WRITING) as interrupt, suppress(KeyboardInterrupt):
            for at in range(8):
                value = b"%s%d-%d" % (b"k" if at % 3 == 1 else b"v", number, at)
                key = value if at % 3 == 1 else None
                taken.append((value, appender.append(value, key=key, timestamp=5)))
            appender.flush()
            taken[-1][1].result(WAIT_SECONDS)
        late = appender.append(b"late%d" % number, timestamp=5)
        taken.append((b"late%d" % number, late))
        if taken and not interrupt.was_hit:
            break
        with InterruptAt(number % 40, appenders, *WRITING), suppress(KeyboardInterrupt):
            appender.close()
        appender.close()
        check_taken(log, start, taken)
    assert number > 150
    appender.close()


def test_a_closed_appender_sends_what_it_took_before_an_overflow(log: Log) -> None:
    """An append that would begin a batch is refused; the earlier, full batch is appended."""
    appender = log.appender(linger=FOR_EVER, max_bytes=200)
    future = appender.append(bytes(150))
    appender._is_closed = True  # as close has set it, and not cut yet
    with pytest.raises(LogClosedError):
        appender.append(bytes(150))
    appender.close()
    assert future.result(0) == 0


@pytest.fixture
def log(store: LogStore) -> Log:
    """Return an empty log that accepts only small batches."""
    return store.create("orders", 0, config=LogConfig(max_message_bytes=1024))


def test_an_interrupted_durable_append_hangs_no_later_one(log: Log) -> None:
    """A single durable append is interrupted at each line."""
    for number in itertools.count(1):
        with (
            InterruptAt(number, group_commit, logs, appending) as interrupt,
            suppress(KeyboardInterrupt),
        ):
            log.append(b"%d" % number, durable=True)
        later = threading.Thread(target=log.append, args=(b"x",), kwargs={"durable": True})
        later.daemon = True
        later.start()
        later.join(WAIT_SECONDS)
        assert not later.is_alive()
        if not interrupt.was_hit:
            break
    assert number > 10


class Company:
    """Durable appends in threads, the first of which is held in its sync."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.is_held, self.go_on = threading.Event(), threading.Event()
        self.offsets: dict[bytes, int] = {}
        self.threads: list[threading.Thread] = []
        self._sync, self._calls = files.fdatasync, itertools.count()

    def sync(self, fd: int) -> None:
        """Stand for fdatasync."""
        if next(self._calls) == 0:
            self.is_held.set()
            self.go_on.wait(WAIT_SECONDS)
        self._sync(fd)

    def append(self, value: bytes) -> None:
        with suppress(LogStoreError):
            self.offsets[value] = self.log.append(value, durable=True)

    def begin(self, value: bytes) -> None:
        thread = threading.Thread(target=self.append, args=(value,), daemon=True)
        self.threads.append(thread)
        thread.start()

    def watch(self, line: str) -> None:
        """Let the held commit end when the interrupted thread is about to wait for it."""
        if line.startswith(("with self.commit_lock", "with group.gate")):
            self.go_on.set()

    def wait_for_records(self, count: int) -> None:
        """Return when this many records wait for the held commit."""
        commit: Any = self.log._state.commit
        while commit is None or not commit._waiting or len(commit._waiting[0].records) < count:
            self.threads[-1].join(0.001)
            commit = self.log._state.commit

    def end(self) -> None:
        """Check that all threads end, and that their records are at the returned offsets."""
        self.go_on.set()
        self.begin(b"later")
        for thread in self.threads:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()
        assert {b"first", b"later"} <= set(self.offsets)
        for value, offset in self.offsets.items():
            assert self.log[offset].value == value


@pytest.mark.parametrize("is_alone", [True, False])
def test_an_interrupted_member_of_a_group_hangs_nobody(
    log: Log, monkeypatch: pytest.MonkeyPatch, is_alone: bool
) -> None:
    """The first or second waiting thread is interrupted; each acknowledged record exists."""
    for number in itertools.count(1):
        with monkeypatch.context() as patch:
            company = Company(log)
            patch.setattr(files, "fdatasync", company.sync)
            company.begin(b"first")
            assert company.is_held.wait(WAIT_SECONDS)
            if not is_alone:
                company.begin(b"leader")
                company.wait_for_records(1)
            interrupt = InterruptAt(number, group_commit, watch=company.watch)
            with interrupt, suppress(KeyboardInterrupt):
                company.append(b"mine")
            company.end()
        if not interrupt.was_hit:
            break
    assert number > 20


def test_an_interrupted_leader_of_others_hangs_nobody(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader is interrupted at each line; the others get an offset or an error."""
    for number in itertools.count(1):
        with monkeypatch.context() as patch:
            company = Company(log)
            patch.setattr(files, "fdatasync", company.sync)
            company.begin(b"first")
            assert company.is_held.wait(WAIT_SECONDS)

            def lead(line: str, company: Company = company) -> None:
                if line.startswith("with self.commit_lock") and not company.go_on.is_set():
                    company.begin(b"member")
                    company.wait_for_records(2)
                    company.go_on.set()

            interrupt = InterruptAt(number, group_commit, watch=lead)
            with interrupt, suppress(KeyboardInterrupt):
                company.append(b"mine")
            company.end()
        if not interrupt.was_hit:
            break
    assert number > 30


def test_a_signal_to_one_that_waits_leaves_no_gate_shut(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes while the thread waits for the lock; the next group still gets a leader."""
    company = Company(log)
    monkeypatch.setattr(files, "fdatasync", company.sync)
    company.begin(b"first")
    assert company.is_held.wait(WAIT_SECONDS)
    main = threading.get_ident()

    def interrupt() -> None:
        company.wait_for_records(1)  # so the main thread is in its append, and cannot leave it
        signal.pthread_kill(main, signal.SIGALRM)

    handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
    helper = threading.Thread(target=interrupt, daemon=True)
    try:
        with pytest.raises(KeyboardInterrupt):
            helper.start()
            log.append(bytes(600), durable=True)
        helper.join(WAIT_SECONDS)
    finally:
        signal.signal(signal.SIGALRM, handler)
    last = threading.Thread(target=log.append, args=(bytes(600),), kwargs={"durable": True})
    last.daemon = True
    last.start()
    company.end()
    last.join(WAIT_SECONDS)
    assert not last.is_alive()
    assert log.recovery_point == log.log_end_offset == 4
