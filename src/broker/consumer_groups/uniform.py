"""Assign partitions evenly, and move as few partitions as possible (Kafka's `uniform`).

If all members subscribe to the same topics, two members differ by at most one partition. No equally
even assignment moves fewer partitions. If the subscriptions differ, partitions move along chains of
members until no chain makes the loads more even.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from itertools import cycle
from typing import NamedTuple

from broker.consumer_groups.exchange import Place, Places

Sizes = Mapping[bytes, tuple[int, ...]]  # from a topic id to the numbers of its partitions


class Subscriber(NamedTuple):
    """The facts about one member that an assignor needs.

    Attributes:
        name: determines the order of the members. The name is the instance id of a static member,
            or the member id of any other member.
        topics: the ids of the topics that the member has subscribed to.
        places: the partitions that the member has in the present target assignment.
    """

    name: str
    topics: frozenset[bytes]
    places: Places


def uniform(members: Mapping[str, Subscriber], sizes: Sizes) -> dict[str, Places]:
    """Return the new target assignment; the key is the member id."""
    order = sorted(members, key=lambda member_id: (members[member_id].name, member_id))
    wanted = set[bytes]().union(*(one.topics for one in members.values())) & sizes.keys()
    free = {(topic, number) for topic in wanted for number in sizes[topic]}
    kept: dict[str, set[Place]] = {}
    for member_id in order:
        one = members[member_id]
        kept[member_id] = {place for place in one.places & free if place[0] in one.topics}
        free -= kept[member_id]
    if len({one.topics & wanted for one in members.values()}) <= 1:
        _fill(kept, order, free)
    else:
        _fill_each(kept, order, free, members)
        _level(kept, order, members)
    return {member_id: frozenset(places) for member_id, places in kept.items()}


def _by_number(places: Iterable[Place]) -> list[Place]:
    """Sort places so that each member has partitions of all topics."""
    return sorted(places, key=lambda place: (place[1], place[0]))


def _fill(kept: dict[str, set[Place]], order: list[str], free: set[Place]) -> None:
    """Give each member its quota. The members with the most partitions get one partition more."""
    if not order:
        return
    low, extra = divmod(len(free) + sum(map(len, kept.values())), len(order))
    largest = sorted(order, key=lambda member_id: -len(kept[member_id]))
    quotas = {member_id: low + (number < extra) for number, member_id in enumerate(largest)}
    for member_id, places in kept.items():
        given_up = _by_number(places)[quotas[member_id] :]
        places.difference_update(given_up)
        free |= set(given_up)
    turns = cycle(order)
    for place in sorted(free):
        member_id = next(one for one in turns if len(kept[one]) < quotas[one])
        kept[member_id].add(place)


def _fill_each(
    kept: dict[str, set[Place]],
    order: list[str],
    free: set[Place],
    members: Mapping[str, Subscriber],
) -> None:
    """Give each free partition to the subscriber that has the fewest partitions."""
    readers = _readers(order, members)
    for place in sorted(free, key=lambda place: (len(readers[place[0]]), place)):
        kept[min(readers[place[0]], key=lambda member_id: len(kept[member_id]))].add(place)


def _readers(order: list[str], members: Mapping[str, Subscriber]) -> dict[bytes, list[str]]:
    readers: dict[bytes, list[str]] = defaultdict(list)
    for member_id in order:
        for topic in members[member_id].topics:
            readers[topic].append(member_id)
    return readers


def _level(
    kept: dict[str, set[Place]], order: list[str], members: Mapping[str, Subscriber]
) -> None:
    """Move partitions along chains, until no chain makes the loads more even."""
    readers = _readers(order, members)
    is_level = False
    while not is_level:
        is_level = True
        settled: set[str] = set()  # no chain begins at these members
        for member_id in sorted(order, key=lambda one: -len(kept[one])):
            while member_id not in settled:
                chain = _chain(member_id, kept, readers, settled)
                is_level = is_level and not chain
                for source, place, target in chain:
                    kept[source].remove(place)
                    kept[target].add(place)


def _chain(
    start: str, kept: dict[str, set[Place]], readers: dict[bytes, list[str]], settled: set[str]
) -> list[tuple[str, Place, str]]:
    """Find the shortest chain from a member to a member with at least two partitions fewer.

    If there is no such chain, add all members that chains can reach to `settled`.
    """
    most = len(kept[start]) - 2
    came: dict[str, tuple[str, Place]] = {}
    seen_topics: set[bytes] = set()
    waiting = deque([start])
    while waiting and most >= 0:
        source = waiting.popleft()
        lasts = {place[0]: place for place in sorted(kept[source])}
        for topic in sorted(lasts.keys() - seen_topics):
            seen_topics.add(topic)
            for target in readers[topic]:
                if target in came or target == start:
                    continue
                came[target] = (source, lasts[topic])
                if len(kept[target]) <= most:
                    return _steps(start, target, came)
                waiting.append(target)
    settled.update(came, [start])
    return []


def _steps(
    start: str, end: str, came: Mapping[str, tuple[str, Place]]
) -> list[tuple[str, Place, str]]:
    steps = []
    while end != start:
        source, place = came[end]
        steps.append((source, place, end))
        end = source
    return steps
