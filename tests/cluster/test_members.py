"""Brokers that elect, replicate and recover by themselves: one store, real sockets, real logs."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Iterator
from typing import Any

import pytest

from broker.coordination.verbs import Session
from cluster import znodes
from cluster.pure.replica import Role
from cluster.run.member import ClusterMember, MemberSettings
from cluster.sessions.lease import Lease
from cluster.state import State, parse_state
from cluster.wire.follower_fetches import FetchLimits
from logstore import Log, LogStore
from support.members import Members
from support.places import fast_directory
from support.replica_nodes import wait_until


@pytest.fixture
def members() -> Iterator[Members]:
    with fast_directory() as root, Members(root, dirs=2) as made:
        yield made


def values(count: int, letter: bytes = b"v") -> list[bytes]:
    return [letter + b"%d" % number for number in range(count)]


def state_of(members: Members, name: str = "orders", number: int = 0) -> State:
    path = znodes.state_path(name, number)
    return parse_state(members.admin.get(path).data, path)


def found_in(members: Members, broker: int, name: str = "orders") -> list[bytes | None]:
    replica = members.members[broker].replica(name)
    log = None if replica is None else replica.log
    return [] if log is None else [record.value for record in log]


def are_alike(members: Members, name: str = "orders") -> bool:
    found = [found_in(members, broker, name) for broker in members.members]
    return bool(found[0]) and all(one == found[0] for one in found)


def test_a_topic_gets_leaders_and_replicas(members: Members) -> None:
    """Its first replicas lead; each broker has what is assigned to it, and nothing else."""
    members.create("orders", {0: [1, 2, 3], 1: [2, 3], 2: [3]})
    for number, broker in enumerate((1, 2, 3)):
        assert members.wait_for_leader("orders", number).broker == broker
    members.produce("orders", *values(5))
    members.produce("orders", *values(5), number=1)
    members.produce("orders", *values(5), number=2)
    assert [len(one.store) for one in members.members.values()] == [1, 2, 3]
    assert state_of(members).min_isr == 2 and set(state_of(members).isr) == {1, 2, 3}


def test_a_new_partition_does_not_wait_for_the_fetches_of_others(members: Members) -> None:
    """A fetch that waits for records of other partitions is given up."""
    seconds = []
    for number in range(7):
        name = f"topic-{number}"
        members.create(name, {0: [1, 2, 3]})
        members.wait_for_leader(name)
        began = time.monotonic()
        members.produce(name, b"v")
        seconds.append(time.monotonic() - began)
    assert statistics.median(seconds) < FetchLimits().wait_ms / 1000 / 2


def test_a_killed_leader_is_replaced_and_returns(members: Members) -> None:
    """What was acknowledged is on the new leader; the old one follows, and is in sync again."""
    members.create("orders", {0: [1, 2, 3]})
    members.produce("orders", *values(50))
    members.members[1].kill()
    began = time.monotonic()
    leader = members.wait_for_leader("orders")
    members.produce("orders", b"after")
    assert leader.broker in (2, 3)
    assert time.monotonic() - began < 5
    assert found_in(members, leader.broker)[:50] == values(50)
    members.start(1)
    wait_until(lambda: set(state_of(members).isr) == {1, 2, 3})
    members.produce("orders", b"last")
    wait_until(lambda: are_alike(members))
    assert found_in(members, 1) == [*values(50), b"after", b"last"]


def test_the_controller_dies(members: Members) -> None:
    """Another broker becomes the controller, in a later epoch, and elects the leaders again."""
    members.create("orders", {0: [1, 2, 3], 1: [2, 3, 1]})
    members.produce("orders", *values(10))
    members.produce("orders", *values(10), number=1)
    first = json.loads(members.admin.get(znodes.CONTROLLER).data)["brokerid"]
    epoch = int(members.admin.get(znodes.CONTROLLER_EPOCH).data)
    members.members[first].kill()
    for number in (0, 1):
        assert members.wait_for_leader("orders", number, other_than=first)
        members.produce("orders", b"after", number=number)
    assert int(members.admin.get(znodes.CONTROLLER_EPOCH).data) > epoch
    assert json.loads(members.admin.get(znodes.CONTROLLER).data)["brokerid"] != first


def test_a_log_dir_that_fails_loses_its_leaders_only(members: Members) -> None:
    """KIP-112: the broker stays; what it leads on the other log dir is not touched."""
    members.create("orders", {0: [1, 2, 3]})
    members.produce("orders", *values(10))
    one = members.members[1]
    other = one.paths[1]
    log = one.store.create("elsewhere", 0, log_dir=other)
    assert log.log_dir == str(other)
    epoch = state_of(members).leader_epoch
    one.store.take_offline(one.paths[0])
    members.wait_for_leader("orders", other_than=1)
    members.produce("orders", b"after")
    assert state_of(members).leader_epoch > epoch
    assert members.admin.get(znodes.broker_path(1)).version == 0  # it was not registered again
    one.store.reopen_dir(one.paths[0])
    wait_until(lambda: set(state_of(members).isr) == {1, 2, 3})
    assert members.admin.get(znodes.broker_path(1)).version > 0
    members.produce("orders", b"last")
    wait_until(lambda: are_alike(members))


def test_regression_a_log_dir_that_fails_during_a_start_is_noticed(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails after the broker has looked at it, and before the broker serves."""
    members.create("orders", {0: [1, 2, 3]})
    members.produce("orders", *values(10))
    members.members[1].kill()
    begin = Lease.begin
    opened: list[LogStore] = []

    def fail(lease: Lease, session: Session) -> None:
        begin(lease, session)
        opened[0].take_offline(opened[0].log_dirs[0])

    def keep(settings: MemberSettings, store: LogStore, *rest: Any) -> ClusterMember:
        opened.append(store)
        return ClusterMember(settings, store, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Lease, "begin", fail)
        patch.setattr("support.members.ClusterMember", keep)
        one = members.start(1)
    dirs = one.member.host.dirs
    wait_until(lambda: [dirs[str(path)].is_good for path in one.paths] == [False, True])
    wait_until(lambda: set(state_of(members).isr) == {2, 3})
    members.produce("orders", b"after")


