"""Test log dirs that return to a coordination store while it runs."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.coordination import disk_workers, late_copies
from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import CopiesIncompleteError, CopiesOfflineError
from broker.coordination.journal import JOURNAL_NAME
from broker.coordination.journal_file import JournalFile
from broker.coordination.members import Membership
from broker.coordination.tree import EmbeddedSettings
from logstore import LogStore
from logstore.disk import files
from logstore.disk.gates import LetGoError
from support.faulty import Fault, FaultyFiles
from support.places import fast_directory

SETTINGS = EmbeddedSettings(return_seconds=0.02)
IMPATIENT = SETTINGS._replace(disk_seconds_max=1.0)
WRITES = frozenset({"pwrite", "pwritev"})
EIO = Fault("EIO", errno.EIO, WRITES, is_sticky=True)
SLOW = Fault("ETIMEDOUT", errno.ETIMEDOUT, WRITES, is_sticky=True)
FULL = Fault("ENOSPC", errno.ENOSPC, WRITES, is_sticky=True)
SECONDS_MAX = 60.0


@pytest.fixture
def dirs() -> Iterator[list[str]]:
    """Make two log dirs."""
    with fast_directory() as base:
        paths = [base / name for name in "ab"]
        for path in paths:
            path.mkdir()
        yield [str(path) for path in paths]


def wait_until(is_true: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    deadline = time.monotonic() + SECONDS_MAX
    step = threading.Event()
    while not is_true():
        assert time.monotonic() < deadline
        step.wait(0.005)


def names(dirs: list[str]) -> list[str]:
    """Open a store, and return the names of its znodes."""
    with EmbeddedStore(dirs) as store, store.connect() as session:
        return session.children("/")


class Hang:
    """Makes the syncs of files in a log dir hang until it ends."""

    def __init__(self, path: str, monkeypatch: pytest.MonkeyPatch, call: str = "sync_data") -> None:
        self.may_end, self.hangs, real = threading.Event(), threading.Event(), getattr(files, call)

        def wait(fd: int) -> None:
            if os.readlink(f"/proc/self/fd/{fd}").startswith(path):
                self.hangs.set()
                assert self.may_end.wait(SECONDS_MAX)
            real(fd)

        monkeypatch.setattr(files, call, wait)


def test_regression_a_disk_that_was_slow_once_is_used_again(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log dir returns without an open and without a change, and has all changes."""
    with EmbeddedStore(dirs, IMPATIENT) as store, store.connect() as session:
        hang = Hang(dirs[1], monkeypatch)
        session.create("/while")
        assert list(store.failures) == [dirs[1]]
        session.create("/later")
        hang.may_end.set()
        wait_until(lambda: not store.failures)
        session.create("/last")
        assert not store.failures
    Path(dirs[0], JOURNAL_NAME).unlink()
    with EmbeddedStore(dirs, accept_incomplete=True) as store, store.connect() as session:
        assert session.children("/") == ["last", "later", "while"]


def test_a_full_disk_is_used_again_when_it_has_space(dirs: list[str]) -> None:
    """A deletion left it out. While it is full, the store continues without it."""
    with EmbeddedStore(dirs, SETTINGS) as store, store.connect() as session:
        session.create("/gone")
        with FaultyFiles(dirs[0], FULL, 1) as full:
            session.delete("/gone")
            wait_until(lambda: len(full.injected) > 3)
            assert list(store.failures) == [dirs[0]]
            session.create("/new")
        wait_until(lambda: not store.failures)
    Path(dirs[1], JOURNAL_NAME).unlink()
    with EmbeddedStore(dirs, accept_incomplete=True) as store, store.connect() as session:
        assert session.children("/") == ["new"]


