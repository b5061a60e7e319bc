"""Test the outcome of an append of batches: an answer like a range, or an error."""

from __future__ import annotations

import pickle

import pytest

from logstore.errors import LogDirFullError
from logstore.log.write.outcome import AppendInfo, mark


def test_it_stands_for_a_range() -> None:
    """Callers iterate, count, compare and index the answer like the range of its offsets."""
    info = AppendInfo(5, 7, -1, 0, 9)
    assert info == range(5, 8) and info != range(5, 9) and hash(info) == hash(range(5, 8))
    assert (info.start, info.stop, info[0], info[-1], len(info)) == (5, 8, 5, 7, 3)
    assert 7 in info and 8 not in info and info and not AppendInfo(5, 4, -1, 0, -1)
    assert info == AppendInfo(5, 7, -1, 0, 9) != AppendInfo(5, 7, 3, 0, 9)
    assert info != "5..7"


@pytest.mark.parametrize(("is_written", "note"), [(True, "do not"), (None, "may be"), (False, "")])
def test_an_error_keeps_its_first_mark(is_written: bool | None, note: str) -> None:
    """The mark that was set nearest to the write counts, and stays with the error."""
    error = LogDirFullError(path="/d", reason="ENOSPC")
    mark(error, is_written)
    mark(error, not is_written)
    assert error.is_written is is_written
    assert pickle.loads(pickle.dumps(error)).is_written is is_written
    assert note in "".join(getattr(error, "__notes__", []))


def test_an_interrupt_says_it_too() -> None:
    """The interrupt has the attribute, and a note for a reader of the traceback."""
    for is_written in (True, False, None):
        interrupt = KeyboardInterrupt()
        mark(interrupt, is_written)
        assert vars(interrupt)["is_written"] is is_written and interrupt.__notes__
