"""Watch what is synced, so that an acknowledgement can be held against it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from logstore.disk import files

Inode = tuple[int, int]


class Syncs:
    """Knows up to where each file was made durable.

    Attributes:
        synced: the size that a file had at its last sync, less what was cut off since.
    """

    _watching: Syncs | None = None

    @classmethod
    def watch(cls) -> Syncs:
        """Watch from the first call on, for the rest of this process."""
        cls._watching = cls._watching or cls()
        return cls._watching

    def __init__(self) -> None:
        self.synced: dict[Inode, int] = {}
        for name in ("fdatasync", "fsync"):
            setattr(files, name, self._syncing(getattr(files, name)))
        files.ftruncate = self._cutting(files.ftruncate)

    def is_unsynced(self, path: str) -> bool:
        """Tell whether a file has bytes behind those that a sync has made durable."""
        facts = os.stat(path)
        return facts.st_size > self.synced.get((facts.st_dev, facts.st_ino), 0)

    def _syncing(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            facts = os.fstat(fd)
            real(fd)
            self.synced[facts.st_dev, facts.st_ino] = facts.st_size

        return sync

    def _cutting(self, real: Callable[[int, int], None]) -> Any:
        def cut(fd: int, size_bytes: int) -> None:
            facts = os.fstat(fd)
            inode = facts.st_dev, facts.st_ino
            self.synced[inode] = min(size_bytes, self.synced.get(inode, 0))
            real(fd, size_bytes)

        return cut
