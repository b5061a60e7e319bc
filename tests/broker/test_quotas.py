"""Test that the most specific quota counts, and that no client exceeds its rate."""

from __future__ import annotations

import heapq
import itertools
import random
from typing import Any

import pytest

from broker.quotas import quotas as quotas_module
from broker.quotas.buckets import BURST_SECONDS, THROTTLE_SECONDS_MAX, Bucket
from broker.quotas.entities import DEFAULT, Entity, Name
from broker.quotas.quotas import FETCH, KEYS, PRODUCE, REQUEST, Quotas, shortened

NAMES: tuple[Name | None, ...] = (None, DEFAULT, "a", "b")


def naive_entity(settings: dict[Entity, Any], user: str, client_id: str) -> Entity | None:
    """Find the entity that counts, by Kafka's list of eight, written out one by one."""
    order: list[tuple[Name | None, Name | None]] = [
        (user, client_id), (user, DEFAULT), (user, None),
        (DEFAULT, client_id), (DEFAULT, DEFAULT), (DEFAULT, None),
        (None, client_id), (None, DEFAULT),
    ]  # fmt: skip
    return next((Entity(*one) for one in order if Entity(*one) in settings), None)


def test_the_most_specific_quota_counts() -> None:
    """For all sets of up to three quotas, the rate follows Kafka's order."""
    entities = [Entity(*pair) for pair in itertools.product(NAMES, NAMES) if pair != (None, None)]
    checked = 0
    for count in (1, 2, 3):
        for chosen in itertools.combinations(entities, count):
            settings = {one: {PRODUCE: 1.0 + entities.index(one)} for one in chosen}
            quotas = Quotas()
            quotas.settings = settings
            for user, client_id in itertools.product(("a", "c"), ("b", "d")):
                found = naive_entity(settings, user, client_id)
                rate = None if found is None else settings[found][PRODUCE]
                assert quotas.rate_for(PRODUCE, user, client_id) == rate, (chosen, user, client_id)
                assert quotas.rate_for(FETCH, user, client_id) is None
                checked += 1
    assert checked > 2_000


def test_a_less_specific_quota_counts_for_the_keys_that_the_other_lacks() -> None:
    """Each key is looked up separately, because an entity may have only one rate."""
    quotas = Quotas()
    quotas.settings = {Entity("a", "b"): {PRODUCE: 1.0}, Entity("a", None): {FETCH: 2.0}}
    assert quotas.rate_for(PRODUCE, "a", "b") == 1.0
    assert quotas.rate_for(FETCH, "a", "b") == 2.0


@pytest.mark.parametrize(
    ("entity", "first", "second", "is_shared"),
    [
        (Entity("u", None), ("u", "c"), ("u", "d"), True),
        (Entity("u", DEFAULT), ("u", "c"), ("u", "d"), False),
        (Entity(DEFAULT, None), ("u", "c"), ("v", "c"), False),
        (Entity(DEFAULT, "c"), ("u", "c"), ("v", "c"), False),
        (Entity(None, "c"), ("u", "c"), ("v", "c"), True),
        (Entity(None, DEFAULT), ("u", "c"), ("v", "c"), True),
        (Entity(None, DEFAULT), ("u", "c"), ("u", "d"), False),
    ],
)
def test_who_shares_a_rate(
    entity: Entity, first: tuple[str, str], second: tuple[str, str], *, is_shared: bool
) -> None:
    """A client waits for another client's usage only if both share the rate."""
    quotas = Quotas()
    quotas.settings = {entity: {PRODUCE: 100.0}}
    assert quotas.charge(PRODUCE, *first, 125.0, 0.0) == pytest.approx(1.0)
    expected = pytest.approx(1.01) if is_shared else 0.0
    assert quotas.charge(PRODUCE, *second, 1.0, 0.0) == expected


def test_no_client_gets_more_than_its_rate() -> None:
    """Clients that wait as told get at most the rate, and at least 95 % of it."""
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    for _ in range(200):
        rate = draw.uniform(10, 1e8)
        bucket, now, taken, largest = Bucket(rate, 0.0), 0.0, 0.0, 0.0
        while now < 60:
            amount = draw.uniform(0, rate / draw.choice((0.5, 5, 50)))
            seconds = bucket.take(amount, now)
            taken, largest = taken + amount, max(largest, amount)
            now += seconds + draw.uniform(0, 1e-4)
        assert taken <= rate * (now + BURST_SECONDS) + largest
        assert taken >= 0.95 * rate * now


