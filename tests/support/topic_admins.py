"""Brokers that change topics of one coordination store, without logs and without a controller."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest

from broker.config import BrokerConfig
from broker.coordination.errors import LimitError, OutcomeUnknownError
from broker.coordination.verbs import Operation, Session
from broker.listener_config import Endpoint
from cluster import znodes
from cluster.admin import topic_deletion
from cluster.admin.topic_changes import TopicChanges
from cluster.control.controller_store import ControllerStore
from cluster.run.metadata_cache import MetadataCache, PartitionView, TopicView


class Known(MetadataCache):
    """What a broker's metadata shows, as a test has set it."""

    def show(self, name: str, topic_id: bytes, leaders: dict[int, int]) -> None:
        """Let the metadata show a topic, or a new state of it."""
        partitions = {
            number: PartitionView(one, 1, (1,), (1,), ()) for number, one in leaders.items()
        }
        topics = {**self.view.topics, name: TopicView(name, topic_id, partitions)}
        self._replace(topics)

    def hide(self, name: str) -> None:
        """Let the metadata lose a topic."""
        self._replace({key: one for key, one in self.view.topics.items() if key != name})

    def _replace(self, topics: dict[str, TopicView]) -> None:
        ids = {one.topic_id: name for name, one in topics.items()}
        self.view = self.view._replace(topics=topics, ids=ids)
        for callback in self._callbacks:
            callback(self.view)


def prepare(session: Session, racks: dict[int, str]) -> None:
    """Create the znodes of a cluster, and register brokers."""
    ControllerStore(session, 0).prepare()
    for broker, rack in racks.items():
        data = znodes.encode_registration([Endpoint("PLAINTEXT", "h", 9092)], rack, {}, 0)
        session.create(znodes.broker_path(broker), data, ephemeral=True)


def changes_of(session: Session, known: Known | None = None, **config: Any) -> TopicChanges:
    """Give a broker's changes of topics, with a fixed draw."""
    return TopicChanges(session, known or Known(), BrokerConfig(**config), random.Random(1))


def document(session: Session, path: str) -> dict[str, Any]:
    """Read the JSON of a znode."""
    found: dict[str, Any] = json.loads(session.get(path).data)
    return found


def settings_in(session: Session, name: str) -> dict[str, str]:
    """Read the settings of a topic."""
    path = znodes.config_path(name)
    return znodes.parse_config(session.get(path).data, path)


class Dying:
    """A session whose process dies before its n-th change."""

    def __init__(self, session: Session, changes: int) -> None:
        self._session, self._left = session, changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def _count(self) -> None:
        if not self._left:
            raise OutcomeUnknownError(1)
        self._left -= 1

    def multi(self, operations: Iterable[Operation]) -> Any:
        self._count()
        return self._session.multi(operations)

    def create(self, path: str, data: bytes = b"") -> Any:
        self._count()
        return self._session.create(path, data)


def small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a request to the store room for 20 operations; delete three partitions in a step."""

    def check(operations: list[Operation]) -> None:
        if len(operations) > 20:
            raise LimitError("operations", 20, len(operations))

    monkeypatch.setattr(topic_deletion, "check_operations", check)
    monkeypatch.setattr(topic_deletion, "STEP", 3)
