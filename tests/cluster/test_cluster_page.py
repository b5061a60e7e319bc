"""Test that the page of each broker shows the cluster as this broker knows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.cluster_brokers import ClusterBrokers, Running
from support.cluster_questions import create
from support.pages import document, gather_always
from support.places import fast_directory
from support.replica_nodes import wait_until


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterBrokers]:
    """Start three brokers, whose pages gather new facts for each answer."""
    gather_always(monkeypatch)
    settings: dict[str, Any] = {
        "default_replication_factor": 3, "min_insync_replicas": 2, "http_listener": "127.0.0.1:0",
    }  # fmt: skip
    with fast_directory() as root, ClusterBrokers(root, **settings) as made:
        yield made


def shown(one: Running, name: str) -> Any:
    """Get a document of a broker's page."""
    return document(one.broker.broker, name)


def trouble(brokers: ClusterBrokers, kind: str) -> list[int]:
    """Get a count from the page of each running broker."""
    return [shown(one, "summary")["trouble"][kind] for one in brokers.up()]


def test_brokers_die(brokers: ClusterBrokers) -> None:
    """All pages show the same brokers, controller and ISR; the controller also shows the ELR."""
    create(brokers, "orders", 4)
    wait_until(lambda: trouble(brokers, "under_replicated_partitions") == [0, 0, 0])
    found = [shown(one, "brokers")["brokers"] for one in brokers.up()]
    assert found[0] == found[1] == found[2]
    assert [row["id"] for row in found[0]] == [one.id for one in brokers.up()]
    assert [row["replicas"] for row in found[0]] == [4, 4, 4]
    assert sum(row["leads"] for row in found[0]) == 4
    assert sum(row["is_controller"] for row in found[0]) == 1
    rows = shown(brokers.up()[0], "partitions?name=orders")["partitions"]
    assert {len(row["isr"]) for row in rows} == {3} and {row["end"] for row in rows} == {0}
    brokers.up()[0].kill()
    wait_until(lambda: trouble(brokers, "under_replicated_partitions") == [4, 4])
    wait_until(lambda: trouble(brokers, "offline_partitions") == [0, 0])
    wait_until(lambda: [len(shown(one, "brokers")["brokers"]) for one in brokers.up()] == [2, 2])
    lost = brokers.up()[0]
    lost.kill()
    wait_until(lambda: trouble(brokers, "under_replicated_partitions") == [4])
    (last,) = brokers.up()
    wait_until(lambda: shown(last, "summary")["broker"]["controller_id"] == last.id)
    wait_until(lambda: shown(last, "partitions?show=elr")["total"] == 4)
    rows = shown(last, "partitions?show=elr")["partitions"]
    assert {tuple(row["elr"]) for row in rows} == {(lost.id,)}


def test_only_the_controller_knows_the_elr(brokers: ClusterBrokers) -> None:
    """The other brokers show that they do not know the ELR."""
    create(brokers, "orders", 1)
    wait_until(lambda: trouble(brokers, "under_replicated_partitions") == [0, 0, 0])
    known = [shown(one, "partitions")["partitions"][0]["elr"] is not None for one in brokers.up()]
    controllers = [
        shown(one, "summary")["broker"]["controller_id"] == one.id for one in brokers.up()
    ]
    assert known == controllers and sum(known) == 1
