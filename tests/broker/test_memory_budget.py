"""Test that requests never take more memory than the limit, and that each has its turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.machines.memory_budget import MemoryBudget

LIMIT = 100


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(0, LIMIT)), max_size=100))
def test_it_is_a_queue_in_order(steps: list[tuple[bool, int, int]]) -> None:
    """Waiting requests are served in order, as soon as the first of them fits."""
    budget: MemoryBudget[int] = MemoryBudget(LIMIT)
    held: dict[int, int] = {}
    queue: list[tuple[int, int]] = []
    for number, (is_take, holder, size) in enumerate(steps):
        if is_take:
            fits = not queue and sum(held.values()) + size <= LIMIT
            assert budget.take(number, size) is fits
            if fits:
                held[number] = size
            else:
                queue.append((number, size))
        else:
            known = [*held, *(waiting for waiting, _ in queue)]
            chosen = known[holder % len(known)] if known else -1
            served = budget.release(chosen)
            held.pop(chosen, None)
            queue = [entry for entry in queue if entry[0] != chosen]
            expected = []
            while queue and sum(held.values()) + queue[0][1] <= LIMIT:
                first, bytes_wanted = queue.pop(0)
                held[first] = bytes_wanted
                expected.append(first)
            assert served == expected
        assert budget.taken_bytes == sum(held.values()) <= LIMIT
    for holder in [*held, *(waiting for waiting, _ in queue)]:
        budget.release(holder)
    assert budget.taken_bytes == 0


def test_a_holder_that_needs_less_makes_room_for_others() -> None:
    """The next in the queue gets what the holder gives back."""
    budget: MemoryBudget[str] = MemoryBudget(LIMIT)
    assert budget.take("a", 80) and not budget.take("b", 50)
    assert budget.lessen("a", 51) == [] and budget.taken_bytes == 51
    assert budget.lessen("a", 50) == ["b"] and budget.taken_bytes == 100
    assert budget.release("a") == [] and budget.release("b") == [] and budget.taken_bytes == 0
