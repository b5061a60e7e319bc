"""`logstore cluster drain` moves all replicas off a broker, in a real cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace as Facts
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cluster import Cluster
from cluster.tools.asking import Asked, parse_servers
from cluster.tools.drain import Drain, DrainError, DrainSettings
from logstore import UnknownPartitionError
from logstore.cli.app import app
from support.replica_nodes import wait_until

SECONDS = 60.0
PLACES = {0: [3, 1], 1: [2, 3], 2: [1, 2], 3: [3, 4]}
DRAINED = frozenset({3})


@pytest.fixture
def four() -> Iterator[Cluster]:
    """Run four brokers; three of four partitions have a replica on broker 3."""
    with Cluster.start(brokers=4) as cluster:
        create(cluster, "orders", [*PLACES.values()])
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(400):
            producer.produce("orders", b"%d" % number, partition=number % 4)
        assert producer.flush(SECONDS) == 0
        yield cluster


def create(cluster: Cluster, name: str, replicas: list[list[int]]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    topic = NewTopic(name, len(replicas), replica_assignment=replicas)
    admin.create_topics([topic])[name].result(SECONDS)
    for partition in range(len(replicas)):
        cluster.wait_in_sync(name, partition)


def drain(cluster: Cluster, *arguments: object) -> Result:
    words = ["cluster", "drain", "--bootstrap-servers", cluster.bootstrap_servers]
    return CliRunner().invoke(app, [*words, *map(str, arguments)])


def replicas_of(cluster: Cluster, topic: str = "orders") -> dict[int, tuple[int, ...]]:
    """Return the replicas of each partition, as the brokers know them."""
    found = {}
    for number in PLACES:
        view = cluster.partition(topic, number)
        assert view is not None
        found[number] = view.replicas
    return found


def values_at(cluster: Cluster, broker: int, number: int) -> list[int]:
    store = cluster._node(broker).store
    return [int(record.value or b"") for record in store["orders", number]]


def test_all_replicas_leave_a_broker(four: Cluster) -> None:
    """One by one: no record is missing at the new ones, and the old ones are deleted."""
    done = drain(four, "--dry-run", "--format", "json", 3)
    plan = {row["partition"]: row for row in json.loads(done.stdout)}
    assert done.exit_code == 0 and sorted(plan) == [0, 1, 3]
    assert all(row["state"] == "planned" and row["bytes_to_copy"] > 0 for row in plan.values())
    assert replicas_of(four) == {one: tuple(each) for one, each in PLACES.items()}
    done = drain(four, "--at-once", 1, "--format", "json", 3)
    assert done.exit_code == 0, done.output
    rows = {row["partition"]: row for row in json.loads(done.stdout)}
    assert {one: row["wanted"] for one, row in rows.items()} == {
        one: row["wanted"] for one, row in plan.items()
    }
    assert "3 partitions to reassign" in done.stderr and "does not throttle" in done.stderr
    steps = [line.split(": ")[1].split(",")[0] for line in done.stderr.splitlines()[1:-1]]
    assert steps == ["begun", "done"] * 3
    found = replicas_of(four)
    assert found == {2: (1, 2), **{one: tuple(row["wanted"]) for one, row in rows.items()}}
    assert not any(3 in each for each in found.values())
    for number, brokers in found.items():
        for broker in brokers:
            assert values_at(four, broker, number) == list(range(number, 400, 4))
        with pytest.raises(UnknownPartitionError):
            values_at(four, 3, number)
    done = drain(four, 3)
    assert done.exit_code == 0 and "0 partitions to reassign" in done.stderr


def test_nothing_is_begun_if_there_are_too_few_brokers(four: Cluster) -> None:
    """The error names the partition; so does the one about a broker that does not exist."""
    create(four, "wide", [[1, 2, 3, 4]])
    done = drain(four, 3)
    assert done.exit_code == 1
    assert "nothing was begun" in done.stderr
    assert "wide-0: each live broker has a replica of it" in done.stderr
    assert replicas_of(four) == {one: tuple(each) for one, each in PLACES.items()}
    done = drain(four, "--keep-free", 100, 3)
    assert done.exit_code == 1 and "would be too full" in done.stderr
    done = drain(four, 7)
    assert done.exit_code == 1 and "broker 7 is not registered" in done.stderr
    assert drain(four).exit_code == 2


class Interrupting:
    """Interrupt at the first pause; before it, do something once."""

    def __init__(self, before: Callable[[], object]) -> None:
        self._before = before

    def __call__(self, seconds: float) -> None:
        self._before()
        raise KeyboardInterrupt


def asked(cluster: Cluster) -> Asked:
    return Asked(parse_servers(cluster.bootstrap_servers))


def alive(one: Asked) -> set[int]:
    return {broker.node_id for broker in one.metadata().brokers}


def test_an_interrupted_drain_is_continued(four: Cluster) -> None:
    """What was begun goes on, and a second drain waits for it."""
    lines: list[str] = []
    settings = DrainSettings(DRAINED, 1, 0.0)
    with asked(four) as one, pytest.raises(KeyboardInterrupt):
        Drain(one, settings, lines.append, sleep=Interrupting(lambda: None)).run()
    assert len(lines) == 1 and "begun" in lines[0]
    done = drain(four, 3)
    assert done.exit_code == 0, done.output
    assert not any(3 in each for each in replicas_of(four).values())


def test_a_drained_broker_may_be_dead(four: Cluster) -> None:
    """Then the other replicas are copied."""
    four.kill(3)
    for number in PLACES:
        four.wait_for_leader("orders", number, other_than=3)
    done = drain(four, 3)
    assert done.exit_code == 0, done.output
    for number, brokers in replicas_of(four).items():
        assert 3 not in brokers and len(brokers) == 2
        for broker in brokers:
            assert values_at(four, broker, number) == list(range(number, 400, 4))


def test_a_target_that_dies_is_replaced(four: Cluster) -> None:
    """Its reassignment is cancelled, and another broker gets the replica."""
    create(four, "late", [[3, 1]])
    with asked(four) as one:
        metadata = one.metadata()
        target, other = (2, 4) if metadata.controller_id == 4 else (4, 2)
        four.cut(target)  # it is registered until its session ends, and follows nobody
        refused = one.reassign(metadata, {("late", 0): [target, 1]})["late", 0]
        assert not refused.code, refused
        wait_until(lambda: target not in alive(one), SECONDS)
        lines: list[str] = []
        settings = DrainSettings(DRAINED, 5, 0.0, look_seconds=0.1, dead_seconds_max=3.0)
        work = Drain(one, settings, lines.append)
        with pytest.raises(DrainError, match=f"broker {target} has a replica, and is gone"):
            work.run()
    view: Any = four.partition("late")
    assert view.replicas == (other, 1)
    cancelled = f"cancelled, because brokers [{target}] are away: late-0"
    assert any(line.startswith(cancelled) for line in lines), lines


class Late:
    """A cluster whose metadata is late: a reassignment ends before the metadata shows it."""

    def __init__(self, looks: int) -> None:
        self.shown, self.looks, self.asked = (3, 1), looks, list[dict[Any, Any]]()

    def metadata(self) -> Any:
        if self.asked:
            self.looks -= 1
        if self.asked and self.looks < 0:
            self.shown = tuple(self.asked[0]["orders", 0])
        one = Facts(partition_index=0, replica_nodes=self.shown, leader_id=1)
        brokers = [Facts(node_id=broker, rack=None) for broker in (1, 2, 3, 4)]
        return Facts(topics=[Facts(name="orders", partitions=[one])], brokers=brokers)

    def log_dirs(self, broker: Any) -> list[Any]:
        held = Facts(partition_index=0, partition_size=100, is_future_key=False)
        has_it = broker.node_id in self.shown
        topics = [Facts(name="orders", partitions=[held])] if has_it else []
        room = {"total_bytes": 1 << 30, "usable_bytes": 1 << 29}
        return [Facts(error_code=0, log_dir="a", topics=topics, **room)]

    def reassignments(self, metadata: Any) -> dict[Any, Any]:
        return {}

    def hidden(self, metadata: Any, names: Any) -> list[str]:
        return []

    def reassign(self, metadata: Any, wanted: dict[Any, Any]) -> dict[Any, Any]:
        self.asked.append(wanted)
        return {}


def test_regression_a_partition_is_not_reassigned_again_before_the_metadata_shows_its_end() -> None:
    """It was moved to another broker, and the drain ended while this move was running."""
    late, now = Late(looks=3), [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    settings = DrainSettings(DRAINED, 5, 0.0, look_seconds=1.0)
    asked: Any = late
    Drain(asked, settings, lambda _: None, sleep, lambda: now[0]).run()
    assert len(late.asked) == 1
    cancelled = Late(looks=20)  # an operator has cancelled the reassignment
    asked = cancelled
    Drain(asked, settings, lambda _: None, sleep, lambda: now[0]).run()
    assert len(cancelled.asked) == 2
