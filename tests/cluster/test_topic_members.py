"""Test topics on three brokers with a controller and real logs."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from broker.catalog.admin.topic_admin import NewTopic, TopicRefusedError
from broker.catalog.setting_changes import Change, Operation
from broker.catalog.topics import NO_ID
from broker.wire.error_codes import ErrorCode
from cluster import znodes
from cluster.control.controller_store import ControllerStore
from cluster.pure.replica import Role
from cluster.state import parse_state
from cluster.wire.topic_ids import text_of
from support.members import KAFKA, Member, Members
from support.places import fast_directory
from support.replica_nodes import wait_until
from support.topic_admins import Dying, Known, changes_of, small_requests


@pytest.fixture
def members() -> Iterator[Members]:
    with fast_directory() as root, Members(root, dirs=2) as made:
        yield made


def assigned(members: Members) -> dict[int, set[tuple[str, int]]]:
    """Read from the store which replicas each broker has."""
    found: dict[int, set[tuple[str, int]]] = {broker: set() for broker in members.members}
    for name in members.admin.children(znodes.TOPICS):
        path = znodes.topic_path(name)
        znode = members.admin.get(path)
        for number, brokers in znodes.parse_topic(znode.data, path, 0).partitions.items():
            for broker in brokers:
                found[broker].add((name, number))
    return found


def hosted(members: Members) -> dict[int, set[tuple[str, int]]]:
    """List the replicas that the brokers have."""
    return {
        broker: {(topic, number) for topic, number in one.store}
        for broker, one in members.members.items()
    }


def is_led(members: Members, topic_id: bytes) -> bool:
    """Report whether the only leader of the first partition is a replica of this topic."""
    replicas = [member.replica("orders") for member in members.members.values()]
    led = [one.topic.topic_id for one in replicas if one is not None and one.role is Role.LEADER]
    return led == [text_of(topic_id)]


def retentions(member: Member, name: str) -> set[int | None]:
    """Return the retention of all logs of a topic on a broker."""
    return {
        member.store.log(topic, number).config.retention_ms
        for topic, number in member.store
        if topic == name
    }


def min_isr(members: Members, name: str) -> int:
    path = znodes.state_path(name, 0)
    return parse_state(members.admin.get(path).data, path).min_isr


def set_to(**settings: str) -> list[Change]:
    return [Change(key.replace("_", "."), Operation.SET, one) for key, one in settings.items()]


def test_a_topic_is_created_on_any_broker(members: Members) -> None:
    """Its partitions get evenly spread leaders; its logs get its settings."""
    two = members.members[2]
    made = two.changes.create(NewTopic("orders", 6, 3, (), [("retention.ms", "5000")]))
    for number in made.topic.partitions:
        members.wait_for_leader("orders", number)
        members.produce("orders", b"value", number=number)
    leaders = [members.wait_for_leader("orders", number).broker for number in range(6)]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    assert hosted(members) == assigned(members)
    for member in members.members.values():
        assert retentions(member, "orders") == {5000}
        rows = {row.key: row.text for row in member.changes.settings_of("orders")}
        assert (rows["retention.ms"], rows["min.insync.replicas"]) == ("5000", "2")


def test_a_change_of_settings_reaches_all_brokers(members: Members) -> None:
    """An absent broker gets it when it returns; the controller uses the new min."""
    members.members[1].changes.create(NewTopic("orders", 2, 3))
    members.produce("orders", b"value")
    members.members[2].changes.alter("orders", set_to(retention_ms="7000"))
    wait_until(lambda: all(retentions(one, "orders") == {7000} for one in members.members.values()))
    members.members[3].kill()
    members.members[1].changes.alter("orders", set_to(retention_ms="8000", min_insync_replicas="1"))
    wait_until(lambda: min_isr(members, "orders") == 1)
    three = members.start(3)
    wait_until(lambda: retentions(three, "orders") == {8000})
    members.produce("orders", b"value")


def test_partitions_are_added(members: Members) -> None:
    """They get leaders; the records of the other partitions stay."""
    members.members[1].changes.create(NewTopic("orders", 2, 2, (), [("retention.ms", "5000")]))
    members.produce("orders", b"value")
    members.members[3].changes.add_partitions("orders", 6, None)
    for number in range(6):
        members.produce("orders", b"more", number=number)
    leaders = [members.wait_for_leader("orders", number).broker for number in range(6)]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    wait_until(lambda: hosted(members) == assigned(members))
    log = members.wait_for_leader("orders", 0).store.log("orders", 0)
    assert [record.value for record in log] == [b"value", b"more"]
    assert all(retentions(one, "orders") <= {5000} for one in members.members.values())


def test_a_topic_is_deleted_although_no_broker_runs(members: Members) -> None:
    """The deletion is in the store, so the next controller deletes the replicas."""
    topic = members.members[1].changes.create(NewTopic("orders", 2, 3)).topic
    other = members.members[1].changes.create(NewTopic("other", 1, 3)).topic
    for number in (0, 1):
        members.produce("orders", b"value", number=number)
    members.produce("other", b"value")
    for broker in (1, 2, 3):
        members.members[broker].kill()
    changes_of(members.admin, Known()).delete(topic)
    for broker in (1, 2, 3):
        members.start(broker)
    wait_until(lambda: hosted(members) == {key: {("other", 0)} for key in (1, 2, 3)})
    wait_until(lambda: members.admin.children(znodes.DELETIONS) == [])
    members.produce("other", b"more")
    assert members.members[1].changes.find("other", NO_ID) == other


@pytest.mark.parametrize("is_controller_killed", [False, True])
def test_a_large_topic_is_deleted_after_a_crash(
    members: Members, monkeypatch: pytest.MonkeyPatch, is_controller_killed: bool
) -> None:
    """The deletion stops after some steps; the next attempt completes it."""
    small_requests(monkeypatch)
    topic = members.members[1].changes.create(NewTopic("large", 8, 3)).topic
    for number in topic.partitions:
        members.produce("large", b"value", number=number)
    dying: Any = Dying(members.admin, 3)
    with pytest.raises(TopicRefusedError):
        changes_of(dying).delete(topic)
    assert len(members.admin.children(f"{znodes.topic_path('large')}/partitions")) == 2
    if is_controller_killed:
        controller = members.controller()
        members.members[controller].kill()
        wait_until(lambda: members.controller() not in (-1, controller))
        members.start(controller)
    members.members[2].changes.resume()
    assert members.admin.children(znodes.TOPICS) == []
    wait_until(lambda: not any(hosted(members).values()))
    wait_until(lambda: members.admin.children(znodes.DELETIONS) == [])
    members.members[2].changes.create(NewTopic("large", 2, 3))
    members.produce("large", b"value")


def test_a_name_is_used_again_at_once(members: Members) -> None:
    """The new topic has no records of the old topic."""
    one, two = members.members[1], members.members[2]
    for round_number in range(3):
        topic = one.changes.create(NewTopic("orders", 2, 3)).topic
        # A broker may still lead the deleted topic; clients are refused there by the topic's id.
        wait_until(partial(is_led, members, topic.id))
        members.produce("orders", b"round %d" % round_number)
        log = members.wait_for_leader("orders").store.log("orders", 0)
        assert [record.value for record in log] == [b"round %d" % round_number]
        assert log.topic_id == topic.id
        two.changes.delete(topic)
    wait_until(lambda: not any(hosted(members).values()))


def test_regression_two_deletions_of_a_name_reach_a_broker_that_was_away(
    members: Members,
) -> None:
    """Before, the later deletion replaced the earlier one, whose replica was never deleted."""
    members.create("orders", {0: [1, 2]}, min_insync_replicas="1")
    members.produce("orders", b"first")
    members.members[2].kill()
    members.delete("orders")
    wait_until(lambda: len(members.members[1].store) == 0)
    members.create("orders", {0: [1, 2]}, min_insync_replicas="1")
    members.produce("orders", b"second")
    members.delete("orders")
    wait_until(lambda: len(members.members[1].store) == 0)
    assert len(members.admin.children(znodes.DELETIONS)) == 2
    members.start(2)
    wait_until(lambda: not any(hosted(members).values()))
    wait_until(lambda: members.admin.children(znodes.DELETIONS) == [])


def test_regression_a_deletion_while_a_controller_begins(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a deletion between the two reads was missed."""
    topic = members.members[1].changes.create(NewTopic("orders", 1, 3)).topic
    members.produce("orders", b"value")
    real = ControllerStore.deletions
    left = [topic]

    def deletions(store: ControllerStore) -> list[znodes.NamedDeletion]:
        found = real(store)
        if left:
            changes_of(members.admin).delete(left.pop())
        return found

    monkeypatch.setattr(ControllerStore, "deletions", deletions)
    controller = members.controller()
    members.members[controller].kill()
    members.start(controller)
    wait_until(lambda: not left and not any(hosted(members).values()))
    wait_until(lambda: members.admin.children(znodes.DELETIONS) == [])


