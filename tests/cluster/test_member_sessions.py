"""Brokers whose connection to ZooKeeper is cut: until, and after, their session ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from broker.coordination.errors import NoNodeError
from cluster import znodes
from cluster.pure import exchange as x
from cluster.pure.replica import Role
from cluster.state import State, parse_state
from cluster.zookeeper import ZooKeeperStore
from support.members import Members, produce_of
from support.places import fast_directory
from support.replica_nodes import WaitingProduce, wait_until
from support.tcp_link import TcpLink
from support.zookeeper_process import ZooKeeperProcess

SESSION_SECONDS = 3.0
VALUES = [b"v%d" % number for number in range(20)]


class Cuttable:
    """Three members, each with a link of its own to ZooKeeper."""

    def __init__(
        self, server: ZooKeeperProcess, chroot: str, stack: ExitStack, dirs: int = 1
    ) -> None:
        self.links = {one: stack.enter_context(TcpLink(server.port)) for one in (0, 1, 2, 3)}
        self.stores = {
            one: ZooKeeperStore(
                f"127.0.0.1:{link.port}{chroot}",
                session_timeout_ms=int(SESSION_SECONDS * 1000),
                request_timeout_ms=1000,
            )
            for one, link in self.links.items()
        }
        root = stack.enter_context(fast_directory())
        self.members = stack.enter_context(
            Members(
                root, dirs=dirs, store_of=self.stores.__getitem__, session_seconds=SESSION_SECONDS
            )
        )
        stack.callback(self.heal)  # so that no member waits for ZooKeeper at its end

    def heal(self) -> None:
        for link in self.links.values():
            link.heal()

    def state(self, name: str = "orders") -> State:
        path = znodes.state_path(name, 0)
        return parse_state(self.members.admin.get(path).data, path)

    def broker_epoch(self, broker: int) -> int:
        try:
            return self.members.admin.get(znodes.broker_path(broker)).czxid
        except NoNodeError:
            return 0

    def controller(self) -> int:
        try:
            data = self.members.admin.get(znodes.CONTROLLER).data
        except NoNodeError:
            return 0
        return int(json.loads(data)["brokerid"])

    def ask(self, broker: int, name: str, acks: int) -> WaitingProduce:
        """Produce to one broker, once."""
        replica = self.members.members[broker].replica(name)
        assert replica is not None
        produce = produce_of([b"asked"])
        replica.tell(x.Produced(produce, acks))
        return produce

    def is_whole(self, name: str = "orders") -> bool:
        return set(self.state(name).isr) == {1, 2, 3}


@pytest.fixture
def cluster(server: ZooKeeperProcess, zookeeper_store: ZooKeeperStore) -> Iterator[Cuttable]:
    with ExitStack() as stack:
        yield Cuttable(server, zookeeper_store.chroot, stack, dirs=2)


def test_a_broker_without_a_session_is_replaced_and_returns(cluster: Cuttable) -> None:
    """Its registration goes with its session; it registers again, follows, and is in sync again."""
    members = cluster.members
    members.create("orders", {0: [1, 2, 3]})
    members.produce("orders", *VALUES)
    before = cluster.broker_epoch(1)
    cluster.links[1].cut()
    leader = members.wait_for_leader("orders", other_than=1)
    members.produce_to(leader, "orders", b"after")
    late = cluster.ask(1, "orders", -1)  # nobody fetches from it any more
    cluster.heal()
    wait_until(lambda: cluster.broker_epoch(1) > before)
    wait_until(cluster.is_whole)
    members.produce("orders", b"last")
    replica = members.members[1].replica("orders")
    assert replica is not None and replica.role is Role.FOLLOWER
    log = replica.log
    assert log is not None
    wait_until(lambda: [record.value for record in log][-1] == b"last")
    assert [record.value for record in log] == [*VALUES, b"after", b"last"]
    assert late.acknowledged is None and late.error is not None


def test_a_controller_without_a_session_is_replaced(cluster: Cuttable) -> None:
    """Its reign ends with its session, and it stands again after it has a new one."""
    members = cluster.members
    wait_until(lambda: cluster.controller() != 0)
    first = cluster.controller()
    cluster.links[first].cut()
    wait_until(lambda: cluster.controller() not in (0, first))
    others = [one for one in (1, 2, 3) if one != first]
    members.create("orders", {0: [*others, first]})
    members.wait_for_leader("orders")
    cluster.heal()
    second = cluster.controller()
    wait_until(cluster.is_whole)
    old = members.members[first].member.controller
    assert old is not None
    wait_until(lambda: old.epoch is None)
    members.members[second].kill()
    third = next(one for one in others if one != second)
    wait_until(lambda: cluster.controller() in (first, third))
    members.wait_for_leader("orders", other_than=second)
    members.produce("orders", *VALUES)


def test_a_leader_without_a_lease_stops_only_where_another_may_be_elected(
    cluster: Cuttable,
) -> None:
    """P16: with unclean election on, it stops before its session ends; and leads again after."""
    members = cluster.members
    members.create("orders", {0: [1]}, unclean_leader_election_enable="true")
    members.create("payments", {0: [1]})
    for name in ("orders", "payments"):
        members.wait_for_leader(name)
        assert cluster.ask(1, name, 1).acknowledged is not None
    epoch = cluster.broker_epoch(1)
    cluster.links[1].cut()
    wait_until(lambda: cluster.ask(1, "orders", 1).error is not None)
    assert cluster.broker_epoch(1) == epoch  # its session lives still
    assert cluster.ask(1, "payments", 1).acknowledged is not None
    cluster.heal()
    wait_until(lambda: cluster.ask(1, "orders", 1).acknowledged is not None)


def test_a_log_dir_that_fails_while_the_store_is_away_is_announced(
    cluster: Cuttable, caplog: pytest.LogCaptureFixture
) -> None:
    """The cluster hears of it when the connection is back, in the same session."""
    members = cluster.members
    members.create("orders", {0: [1, 2, 3]})
    members.produce("orders", *VALUES)
    one = members.members[1]
    cluster.links[1].cut()
    one.store.take_offline(one.paths[0])
    wait_until(lambda: "hears of log dir" in caplog.text)
    cluster.heal()
    leader = members.wait_for_leader("orders", other_than=1)
    members.produce_to(leader, "orders", b"after")
    cluster.links[1].cut()
    caplog.clear()
    one.store.reopen_dir(one.paths[0])
    wait_until(lambda: "hears of log dir" in caplog.text)
    cluster.heal()
    wait_until(cluster.is_whole)
