"""An offset index finds the last entry at or before an offset, growing or from a file."""

from __future__ import annotations

from array import array
from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.log.segments.offset_index import ENTRY_BYTES, OffsetIndex

ENTRIES = st.lists(st.integers(1, 1000), max_size=50)


def index_of(steps: list[int]) -> tuple[OffsetIndex, list[int]]:
    """Make an index with entries at a fixed distance, the first at 0."""
    index, offsets = OffsetIndex(), [0]
    for step in steps:
        offsets.append(offsets[-1] + step)
    for number, offset in enumerate(offsets):
        index.append(offset, number * 4096)
    return index, offsets


def test_an_empty_index_has_nothing_before_any_offset() -> None:
    """-1 means: begin at the start of the file."""
    index = OffsetIndex()
    assert (len(index), index.lookup(0), index.lookup(5), index.size_bytes) == (0, -1, -1, 0)
    assert index.to_bytes() == b"" and len(OffsetIndex.from_bytes(b"")) == 0
    assert repr(index) == "OffsetIndex(0 entries)"


@given(ENTRIES, st.integers(0, 60_000))
def test_a_lookup_is_a_bisection(steps: list[int], offset: int) -> None:
    """This holds for a growing index and for an index from a file."""
    index, offsets = index_of(steps)
    expected = bisect_right(offsets, offset) - 1
    data = index.to_bytes()
    assert len(data) == index.size_bytes == len(offsets) * ENTRY_BYTES
    for read in (index, OffsetIndex.from_bytes(data), OffsetIndex.from_bytes(data, growing=True)):
        assert read.lookup(offset) == expected
        assert read.positions[expected] == expected * 4096
        assert read.to_bytes() == data


def test_only_a_growing_index_grows() -> None:
    """Entries are never added to an index that was read for searching."""
    index, _ = index_of([10])
    grown = OffsetIndex.from_bytes(index.to_bytes(), growing=True)
    grown.append(20, 9000)
    assert grown.lookup(25) == 2 and len(index) == 2
    with pytest.raises(AssertionError):
        OffsetIndex.from_bytes(index.to_bytes()).append(20, 9000)


def test_entries_stand_as_the_document_says() -> None:
    """An entry has two little-endian numbers of four bytes each."""
    index, _ = index_of([258])
    assert index.to_bytes() == bytes(8) + bytes([2, 1, 0, 0]) + bytes([0, 16, 0, 0])


class _Interrupted(array):  # type: ignore[type-arg]
    """Raise KeyboardInterrupt in place of the next append."""

    def append(self, number: int) -> None:
        raise KeyboardInterrupt


def test_regression_an_interrupt_between_the_two_columns_shifts_none() -> None:
    """The next entry replaces the incomplete one; readers see only complete entries."""
    index, offsets = index_of([10])
    known = index.offsets
    index.offsets = _Interrupted("I", offsets)
    with pytest.raises(KeyboardInterrupt):
        index.append(20, 77)
    index.offsets = known
    assert len(index) == 2 and index.lookup(25) == 1 and len(index.positions) == 3
    index.append(20, 8192)
    index.append(30, 9000)
    assert list(zip(index.offsets, index.positions, strict=True)) == [
        (0, 0), (10, 4096), (20, 8192), (30, 9000),
    ]  # fmt: skip


def test_regression_an_entry_is_added_once() -> None:
    """An append that is interrupted after it added its entry is repeated at the same place."""
    index, _ = index_of([10])
    index.append(10, 4096)
    assert list(index.offsets) == [0, 10] and list(index.positions) == [0, 4096]