class Administrator:
    """Changes topics at random, through one broker after another."""

    def __init__(self, members: Members, seed: int, is_over: threading.Event) -> None:
        self._members, self._random, self._is_over = members, random.Random(seed), is_over
        self.done: set[str] = set()

    def run(self) -> None:
        actions = [self.create, self.delete, self.grow, self.alter, self.alter]
        while not self._is_over.wait(0.01):
            member = self._random.choice(list(self._members.members.values()))
            if member.is_up:
                self._do(self._random.choice(actions), member)

    def _do(self, action: Callable[[Member, str], None], member: Member) -> None:
        try:
            action(member, f"topic.{self._random.randrange(6)}")
            self.done.add(action.__name__)
        except TopicRefusedError as error:
            assert error.code in {
                ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.INVALID_PARTITIONS, ErrorCode.INVALID_REPLICATION_FACTOR,
                ErrorCode.NOT_CONTROLLER,
            }, error  # fmt: skip

    def create(self, member: Member, name: str) -> None:
        member.changes.create(NewTopic(name, self._random.randint(1, 3), 2))

    def delete(self, member: Member, name: str) -> None:
        found = member.changes.find(name, NO_ID)
        if found is not None:
            member.changes.delete(found)

    def grow(self, member: Member, name: str) -> None:
        member.changes.add_partitions(name, self._random.randint(2, 5), None)

    def alter(self, member: Member, name: str) -> None:
        value = str(self._random.randint(1, 9) * 1_000_000)
        member.changes.alter(name, set_to(retention_ms=value))


