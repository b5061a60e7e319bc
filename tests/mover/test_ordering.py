"""Compare the order of moves with all possible orders."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from mover.planning.ordering import Transfer, in_order

DISKS = ["a", "b", "c"]


@st.composite
def small_plans(draw: st.DrawFn) -> tuple[list[Transfer], dict[str, int]]:
    """Draw up to five transfers between three disks with little room."""
    disks, sizes = st.sampled_from(DISKS), st.integers(0, 9)
    transfers = draw(st.lists(st.builds(Transfer, disks, disks, sizes), max_size=5))
    return transfers, {disk: draw(st.integers(-2, 12)) for disk in DISKS}


def done_in(order: Sequence[int], transfers: Sequence[Transfer], free: dict[str, int]) -> int:
    """Carry out transfers in order; return how many succeed before one finds no room."""
    left = dict(free)
    for count, number in enumerate(order):
        transfer = transfers[number]
        if transfer.size_bytes > left[transfer.target_disk]:
            return count
        left[transfer.target_disk] -= transfer.size_bytes
        left[transfer.source_disk] += transfer.size_bytes
    return len(order)


@given(small_plans())
def test_an_order_is_found_where_there_is_one(
    case: tuple[list[Transfer], dict[str, int]],
) -> None:
    """As many moves are done as in the best order, and no step overfills a disk."""
    transfers, free = case
    order, left = in_order(transfers, free)
    assert sorted([*order, *left]) == list(range(len(transfers)))
    assert done_in(order, transfers, free) == len(order)
    orders = itertools.permutations(range(len(transfers)))
    assert len(order) == max(done_in(each, transfers, free) for each in orders)


@given(st.integers(13, 60), st.randoms())
def test_a_chain_of_full_disks_is_unwound(length: int, chance: object) -> None:
    """If all disks but the last are full, the moves are done in reverse, from the last disk."""
    numbers = list(range(length))
    chance.shuffle(numbers)  # type: ignore[attr-defined]
    transfers = [Transfer(f"d{n}", f"d{n + 1}", 10) for n in numbers]
    free = {f"d{n}": 0 for n in range(length)} | {f"d{length}": 10}
    order, left = in_order(transfers, free)
    assert not left
    assert [numbers[place] for place in order] == list(range(length))[::-1]


def test_two_that_fit_singly_but_not_together() -> None:
    """The second move is reported as a move without an order."""
    transfers = [Transfer("a", "b", 7), Transfer("c", "b", 7)]
    assert in_order(transfers, {"a": 0, "b": 10, "c": 0}) == ([0], [1])


def test_a_swap_without_room_is_refused() -> None:
    """Two full disks cannot exchange their replicas."""
    transfers = [Transfer("a", "b", 5), Transfer("b", "a", 5)]
    assert in_order(transfers, {"a": 0, "b": 0}) == ([], [0, 1])
