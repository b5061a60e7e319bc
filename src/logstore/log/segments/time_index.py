"""Keep a sparse index of a segment's largest timestamps, to search for records by timestamp.

    entry   i64 timestamp | u32 relative_offset      12 bytes (docs/FORMAT.md, section 6)

Invariants: no record before an entry's `relative_offset` has a timestamp after the entry's
`timestamp`. Both columns increase from entry to entry.
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
    """One segment's time index; threads share it in the same way as an `OffsetIndex`."""

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

        If the last entry has this timestamp or a later timestamp, nothing is added.
        """
        offsets, timestamps = self.offsets, self.timestamps
        assert isinstance(offsets, array) and isinstance(timestamps, array)
        if not timestamps or timestamp > timestamps[-1]:
            if len(offsets) != len(timestamps):  # an interrupt came between these two appends
                del offsets[len(timestamps) :]
            offsets.append(relative_offset)
            timestamps.append(timestamp)

    def start_for(self, timestamp: int) -> int:
        """Return the relative offset to search from; all records before this offset are older."""
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
        """Decode the entries in a file's bytes; if `growing`, entries can be added later."""
        entries = np.frombuffer(data, ENTRY)
        timestamps = np.ascontiguousarray(entries["timestamp"])
        offsets = np.ascontiguousarray(entries["relative_offset"])
        if growing:
            return cls(array("q", timestamps.tobytes()), array("I", offsets.tobytes()))
        return cls(timestamps.data, offsets.data)
