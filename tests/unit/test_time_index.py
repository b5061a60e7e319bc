"""A time index says where to begin: all earlier records are too early."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from logstore.log.segments.time_index import ENTRY_BYTES, TimeIndex

TIMES = st.lists(st.integers(0, 500), max_size=60)


def index_of(times: list[int]) -> TimeIndex:
    """Index records with these times, with an entry before each record but the first."""
    index, highest = TimeIndex(), -1
    for offset, time in enumerate(times):
        if offset:
            index.append(highest, offset)
        highest = max(highest, time)
    return index


def test_an_empty_index_says_begin_at_the_beginning() -> None:
    """This holds for any time."""
    index = TimeIndex()
    assert (index.start_for(0), index.start_for(2**60), len(index)) == (0, 0, 0)
    assert TimeIndex.from_bytes(b"").start_for(5) == 0
    assert repr(index) == "TimeIndex(0 entries)"


@given(TIMES, st.integers(0, 501))
def test_no_record_that_is_late_enough_is_passed_over(times: list[int], wanted: int) -> None:
    """This holds for times in any order, and for an index from a file."""
    index = index_of(times)
    data = index.to_bytes()
    assert len(data) == len(index) * ENTRY_BYTES
    start = index.start_for(wanted)
    assert all(time < wanted for time in times[:start])
    for read in (TimeIndex.from_bytes(data), TimeIndex.from_bytes(data, growing=True)):
        assert read.start_for(wanted) == start
        assert read.to_bytes() == data


def test_what_is_no_news_takes_no_entry() -> None:
    """Entries increase in time, so that they can be searched."""
    index = index_of([5, 3, 3, 9, 1, 12])
    assert list(index.timestamps) == [5, 9]
    assert list(index.offsets) == [1, 4]
    assert [index.start_for(time) for time in (5, 6, 9, 10)] == [0, 1, 1, 4]


def test_an_index_from_a_file_grows_on() -> None:
    """This is needed when more records follow in the segment."""
    index = TimeIndex.from_bytes(index_of([1, 2, 3]).to_bytes(), growing=True)
    index.append(9, 7)
    assert index.start_for(10) == 7


def test_regression_an_interrupt_between_the_two_columns_shifts_none() -> None:
    """The next entry replaces the incomplete one."""
    index = index_of([1, 2])
    assert isinstance(index.offsets, array)
    index.offsets.append(55)
    index.append(9, 7)
    assert len(index.offsets) == len(index.timestamps) and index.offsets[-1] == 7
