"""Test that Kafka's admin clients move leaders and replicas, while clients produce."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient, NewTopic

from cluster.control import metadata_sender
from support.cluster_brokers import ClusterBrokers
from support.places import fast_directory
from support.replica_nodes import wait_until

SECONDS = 60.0
PREFERRED = 0
pytestmark = [
    pytest.mark.usefixtures("leaky_clients"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings(r"ignore:(read|open)_text is deprecated:DeprecationWarning"),
]


@pytest.fixture
def brokers() -> Iterator[ClusterBrokers]:
    with fast_directory() as root, ClusterBrokers(root) as made:
        yield made


@pytest.fixture
def admin(brokers: ClusterBrokers) -> Iterator[Any]:
    """Return a client of kafka-python, which sends these requests to the controller."""
    import kafka  # it warns while it is imported

    servers = brokers.servers.split(",")
    with contextlib.closing(kafka.KafkaAdminClient(bootstrap_servers=servers)) as client:
        yield client


def place(partition: int = 0) -> Any:
    import kafka

    return kafka.TopicPartition("orders", partition)


def create(brokers: ClusterBrokers, *replicas: list[int]) -> None:
    """Create a topic with these replicas of its partitions."""
    admin = AdminClient({"bootstrap.servers": brokers.servers})
    topic = NewTopic("orders", len(replicas), replica_assignment=list(replicas))
    admin.create_topics([topic])["orders"].result(SECONDS)
    for partition in range(len(replicas)):
        brokers.leader("orders", partition)


class Producing:
    """An idempotent producer whose records must all be acknowledged."""

    def __init__(self, brokers: ClusterBrokers) -> None:
        self.sent, self.failed = 0, list[Any]()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": brokers.servers, "enable.idempotence": True, "linger.ms": 1}
        )

    def send(self, count: int = 20) -> None:
        """Send records to the first partition, and wait until they are acknowledged."""
        for _ in range(count):
            self._producer.produce(
                "orders", b"%d" % self.sent, partition=0,
                on_delivery=lambda error, _: self.failed.append(error) if error else None,
            )  # fmt: skip
            self.sent += 1
        assert self._producer.flush(SECONDS) == 0 and self.failed == []


def values_at(brokers: ClusterBrokers, broker: int) -> list[int]:
    """Return the records of a broker's replica of the first partition."""
    return [int(record.value or b"") for record in brokers[broker].store["orders", 0]]


def has_all(brokers: ClusterBrokers, broker: int, producing: Producing) -> bool:
    """Report whether a broker's replica of the first partition has all sent records."""
    return len(values_at(brokers, broker)) == producing.sent


def test_replicas_move_between_brokers(brokers: ClusterBrokers, admin: Any) -> None:
    """From 1 and 2 to 2 and 3, while a client produces: no record is lost or doubled."""
    create(brokers, [1, 2])
    producing = Producing(brokers)
    producing.send()
    assert admin.alter_partition_reassignments({place(): [2, 3]}) == {place(): None}
    producing.send()
    wait_until(lambda: admin.list_partition_reassignments() == {}, SECONDS)
    producing.send()
    assert brokers.leader("orders").id in (2, 3)
    for broker in (2, 3):
        wait_until(partial(has_all, brokers, broker, producing))
        assert values_at(brokers, broker) == list(range(producing.sent))
    wait_until(lambda: len(brokers[1].store) == 0, SECONDS)
    (refused,) = admin.alter_partition_reassignments({place(): None}).values()
    assert refused.__name__ == "NoReassignmentInProgressError"


def test_regression_brokers_know_of_the_end_of_a_reassignment(
    brokers: ClusterBrokers, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it is listed no more, each broker shows the new replicas, also if metadata is slow.

    Otherwise, kafka-reassign-partitions --verify says that the replicas are wrong.
    """
    monkeypatch.setattr(metadata_sender, "GATHER_SECONDS", 0.2)
    create(brokers, [1, 2])
    assert admin.alter_partition_reassignments({place(): [2, 3]}) == {place(): None}
    wait_until(lambda: admin.list_partition_reassignments() == {}, SECONDS)
    views = [one.broker.member.metadata.view for one in brokers.up()]
    assert [view.topics["orders"].partitions[0].replicas for view in views] == [(2, 3)] * 3


def test_regression_the_same_reassignment_again_is_accepted(
    brokers: ClusterBrokers, admin: Any
) -> None:
    """kafka-reassign-partitions --additional does so, to change the throttle; others must wait."""
    create(brokers, [1, 2])
    brokers[3].broker.broker.close(0.0)  # it is registered, and does not answer
    alter = admin.alter_partition_reassignments
    assert asked(lambda: alter({place(): [2, 3]})) == {place(): None}
    assert asked(lambda: alter({place(): [2, 3]})) == {place(): None}
    (refused,) = asked(lambda: alter({place(): [3, 2]})).values()
    assert refused.__name__ == "ReassignmentInProgressError"
    assert asked(lambda: alter({place(): None})) == {place(): None}


def asked(call: Callable[[], Any]) -> Any:
    """Ask again while the client asks the dead broker, because it chooses no other broker."""
    import kafka

    answers: list[Any] = []

    def is_answered() -> bool:
        try:
            answers.append(call())
        except kafka.errors.KafkaConnectionError:
            return False
        return True

    wait_until(is_answered, SECONDS)
    return answers[0]


def test_a_reassignment_to_a_dead_broker_is_cancelled(brokers: ClusterBrokers, admin: Any) -> None:
    """Until then, it is listed; a broker that is not registered is refused at once."""
    alter, listed = admin.alter_partition_reassignments, admin.list_partition_reassignments
    create(brokers, [1, 2])
    producing = Producing(brokers)
    producing.send()
    brokers[3].broker.broker.close(0.0)  # it is registered, and does not answer
    assert asked(lambda: alter({place(): [2, 3]})) == {place(): None}
    brokers[3].kill()
    producing.send()
    row = {"replicas": [1, 2, 3], "adding_replicas": [3], "removing_replicas": [1]}
    found = asked(lambda: listed([place()]))
    assert {key: list(value) for key, value in found[place()].items()} == row
    assert asked(lambda: alter({place(): None})) == {place(): None}
    wait_until(lambda: asked(listed) == {}, SECONDS)
    producing.send()
    (refused,) = asked(lambda: alter({place(): [2, 9]})).values()
    assert refused.__name__ == "InvalidReplicationAssignmentError"
    wait_until(lambda: len(values_at(brokers, 2)) == producing.sent, SECONDS)
    assert values_at(brokers, 1) == values_at(brokers, 2) == list(range(producing.sent))


def test_preferred_leaders_lead_again(brokers: ClusterBrokers, admin: Any) -> None:
    """A broker was stopped and is back; an administrator lets it lead its partitions again."""
    create(brokers, [2, 1, 3], [1, 2, 3])
    producing = Producing(brokers)
    producing.send()
    brokers[2].stop()
    producing.send()
    brokers.start(2)
    brokers.wait_in_sync("orders", 1, 2, 3)
    assert brokers.leader("orders").id != 2
    answer = admin.elect_leaders(PREFERRED, {"orders": [0, 1]})
    (topic,) = answer.replica_election_results
    codes = {row.partition_id: row.error_code for row in topic.partition_result}
    assert codes == {0: 0, 1: 84}  # ELECTION_NOT_NEEDED
    assert brokers.leader("orders", 0, other_than=1).id == 2
    producing.send()
    everywhere = AdminClient({"bootstrap.servers": brokers.servers})
    assert everywhere.elect_leaders(ElectionType.PREFERRED).result(SECONDS) == {}
