"""Watch what is written and what is synced, so that an acknowledgement can be held against it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from logstore.disk import files

Inode = tuple[int, int]
WRITES = ("pwrite", "pwritev")
SYNCS = ("fdatasync", "fsync")


class Syncs:
    """Knows which files have bytes that no sync has made durable.

    Attributes:
        unsynced: them, by device and inode.
    """

    _watching: Syncs | None = None

    @classmethod
    def watch(cls) -> Syncs:
        """Watch from the first call on, for the rest of this process."""
        cls._watching = cls._watching or cls()
        return cls._watching

    def __init__(self) -> None:
        self.unsynced: set[Inode] = set()
        for name in WRITES:
            setattr(files, name, self._writing(getattr(files, name)))
        for name in SYNCS:
            setattr(files, name, self._syncing(getattr(files, name)))

    def is_unsynced(self, path: str) -> bool:
        """Tell whether a file has bytes that no sync has made durable."""
        facts = os.stat(path)
        return (facts.st_dev, facts.st_ino) in self.unsynced

    def _writing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def write(fd: int, *arguments: Any) -> Any:
            written = real(fd, *arguments)
            self.unsynced.add(_inode(fd))  # else nobody relies on what was written
            return written

        return write

    def _syncing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def sync(fd: int) -> None:
            inode = _inode(fd)
            is_unsynced = inode in self.unsynced
            self.unsynced.discard(inode)
            try:
                real(fd)
            except BaseException:
                if is_unsynced:
                    self.unsynced.add(inode)
                raise

        return sync


def _inode(fd: int) -> Inode:
    facts = os.fstat(fd)
    return facts.st_dev, facts.st_ino
