"""Divide the bytes of a follower's fetch among its partitions.

A partition is far behind if its last answer had at least half of what was asked for: then the
leader has more. Such partitions share the whole answer, because many small answers are slow: each
one costs a way to the leader and back. They come last in the request, and take turns. So they
cannot keep records from the other partitions, whose producers may be waiting. If there are such
others, those that are far behind share only a part of the answer, so that the next fetch is soon.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cluster.wire.follower_fetches import FetchLimits, PartitionId

PART_BESIDE_OTHERS = 4


class FetchShares:
    """Decide in which order partitions are asked for, and how much each may get.

    Threads: one thread calls all methods.
    """

    def __init__(self, limits: FetchLimits) -> None:
        """Start with no partition that is far behind."""
        self._limits = limits
        self._far: dict[PartitionId, None] = {}  # those that got records last are at the end

    def divide(self, asked: Collection[PartitionId]) -> dict[PartitionId, int]:
        """Give the size that each partition may get, in the order of the request."""
        self._far = {key: None for key in self._far if key in asked}
        near = sorted(key for key in asked if key not in self._far)
        shares = dict.fromkeys(near, self._limits.partition_bytes_max)
        if self._far:
            share = self._limits.bytes_max // (PART_BESIDE_OTHERS if near else 1) // len(self._far)
            shares.update(dict.fromkeys(self._far, max(share, self._limits.partition_bytes_max)))
        return shares

    def note(self, shares: Mapping[PartitionId, int], sizes: Mapping[PartitionId, int]) -> None:
        """Learn from an answer which partitions are far behind.

        Args:
            shares: what `divide` gave.
            sizes: how many bytes of records came; a partition that was refused is left out.
        """
        room = min(self._limits.bytes_max, sum(shares[key] for key in self._far if key in shares))
        is_full = sum(sizes.values()) * 2 >= room
        for key, share in shares.items():
            size = sizes.get(key, 0)
            if is_full and not size and key in self._far:
                continue  # there was no room for it: it comes first in its next turn
            self._far.pop(key, None)
            if size * 2 >= share:
                self._far[key] = None
