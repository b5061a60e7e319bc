"""A store is closed in order, whatever one of its disks does."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from logstore.disk import files
from logstore.errors import LogDirOfflineError
from logstore.store.store import LogStore
from support.bad_disk import failing, fill


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    """Name three log dirs that do not exist yet."""
    return [str(tmp_path / f"disk{number}") for number in range(3)]


def test_close_skips_a_disk_that_hangs(dirs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are closed in order; the hanging one is named, and recovers at the next start."""
    fill(dirs)
    release = threading.Event()
    real = files.fdatasync

    def hang(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(dirs[1]):
            release.wait(30)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    store = LogStore.open(dirs)
    for number in range(3):
        store["orders", number].append(b"more")
    with monkeypatch.context() as patch:
        patch.setattr(files, "fdatasync", hang)
        assert store.close(timeout=1.0) == (dirs[1],)
        for path in (dirs[0], dirs[2]):
            assert Path(path, ".clean-shutdown").exists()
        assert not Path(dirs[1], ".clean-shutdown").exists()
        release.set()
        for thread in threading.enumerate():
            if thread.name.startswith("logstore-close"):
                thread.join(10)
    with LogStore.open(dirs) as store:
        assert [len(store["orders", number]) for number in range(3)] == [11, 11, 11]


def test_a_failed_flush_at_close_raises_after_the_others_are_closed(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No marker where the flush failed; an error under way is not hidden by it."""
    fill(dirs)
    store = LogStore.open(dirs)
    for number in range(3):
        store["orders", number].append(b"more")
    with monkeypatch.context() as patch:
        patch.setattr(files, "fdatasync", failing("fdatasync", dirs[1], errno.EIO))
        with pytest.raises(LogDirOfflineError):
            store.close()
    present = [Path(path, ".clean-shutdown").exists() for path in dirs]
    assert present == [True, False, True]

    def fail_twice() -> None:
        with LogStore.open(dirs) as store:
            store["orders", 1].append(b"more")
            monkeypatch.setattr(files, "fdatasync", failing("fdatasync", dirs[1], errno.EIO))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail_twice()
