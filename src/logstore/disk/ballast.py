"""Keep some space in reserve, so that a full disk can be emptied.

To delete records, a few small files are replaced first, and each is written beside the old one. A
disk without a free block has no room for them. So each log dir keeps a file of no use, the ballast,
that is removed when such a file finds no room, and written again as soon as there is room for it.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from logstore.disk import files
from logstore.disk.failures import Verdict, verdict_of

BALLAST_NAME = "log-dir-ballast"
# Room for the checkpoints of some 10,000 partitions. XFS also asks for much more than a file needs.
BALLAST_BYTES = 1 << 20
# Written again and again; no file system compresses more than this at a time.
BLOCK_BYTES = 128 << 10

Result = TypeVar("Result")


class Ballast:
    """The file of one log dir that gives its space away when the disk is full.

    Threads: `_lock` is held for the removal alone. A thread whose work found no room while another
    removed the ballast tries again too.

    Args:
        on_full: called with the error of work that found no room.
    """

    def __init__(
        self, dir_path: str, on_full: Callable[[OSError], object] = lambda error: None
    ) -> None:
        self.path = os.path.join(dir_path, BALLAST_NAME)
        self._on_full = on_full
        self._lock = threading.Lock()
        self._is_whole = False
        self._removals = 0

    def keep(self) -> None:
        """Write the file, or as much of it as finds room; raises OSError if the disk failed."""
        if self._is_whole:
            return
        try:
            if self._size_bytes() != BALLAST_BYTES:
                self._write()
            self._is_whole = True
        except OSError as error:
            if verdict_of(error) not in (Verdict.FULL, Verdict.PROCESS):
                raise

    def _write(self) -> None:
        fd = files.replace_file(self.path)
        try:
            # Linux refuses a large write as a whole where a smaller one still finds room.
            block = _block()
            for start in range(0, BALLAST_BYTES, BLOCK_BYTES):
                files.write_fully(fd, [block], start)
            files.sync_file(fd)
        finally:
            files.close(fd)

    def use(self, work: Callable[[], Result]) -> Result:
        """Do work that needs little space, a second time without the ballast if it found no room.

        Args:
            work: can be repeated, wherever it ended with an error.
        """
        seen = self._removals
        try:
            return work()
        except OSError as error:
            if not _is_out_of_space(error):
                raise
            self._on_full(error)
            if not self._give_up(seen):
                raise
        try:
            return work()
        finally:
            with suppress(OSError):  # the work is done; a disk that fails shows it at the next call
                self.keep()

    def _give_up(self, seen: int) -> bool:
        """Remove the file; False if it was gone already when the work began, and did not return."""
        with self._lock:
            if self._size_bytes():
                files.unlink(self.path)
                self._is_whole = False
                self._removals += 1
            return self._removals != seen

    def _size_bytes(self) -> int:
        """Give the size of the file, 0 if there is none or its name is taken by something else."""
        entry = files.entry_of(os.path.dirname(self.path), BALLAST_NAME)
        return entry.size_bytes if entry is not None and entry.is_file else 0


def _is_out_of_space(error: OSError) -> bool:
    """Check whether space would help; after a failed sync nothing is repeated (R6)."""
    if isinstance(error, files.SyncError) or error.errno == errno.EFBIG:
        return False
    return verdict_of(error) is Verdict.FULL


def _block() -> bytes:
    """Make bytes that no file system can compress, the same ones each time."""
    import hashlib

    return hashlib.shake_256(BALLAST_NAME.encode()).digest(BLOCK_BYTES)
