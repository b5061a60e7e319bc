"""Assign ranges of partitions, topic by topic (Kafka's `range`).

If topics have the same subscribers and the same partition numbers, they are co-partitioned: for
each number, one member gets the partitions of all these topics. For each topic, two members differ
by at most one partition. A member keeps the partitions that it has, up to the size of its share. So
the partition numbers of a member may have gaps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from broker.consumer_groups.exchange import Place, Places
from broker.consumer_groups.uniform import Sizes, Subscriber


def assign_ranges(members: Mapping[str, Subscriber], sizes: Sizes) -> dict[str, Places]:
    """Return the new target assignment; the key is the member id."""
    order = sorted(members, key=lambda member_id: (members[member_id].name, member_id))
    readers: dict[bytes, list[str]] = defaultdict(list)
    owners: dict[Place, str] = {}
    for member_id in order:
        for topic in members[member_id].topics & sizes.keys():
            readers[topic].append(member_id)
        owners |= dict.fromkeys(members[member_id].places, member_id)
    alike: dict[tuple[tuple[str, ...], tuple[int, ...]], list[bytes]] = defaultdict(list)
    for topic in sorted(readers):
        alike[tuple(readers[topic]), sizes[topic]].append(topic)
    found: dict[str, set[Place]] = {member_id: set() for member_id in order}
    for (subscribers, numbers), topics in alike.items():
        for number, member_id in _shares(subscribers, numbers, topics, owners).items():
            found[member_id].update((topic, number) for topic in topics)
    return {member_id: frozenset(places) for member_id, places in found.items()}


def _shares(
    subscribers: tuple[str, ...],
    numbers: tuple[int, ...],
    topics: list[bytes],
    owners: Mapping[Place, str],
) -> dict[int, str]:
    """Return which member gets each partition number of topics that are co-partitioned."""
    ranks = {member_id: rank for rank, member_id in enumerate(subscribers)}
    held: dict[str, list[int]] = {member_id: [] for member_id in subscribers}
    for number in numbers:
        votes = Counter(
            owner for topic in topics if (owner := owners.get((topic, number), "")) in ranks
        )
        if votes:
            held[min(votes, key=lambda one: (-votes[one], ranks[one]))].append(number)
    low, extra = divmod(len(numbers), len(subscribers))
    largest = sorted(subscribers, key=lambda member_id: -min(len(held[member_id]), low + 1))
    quotas = {member_id: low + (place < extra) for place, member_id in enumerate(largest)}
    shares = {
        number: member_id
        for member_id in subscribers
        for number in held[member_id][: quotas[member_id]]
    }
    free = iter([number for number in numbers if number not in shares])
    for member_id in subscribers:
        for _ in range(quotas[member_id] - len(held[member_id])):
            shares[next(free)] = member_id
    return shares
