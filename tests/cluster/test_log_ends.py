"""Compare the ends of leader epochs with a plain list of records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from cluster.pure.log_ends import NO_EPOCH, LogEnds

steps = some.lists(some.tuples(some.integers(0, 5), some.integers(0, 4)), max_size=12)


@given(steps)
def test_ends_are_those_of_the_records(changes: list[tuple[int, int]]) -> None:
    """After any appends, truncations and deletions, the ends equal those of a plain list."""
    ends, records, start = LogEnds(), list[int](), 0
    for kind, number in changes:
        if kind == 0:
            ends.truncate(min(start + number, start + len(records)))
            del records[number:]
        elif kind == 4:
            ends.raise_start(start + min(number, len(records)) - 1)
            gone = max(min(number, len(records)) - 1, 0)
            start, records = start + gone, records[gone:]
        elif kind == 5:
            start, records = start + len(records) + number, []
            ends.begin_at(start)
        elif number:
            epoch = (records[-1] if records else 0) + kind - 1
            records += [epoch] * number
            ends.append(epoch, start + len(records))
        assert (ends.start, ends.end) == (start, start + len(records))
        assert ends.last_epoch == (records[-1] if records else NO_EPOCH)
        for epoch in range(12):
            known = [one for one in records if one <= epoch]
            assert ends.end_of(epoch) == (known[-1] if known else NO_EPOCH, start + len(known))


def test_an_empty_log_ends_at_its_start() -> None:
    """Offsets before the start count as flushed; no log is cut before its start."""
    ends = LogEnds(start=7)
    assert (ends.end, ends.flushed, ends.end_of(9)) == (7, 7, (NO_EPOCH, 7))
    ends = LogEnds([(1, 4), (2, 6)], flushed=3)
    ends.raise_start(6)
    assert (ends.end, ends.last_epoch, ends.flushed) == (6, NO_EPOCH, 6)
    with pytest.raises(AssertionError):
        ends.truncate(5)


def test_a_log_may_start_inside_its_first_batch() -> None:
    """The end is after the log start, not only after the start of the batch."""
    ends = LogEnds([(1, 6)], flushed=6, start=2, log_start_offset=4)
    assert (ends.start, ends.log_start_offset) == (2, 4)
    ends.raise_start(2, 5)
    assert (ends.start, ends.log_start_offset, ends.end_of(0)) == (2, 5, (NO_EPOCH, 2))
    with pytest.raises(AssertionError):
        ends.truncate(4)
    ends.truncate(5)
    ends.begin_at(3)
    assert (ends.start, ends.log_start_offset) == (3, 3)
    ends.raise_start(7)
    assert ends.log_start_offset == 7
    with pytest.raises(AssertionError):
        LogEnds([(1, 4)], log_start_offset=5)


def test_regression_the_first_offsets_may_have_no_epoch() -> None:
    """After a compaction, a copy of the log may lack the records in which its log begins."""
    ends = LogEnds(((NO_EPOCH, 4), (3, 9)), flushed=9)
    assert (ends.start, ends.end, ends.last_epoch) == (0, 9, 3)
    assert (ends.end_of(2), ends.end_of(3)) == ((NO_EPOCH, 4), (3, 9))
    ends = LogEnds()
    ends.append_all(((NO_EPOCH, 4), (NO_EPOCH, 6)))
    assert (ends.end, ends.last_epoch) == (6, NO_EPOCH)


def test_a_truncation_lowers_what_is_flushed() -> None:
    """Removed records are not flushed."""
    ends = LogEnds([(1, 4)], flushed=3)
    ends.truncate(2)
    assert (ends.flushed, ends.end) == (2, 2)


def test_epochs_and_offsets_only_rise() -> None:
    """An append of an older epoch breaks an invariant."""
    ends = LogEnds([(2, 4)])
    with pytest.raises(AssertionError):
        ends.append(1, 5)
    with pytest.raises(AssertionError):
        ends.append(2, 4)
