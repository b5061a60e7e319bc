"""Divide the bytes of a follower's fetch among its partitions.

If the last answer for a partition had at least half of the requested bytes, the leader has more
records, and the partition counts as far behind. If all partitions are far behind, they share the
whole answer. The reason is that each answer costs a round trip to the leader, so a few large
answers are faster than many small answers. If there are other partitions, the partitions that are
far behind share only a part of the answer, so that the next fetch comes soon. The partitions that
are far behind come last in the request, and take turns. So the partitions that are far behind do
not delay the records of the other partitions, whose producers may be waiting.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cluster.wire.follower_fetches import FetchLimits, PartitionId

PART_BESIDE_OTHERS = 4


class FetchShares:
    """Decide the order of the partitions in a request, and how much each partition may get.

    Threads: one thread calls all methods.
    """

    def __init__(self, limits: FetchLimits) -> None:
        """At first, no partition counts as far behind."""
        self._limits = limits
        # a partition moves to the end when it gets records
        self._far: dict[PartitionId, None] = {}

    def divide(self, asked: Collection[PartitionId]) -> dict[PartitionId, int]:
        """Return the size that each partition may get, in the order of the request."""
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
            shares: the result of `divide`.
            sizes: how many bytes of records came for each partition. Refused partitions are
                missing.
        """
        room = min(self._limits.bytes_max, sum(shares[key] for key in self._far if key in shares))
        is_full = sum(sizes.values()) * 2 >= room
        for key, share in shares.items():
            size = sizes.get(key, 0)
            if is_full and not size and key in self._far:
                continue  # there was no room for this partition, so it comes first next time
            self._far.pop(key, None)
            if size * 2 >= share:
                self._far[key] = None
