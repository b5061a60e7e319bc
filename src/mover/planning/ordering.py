"""Put moves into an order in which no move overfills its target.

Before a move copies its first byte, the target's disk must have room for all of the move's bytes.
When the move is done, the same number of bytes becomes free on the source's disk. So a move may
have to wait until another move frees room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

SEARCH_MOVES_MAX = 12


class Transfer(NamedTuple):
    """Describe the bytes of a move, the disk that the move fills, and the disk that it frees."""

    source_disk: str
    target_disk: str
    size_bytes: int


def in_order(
    transfers: Sequence[Transfer], usable_bytes: dict[str, int]
) -> tuple[list[int], list[int]]:
    """Return two lists of transfer numbers: an order that fits, and the transfers that never fit.

    Args:
        usable_bytes: the free bytes of each disk before the first transfer.
    """
    order, left = _by_greed(transfers, usable_bytes)
    if left and len(transfers) <= SEARCH_MOVES_MAX:
        found = _by_search(transfers, usable_bytes)
        if len(found) > len(order):
            order = found
            left = [number for number in range(len(transfers)) if number not in set(found)]
    return order, left


def _by_greed(
    transfers: Sequence[Transfer], usable_bytes: dict[str, int]
) -> tuple[list[int], list[int]]:
    """Take transfers that fit, one after another; prefer a source disk with few free bytes."""
    order: list[int] = []
    free, left = dict(usable_bytes), list(range(len(transfers)))
    while True:
        fitting = [n for n in left if transfers[n].size_bytes <= free[transfers[n].target_disk]]
        if not fitting:
            return order, left
        chosen = min(fitting, key=lambda n: (free[transfers[n].source_disk], n))
        order.append(chosen)
        left.remove(chosen)
        _do(transfers[chosen], free)


def _by_search(transfers: Sequence[Transfer], usable_bytes: dict[str, int]) -> list[int]:
    """Search for the order in which the most transfers fit; try each set of transfers only once."""
    best: list[int] = []
    seen: set[frozenset[int]] = set()
    waiting: list[tuple[list[int], dict[str, int]]] = [([], dict(usable_bytes))]
    while waiting and len(best) < len(transfers):
        order, free = waiting.pop()
        if len(order) > len(best):
            best = order
        for number, transfer in enumerate(transfers):
            done = frozenset([*order, number])
            if number in order or done in seen or transfer.size_bytes > free[transfer.target_disk]:
                continue
            seen.add(done)
            after = dict(free)
            _do(transfer, after)
            waiting.append(([*order, number], after))
    return best


def _do(transfer: Transfer, free: dict[str, int]) -> None:
    free[transfer.target_disk] -= transfer.size_bytes
    free[transfer.source_disk] += transfer.size_bytes
