"""Choose the brokers of each partition: spread leaders and replicas evenly, as Kafka does.

    5 brokers, 10 partitions, 3 replicas, start 0, shift 0

        partition    0  1  2  3  4 | 5  6  7  8  9
        first        0  1  2  3  4 | 0  1  2  3  4      the preferred leaders go round
        second       1  2  3  4  0 | 2  3  4  0  1      one step further in each round
        third        2  3  4  0  1 | 3  4  0  1  2

If all brokers have a rack, the brokers are first arranged so that neighbours are in different
racks. Then no two replicas of a partition are in one rack, unless there are fewer racks than
replicas. If a broker has no rack, all racks are ignored. So one badly configured broker does not
prevent the creation of topics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest

Racks = Mapping[int, str]  # the racks of the brokers that may get replicas; "" means no rack


def place(
    racks: Racks, partitions: int, factor: int, *, start: int, shift: int, first: int = 0
) -> list[tuple[int, ...]]:
    """Choose the brokers of each new partition; the first broker is the preferred leader.

    Args:
        racks: the brokers, and their racks.
        factor: the number of replicas of each partition, from 1 to the number of brokers.
        start: the place of the leader of partition 0. A random number spreads many small topics.
        shift: the distance from the leader to the second replica in the first round, minus 1.
        first: the number of the first new partition.

    Raises:
        ValueError: there are fewer brokers than replicas, or no replicas.
    """
    if not 1 <= factor <= len(racks):
        raise ValueError(
            f"{factor} replicas of a partition cannot be placed on {len(racks)} brokers"
        )
    order = arranged(racks)
    return [
        _replicas(order, racks, factor, start, shift, n) for n in range(first, first + partitions)
    ]


def place_more(
    racks: Racks, partitions: int, leader: int, factor: int, first: int
) -> list[tuple[int, ...]]:
    """Choose the brokers of partitions that are added to a topic; continue the topic's rounds.

    Args:
        leader: the preferred leader of partition 0. If this leader is not in `racks`, the round
            begins at the next broker in `racks`.
        first: the number of partitions that the topic has.
    """
    order = arranged(racks)
    later = [broker for broker in order if broker >= leader]
    start = order.index(leader if leader in racks else min(later, default=order[0]))
    return place(racks, partitions, factor, start=start, shift=start, first=first)


def arranged(racks: Racks) -> list[int]:
    """Return the brokers in ascending order; if all brokers have racks, alternate the racks."""
    if not all(racks.values()):
        return sorted(racks)
    by_rack: dict[str, list[int]] = defaultdict(list)
    for broker in sorted(racks):
        by_rack[racks[broker]].append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for broker in chain.from_iterable(rounds) if broker is not None]


def _replicas(
    order: Sequence[int], racks: Racks, factor: int, start: int, shift: int, number: int
) -> tuple[int, ...]:
    """Return the brokers of one partition."""
    count = len(order)
    if factor == 1:
        return (order[(number + start) % count],)
    names = set(racks.values())
    steps = len(names) if all(names) else 1  # skip a whole number of rounds through the racks
    at, shift = (number + start) % count, shift + number // count
    chosen = [order[at]]
    used = {racks[order[at]]}
    step = 0
    while len(chosen) < factor:
        broker = order[(at + 1 + (shift * steps + step) % (count - 1)) % count]
        step += 1
        is_other_rack = steps == 1 or racks[broker] not in used or len(used) == len(names)
        if broker not in chosen and is_other_rack:
            chosen.append(broker)
            used.add(racks[broker])
    return tuple(chosen)