def test_below_min_nothing_is_acknowledged(members: Members) -> None:
    """With two of three brokers gone; when one returns, produces are taken again."""
    members.create("orders", {0: [1, 2, 3]})
    members.produce("orders", *values(10))
    for broker in (2, 3):
        members.members[broker].kill()
    wait_until(lambda: len(state_of(members).isr) < 2)
    replica = members.members[1].replica("orders")
    assert replica is not None and replica.log is not None
    assert replica.log.high_watermark == 10
    members.start(2)
    members.produce("orders", b"after")
    wait_until(lambda: found_in(members, 2) == [*values(10), b"after"])


def test_all_are_killed_and_return(members: Members, caplog: pytest.LogCaptureFixture) -> None:
    """A killed process loses nothing that it wrote, so whoever returns first may lead (P4).

    No request of the controller comes before the logs are read: it would create them anew.
    """
    members.create("orders", {0: [1, 2, 3]})
    members.produce("orders", *values(40))
    for broker in (1, 2, 3):
        members.members[broker].kill()
    for broker in (3, 2, 1):
        members.start(broker)
    members.wait_for_leader("orders")
    members.produce("orders", b"after")
    wait_until(lambda: are_alike(members))
    assert found_in(members, 2) == [*values(40), b"after"]
    assert state_of(members).unclean_epoch == -1
    assert "exists already" not in caplog.text


def test_a_deleted_topic_is_deleted_everywhere(members: Members) -> None:
    """And a topic that is created again under its name is another one."""
    members.create("orders", {0: [1, 2, 3]})
    members.produce("orders", *values(10))
    members.delete("orders")
    wait_until(lambda: all(len(one.store) == 0 for one in members.members.values()))
    members.create("orders", {0: [2, 3]})
    members.produce("orders", b"new")
    assert found_in(members, 2) == [b"new"]
    assert len(members.members[1].store) == 0


def test_regression_a_topic_whose_znode_is_damaged_is_not_deleted(members: Members) -> None:
    """It exists, although it cannot be read: its replicas go on, and other topics come and go."""
    members.create("orders", {0: [1, 2, 3]})
    members.produce("orders", *values(10))
    path = znodes.topic_path("orders")
    good = members.admin.get(path).data
    members.admin.set(path, b"damaged")
    members.create("other", {0: [1, 2, 3]})
    members.wait_for_leader("other")
    members.delete("other")
    wait_until(lambda: all(len(one.store) == 1 for one in members.members.values()))
    members.produce("orders", b"after")
    members.admin.set(path, good)
    members.members[members.wait_for_leader("orders").broker].kill()
    members.produce("orders", b"last")
    living = [one.broker for one in members.members.values() if one.is_up]
    wait_until(lambda: all(found_in(members, one)[10:] == [b"after", b"last"] for one in living))


def test_a_deletion_reaches_a_broker_that_was_away(members: Members) -> None:
    """It is asked until it answers, also by the next controller (P19)."""
    members.create("orders", {0: [1, 2, 3]})
    members.produce("orders", *values(10))
    members.members[3].kill()
    members.delete("orders")
    wait_until(lambda: all(len(members.members[one].store) == 0 for one in (1, 2)))
    wait_until(lambda: len(members.admin.children(znodes.DELETIONS)) == 1)
    controller = json.loads(members.admin.get(znodes.CONTROLLER).data)["brokerid"]
    if controller != 3:
        members.members[controller].kill()
        members.start(controller)
    three = members.start(3)
    wait_until(lambda: len(three.store) == 0)
    wait_until(lambda: members.admin.children(znodes.DELETIONS) == [])


