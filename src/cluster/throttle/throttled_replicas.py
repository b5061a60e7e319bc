"""Read which replicas of a topic are throttled, from Kafka's settings.

leader.replication.throttled.replicas=0:1,1:2     partition 0 on broker 1, partition 1 on broker 2
follower.replication.throttled.replicas=*         all replicas
"""

from __future__ import annotations

from typing import NamedTuple

EVERY = "*"
DIGITS_MAX = 10
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


class ThrottledReplicas(NamedTuple):
    """The throttled replicas of a topic.

    Attributes:
        pairs: (partition, broker).
        is_every: whether all replicas are throttled.
    """

    pairs: frozenset[tuple[int, int]]
    is_every: bool = False

    def has(self, partition: int, broker: int) -> bool:
        """Report whether a replica is throttled."""
        return self.is_every or (partition, broker) in self.pairs


NONE = ThrottledReplicas(frozenset())


def parse(text: str) -> ThrottledReplicas:
    """Read the value of a setting. Raises ValueError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if EVERY in parts:
        return ThrottledReplicas(frozenset(), is_every=True)
    pairs = set()
    for part in parts:
        partition, mark, broker = part.partition(":")
        if not mark or not (_is_number(partition) and _is_number(broker)):
            raise ValueError(f"{part[:40]!r} is not of the form PARTITION:BROKER")
        pairs.add((int(partition), int(broker)))
    return ThrottledReplicas(frozenset(pairs))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
