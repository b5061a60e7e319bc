"""Test that deadlines come in order, and that cancelled ones use no memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.machines.timers import STALE_MIN, Timer, Timers

STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "cancel", "due"]), st.integers(0, 50)), max_size=80
)


@given(STEPS)
def test_they_are_as_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    """The due items are the list up to now, in order; the next deadline is its first entry."""
    timers: Timers[int] = Timers()
    model: list[tuple[int, int]] = []  # deadline, number
    made: list[Timer[int]] = []
    for kind, number in steps:
        if kind == "add":
            made.append(timers.add(number, len(made)))
            model.append((number, len(made) - 1))
        elif kind == "cancel" and made:
            chosen = number % len(made)
            timers.cancel(made[chosen])
            model = [entry for entry in model if entry[1] != chosen]
        elif kind == "due":
            expected = sorted(entry for entry in model if entry[0] <= number)
            assert timers.due(number) == [item for _, item in expected]
            model = [entry for entry in model if entry[0] > number]
        assert len(timers) == len(model)
        assert timers.next_deadline == min((entry[0] for entry in model), default=None)


def test_cancelled_timers_do_not_pile_up() -> None:
    """A client that repeats a request with a long wait leaves no entries."""
    timers: Timers[int] = Timers()
    kept = timers.add(5, -1)
    for number in range(10_000):
        timers.cancel(timers.add(1e9, number))
        assert timers.kept <= 2 * len(timers) + STALE_MIN + 2
    assert timers.due(10) == [-1] and kept.item is None
    timers.cancel(kept)
    assert len(timers) == 0
