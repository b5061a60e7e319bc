"""The level of a feature in a cluster: all brokers know it, and all must support it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.catalog.admin.features import SUPPORTED
from broker.coordination.embedded import EmbeddedStore
from broker.coordination.verbs import Session
from cluster import Cluster, znodes
from cluster.admin.supported_features import brokers_lacking, is_new_cluster
from support.cluster_asking import until
from support.feature_requests import GROUPS, NAME, SAFE, UP, finalized, update
from support.kafka_client import KafkaClient
from support.places import fast_directory
from support.topic_admins import prepare

GROUP_LEVELS = {"min_version": 0, "max_version": 1}

CONFIG = {"transaction_state_log_num_partitions": 2, "offsets_topic_num_partitions": 2}


def addresses(cluster: Cluster) -> list[str]:
    return cluster.bootstrap_servers.split(",")


def levels(cluster: Cluster) -> list[tuple[int, dict[str, int]]]:
    """Ask each broker."""
    found = []
    for address in addresses(cluster):
        with KafkaClient(address) as client:
            found.append(finalized(client))
    return found


def test_all_brokers_know_the_level() -> None:
    """A new cluster has the newest one; each broker takes an update; a restart changes nothing."""
    with fast_directory() as root, Cluster.start(3, directory=root, config=CONFIG) as cluster:
        assert levels(cluster) == [(1, {NAME: 2, GROUPS: 1})] * 3
        with KafkaClient(addresses(cluster)[1]) as client:
            assert update(client, (NAME, 1, SAFE)) == 0
        until(lambda: levels(cluster) == [(2, {NAME: 1, GROUPS: 1})] * 3)
        cluster.stop(2)
        cluster.restart(2)
        until(lambda: levels(cluster) == [(2, {NAME: 1, GROUPS: 1})] * 3)
        with KafkaClient(addresses(cluster)[2]) as client:
            assert update(client, (NAME, 2, UP)) == 0
        until(lambda: levels(cluster) == [(3, {NAME: 2, GROUPS: 1})] * 3)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Session]:
    """A store that no broker has prepared."""
    with EmbeddedStore([str(tmp_path)]) as store, store.connect() as made:
        yield made


@pytest.fixture
def session(empty: Session) -> Session:
    """A store with two registered brokers."""
    prepare(empty, {1: "", 2: ""})
    return empty


def register(session: Session, broker: int, features: Any) -> None:
    """Register a broker with other features, or with none."""
    path = znodes.broker_path(broker)
    document = json.loads(session.get(znodes.broker_path(1)).data)
    document["features"] = features
    session.create(path, json.dumps(document).encode(), ephemeral=True)


@pytest.mark.parametrize(
    ("features", "of_one", "of_two"),
    [
        ({NAME: {"min_version": 0, "max_version": 2}, GROUPS: GROUP_LEVELS}, [], []),
        ({NAME: {"min_version": 0, "max_version": 1}}, [], [3]), ({}, [3], [3]),
        (None, [3], [3]), ([], [3], [3]), ({NAME: 2}, [3], [3]),
        ({NAME: {"min_version": "0", "max_version": 2}}, [3], [3]),
        ({NAME: {"max_version": 2}}, [3], [3]),
    ],
)  # fmt: skip
def test_registrations_say_what_a_broker_supports(
    session: Session, features: Any, of_one: list[int], of_two: list[int]
) -> None:
    """A broker of an earlier version, whose registration has no features, supports level 0."""
    register(session, 3, features)
    assert brokers_lacking(session, NAME, 0) == []
    assert brokers_lacking(session, NAME, 1) == of_one
    assert brokers_lacking(session, NAME, 2) == of_two
    knows_groups = isinstance(features, dict) and GROUPS in features
    assert brokers_lacking(session, GROUPS, 1) == ([] if knows_groups else [3])
    assert is_new_cluster(session) == (not of_two and knows_groups)


def test_a_cluster_with_topics_is_not_new(session: Session) -> None:
    """It may have been served by an earlier version, so only an update gives it a level."""
    assert is_new_cluster(session)
    session.create(znodes.topic_path("t"), b"")
    assert not is_new_cluster(session)


def test_an_empty_store_is_new(empty: Session) -> None:
    """No broker has prepared it yet."""
    assert is_new_cluster(empty) and brokers_lacking(empty, NAME, 2) == []


def test_the_registration_names_the_levels() -> None:
    """In the words of Kafka's registrations in ZooKeeper."""
    levels = {NAME: {"min_version": 0, "max_version": 2}, GROUPS: GROUP_LEVELS}
    data = json.dumps({"features": levels}).encode()
    assert znodes.features_of(data) == dict(SUPPORTED)
    for wrong in (b"", b"[]", b"{}", b"\xff", b"[" * 100_000):
        assert znodes.features_of(wrong) == {}
