"""Durable appends of many threads share syncs; no thread suffers from another's failure."""

from __future__ import annotations

import ctypes
import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import Log, LogConfig, LogStore
from logstore.disk import files
from logstore.errors import LogDirOfflineError, RecordTooLargeError
from logstore.log.write import group_commit

WAIT_SECONDS = 60


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Return an empty log that accepts only small batches."""
    with LogStore.open(tmp_path / "logs") as store:
        yield store.create("orders", 0, config=LogConfig(max_message_bytes=1024))


class HeldSync:
    """Holds the first fdatasync until it is released; later ones pass, or fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: OSError | None = None) -> None:
        self.is_held, self.go_on = threading.Event(), threading.Event()
        self.calls, self.error = 0, error
        self._sync = files.fdatasync
        monkeypatch.setattr(files, "fdatasync", self)

    def __call__(self, fd: int) -> None:
        self.calls += 1
        if self.calls == 1:
            self.is_held.set()
            assert self.go_on.wait(WAIT_SECONDS)
        elif self.error is not None:
            raise self.error
        self._sync(fd)


class Appending(threading.Thread):
    """Appends one record durably, and keeps the result."""

    def __init__(self, log: Log, value: bytes | None, headers: dict[str, bytes] | None = None):
        super().__init__(daemon=True)
        self.log, self.value, self.headers = log, value, headers or {}
        self.offset = -1
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.offset = self.log.append(self.value, headers=self.headers, durable=True)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def finished(self) -> Appending:
        self.join(WAIT_SECONDS)
        assert not self.is_alive()
        return self


def wait_for_company(log: Log, count: int) -> None:
    """Return when this many records wait for the end of the running commit."""
    commit = log._group_commit()
    waiting, pause = 0, threading.Event()
    while waiting < count:
        with commit._mutex:
            waiting = sum(len(group.records) for group in commit._waiting)
        pause.wait(0.001)


def test_one_thread_is_durable_at_once(log: Log) -> None:
    """The recovery point includes the record after each append."""
    for number in range(3):
        offset = log.append(b"x", key=b"k", timestamp=5, headers={"h": b""}, durable=True)
        assert offset == number and log.recovery_point == number + 1
    assert log[2][1:5] == (5, b"k", b"x", (("h", b""),))