def test_regression_deletions_of_one_name_are_all_completed(members: Members) -> None:
    """A broker was away while a name was used and deleted three times; it has the oldest topic."""
    for replicas in ([1, 2, 3], [2, 3, 1], [1, 3, 2]):
        members.create("orders", {0: replicas})
        members.produce("orders", *values(2))
        if members.members[3].is_up:
            wait_until(lambda: bool(found_in(members, 3)))
            members.members[3].kill()
        members.delete("orders")
        wait_until(lambda: all(len(members.members[one].store) == 0 for one in (1, 2)))
    wait_until(lambda: len(members.admin.children(znodes.DELETIONS)) == 3)
    three = members.start(3)
    wait_until(lambda: len(three.store) == 0)
    wait_until(lambda: members.admin.children(znodes.DELETIONS) == [])


def test_an_unclean_election_keeps_what_is_lost(members: Members) -> None:
    """If the settings allow it: the last in-sync replica is gone, another one leads (P16)."""
    members.create(
        "orders", {0: [1, 2]}, min_insync_replicas="1", unclean_leader_election_enable="true"
    )
    members.produce("orders", *values(10))
    members.members[2].kill()
    wait_until(lambda: set(state_of(members).isr) == {1})
    members.produce("orders", b"only on 1")
    wait_until(lambda: state_of(members).is_lease_kept)
    members.members[1].kill()
    members.start(2)
    leader = members.wait_for_leader("orders", other_than=1)
    assert leader.broker == 2 and state_of(members).unclean_epoch >= 0
    members.produce("orders", b"after")
    one = members.start(1)
    wait_until(lambda: found_in(members, 1) == [*values(10), b"after"])
    (path,) = [path for log_dir in one.paths for path in log_dir.glob("*.lost")]
    assert b"only on 1" in path.read_bytes()


def test_a_broker_leaves_in_order(members: Members) -> None:
    """Its log dirs stay whole, its leaders move, and it returns into the ISR."""
    members.create("orders", {0: [1, 2, 3]})
    members.produce("orders", *values(10))
    members.members[1].stop()
    members.wait_for_leader("orders", other_than=1)
    members.produce("orders", b"after")
    one = members.start(1)
    wait_until(lambda: set(state_of(members).isr) == {1, 2, 3})
    replica = one.replica("orders")
    assert replica is not None and replica.role is Role.FOLLOWER


def delete_before(members: Members, offset: int) -> None:
    """Delete records on the leader, and wait until each living broker has deleted them."""
    log = log_of(members, members.wait_for_leader("orders").broker)
    log.delete_records_before(offset)
    living = [one.broker for one in members.members.values() if one.is_up]
    wait_until(lambda: {log_of(members, one).log_start_offset for one in living} == {offset})


def log_of(members: Members, broker: int) -> Log:
    replica = members.members[broker].replica("orders")
    assert replica is not None and replica.log is not None
    return replica.log


def test_deleted_records_do_not_come_back(members: Members) -> None:
    """The followers delete them too, so that each of them may lead."""
    members.create("orders", {0: [1, 2, 3]})
    members.produce("orders", *values(10))
    members.produce("orders", *values(10, b"w"))
    delete_before(members, 13)
    members.members[1].kill()
    leader = members.wait_for_leader("orders", other_than=1)
    members.produce("orders", b"after")
    assert found_in(members, leader.broker) == [*values(10, b"w")[3:], b"after"]
    members.start(1)
    wait_until(lambda: set(state_of(members).isr) == {1, 2, 3})
    assert found_in(members, 1) == [*values(10, b"w")[3:], b"after"]


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("offset", [20, 15, 30])
def test_a_replica_begins_after_what_was_deleted(
    members: Members, offset: int, is_new: bool
) -> None:
    """Regression: it got nothing for ever, if it was new; else it stopped with an alarm.

    The leader's log begins between two batches, inside a batch, or has no record.
    """
    members.create("orders", {0: [1, 2, 3]})
    members.produce("orders", *values(10))
    wait_until(lambda: are_alike(members))
    members.members[3].kill()
    if is_new:
        for path in members.members[3].paths:
            shutil.rmtree(path)
    for letter in (b"w", b"x"):
        members.produce("orders", *values(10, letter))
    delete_before(members, offset)
    three = members.start(3)
    wait_until(lambda: set(state_of(members).isr) == {1, 2, 3})
    members.produce("orders", b"after")
    expected = [*values(10), *values(10, b"w"), *values(10, b"x"), b"after"][offset:]
    wait_until(lambda: found_in(members, 3) == expected)
    wait_until(lambda: log_of(members, 3).log_start_offset == offset)
    replica = three.replica("orders")
    assert replica is not None and replica.role is Role.FOLLOWER
    assert found_in(members, members.wait_for_leader("orders").broker) == expected
    members.members[members.wait_for_leader("orders").broker].kill()
    members.produce("orders", b"last")
    wait_until(lambda: found_in(members, 3) == [*expected, b"last"])
