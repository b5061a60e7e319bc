"""Use a sparse index of offsets and positions to find the batch that contains an offset.

    entry   u32 relative_offset | u32 position      (docs/FORMAT.md, section 5)

Invariants: both columns strictly increase. The first entry is (0, 0), unless offsets are missing at
the start of the segment, or a broker wrote the segment. An index is only a hint: code that uses an
entry checks that a batch with the entry's offset begins at the entry's position.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

ENTRY_BYTES = 8


class OffsetIndex:
    """The entries of one segment's index.

    The appending thread adds entries, and readers search at any time without a lock. This is safe
    because `positions` grows before `offsets`, and a search reads `offsets` first. If an interrupt
    comes between these two steps, `positions` has one item more than `offsets`. No reader uses this
    last position, and the next append replaces it.
    """

    __slots__ = ("offsets", "positions")

    def __init__(
        self,
        offsets: array[int] | memoryview | None = None,
        positions: array[int] | memoryview | None = None,
    ) -> None:
        self.offsets: Sequence[int] = array("I") if offsets is None else offsets
        self.positions: Sequence[int] = array("I") if positions is None else positions

    def __len__(self) -> int:
        return len(self.offsets)

    def __repr__(self) -> str:
        return f"OffsetIndex({len(self)} entries)"

    @property
    def size_bytes(self) -> int:
        """The size of all entries in the index file, in bytes."""
        return len(self.offsets) * ENTRY_BYTES

    def append(self, relative_offset: int, position: int) -> None:
        """Add an entry; its offset and its position must be larger than in the last entry."""
        positions, offsets = self.positions, self.offsets
        assert isinstance(positions, array) and isinstance(offsets, array)
        known = len(offsets)
        if known and offsets[-1] == relative_offset:
            return  # an interrupted append has already added this entry
        if len(positions) != known:
            del positions[known:]
        positions.append(position)
        offsets.append(relative_offset)

    def lookup(self, relative_offset: int) -> int:
        """Return the number of the last entry at or before an offset; -1 if there is none."""
        return bisect_right(self.offsets, relative_offset) - 1

    def to_bytes(self) -> bytes:
        """Encode the entries in the format of the file."""
        pairs = np.empty((len(self.offsets), 2), np.uint32)
        pairs[:, 0] = self.offsets[: len(pairs)]
        pairs[:, 1] = self.positions[: len(pairs)]
        return pairs.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, *, growing: bool = False) -> OffsetIndex:
        """Decode the entries in a file's bytes; if `growing`, entries can be added later."""
        pairs = np.frombuffer(data, np.uint32).reshape(-1, 2)
        offsets, positions = pairs[:, 0].copy(), pairs[:, 1].copy()
        if growing:
            return cls(array("I", offsets.tobytes()), array("I", positions.tobytes()))
        return cls(offsets.data, positions.data)
