"""Test when a partition that this broker does not know counts as deleted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.catalog.leadership import Leader, NotServedError, PartitionFacts
from broker.wire.error_codes import ErrorCode
from cluster.serve.coordinator_peers import (
    FORGET_SECONDS,
    UNKNOWN_SECONDS,
    ClusterRoutes,
    Peers,
)

RETRY_SECONDS = 1.0


class Scene:
    """Routes with a clock, and with metadata that the test changes."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.topics: dict[str, Any] = {}
        metadata: Any = SimpleNamespace(view=SimpleNamespace(topics=self.topics, is_known=True))
        facts = PartitionFacts(ErrorCode.NONE, Leader(7, 1))
        leadership: Any = SimpleNamespace(broker_id=1, facts_of=lambda name, number: facts)

        def connect(broker: int) -> Any:
            raise AssertionError(broker)

        self.routes = ClusterRoutes(leadership, metadata, Peers(connect), lambda: self.now)

    def ask(self, name: str, number: int = 0) -> int | None:
        """Return the broker of a partition; -1 if it is not known."""
        try:
            return self.routes.route((name, number))
        except NotServedError:
            return -1


def test_a_partition_that_stays_unknown_is_deleted() -> None:
    """Only after 10 seconds: the metadata of this broker may be old."""
    scene, tries = Scene(), 0
    while scene.ask("gone") == -1:
        scene.now += RETRY_SECONDS
        tries += 1
    assert tries * RETRY_SECONDS == pytest.approx(UNKNOWN_SECONDS + RETRY_SECONDS)
    assert not scene.routes._unknown


def test_regression_old_questions_are_forgotten() -> None:
    """The memory does not grow with the partitions that were once unknown."""
    scene = Scene()
    for number in range(1000):
        assert scene.ask("topic", number) == -1
        scene.now += RETRY_SECONDS
    assert len(scene.routes._unknown) <= FORGET_SECONDS / RETRY_SECONDS + 1


def test_regression_a_partition_that_was_unknown_long_ago_is_not_deleted() -> None:
    """In between it was known, but nobody asked; a marker must not be dropped for that."""
    scene = Scene()
    assert scene.ask("topic") == -1
    scene.now += 3600.0
    assert scene.ask("topic") == -1
    scene.topics["topic"] = SimpleNamespace(partitions={0: None})
    assert scene.ask("topic") == 7 and scene.ask("topic", 1) == -1
    del scene.topics["topic"]
    scene.now += UNKNOWN_SECONDS + RETRY_SECONDS
    assert scene.ask("topic") == -1
