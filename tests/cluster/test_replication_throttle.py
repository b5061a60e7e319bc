"""Test that a throttle limits the copying of replicas that are not in sync (KIP-73)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Producer

from broker.quotas.buckets import BURST_SECONDS
from broker.wire import messages
from cluster import Cluster
from cluster.throttle.replication_throttle import ReplicationThrottle, Side
from cluster.throttle.throttled_replicas import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    NONE,
    ThrottledReplicas,
    parse,
)
from support.kafka_client import KafkaClient, batch_of

TOPIC, BROKER = 2, 4  # types of resources
Row = messages.IncrementalAlterConfigsRequest


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", NONE),
        (" , ", NONE),
        ("*", ThrottledReplicas(frozenset(), is_every=True)),
        ("0:1, *", ThrottledReplicas(frozenset(), is_every=True)),
        ("0:1,12:3 , 0:2", ThrottledReplicas(frozenset({(0, 1), (12, 3), (0, 2)}))),
    ],
)
def test_lists_of_replicas(text: str, found: ThrottledReplicas) -> None:
    """The lists have the form that Kafka's tool writes."""
    assert parse(text) == found


@pytest.mark.parametrize("text", ["x", "1", "1:", ":1", "1:-1", "1:2:3", "9" * 11 + ":1", "²:1"])
def test_bad_lists_are_refused(text: str) -> None:
    """The error shows the bad part."""
    with pytest.raises(ValueError, match="PARTITION:BROKER"):
        parse(text)


def throttle_of(in_sync: set[int]) -> ReplicationThrottle:
    """Make the throttle of broker 1, whose clock stands still."""
    made = ReplicationThrottle(1, lambda name, number, broker: broker in in_sync, lambda: 0.0)
    made.settings_are_known()
    return made


def test_until_the_settings_are_known_all_replicas_are_limited() -> None:
    """Otherwise a starting broker would copy at full speed for a moment."""
    made = ReplicationThrottle(1, lambda *_: False, lambda: 0.0)
    assert not made.sends("t", 0, 2), "there is no rate"
    made.set_rate(Side.LEADER, 1000)
    assert made.sends("t", 0, 2) and not made.fetches("t", 0)
    made.settings_are_known()
    assert not made.sends("t", 0, 2)


def test_only_listed_replicas_out_of_sync_are_limited() -> None:
    """Each side has its own list and rate; without a rate, there is no limit."""
    in_sync = {2}
    throttle = throttle_of(in_sync)
    throttle.set_topic("t", {LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: "1:1"})
    assert not throttle.sends("t", 0, 3) and not throttle.fetches("t", 1)
    throttle.set_rate(Side.LEADER, 1000)
    assert throttle.sends("t", 0, 3)
    assert not throttle.sends("t", 0, 2), "in sync"
    assert not throttle.sends("t", 1, 3), "not listed"
    assert not throttle.sends("u", 0, 3), "another topic"
    assert not throttle.fetches("t", 1)
    throttle.set_rate(Side.FOLLOWER, 1000)
    assert throttle.fetches("t", 1) and not throttle.fetches("t", 0)
    in_sync.add(1)
    assert not throttle.fetches("t", 1)
    throttle.set_topic("t", {LEADER_REPLICAS: "*", FOLLOWER_REPLICAS: "nonsense"})
    assert throttle.sends("t", 7, 3)
    throttle.set_topic("t", {})
    assert not throttle.sends("t", 0, 3)
    throttle.set_topic("t", {LEADER_REPLICAS: "*"})
    throttle.set_rate(Side.LEADER, None)
    assert not throttle.sends("t", 0, 3)


def test_what_exceeds_the_rate_is_waited_for() -> None:
    """The two sides are counted separately."""
    throttle = throttle_of(set())
    throttle.set_rate(Side.LEADER, 1000)
    throttle.set_rate(Side.FOLLOWER, 10)
    assert throttle.burst_bytes(Side.LEADER) == 1000 * BURST_SECONDS
    throttle.take(Side.LEADER, 2250)
    assert throttle.wait_of(Side.LEADER) == pytest.approx(2.0)
    assert throttle.wait_of(Side.FOLLOWER) == 0.0
    throttle.set_rate(Side.LEADER, None)
    assert throttle.wait_of(Side.LEADER) == 0.0


def alter(client: KafkaClient, kind: int, name: str, settings: Mapping[str, str]) -> None:
    """Set settings of a topic or a broker."""
    configs = [Row.AlterableConfig(key, 0, text) for key, text in settings.items()]
    resource = Row.AlterConfigsResource(kind, name, configs)
    (row,) = client.call("IncrementalAlterConfigs", resources=[resource]).responses
    assert not row.error_code, row.error_message


def configs_of(client: KafkaClient, kind: int, name: str) -> dict[str, Any]:
    """Read settings of a topic or a broker."""
    resource = messages.DescribeConfigsRequest.DescribeConfigsResource(kind, name, None)
    (row,) = client.call("DescribeConfigs", resources=[resource]).results
    return {one.name: one.value for one in row.configs}


@pytest.mark.parametrize("side", list(Side))
def test_a_follower_that_was_away_catches_up_no_faster(side: Side) -> None:
    """Producers and in-sync replicas do not wait. The rate survives a restart."""
    rate, size = 600_000, 1_500_000
    config = {"default_replication_factor": 3, "min_insync_replicas": 2}
    with Cluster.start(3, config=config) as cluster:
        servers = cluster.bootstrap_servers.split(",")
        with KafkaClient(servers[0]) as client:
            client.create("t")
            cluster.wait_in_sync("t")
            alter(client, TOPIC, "t", {LEADER_REPLICAS: "*", FOLLOWER_REPLICAS: "*"})
            assert configs_of(client, TOPIC, "t")[LEADER_REPLICAS] == "*"
        for number, server in enumerate(servers, 1):
            with KafkaClient(server) as client:
                alter(client, BROKER, str(number), {side.rate_key: str(rate)})
                assert configs_of(client, BROKER, str(number))[side.rate_key] == str(rate)
        view = cluster.partition("t")
        assert view is not None
        away = next(one for one in view.replicas if one != view.leader)
        cluster.kill(away)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5})
        for _ in range(size // 1000):
            producer.produce("t", b"x" * 1000)
        assert producer.flush(30) == 0
        began = time.monotonic()
        cluster.restart(away)
        with KafkaClient(servers[view.leader - 1]) as client:
            assert client.produce("t", batch_of(b"not throttled")).error_code == 0
        assert time.monotonic() - began < 2
        cluster.wait_in_sync("t")
        seconds = time.monotonic() - began
        assert seconds >= 0.9 * (size / rate - BURST_SECONDS), "it was not throttled"
        assert seconds < 4 * size / rate + 5
