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
from logstore.disk.failures import Verdict, reason_of, verdict_of

BALLAST_NAME = "log-dir-ballast"
# Room for the checkpoints of some 10,000 partitions. XFS also asks for much more than a file needs.
BALLAST_BYTES = 1 << 20
# Written again and again; no file system compresses more than this at a time.
BLOCK_BYTES = 128 << 10

Result = TypeVar("Result")


class Ballast:
    """The file of one log dir that gives its space away when the disk is full.

    Threads: `_lock` is held while the file is written or removed, so that no thread removes a file
    that another one is writing. A thread that waits for it waits for its own disk. A thread whose
    work found no room while another removed the ballast tries again too.

    Args:
        on_full: called with the error of work that found no room.
        warnings: gets a line if the file cannot be written for another reason than a full disk.
    """

    def __init__(
        self,
        dir_path: str,
        on_full: Callable[[OSError], object] = lambda error: None,
        warnings: list[str] | None = None,
    ) -> None:
        self.path = os.path.join(dir_path, BALLAST_NAME)
        self._on_full = on_full
        self._warnings = [] if warnings is None else warnings
        self._lock = threading.Lock()
        self._missing_bytes = BALLAST_BYTES
        self._removals = 0

    @property
    def missing_bytes(self) -> int:
        """How much of the file is not written: space that is free, but not for records."""
        return self._missing_bytes

    def keep(self) -> None:
        """Write the file, or as much of it as finds room; raises OSError if the disk failed."""
        if not self._missing_bytes:
            return
        with self._lock:
            try:
                size_bytes = self._size_bytes()
                if size_bytes > BALLAST_BYTES:
                    files.unlink(self.path)
                    size_bytes = 0
                if size_bytes != BALLAST_BYTES:
                    self._write(size_bytes)
                self._missing_bytes = 0
            except OSError as error:
                if verdict_of(error) is Verdict.GONE:
                    raise
                self._take_failure(error)

    def _take_failure(self, error: OSError) -> None:
        """Note how much of the file is missing; a file of no use takes no log dir offline."""
        with suppress(OSError):
            self._missing_bytes = max(BALLAST_BYTES - self._size_bytes(), 1)
        text = f"{self.path} cannot be written, so a full disk may not be emptied: "
        if verdict_of(error) is Verdict.ASK and text + reason_of(error) not in self._warnings:
            self._warnings.append(text + reason_of(error))

    def _write(self, size_bytes: int) -> None:
        """Write the rest of the file; what is there stays, so that no record takes its place."""
        whole_bytes = size_bytes // BLOCK_BYTES * BLOCK_BYTES
        fd = self._open(is_there=whole_bytes > 0)
        try:
            # Linux refuses a large write as a whole where a smaller one still finds room.
            block = _block()
            for start in range(whole_bytes, BALLAST_BYTES, BLOCK_BYTES):
                files.write_fully(fd, [block], start)
            files.sync_file(fd)
        finally:
            files.close(fd)

    def _open(self, *, is_there: bool) -> int:
        return (
            files.open_regular(self.path, files.READ_WRITE)
            if is_there
            else (files.replace_file(self.path))
        )

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
                self._missing_bytes = BALLAST_BYTES
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