def settings_agree(members: Members) -> bool:
    """Compare the logs of all brokers with the settings in the store."""
    for broker, places in assigned(members).items():
        member = members.members[broker]
        for name in {name for name, _ in places}:
            path = znodes.config_path(name)
            texts = znodes.parse_config(members.admin.get(path).data, path)
            text = texts.get("retention.ms")
            if retentions(member, name) != {KAFKA.retention_ms if text is None else int(text)}:
                return False
    return True


@pytest.mark.parametrize("seed", range(3))
def test_random_changes_end_in_agreement(members: Members, seed: int) -> None:
    """Three administrators work at once, while brokers die; the store is the oracle."""
    is_over, chance = threading.Event(), random.Random(seed)
    administrators = [Administrator(members, 10 * seed + one, is_over) for one in range(3)]
    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(one.run) for one in administrators]
        for _ in range(3):
            broker = chance.randint(1, 3)
            is_over.wait(0.7)
            members.members[broker].kill()
            is_over.wait(0.3)
            members.start(broker)
        is_over.set()
        for run in runs:
            run.result()
    done = set[str]().union(*(one.done for one in administrators))
    assert done == {"create", "delete", "grow", "alter"}
    wait_until(lambda: hosted(members) == assigned(members))
    wait_until(lambda: settings_agree(members))
    wait_until(lambda: members.admin.children(znodes.DELETIONS) == [])
    for name, number in set().union(*assigned(members).values()):
        members.produce(name, b"value", number=number)
