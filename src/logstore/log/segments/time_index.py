"""Index the largest timestamps of a segment sparsely, to find where to search for a timestamp.

    entry   i64 timestamp | u32 relative_offset      12 bytes (docs/FORMAT.md, section 6)

Invariants: in each entry, no record before `relative_offset` has a timestamp after `timestamp`.
Both columns increase.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

ENTRY = np.dtype([("timestamp", "<i8"), ("relative_offset", "<u4")])
ENTRY_BYTES = 12
assert ENTRY.itemsize == ENTRY_BYTES


class TimeIndex:
    """The entries of one segment's time index; threads use it like an `OffsetIndex`."""

    __slots__ = ("offsets", "timestamps")

    def __init__(
        self,
        timestamps: array[int] | memoryview | None = None,
        offsets: array[int] | memoryview | None = None,
    ) -> None:
        self.timestamps: Sequence[int] = array("q") if timestamps is None else timestamps
        self.offsets: Sequence[int] = array("I") if offsets is None else offsets

    def __len__(self) -> int:
        return len(self.timestamps)

    def __repr__(self) -> str:
        return f"TimeIndex({len(self)} entries)"

    def append(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry: no record before the offset has a timestamp after `timestamp`.

        If the last entry has this timestamp or a later one, nothing is added.
        """
        offsets, timestamps = self.offsets, self.timestamps
        assert isinstance(offsets, array) and isinstance(timestamps, array)
        if not timestamps or timestamp > timestamps[-1]:
            if len(offsets) != len(timestamps):  # an interrupt came between these two appends
                del offsets[len(timestamps) :]
            offsets.append(relative_offset)
            timestamps.append(timestamp)

    def start_for(self, timestamp: int) -> int:
        """Give a relative offset; all records before it have timestamps before `timestamp`."""
        entry = bisect_left(self.timestamps, timestamp) - 1
        return self.offsets[entry] if entry >= 0 else 0

    def to_bytes(self) -> bytes:
        """Encode the entries in the format of the file."""
        entries = np.empty(len(self.timestamps), ENTRY)
        entries["timestamp"] = self.timestamps[: len(entries)]
        entries["relative_offset"] = self.offsets[: len(entries)]
        return entries.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, *, growing: bool = False) -> TimeIndex:
        """Read the entries from a file's bytes; with `growing`, entries can be added later."""
        entries = np.frombuffer(data, ENTRY)
        timestamps = np.ascontiguousarray(entries["timestamp"])
        offsets = np.ascontiguousarray(entries["relative_offset"])
        if growing:
            return cls(array("q", timestamps.tobytes()), array("I", offsets.tobytes()))
        return cls(timestamps.data, offsets.data)
