"""Test answers that wait until the broker's metadata shows a change of topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.catalog.admin.sole_topic_admin import SoleTopicAdmin
from broker.catalog.topics import Topic, TopicCatalog
from broker.config import BrokerConfig
from broker.requests.services import Services, sole_parts
from broker.wire import messages as m
from logstore import LogStore
from support.kafka_client import KafkaClient
from support.serving import wait_until


class Late(SoleTopicAdmin):
    """Changes of topics that the metadata shows only when a test says so."""

    def __init__(self, topics: TopicCatalog, config: BrokerConfig) -> None:
        super().__init__(topics, config, 0)
        self.shown: set[str] = set()
        self.wakes: dict[int, Callable[[], None]] = {}

    def is_ready(self, topic: Topic) -> bool:
        return topic.name in self.shown

    is_gone = is_ready

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        key = len(self.wakes)
        self.wakes[key] = wake
        return lambda: (self.wakes.pop(key), None)[1]

    def show(self, *names: str) -> None:
        """Show topics, or their deletion, and wake the waiting requests."""
        self.shown.update(names)
        for wake in list(self.wakes.values()):
            wake()


class Place:
    """A broker whose metadata is late."""

    def __init__(self, path: Path) -> None:
        self.store = LogStore.open(path, admin_socket=False)
        config = BrokerConfig.of(None)
        parts = sole_parts(self.store, config, time.monotonic)
        assert isinstance(parts.topics, TopicCatalog)
        self.late = Late(parts.topics, config)
        services = Services(self.store, config, parts=parts._replace(topic_admin=self.late))
        self.broker = Broker(self.store, config, owns_store=False, services=services)
        self.client = KafkaClient(self.broker.bootstrap_servers)

    def create(self, *names: str, timeout_ms: int = 60_000) -> None:
        """Send a CreateTopics request, and do not wait for the answer."""
        topics = [m.CreateTopicsRequest.CreatableTopic(name, 1, 1, (), ()) for name in names]
        self.client.send("CreateTopics", topics=topics, timeout_ms=timeout_ms)

    def created(self) -> list[tuple[str, int]]:
        """Wait for the answer."""
        _, answer = self.client.receive("CreateTopics")
        return [(row.name, row.error_code) for row in answer.topics]

    def close(self) -> None:
        self.client.socket.close()
        self.broker.close()
        self.store.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def test_the_answer_waits_for_all_topics(place: Place) -> None:
    """The wait holds no thread; the answer is sent when the last topic is shown."""
    place.create("a", "b", "a/b")
    wait_until(lambda: len(place.late.wakes) == 1, "the request waits")
    wait_until(lambda: place.broker.running_count == 0, "its thread is free")
    place.late.show("a")
    with KafkaClient(place.broker.bootstrap_servers) as other:
        other.call("ApiVersions", 3, client_software_name="x", client_software_version="1")
    assert len(place.late.wakes) == 1
    place.late.show("b")
    assert place.created() == [("a", 0), ("b", 0), ("a/b", 17)]
    wait_until(lambda: not place.late.wakes, "no request waits")


def test_after_the_timeout_the_others_are_answered(place: Place) -> None:
    """Only topics that are not shown get REQUEST_TIMED_OUT; they were created anyway."""
    place.late.show("b")
    place.create("a", "b", timeout_ms=50)
    assert place.created() == [("a", 7), ("b", 0)]
    assert ("a", 0) in place.store and not place.late.wakes


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_without_a_timeout_nothing_is_waited_for(place: Place, timeout_ms: int) -> None:
    """As in Kafka, the answer says that the topic is not known yet."""
    place.create("a", timeout_ms=timeout_ms)
    assert place.created() == [("a", 7)]


def test_a_dry_run_waits_for_nothing(place: Place) -> None:
    """A dry run shows no topic, so it does not wait."""
    topic = m.CreateTopicsRequest.CreatableTopic("a", 1, 1, (), ())
    answer = place.client.call(
        "CreateTopics", topics=[topic], timeout_ms=60_000, validate_only=True
    )
    assert answer.topics[0].error_code == 0


def test_deletions_and_new_partitions_wait_too(place: Place) -> None:
    """The answer has the code of its own request."""
    place.late.show("a")
    place.create("a")
    assert place.created() == [("a", 0)]
    place.late.shown.clear()
    new: Any = m.CreatePartitionsRequest.CreatePartitionsTopic("a", 3, None)
    bad = m.CreatePartitionsRequest.CreatePartitionsTopic("none", 3, None)
    answer = place.client.call("CreatePartitions", topics=[new, bad], timeout_ms=50)
    assert [(row.name, row.error_code) for row in answer.results] == [("a", 7), ("none", 3)]
    gone = m.DeleteTopicsRequest.DeleteTopicState("a")
    place.client.send("DeleteTopics", topics=[gone], timeout_ms=60_000)
    wait_until(lambda: bool(place.late.wakes), "the request waits")
    place.late.show("a")
    _, answer = place.client.receive("DeleteTopics")
    assert [(row.name, row.error_code) for row in answer.responses] == [("a", 0)]


def test_a_client_that_hangs_up_leaves_nothing(place: Place) -> None:
    """The request is forgotten, and the topic stays."""
    place.create("a")
    wait_until(lambda: bool(place.late.wakes), "the request waits")
    place.client.socket.close()
    wait_until(lambda: not place.late.wakes, "no request waits")
    assert ("a", 0) in place.store


def test_a_broker_stops_while_an_answer_waits(place: Place) -> None:
    """The client gets the answer that is possible at this moment."""
    place.create("a")
    wait_until(lambda: bool(place.late.wakes), "the request waits")
    place.broker.stop(0.1)
    assert place.created() == [("a", 7)]
