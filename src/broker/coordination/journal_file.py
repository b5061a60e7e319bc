"""Write the journal of one log dir: append changes and epochs, or rewrite the whole file."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Self

from broker.coordination.journal import (
    JOURNAL_NAME,
    Journal,
    encode_change,
    encode_copy_id,
    encode_epoch,
)
from broker.coordination.members import Membership
from broker.coordination.tree import Draft
from logstore.disk import files
from logstore.disk.failures import DISK_IS_FULL, PROCESS_IS_FULL

JOURNAL_BYTES_MAX = 1 << 30
OWNER_ONLY = 0o600  # the journal has keys from passwords of users
LINE_BYTES_MAX = 8 << 20  # a request has at most 1 MiB, and a byte takes at most 6 characters
NOT_OF_THE_DISK = DISK_IS_FULL | PROCESS_IS_FULL


class JournalFile:
    """The open journal of one log dir. After the open, only one thread at a time calls its methods.

    Attributes:
        path: the path of the journal.
        copy_id: the id of this copy.
        size_bytes: where the next line is written.
        digest: the checksum of the last line.
        written_bytes: the size of the journal when it was last rewritten.
        long_bytes: the journal is rewritten only if it is at least this large.
    """

    def __init__(
        self, path: str, copy_id: str, fd: int, size_bytes: int, digest: int, written_bytes: int
    ) -> None:
        self.path, self.copy_id, self._fd = path, copy_id, fd
        self.size_bytes, self.digest, self.written_bytes = size_bytes, digest, written_bytes
        self.long_bytes = 0
        self._next = size_bytes, digest

    @classmethod
    def opened(cls, log_dir: str, journal: Journal) -> Self:
        """Open a journal that was already read, so that changes can be appended."""
        _remove_unfinished(log_dir)
        end = (journal.size_bytes, journal.digest, journal.written_bytes)
        return cls._open(log_dir, journal.copy_id, *end)

    @classmethod
    def created(cls, log_dir: str, copy_id: str, znodes: tuple[bytes, int]) -> Self:
        """Write a whole journal durably, and open it.

        Args:
            znodes: the result of `encode_znodes`.
        """
        _remove_unfinished(log_dir)
        data, digest = _whole(copy_id, *znodes)
        files.write_atomically(os.path.join(log_dir, JOURNAL_NAME), data, mode=OWNER_ONLY)
        return cls._open(log_dir, copy_id, len(data), digest, len(data))

    @classmethod
    def _open(
        cls, log_dir: str, copy_id: str, size_bytes: int, digest: int, written_bytes: int
    ) -> Self:
        path = os.path.join(log_dir, JOURNAL_NAME)
        fd = files.open_regular(path, files.READ_WRITE)
        return cls(path, copy_id, fd, size_bytes, digest, written_bytes)

    def append(self, draft: Draft) -> None:
        """Write a change durably. The caller must call `confirm` or `take_back` next."""
        self._write(*encode_change(draft.zxid, draft.rows, self.digest, self.size_bytes))

    def append_epoch(self, membership: Membership) -> None:
        """Write the line of a new epoch durably. The caller must `confirm` or `take_back` next."""
        self._write(*encode_epoch(membership, self.digest, self.size_bytes))

    def _write(self, line: bytes, digest: int) -> None:
        if self.size_bytes + len(line) > JOURNAL_BYTES_MAX:
            # there was no space to write a shorter journal
            text = f"the journal would be longer than {JOURNAL_BYTES_MAX} bytes"
            raise OSError(errno.EFBIG, text, self.path)
        self._next = self.size_bytes + len(line), digest
        files.write_fully(self._fd, [line], self.size_bytes)
        files.sync_data(self._fd)

    def confirm(self) -> None:
        """Keep the last line. From now on, the line is a part of the journal."""
        self.size_bytes, self.digest = self._next

    def take_back(self) -> None:
        """Cut off everything after the last confirmed line, durably."""
        try:
            files.ftruncate(self._fd, self.size_bytes)
            files.sync_data(self._fd)
        except OSError as error:  # a truncation works even if the disk is full
            raise files.SyncError.of(error) from error

    def replace(self, znodes: tuple[bytes, int]) -> None:
        """Replace the journal by a new journal with these znodes and without changes."""
        data, digest = _whole(self.copy_id, *znodes)
        files.write_atomically(self.path, data, mode=OWNER_ONLY)
        try:
            fd = files.open_regular(self.path, files.READ_WRITE)
        except OSError as error:  # the open file was replaced, so it has no name
            raise files.SyncError.of(error) from error
        self.close()
        self._fd, self.digest = fd, digest
        self.size_bytes = self.written_bytes = len(data)

    def is_long(self, bytes_min: int) -> bool:
        """Report whether the changes are so large that the journal should be rewritten."""
        changes_bytes = self.size_bytes - self.written_bytes
        return self.size_bytes >= self.long_bytes and changes_bytes > max(
            bytes_min, self.written_bytes
        )

    def is_at_bound(self) -> bool:
        """Report whether the journal is so long that the next line may not fit."""
        return self.size_bytes + LINE_BYTES_MAX > JOURNAL_BYTES_MAX

    def close(self) -> None:
        """Close the file. An error is ignored, because every confirmed change was synced."""
        with suppress(OSError):
            files.close(self._fd)


def _whole(copy_id: str, data: bytes, digest: int) -> tuple[bytes, int]:
    """Add the last line to a new journal. This line has the id of the copy."""
    line, digest = encode_copy_id(copy_id, digest, len(data))
    return data + line, digest


# --- before a journal is open ---------------------------------------------------------------------


def read_size(log_dir: str) -> int | None:
    """Return the size of the journal of a log dir; None if there is no journal."""
    try:
        return files.lstat(os.path.join(log_dir, JOURNAL_NAME)).st_size
    except FileNotFoundError:
        files.lstat(log_dir)  # this call raises an error if the log dir itself is missing
        return None


def read_bytes(log_dir: str) -> bytes:
    """Read the journal of a log dir."""
    return files.read_file(os.path.join(log_dir, JOURNAL_NAME), JOURNAL_BYTES_MAX)


def _remove_unfinished(log_dir: str) -> None:
    """Remove unfinished new journals that a crash has left."""
    try:
        for name in files.names(log_dir):
            if name.startswith(f"{JOURNAL_NAME}.") and name.endswith(".tmp"):
                files.unlink(os.path.join(log_dir, name))
    except OSError as error:
        if error.errno not in NOT_OF_THE_DISK:
            raise
