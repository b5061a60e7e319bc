"""Test the places of a topic's replicas: general properties, and Kafka's examples."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.admin.placement import arranged, place, place_more

racks_of = st.dictionaries(
    st.integers(0, 200), st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=12
)
numbers = st.integers(0, 30)


def leaders(lists: list[tuple[int, ...]]) -> Counter[int]:
    return Counter(one[0] for one in lists)


def test_kafkas_example() -> None:
    """The table is in Kafka's documentation: 5 brokers, 10 partitions."""
    lists = place(dict.fromkeys(range(5), ""), 10, 3, start=0, shift=0)
    assert lists[:5] == [(0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1)]
    assert lists[5:] == [(0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2)]


def test_kafkas_example_with_racks() -> None:
    """Three racks with two brokers each: Kafka's arrangement and its two rounds."""
    racks = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}
    assert arranged(racks) == [0, 3, 1, 5, 4, 2]
    lists = place(racks, 12, 3, start=0, shift=0)
    assert lists[:6] == [(0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3)]
    assert lists[6:] == [(0, 4, 2), (3, 2, 0), (1, 0, 3), (5, 3, 1), (4, 1, 5), (2, 5, 4)]


@given(racks_of, st.integers(1, 40), st.integers(1, 12), numbers, numbers)
def test_each_replica_has_a_broker_of_its_own(
    racks: dict[int, str], partitions: int, factor: int, start: int, shift: int
) -> None:
    """Leaders differ by at most one; replicas are in as many racks as possible."""
    factor = min(factor, len(racks))
    lists = place(racks, partitions, factor, start=start, shift=shift)
    assert len(lists) == partitions
    for one in lists:
        assert len(one) == factor == len(set(one)) and set(one) <= racks.keys()
        assert len({racks[broker] for broker in one}) == min(factor, len(set(racks.values())))
    found = leaders(lists)
    assert max(found.values()) - min(found.get(broker, 0) for broker in racks) <= 1


@given(racks_of, st.integers(1, 6), numbers, numbers)
def test_replicas_are_even_after_whole_rounds(
    racks: dict[int, str], rounds: int, start: int, shift: int
) -> None:
    """Without racks, all brokers have the same number of replicas."""
    bare = dict.fromkeys(racks, "")
    factor = min(3, len(bare))
    lists = place(bare, rounds * len(bare), factor, start=start, shift=shift)
    found = Counter(broker for one in lists for broker in one)
    assert set(found.values()) == {rounds * factor}


@given(racks_of, st.integers(1, 20), st.integers(1, 20), st.integers(1, 4), numbers, numbers)
def test_added_partitions_continue_the_round(
    racks: dict[int, str], first: int, more: int, factor: int, start: int, shift: int
) -> None:
    """The leaders of old and new partitions together differ by at most one."""
    factor = min(factor, len(racks))
    old = place(racks, first, factor, start=start, shift=shift)
    new = place_more(racks, more, old[0][0], factor, first)
    whole = place(racks, first + more, factor, start=start, shift=shift)
    assert [one[0] for one in old + new] == [one[0] for one in whole]


@given(racks_of, st.integers(0, 300), st.integers(1, 5))
def test_partitions_are_added_also_without_the_first_leader(
    racks: dict[int, str], leader: int, more: int
) -> None:
    """It may have left the cluster; then the round begins at the next broker."""
    lists = place_more(racks, more, leader, 1, 7)
    assert len(lists) == more and set(leaders(lists)) <= racks.keys()


@given(racks_of)
def test_neighbours_are_in_different_racks(racks: dict[int, str]) -> None:
    """This holds while two racks are left, and if each broker has a rack."""
    order = arranged(racks)
    assert sorted(order) == sorted(racks)
    smallest = min(Counter(racks.values()).values())
    together = smallest * len(set(racks.values()))
    if len(set(racks.values())) > 1:
        assert all(racks[one] != racks[other] for one, other in pairwise(order[:together]))
    assert arranged({**racks, 201: ""}) == [*sorted(racks), 201]


@pytest.mark.parametrize("factor", [0, -1, 4])
def test_too_many_replicas(factor: int) -> None:
    """No placement is made up; the caller has to refuse the request."""
    with pytest.raises(ValueError, match="on 3 brokers"):
        place({1: "", 2: "", 3: ""}, 1, factor, start=0, shift=0)
