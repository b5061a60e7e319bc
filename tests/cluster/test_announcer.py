"""Test that every broker's metadata follows the coordination store, which is the oracle."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Iterator

import pytest

from broker.coordination.errors import NoNodeError, ZnodeError
from cluster import znodes
from cluster.admin import topic_deletion
from cluster.registration import NO_BROKER
from cluster.state import parse_state
from cluster.view import BrokerView, ClusterView, PartitionView, TopicView
from cluster.wire.topic_ids import bytes_of
from support.members import Member, Members
from support.places import fast_directory
from support.replica_nodes import wait_until

SECONDS = float(os.environ.get("LOGSTORE_MEMBER_SECONDS", "4"))
AGREES_SECONDS = 1.0  # from a change of the store to all views


@pytest.fixture
def members() -> Iterator[Members]:
    with fast_directory() as root, Members(root, dirs=2) as made:
        yield made


def view_of_store(members: Members) -> ClusterView:
    """Read the view from the coordination store, independently of the controller."""
    store = members.admin
    brokers, topics = {}, {}
    for text in store.children(znodes.BROKERS):
        znode = store.get(f"{znodes.BROKERS}/{text}")
        node = znodes.parse_registration(znode.data, "", znode.czxid, znode.mzxid)
        brokers[int(text)] = BrokerView(int(text), node.endpoints, node.rack)
    for name in store.children(znodes.TOPICS):
        document = json.loads(store.get(znodes.topic_path(name)).data)
        partitions = {}
        for text in sorted(document["partitions"], key=int):
            path = znodes.state_path(name, int(text))
            state = parse_state(store.get(path).data, path)
            offline = tuple(one for one in state.replicas if one not in brokers)
            partitions[int(text)] = PartitionView(
                state.leader, state.leader_epoch, state.replicas, tuple(state.isr), offline,
                tuple(one for one in state.replicas if one in state.elr),
                tuple(one for one in state.replicas if one in state.suspects),
            )  # fmt: skip
        topics[name] = TopicView(name, bytes_of(document["topic_id"]), partitions)
    controller = int(json.loads(store.get(znodes.CONTROLLER).data)["brokerid"])
    return ClusterView(controller, brokers, topics, {one.topic_id: n for n, one in topics.items()})


def up(members: Members) -> list[Member]:
    return [one for one in members.members.values() if one.is_up]


def disagreements(members: Members) -> list[int]:
    """List the brokers whose view differs from the store, which may be changing now."""
    try:
        wanted = view_of_store(members)
    except NoNodeError:  # half of a change was read, such as a topic without a state
        return [-1]
    return [one.broker for one in up(members) if one.member.metadata.view != wanted]


def wait_for_agreement(members: Members, seconds: float = 20.0) -> None:
    """Wait until all views equal the store, and the store no longer changes."""
    wait_until(lambda: not disagreements(members), seconds)


def partition(member: Member, name: str = "orders", number: int = 0) -> PartitionView | None:
    topic = member.member.metadata.view.topics.get(name)
    return None if topic is None else topic.partitions.get(number)


def leaders(members: Members, name: str = "orders", number: int = 0) -> list[int | None]:
    """Return the leader of a partition on each broker."""
    found = [partition(one, name, number) for one in up(members)]
    return [None if one is None else one.leader for one in found]


def seconds_until_agreement(members: Members) -> float:
    began = time.monotonic()
    wait_for_agreement(members)
    return time.monotonic() - began


def test_a_new_topic_is_known_everywhere(members: Members) -> None:
    """All brokers get its id, leaders, and all partitions at once, which clients count."""
    counts: set[int] = set()
    for one in up(members):
        one.member.metadata.on_change(
            lambda view: counts.update(len(topic.partitions) for topic in view.topics.values())
        )
    members.create(
        "orders", {number: [1 + number % 3, 1 + (number + 1) % 3] for number in range(6)}
    )
    wait_until(lambda: all(None not in leaders(members, number=one) for one in range(6)))
    for number in range(6):
        wait_until(lambda: leaders(members, number=number) == [1 + number % 3] * 3)  # noqa: B023
    wait_for_agreement(members)
    assert counts == {6}


def test_added_partitions_are_known_together(members: Members) -> None:
    """The topic's other partitions do not change."""
    members.create("orders", {0: [1, 2, 3]})
    wait_until(lambda: leaders(members) == [1, 1, 1])
    path = znodes.topic_path("orders")
    topic_id = json.loads(members.admin.get(path).data)["topic_id"]
    members.admin.set(path, znodes.encode_topic(topic_id, {0: [1, 2, 3], 1: [2, 3], 2: [3]}))
    wait_until(lambda: leaders(members, number=2) == [3, 3, 3])
    wait_for_agreement(members)