def test_those_who_wait_share_one_batch_and_one_sync(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thread gets the offset of its own record."""
    sync = HeldSync(monkeypatch)
    first = Appending(log, b"first")
    assert sync.is_held.wait(WAIT_SECONDS)
    others = [Appending(log, b"%d" % number) for number in range(12)]
    wait_for_company(log, 12)
    sync.go_on.set()
    assert first.finished().offset == 0
    for other in others:
        assert log[other.finished().offset].value == other.value
    assert [batch.count for batch in log.read_batches()] == [1, 12]
    assert sync.calls == 2 and log.recovery_point == 13


def test_a_group_waits_until_the_one_before_has_gone_on(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even the first thread waits while others still leave the last group: they may join."""
    monkeypatch.setattr(group_commit, "PATIENCE_SECONDS", WAIT_SECONDS)
    log.append(b"before", durable=True)
    commit = log._group_commit()
    commit._leaving.count = 1
    one = Appending(log, b"one")
    wait_for_company(log, 1)
    other = Appending(log, b"other")
    wait_for_company(log, 2)
    assert log.recovery_point == 1
    commit._leaving.lower()
    assert sorted([one.finished().offset, other.finished().offset]) == [1, 2]
    assert [batch.count for batch in log.read_batches()] == [1, 2]


def test_who_never_leaves_a_group_delays_the_next_one_once(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted thread does not pass its gate; the leader waits only for a limited time."""
    monkeypatch.setattr(group_commit, "PATIENCE_SECONDS", 0.001)
    log.append(b"before", durable=True)
    commit = log._group_commit()
    commit._leaving.count = 1
    assert log.append(b"delayed", durable=True) == 1
    assert commit._leaving.count == 0
    assert log.append(b"later", durable=True) == 2


def test_a_group_that_is_full_goes_without_the_rest(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No batch exceeds `max_message_bytes`, headers included; all records are appended."""
    sync = HeldSync(monkeypatch)
    threads = [Appending(log, b"first")]
    assert sync.is_held.wait(WAIT_SECONDS)
    threads += [Appending(log, b"x" * 300) for _ in range(5)]
    threads += [Appending(log, b"", {"h": b"x" * 300}) for _ in range(5)]
    threads += [Appending(log, b"x" * 936)]  # the largest there can be
    wait_for_company(log, 11)
    sync.go_on.set()
    assert sorted(thread.finished().offset for thread in threads) == list(range(12))
    sizes = [batch.header.size_bytes for batch in log.read_batches()]
    assert max(sizes) <= 1024 and len(sizes) >= 6


def test_what_is_none_is_refused_before_it_joins_a_group(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records that wait in the group are not affected."""
    sync = HeldSync(monkeypatch)
    first = Appending(log, b"first")
    assert sync.is_held.wait(WAIT_SECONDS)
    good = Appending(log, b"good")
    wait_for_company(log, 1)
    for value, headers, error in (
        ("text", {}, TypeError),
        (b"", {"\ud800": b""}, UnicodeEncodeError),
        (b"x" * 937, {}, RecordTooLargeError),
    ):
        with pytest.raises(error):
            log.append(value, headers=headers, durable=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timestamp"):
        log.append(b"", timestamp=-1, durable=True)
    sync.go_on.set()
    assert (first.finished().offset, good.finished().offset) == (0, 1)


def test_a_failed_sync_acknowledges_nobody(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every thread of the group gets the error, and the log dir is offline from then on."""
    sync = HeldSync(monkeypatch, OSError(errno.EIO, "Input/output error"))
    first = Appending(log, b"first")
    assert sync.is_held.wait(WAIT_SECONDS)
    others = [Appending(log, b"x") for _ in range(6)]
    wait_for_company(log, 6)
    sync.go_on.set()
    assert first.finished().offset == 0
    for other in others:
        assert isinstance(other.finished().error, LogDirOfflineError)
        assert other.offset == -1
    assert log.recovery_point == 1
    with pytest.raises(LogDirOfflineError):
        log.append(b"x", durable=True)


@pytest.mark.parametrize("interrupted", [(0,), (1, 3), (0, 1, 2, 3)])
def test_who_is_interrupted_while_it_waits_delays_nobody(
    log: Log, monkeypatch: pytest.MonkeyPatch, interrupted: tuple[int, ...]
) -> None:
    """Whether one thread or a whole group is interrupted, all later appends continue."""
    sync = HeldSync(monkeypatch)
    first = Appending(log, b"first")
    assert sync.is_held.wait(WAIT_SECONDS)
    others = []
    for number in range(4):
        others.append(Appending(log, b"%d" % number))
        wait_for_company(log, number + 1)
    for number in interrupted:  # raised when the thread next runs: as it passes the gate
        ident = others[number].ident
        assert ident is not None
        kind = ctypes.py_object(KeyboardInterrupt)
        assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), kind) == 1
    sync.go_on.set()
    first.finished()
    for number, other in enumerate(others):
        other.finished()
        if number in interrupted:
            assert isinstance(other.error, KeyboardInterrupt)
        elif other.error is None:
            assert log[other.offset].value == other.value
    later = Appending(log, b"later").finished()
    assert later.error is None and log[later.offset].value == b"later"
    assert log.recovery_point == log.log_end_offset


def test_many_threads_lose_nothing(log: Log) -> None:
    """Every record is in the log once, at the offset that was returned."""
    found: dict[int, bytes] = {}

    def give(number: int) -> None:
        for n in range(20):
            value = b"%d %d" % (number, n)
            found[log.append(value, durable=True)] = value

    threads = [threading.Thread(target=give, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert found == {record.offset: record.value for record in log}
    assert len(found) == 160 == log.recovery_point