def test_a_copy_whose_unfinished_file_is_removed_is_begun_again(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the owner opens the log dir again, it removes such files."""
    with EmbeddedStore(dirs, IMPATIENT) as store, store.connect() as session:
        first = Hang(dirs[1], monkeypatch)
        session.create("/a")
        second = Hang(dirs[1], monkeypatch, "sync_file")
        first.may_end.set()
        assert second.hangs.wait(SECONDS_MAX)
        (unfinished,) = Path(dirs[1]).glob("*.tmp")
        unfinished.unlink()
        second.may_end.set()
        wait_until(lambda: not store.failures)
    assert names(dirs) == ["a"]


def test_a_disk_with_an_error_is_not_used_again(dirs: list[str]) -> None:
    """After an error, only an open uses the log dir again, after a check by an operator."""
    with EmbeddedStore(dirs, SETTINGS) as store, store.connect() as session:
        with FaultyFiles(dirs[0], EIO, 1):
            session.create("/a")
        before = Path(dirs[0], JOURNAL_NAME).read_bytes()
        with store._writing:
            for _ in range(3):
                store._copies.take_in()
        assert list(store.failures) == [dirs[0]]
        assert Path(dirs[0], JOURNAL_NAME).read_bytes() == before
    assert names(dirs) == ["a"]


def test_changes_do_not_wait_for_a_copy_that_catches_up(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk hangs again: it is still left out, and a close does not wait for it."""
    with EmbeddedStore(dirs, IMPATIENT) as store, store.connect() as session:
        first = Hang(dirs[1], monkeypatch)
        session.create("/a")
        second = Hang(dirs[1], monkeypatch, "sync_file")
        first.may_end.set()
        assert second.hangs.wait(SECONDS_MAX)
        for number in range(20):
            session.create(f"/{number}")
        assert list(store.failures) == [dirs[1]]
        second.may_end.set()
        wait_until(lambda: not store.failures)
        assert len(session.children("/")) == 21
    assert len(names(dirs)) == 21


def test_a_copy_that_is_too_far_behind_is_begun_again(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the changes that wait for its disk do not fill the memory."""
    monkeypatch.setattr(late_copies, "CALLS_MAX", 5)
    with EmbeddedStore(dirs, IMPATIENT) as store, store.connect() as session:
        first = Hang(dirs[1], monkeypatch)
        session.create("/a")
        second = Hang(dirs[1], monkeypatch, "sync_file")
        first.may_end.set()
        assert second.hangs.wait(SECONDS_MAX)
        for number in range(20):
            session.create(f"/{number}")
        late = store._copies._late
        wait_until(lambda: not late._late)
        second.may_end.set()
        wait_until(lambda: not store.failures)
    assert len(names(dirs)) == 21


def test_a_log_dir_that_its_owner_takes_again_is_used_again(dirs: list[str]) -> None:
    """While the owner has released the log dir, no file is written there."""
    with LogStore.open(dirs, admin_socket=False) as owner, EmbeddedStore(dirs, SETTINGS) as store:
        session = store.connect()
        owner.take_offline(dirs[1])
        before = Path(dirs[1], JOURNAL_NAME).read_bytes()
        session.create("/while")
        assert isinstance(store.failures[dirs[1]], LetGoError)
        assert Path(dirs[1], JOURNAL_NAME).read_bytes() == before
        owner.reopen_dir(dirs[1])
        wait_until(lambda: not store.failures)
    Path(dirs[0], JOURNAL_NAME).unlink()
    with EmbeddedStore(dirs, accept_incomplete=True) as store, store.connect() as session:
        assert session.children("/") == ["while"]


def test_regression_a_log_dir_returns_only_if_a_member_records_it(dirs: list[str]) -> None:
    """The only member fails at that write. Alone, the returned copy would lack later changes."""
    with EmbeddedStore(dirs, SETTINGS) as store, store.connect() as session:
        with FaultyFiles(dirs[0], SLOW, 1):
            session.create("/a")
        with FaultyFiles(dirs[1], SLOW, 1):
            wait_until(lambda: dirs[1] in store.failures)
            with pytest.raises(CopiesOfflineError) as caught:
                session.create("/lost")
        assert sorted(caught.value.failures) == dirs
    with pytest.raises(CopiesIncompleteError):
        names(dirs[:1])
    assert names(dirs[1:]) == ["a"]
    assert names(dirs) == ["a"]


def test_regression_a_copy_without_a_member_is_not_used_at_an_open(dirs: list[str]) -> None:
    """The only member can be read, but not written."""
    with EmbeddedStore(dirs) as store, store.connect() as session, FaultyFiles(dirs[0], EIO, 1):
        session.create("/a")
    with FaultyFiles(dirs[1], EIO, 1):
        with pytest.raises(CopiesOfflineError, match="before they recorded"):
            EmbeddedStore(dirs)
        with (
            EmbeddedStore(dirs, accept_incomplete=True) as store,
            store.connect() as session,
        ):
            assert list(store.failures) == [dirs[1]]
            assert session.children("/") == ["a"]


def test_a_log_dir_counts_as_left_out_until_a_member_records_it(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then, the store would not survive the loss of the other disk."""
    with EmbeddedStore(dirs, SETTINGS) as store, store.connect() as session:
        with FaultyFiles(dirs[0], SLOW, 1):
            session.create("/a")
            hang = Hang(dirs[1], monkeypatch)
        assert hang.hangs.wait(SECONDS_MAX)
        assert list(store.failures) == [dirs[0]]
        hang.may_end.set()
        wait_until(lambda: not store.failures)


def test_regression_an_interrupted_return_stops_the_store(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal has one line more. A shorter line in its place would damage the journal."""
    interrupted, real = threading.Event(), JournalFile.append_epoch

    def append_epoch(file: JournalFile, membership: Membership) -> None:
        if file.path.startswith(dirs[0]):
            interrupted.set()
            raise MemoryError
        real(file, membership)

    with EmbeddedStore(dirs, SETTINGS) as store, store.connect() as session:
        with FaultyFiles(dirs[0], SLOW, 1):
            session.create("/a")
            monkeypatch.setattr(JournalFile, "append_epoch", append_epoch)
        assert interrupted.wait(SECONDS_MAX)
        store.leave_out(dirs[0], OSError(errno.ESHUTDOWN, "released"))
        monkeypatch.undo()
        with pytest.raises(CopiesOfflineError, match="interrupted"):
            session.create("/no")
    assert names(dirs) == ["a"]


def test_regression_a_released_log_dir_does_not_return(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copy was catching up when the owner released the log dir."""
    with EmbeddedStore(dirs, SETTINGS) as store, store.connect() as session:
        with FaultyFiles(dirs[0], SLOW, 1):
            session.create("/a")
            hang = Hang(dirs[0], monkeypatch, "sync_file")
        assert hang.hangs.wait(SECONDS_MAX)
        store.leave_out(dirs[0], OSError(errno.ESHUTDOWN, "released"))
        hang.may_end.set()
        late = store._copies._late._late
        wait_until(lambda: dirs[0] not in late or late[dirs[0]].is_level())
        with store._writing:
            store._copies.take_in()
        assert list(store.failures) == [dirs[0]]


def test_regression_a_close_waits_for_a_copy_that_was_given_up(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the close, another process may use the log dir, so this one must write nothing."""
    with EmbeddedStore(dirs, SETTINGS) as store, store.connect() as session:
        with FaultyFiles(dirs[0], SLOW, 1):
            session.create("/a")
            hang = Hang(dirs[0], monkeypatch, "sync_file")
        assert hang.hangs.wait(SECONDS_MAX)
        store.leave_out(dirs[0], OSError(errno.ESHUTDOWN, "released"))
        assert not disk_workers.is_free(dirs[0])
        release = threading.Timer(0.2, hang.may_end.set)
        release.start()
    assert disk_workers.is_free(dirs[0])
    release.join()