def test_a_killed_leader_is_replaced_in_all_views(members: Members) -> None:
    """The broker and its replicas are offline until it returns."""
    members.create("orders", {0: [1, 2, 3]})
    wait_until(lambda: leaders(members) == [1, 1, 1])
    wait_for_agreement(members)
    members.members[1].kill()
    wait_until(lambda: all(one in (2, 3) for one in leaders(members)))
    assert seconds_until_agreement(members) < AGREES_SECONDS
    for one in up(members):
        known = partition(one)
        assert known is not None and known.offline == (1,) and 1 not in known.isr
        assert one.member.metadata.view.brokers.keys() == {2, 3}
    returned = members.start(1)
    wait_until(lambda: partition(returned) is not None)
    wait_until(lambda: {1, 2, 3} == set((partition(returned) or NOBODY).isr))
    wait_for_agreement(members)


NOBODY = PartitionView(NO_BROKER, 0, (1,), ())


def test_without_a_candidate_nobody_leads(members: Members) -> None:
    """When the last in-sync replica is gone, views have leader -1 until its return."""
    members.create("orders", {0: [1]})
    wait_until(lambda: leaders(members) == [1, 1, 1])
    members.members[1].kill()
    wait_until(lambda: leaders(members) == [NO_BROKER] * 2)
    assert seconds_until_agreement(members) < AGREES_SECONDS
    members.start(1)
    wait_until(lambda: leaders(members) == [1, 1, 1])
    wait_for_agreement(members)


def test_a_topic_without_a_living_replica_has_no_leader_yet(members: Members) -> None:
    """The topic exists, so clients wait for it, and do not get an unknown-topic error."""
    members.members[3].kill()
    members.create("orders", {0: [3], 1: [1, 3]})
    wait_until(lambda: leaders(members) == [NO_BROKER] * 2)
    wait_until(lambda: leaders(members, number=1) == [1] * 2)
    assert partition(members.members[1]) == PartitionView(NO_BROKER, 0, (3,), (), (3,))
    members.start(3)
    wait_until(lambda: leaders(members) == [3, 3, 3])
    wait_for_agreement(members)


def test_regression_a_topic_that_never_had_a_leader_is_forgotten(members: Members) -> None:
    """Partitions that never had a state are announced as deleted, too."""
    members.members[3].kill()
    members.create("orders", {0: [3], 1: [3]})
    wait_until(lambda: leaders(members, number=1) == [NO_BROKER] * 2)
    members.admin.delete(znodes.topic_path("orders"))
    wait_until(lambda: not any(view.topics for view in views(members)))
    wait_for_agreement(members)


def test_the_controller_dies_and_all_views_follow(members: Members) -> None:
    """The next controller announces everything, including itself."""
    members.create("orders", {0: [1, 2, 3], 1: [2, 3, 1]})
    wait_for_agreement(members)
    first = members.members[1].member.metadata.view.controller_id
    members.members[first].kill()
    wait_until(lambda: all(first not in view.brokers for view in views(members)))
    assert seconds_until_agreement(members) < AGREES_SECONDS
    assert {view.controller_id for view in views(members)} != {first}


def views(members: Members) -> list[ClusterView]:
    return [one.member.metadata.view for one in up(members)]


def test_a_deleted_topic_is_forgotten_everywhere(members: Members) -> None:
    """The old id is forgotten; a topic with the same name is another topic."""
    members.create("orders", {0: [1, 2, 3], 1: [2, 3]})
    members.create("other", {0: [1]})
    wait_for_agreement(members)
    (old,) = {view.topics["orders"].topic_id for view in views(members)}
    members.delete("orders")
    wait_until(lambda: not any("orders" in view.topics for view in views(members)))
    wait_for_agreement(members)
    members.create("orders", {0: [3, 2]})
    wait_until(lambda: leaders(members) == [3, 3, 3])
    wait_for_agreement(members)
    assert not any(old in view.ids for view in views(members))


