"""Test the assignors of the new group protocol: even, sticky, and only for subscribers."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.consumer_groups.assignors import ASSIGNORS
from broker.consumer_groups.exchange import Places
from broker.consumer_groups.uniform import Sizes, Subscriber

SIZES = st.dictionaries(
    st.sampled_from([bytes([number]) for number in range(5)]),
    st.integers(0, 9).map(lambda count: tuple(range(count))), min_size=1,
)  # fmt: skip
NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True)


def subscribed(
    names: list[str], topics: frozenset[bytes], before: Mapping[str, Places]
) -> dict[str, Subscriber]:
    return {name: Subscriber(name, topics, before.get(name, frozenset())) for name in names}


def check(members: Mapping[str, Subscriber], sizes: Sizes, found: dict[str, Places]) -> None:
    """Check that each partition has exactly one reader, which has subscribed to its topic."""
    assert found.keys() == members.keys()
    given_out = [place for places in found.values() for place in places]
    wanted = set[bytes]().union(*(one.topics for one in members.values())) & sizes.keys()
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == {(topic, number) for topic in wanted for number in sizes[topic]}
    for member_id, places in found.items():
        assert {topic for topic, _ in places} <= members[member_id].topics


def spread(found: Mapping[str, Places]) -> int:
    loads = [len(places) for places in found.values()]
    return max(loads) - min(loads)


@given(NAMES, NAMES, SIZES, SIZES)
def test_uniform_is_even_and_moves_as_little_as_possible(
    before: list[str], after: list[str], sizes: Sizes, larger: Sizes
) -> None:
    """With equal subscriptions, members differ by at most one partition, with the fewest moves."""
    uniform, topics = ASSIGNORS["uniform"], frozenset(sizes) | frozenset(larger)
    old = uniform(subscribed(before, topics, {}), sizes)
    members = subscribed(after, topics, old)
    found = uniform(members, larger)
    check(members, larger, found)
    assert spread(found) <= 1
    valid = {(topic, number) for topic, numbers in larger.items() for number in numbers}
    had = {name: old.get(name, frozenset()) & valid for name in after}
    kept = sum(len(found[name] & had[name]) for name in after)
    low, extra = divmod(len(valid), len(after))
    best = sum(min(len(places), low) for places in had.values())
    best += min(extra, sum(len(places) > low for places in had.values()))
    assert kept == best
    assert uniform(subscribed(after, topics, found), larger) == found, "it does not come to rest"


@given(st.integers(0, 10_000), st.data())
@settings(max_examples=200)
def test_uniform_with_different_subscriptions(seed: int, data: st.DataObject) -> None:
    """No partition could move to a subscriber that has at least two partitions less."""
    draw = random.Random(seed)
    uniform, sizes = ASSIGNORS["uniform"], data.draw(SIZES)
    old: dict[str, Places] = {}
    for _ in range(3):
        names = data.draw(NAMES)
        members = {
            name: Subscriber(
                name,
                frozenset(topic for topic in sizes if draw.random() < 0.6),
                old.get(name, frozenset()),
            )
            for name in names
        }
        old = uniform(members, sizes)
        check(members, sizes, old)
        for name, places in old.items():
            for topic, _ in places:
                for other, one in members.items():
                    assert topic not in one.topics or len(places) - len(old[other]) <= 1, name
        again = {name: one._replace(places=old[name]) for name, one in members.items()}
        assert uniform(again, sizes) == old, "it does not come to rest"


@given(NAMES, NAMES, st.integers(0, 9), st.integers(1, 4))
def test_range_keeps_topics_together(
    before: list[str], after: list[str], count: int, topics: int
) -> None:
    """Topics of the same size get the same readers, each topic is even, and few partitions move."""
    assign = ASSIGNORS["range"]
    sizes = {bytes([number]): tuple(range(count)) for number in range(topics)}
    old = assign(subscribed(before, frozenset(sizes), {}), sizes)
    for name, places in old.items():  # at first, these are ranges
        numbers = sorted(number for topic, number in places if topic == b"\0")
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else name
    members = subscribed(after, frozenset(sizes), old)
    found = assign(members, sizes)
    check(members, sizes, found)
    assert spread(found) <= topics
    for places in found.values():
        numbers_of = {topic: {n for one, n in places if one == topic} for topic in sizes}
        assert len({frozenset(numbers) for numbers in numbers_of.values()}) == 1
    low, extra = divmod(count, len(after))
    had = {name: len(old.get(name, frozenset())) // topics for name in after}
    best = sum(min(one, low) for one in had.values())
    best += min(extra, sum(one > low for one in had.values()))
    kept = sum(len(found[name] & old.get(name, frozenset())) for name in after)
    assert kept == best * topics
    assert assign(subscribed(after, frozenset(sizes), found), sizes) == found


@given(st.integers(0, 10_000), SIZES)
def test_range_with_different_subscriptions(seed: int, sizes: Sizes) -> None:
    """Each topic is spread evenly among its subscribers."""
    draw = random.Random(seed)
    members = {
        name: Subscriber(
            name, frozenset(topic for topic in sizes if draw.random() < 0.6), frozenset()
        )
        for name in "abcd"
    }
    found = ASSIGNORS["range"](members, sizes)
    check(members, sizes, found)
    for topic in sizes:
        loads = [
            sum(one == topic for one, _ in found[name])
            for name, member in members.items()
            if topic in member.topics
        ]
        assert not loads or max(loads) - min(loads) <= 1


@pytest.mark.parametrize("name", ["uniform", "range"])
def test_a_partition_that_two_members_have_is_given_to_one(name: str) -> None:
    """The present targets may overlap after damage.

    Then one of the two members gets the partition.
    """
    place = (b"t", 0)
    members = {one: Subscriber(one, frozenset([b"t"]), frozenset([place])) for one in "ab"}
    found = ASSIGNORS[name](members, {b"t": (0, 1)})
    check(members, {b"t": (0, 1)}, found)


def test_uniform_is_fast_enough_for_a_large_group() -> None:
    """1,000 members with different subscriptions to 50 topics of 100 partitions come to rest."""
    draw = random.Random(7)
    sizes = {bytes([number]): tuple(range(100)) for number in range(50)}
    members = {
        f"m{number:04}": Subscriber(
            f"m{number:04}", frozenset(draw.sample(sorted(sizes), 10)), frozenset()
        )
        for number in range(1000)
    }
    found = ASSIGNORS["uniform"](members, sizes)
    check(members, sizes, found)
    assert spread(found) <= 1
