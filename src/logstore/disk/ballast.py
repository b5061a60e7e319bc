"""Keep some disk space in reserve, so that records can be deleted when the disk is full.

Before records can be deleted, a few small files must be replaced. Each new file is written beside
the old file. A disk without a free block has no room for the new file. So each log dir has a file
without useful content, the ballast. If there is no room for a small file, the ballast is removed.
The ballast is written again as soon as there is room.
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
# A ballast of this size suffices for the checkpoints of about 10,000 partitions.
# On XFS, a file needs more room than its size.
BALLAST_BYTES = 1 << 20
# The ballast repeats one block, which is larger than the pieces that file systems compress.
# So no file system can compress the ballast.
BLOCK_BYTES = 128 << 10

Result = TypeVar("Result")


class Ballast:
    """The ballast of one log dir: a file that is removed when the disk is full.

    Threads: `_lock` is held while the file is written or removed, so that no thread removes a file
    that another thread is writing. A thread that waits for the lock waits only for its own disk. If
    two threads find no room for their work, one thread removes the ballast, and both threads repeat
    their work.

    Args:
        on_full: a function that is called with the error if there was no room for some work.
        warnings: a list that gets a line if the ballast cannot be written although the disk is not
            full.
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
        # One object for each call of `use` whose work uses the space of the removed ballast.
        self._in_use: set[object] = set()

    @property
    def missing_bytes(self) -> int:
        """The number of missing bytes of the ballast; this much free space is reserved."""
        return self._missing_bytes

    def keep(self) -> None:
        """Write as much of the ballast as fits on the disk. Raises OSError if the disk failed.

        While some work uses the space of the removed ballast, the ballast is not written. If an
        append, which checks for room and calls `keep`, wrote the ballast, it would fill the space
        that the work needs.
        """
        if not self._missing_bytes:
            return
        with self._lock:
            if self._in_use:
                return
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
        """Store how many bytes of the ballast are missing; a write error is only a warning."""
        with suppress(OSError):
            self._missing_bytes = max(BALLAST_BYTES - self._size_bytes(), 1)
        text = (
            f"{self.path} cannot be written, so it may be impossible to delete records when the "
            "disk is full: "
        )
        if verdict_of(error) is Verdict.ASK and text + reason_of(error) not in self._warnings:
            self._warnings.append(text + reason_of(error))

    def _write(self, size_bytes: int) -> None:
        """Write the missing part of the ballast.

        If there is room for only a part of the ballast, this part stays on the disk, so that no
        record takes this space.
        """
        whole_bytes = size_bytes // BLOCK_BYTES * BLOCK_BYTES
        fd = self._open(is_there=whole_bytes > 0)
        try:
            # Linux refuses a large write as a whole, even if there is room for a smaller write.
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
        """Do work that needs little space; if there is no room, remove the ballast and retry.

        Args:
            work: a function that can be called again after any error.
        """
        seen, me = self._removals, object()
        try:
            return work()
        except OSError as error:
            if not _is_out_of_space(error):
                raise
            self._on_full(error)
            full, has_room = error, False
        try:
            self._in_use.add(me)
            has_room = self._give_up(seen)
            if not has_room:
                raise full
            return work()
        finally:
            self._in_use.discard(me)
            del full  # avoid a reference cycle of this frame and the error's traceback
            with suppress(OSError):  # the work is done; a failed disk makes the next call fail
                if has_room:
                    self.keep()

    def _give_up(self, seen: int) -> bool:
        """Remove the ballast; return whether any thread has removed it since the work began.

        Args:
            seen: how often the ballast had been removed when the work began.
        """
        with self._lock:
            if self._size_bytes():
                # Set `_missing_bytes` first, because an interrupt may come right after the removal.
                self._missing_bytes = BALLAST_BYTES
                files.unlink(self.path)
                self._removals += 1
            return self._removals != seen

    def _size_bytes(self) -> int:
        """Return the size of the ballast; 0 if it does not exist or is not a regular file."""
        entry = files.entry_of(os.path.dirname(self.path), BALLAST_NAME)
        return entry.size_bytes if entry is not None and entry.is_file else 0


def _is_out_of_space(error: OSError) -> bool:
    """Check whether work that failed with this error could succeed with more free space.

    Return False for EFBIG. Also return False for a failed sync, because no sync is retried.
    """
    if isinstance(error, files.SyncError) or error.errno == errno.EFBIG:
        return False
    return verdict_of(error) is Verdict.FULL


def _block() -> bytes:
    """Make a block of bytes that no file system can compress; every call makes the same bytes."""
    import hashlib

    return hashlib.shake_256(BALLAST_NAME.encode()).digest(BLOCK_BYTES)