def test_a_failed_log_dir_makes_its_replicas_offline(members: Members) -> None:
    """The broker is present, but its replica is offline until the log dir returns (KIP-112)."""
    members.create("orders", {0: [1, 2, 3]})
    wait_until(lambda: leaders(members) == [1, 1, 1])
    one = members.members[1]
    # Without a log yet, the new replica would be created on the other log dir.
    wait_until(lambda: (replica := one.replica("orders")) is not None and replica.log is not None)
    one.store.take_offline(one.paths[0])
    wait_until(lambda: all((partition(m) or NOBODY).offline == (1,) for m in up(members)))
    wait_until(lambda: all(leader in (2, 3) for leader in leaders(members)))
    one.store.reopen_dir(one.paths[0])
    wait_until(lambda: all((partition(m) or NOBODY).offline == () for m in up(members)))
    wait_until(lambda: set((partition(one) or NOBODY).isr) == {1, 2, 3})
    wait_for_agreement(members)


class History:
    """Change topics and brokers at random; at least one broker is always alive."""

    def __init__(self, members: Members, seed: int) -> None:
        self.members, self.rng = members, random.Random(seed)
        self.topics: set[str] = set()
        self.away: tuple[Member, int] | None = None

    def step(self) -> None:
        steps = [
            self.create,
            self.create,
            self.delete,
            self.kill,
            self.start,
            self.start,
            self.fail,
        ]
        self.rng.choice(steps)()

    def create(self) -> None:
        name = self.rng.choice("abcdef")
        if name not in self.topics:
            self.topics.add(name)
            partitions = {
                number: self.rng.sample((1, 2, 3), self.rng.randint(1, 3))
                for number in range(self.rng.randint(1, 4))
            }
            self.members.create(name, partitions)

    def delete(self) -> None:
        if self.topics:
            name = self.rng.choice(sorted(self.topics))
            self.topics.discard(name)
            wait_until(lambda: self._is_deleted(name))

    def _is_deleted(self, name: str) -> bool:
        """Delete a topic like a request; a controller may be writing a state of it."""
        session = self.members.admin
        topic_id = json.loads(session.get(znodes.topic_path(name)).data)["topic_id"]
        try:
            return topic_deletion.delete(session, name, topic_id)
        except ZnodeError:
            return False

    def kill(self) -> None:
        living = up(self.members)
        if len(living) > 1:
            self.give_back()
            self.rng.choice(living).kill()

    def start(self) -> None:
        for member in self.members.members.values():
            if not member.is_up:
                self.members.start(member.broker)
                return

    def fail(self) -> None:
        if self.away is not None:
            self.give_back()
        else:
            member, number = self.rng.choice(up(self.members)), self.rng.randrange(2)
            self.away = member, number
            member.store.take_offline(member.paths[number])

    def give_back(self) -> None:
        if self.away is not None:
            member, number = self.away
            self.away = None
            if member.is_up:
                member.store.reopen_dir(member.paths[number])


@pytest.mark.parametrize("seed", [1, 2])
def test_a_random_history_ends_in_agreement(seed: int, members: Members) -> None:
    """Topics, brokers and log dirs come and go; no view goes back to an older leader epoch.

    No replica of a deleted topic is left, although controllers died meanwhile.
    """
    watches = [Watch(one) for one in up(members)]
    history = History(members, seed)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        threading.Event().wait(history.rng.uniform(0.0, 0.3))
        history.step()
    history.give_back()
    for _ in range(3):
        history.start()
    wait_for_agreement(members)
    assert all(view.topics.keys() == history.topics for view in views(members))
    wait_until(lambda: not members.admin.children(znodes.DELETIONS))
    assert all({name for name, _ in one.store} <= history.topics for one in up(members))
    assert not [fault for one in watches for fault in one.faults]


class Watch:
    """Check each view of a broker against the one before."""

    def __init__(self, member: Member) -> None:
        self.faults: list[str] = []
        self.epochs: dict[tuple[bytes, int], int] = {}
        member.member.metadata.on_change(self.look)

    def look(self, view: ClusterView) -> None:
        for topic in view.topics.values():
            for number, one in topic.partitions.items():
                place = topic.topic_id, number
                if one.leader_epoch < self.epochs.get(place, 0):
                    self.faults.append(f"{topic.name}-{number} went back to {one}")
                self.epochs[place] = one.leader_epoch
