"""A log dir has one owner, and a clean close is distinguished from a crash."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from logstore.disk.dir_lock import MARKER_NAME, DirLock, lock_hint
from logstore.errors import LogDirLockedError

# Python 3.12 and later warn of a fork among threads, which is just what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

CLUSTER, DIRECTORY = "a" * 32, "b" * 32


def start(path: Path, start_id: str) -> tuple[DirLock, bool]:
    """Lock a dir, and record a new owner."""
    lock = DirLock(str(path))
    lock.acquire()
    return lock, lock.begin(start_id, CLUSTER, DIRECTORY)


def test_a_second_owner_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    """The error names the process that owns the dir, and says if it is this process."""
    lock, _ = start(tmp_path, "1" * 32)
    with pytest.raises(LogDirLockedError, match="already open in this process") as raised:
        DirLock(str(tmp_path)).acquire()
    assert raised.value.pid == os.getpid()
    child = os.fork()
    if child == 0:
        try:
            DirLock(str(tmp_path)).acquire()
        except LogDirLockedError as error:
            os._exit(f"owned by process {os.getppid()}" in str(error))
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    lock.release()
    second = DirLock(str(tmp_path))
    second.acquire()
    assert second.is_held
    second.release()


def test_only_a_marker_of_the_last_start_counts(tmp_path: Path) -> None:
    """A close is clean after mark_clean, but not after a crash, or with an old marker."""
    lock, was_clean = start(tmp_path, "1" * 32)
    assert not was_clean
    lock.mark_clean("1" * 32)
    marker = (tmp_path / MARKER_NAME).read_bytes()
    lock.release()
    lock, was_clean = start(tmp_path, "2" * 32)
    assert was_clean
    assert not (tmp_path / MARKER_NAME).exists()
    lock.release()
    (tmp_path / MARKER_NAME).write_bytes(marker)
    lock, was_clean = start(tmp_path, "3" * 32)
    assert not was_clean
    lock.release()


@pytest.mark.parametrize("garbage", [b"", b"\0" * 200, b"garbage", b"{}\nxxh3-64 0\n"])
@pytest.mark.parametrize("name", [".lock", MARKER_NAME])
def test_garbage_counts_as_a_crash(tmp_path: Path, name: str, garbage: bytes) -> None:
    """A lock file or marker with a wrong checksum never counts as a clean close."""
    lock, _ = start(tmp_path, "1" * 32)
    lock.mark_clean("1" * 32)
    lock.release()
    (tmp_path / name).write_bytes(garbage)
    lock, was_clean = start(tmp_path, "2" * 32)
    assert not was_clean
    lock.release()


def test_a_directory_in_the_place_of_the_marker_counts_as_a_crash(tmp_path: Path) -> None:
    """An object that cannot be a marker does not prevent the start."""
    (tmp_path / MARKER_NAME).mkdir()
    lock, was_clean = start(tmp_path, "1" * 32)
    assert not was_clean
    lock.release()


def test_the_lock_file_witnesses_the_identity(tmp_path: Path) -> None:
    """The last owner's ids can be read without the lock; without a file, nothing is returned."""
    assert lock_hint(str(tmp_path)) == (None, None)
    lock, _ = start(tmp_path, "1" * 32)
    assert lock_hint(str(tmp_path)) == (CLUSTER, DIRECTORY)
    lock.release()
    (tmp_path / ".lock").write_bytes(b"garbage")
    assert lock_hint(str(tmp_path)) == (None, None)


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    """The child closes its copy, so the lock ends when its owner ends."""
    lock, _ = start(tmp_path, "1" * 32)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, b"x" if not lock.is_held else b"-")
        signal.pause()
        os._exit(0)
    try:
        assert os.read(read_end, 1) == b"x"
        with pytest.raises(LogDirLockedError):
            DirLock(str(tmp_path)).acquire()
        lock.drop()  # as if the owner had died: nothing is unlocked, only closed
        other = DirLock(str(tmp_path))
        other.acquire()
        other.release()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read_end)
        os.close(write_end)


def test_releasing_twice_is_fine(tmp_path: Path) -> None:
    """The second release does nothing."""
    lock, _ = start(tmp_path, "1" * 32)
    lock.release()
    lock.release()
    assert not lock.is_held
