"""Remember at which offset each leader epoch began (`leader-epoch-checkpoint`).

Invariant: epochs and start offsets both increase strictly. The file is a copy of what stands in the
batches; damaged or gone, it is made anew from them.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from contextlib import nullcontext

from logstore.disk import checkpoint, files
from logstore.errors import CorruptCheckpointError

FILE_NAME = "leader-epoch-checkpoint"


class LeaderEpochs:
    """Hold (epoch, start offset) pairs of one log."""

    def __init__(self, directory: str, entries: list[tuple[int, int]] | None = None) -> None:
        self._path = os.path.join(directory, FILE_NAME)
        self.entries = entries or []

    def __repr__(self) -> str:
        return f"LeaderEpochs({self.entries})"

    @property
    def latest(self) -> int:
        """The epoch of the last record; -1 when there was none."""
        return self.entries[-1][0] if self.entries else -1

    def note(self, epoch: int, start_offset: int) -> bool:
        """Remember a batch's epoch; True when it is a new one.

        Entries that begin at or after it are of records that a truncation or a power cut took.
        """
        if self.entries and epoch <= self.entries[-1][0]:
            return False
        kept = [entry for entry in self.entries if entry[1] < start_offset]
        self.entries = [*kept, (epoch, start_offset)]
        return True

    def truncate_to(self, end_offset: int) -> None:
        """Forget epochs that began at or behind a truncation."""
        self.entries = [entry for entry in self.entries if entry[1] < end_offset]

    def start_at(self, log_start_offset: int) -> None:
        """Forget epochs that ended before the log start; the one it falls into begins there."""
        starts = [start for _, start in self.entries]
        first = max(bisect_right(starts, log_start_offset) - 1, 0)
        kept = self.entries[first:]
        if kept and kept[0][1] < log_start_offset:
            kept = [(kept[0][0], log_start_offset), *kept[1:]]
        self.entries = kept

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Give the largest epoch not after `epoch`, and where it ended (KIP-101)."""
        number = bisect_right([known for known, _ in self.entries], epoch)
        if number == 0:
            return -1, -1
        end = self.entries[number][1] if number < len(self.entries) else log_end_offset
        return self.entries[number - 1][0], end

    def remove(self) -> None:
        """Remove the file; its directory is not synced. Raises OSError."""
        files.remove_if_there(self._path)

    def write(self, guard: files.Guard = nullcontext) -> None:
        """Replace the file durably; raises OSError, and what the guard of its log dir does."""
        pairs = [list(entry) for entry in self.entries]
        checkpoint.write_document(self._path, {"version": 1, "epochs": pairs}, guard)

    @classmethod
    def read(cls, directory: str) -> LeaderEpochs | None:
        """Read the file; None when it is not there or does not check out."""
        path = os.path.join(directory, FILE_NAME)
        try:
            document = checkpoint.read_document(path)
        except CorruptCheckpointError:
            return None
        if document is None or document.get("version") != 1:
            return None
        return cls(directory, [(int(epoch), int(start)) for epoch, start in document["epochs"]])
