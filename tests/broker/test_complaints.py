"""Test that a client in a loop does not fill the log."""

from __future__ import annotations

from broker.machines.complaints import Complaints


def test_one_of_a_kind_in_an_interval() -> None:
    """The next warning reports how many were left out; each kind has its own interval."""
    complaints = Complaints(10.0)
    assert complaints.take("slow", 100.0) == 0
    assert [complaints.take("slow", 100.0 + at) for at in (1, 5, 9.9)] == [None] * 3
    assert complaints.take("limit", 105.0) == 0
    assert complaints.take("slow", 110.0) == 3
    assert complaints.take("slow", 120.0) == 0
