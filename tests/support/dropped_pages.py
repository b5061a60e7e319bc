"""Let a sync fail as kernels do it: what it was to write is dropped, and looks well in memory (R6).

The file stands for the memory: it shows what was written. What the disk has in its place, zeros,
comes to light where the kernel is asked to forget the file's pages, or at the end, by `forget_all`.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore.disk import files
from support.faulty import fd_path


class DroppedPages:
    """Stands between the engine and the syncs of segments below a directory.

    Attributes:
        fails: whether the next sync fails; the one after it succeeds, over the same lost bytes.
        thread: if set, only a sync of the thread of this name fails.
        before: called before one fails.
        has_failed: set once one has.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, under: Path) -> None:
        self.under = str(under) + "/"
        self.fails, self.thread = False, ""
        self.has_failed = threading.Event()
        self.before: Callable[[], object] = lambda: None
        self._durable: dict[int, int] = {}  # of a file by its inode: so many bytes
        self._lost: dict[int, tuple[str, int, int]] = {}
        self._sync, self._fadvise = files.fdatasync, files.fadvise
        monkeypatch.setattr(files, "fdatasync", self._sync_or_fail)
        monkeypatch.setattr(files, "fadvise", self._forget)

    def _sync_or_fail(self, fd: int) -> None:
        path, facts = fd_path(fd), os.fstat(fd)
        if path.startswith(self.under) and path.endswith(".log"):
            if self.fails and self.thread in ("", threading.current_thread().name):
                self.before()
                self.fails = False
                self.lose(path)
                self.has_failed.set()
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self._durable[facts.st_ino] = facts.st_size
        self._sync(fd)

    def lose(self, path: str) -> None:
        """Drop what was written to a file since its last sync."""
        facts = os.stat(path)
        self._lost[facts.st_ino] = (path, self._durable.get(facts.st_ino, 0), facts.st_size)

    def _forget(self, fd: int, start: int, size: int, advice: int) -> None:
        self._fadvise(fd, start, size, advice)
        if advice == os.POSIX_FADV_DONTNEED:
            self._show(os.fstat(fd).st_ino)

    def _show(self, inode: int) -> None:
        path, start, end = self._lost.pop(inode, ("", 0, 0))
        if end > start:
            with open(path, "r+b") as file:
                file.seek(start)
                file.write(bytes(end - start))

    def forget_all(self, root: Path) -> None:
        """Let all memory go, as a power cut does: files are found by what they are called now."""
        for path in root.rglob("*.log"):
            inode = path.stat().st_ino
            if inode in self._lost:
                self._lost[inode] = (str(path), *self._lost[inode][1:])
                self._show(inode)