def test_a_wait_is_not_endless() -> None:
    """After the longest wait, the bucket is at zero, however large the request was."""
    bucket = Bucket(1.0, 0.0, 20.0)
    assert bucket.take(100.25, 0.0) == 20.0
    assert bucket.take(1000.0, 5.0) == 20.0
    assert bucket.take(0.0, 15.0) == pytest.approx(10.0)
    assert bucket.take(0.25, 25.25) == 0.0
    assert Bucket(1.0, 0.0).take(1e9, 0.0) == THROTTLE_SECONDS_MAX
    quotas = Quotas()
    quotas.settings = {Entity("u", None): dict.fromkeys(KEYS, 1.0)}
    waits = [quotas.charge(key, "u", "c", 1e9, 0.0) for key in KEYS]
    assert waits == [THROTTLE_SECONDS_MAX, THROTTLE_SECONDS_MAX, 20.0]


@pytest.mark.parametrize("connections", [2, 100, 500])
def test_regression_many_connections_share_one_rate(connections: int) -> None:
    """Before, no wait was longer than 20 s, so 500 connections got 25 times the rate."""
    rate, size, until = 1e6, 1_000_000, 3600.0
    quotas = Quotas()
    quotas.settings = {Entity("u", None): {PRODUCE: rate}}
    free = [(0.0, number) for number in range(connections)]  # when each connection is free again
    count = 0
    while free[0][0] < until:
        now, number = heapq.heappop(free)
        wait = quotas.charge(PRODUCE, "u", "c", size, now)
        heapq.heappush(free, (now + max(wait, 1e-3), number))
        count += 1
    assert count * size <= rate * (until + BURST_SECONDS) + connections * size
    assert count * size >= 0.95 * rate * until


def test_a_changed_rate_counts_at_once() -> None:
    """The remaining wait stays the same; after it, the new rate counts."""
    quotas = Quotas()
    quotas.settings = {Entity("u", None): {PRODUCE: 100.0}}
    assert quotas.charge(PRODUCE, "u", "", 525.0, 0.0) == pytest.approx(5.0)
    quotas.settings = {Entity("u", None): {PRODUCE: 1000.0}}
    assert quotas.charge(PRODUCE, "u", "", 0.0, 1.0) == pytest.approx(4.0)
    assert quotas.charge(PRODUCE, "u", "", 1000.0, 1.0) == pytest.approx(5.0)
    quotas.settings = {}
    assert quotas.charge(PRODUCE, "u", "", 1e9, 1.0) == 0.0


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets of inactive clients are dropped, and the number of buckets is bounded."""
    monkeypatch.setattr(quotas_module, "BUCKETS_MAX", 100)
    quotas = Quotas()
    quotas.settings = {Entity(None, DEFAULT): {PRODUCE: 10.0}}
    for number in range(1_000):
        quotas.charge(PRODUCE, "u", f"c{number}", 1e6, 0.0)
    assert quotas.bucket_count <= 101
    assert quotas.charge(PRODUCE, "u", "c999", 0.0, 0.0) > 0, "the last client is remembered"
    for number in range(1_000):
        quotas.charge(PRODUCE, "u", f"d{number}", 0.0, 1e6 + number)
    assert quotas.bucket_count <= 3, "full buckets are dropped"


def test_a_long_client_id_takes_little_memory() -> None:
    """Only a hash of a long id is kept; two ids that differ at the end stay different."""
    quotas = Quotas()
    quotas.settings = {Entity(None, DEFAULT): {PRODUCE: 100.0}}
    first, second = "x" * 30_000 + "1", "x" * 30_000 + "2"
    assert quotas.charge(PRODUCE, "u", first, 125.0, 0.0) == pytest.approx(1.0)
    assert quotas.charge(PRODUCE, "u", second, 0.0, 0.0) == 0.0
    assert len(shortened(first)) == 64 and shortened(first) != shortened(second)


def test_a_clock_that_was_read_earlier_does_no_harm() -> None:
    """A thread may read the clock earlier than another thread, but get the lock later."""
    bucket = Bucket(100.0, 5.0)
    assert bucket.take(125.0, 5.0) == pytest.approx(1.0)
    assert bucket.take(0.0, 4.0) == pytest.approx(1.0)


def test_the_keys_are_those_of_kafka() -> None:
    """Kafka's tools set quotas by these names."""
    assert KEYS == ("producer_byte_rate", "consumer_byte_rate", "request_percentage")


def test_regression_a_rate_of_any_size_ends_in_a_wait() -> None:
    """Between the smallest and the largest number, a wait is never "not a number", nor endless."""
    quotas, now = Quotas(), 0.0
    for rate in (5e-324, 1.7e308, 5e-324, 1e300, 1e-300, 1.7e308):
        quotas.settings = {Entity("a", None): {REQUEST: rate}}
        now += 1.0
        assert 0.0 <= quotas.charge(REQUEST, "a", "c", 50.0, now) <= THROTTLE_SECONDS_MAX
    quotas.settings = {Entity("a", None): {REQUEST: 1e6}}
    now += 1e12
    assert quotas.charge(REQUEST, "a", "c", 1.0, now) == 0.0
