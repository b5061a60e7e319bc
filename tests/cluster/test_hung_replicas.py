"""Test that a replica whose thread hangs harms no other replica, and acknowledges nothing late."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cluster import Cluster
from cluster.disks.flushes import FLUSH_THREADS, Flushes
from cluster.disks.patient_lock import PatientLock
from cluster.pure import exchange as x
from cluster.pure.replica import Role
from cluster.requests import RoleAnswer
from cluster.run.hosted_replicas import HostedReplicas
from cluster.wire.roles import NamedRole
from logstore import AppendInfo, Log, LogDirSuspectError
from support.hanging import Caller, hang
from support.places import fast_directory
from support.replica_group import NAME, NUMBER, Group, Node, Produce
from support.replica_nodes import wait_until

SECONDS = 60.0
ALONE: dict[str, Any] = {"isr": (1,), "min_isr": 1, "is_unclean_allowed": True}


@pytest.fixture
def group() -> Iterator[Group]:
    with fast_directory() as root, Group(root) as made:
        yield made


class Hung:
    """A client's append that hangs in the disk, with the lock of its replica."""

    def __init__(self, node: Node, acks: int = -1) -> None:
        self.began, self.released = threading.Event(), threading.Event()
        self.produce = Produce(self._append)
        self._caller = Caller(lambda: node.replica.tell(x.Produced(self.produce, acks)))
        assert self.began.wait(SECONDS)

    def _append(self, log: Log, leader_epoch: int) -> AppendInfo:
        log.leader_epoch = max(log.leader_epoch, leader_epoch)
        offsets = log.extend([b"late"])
        self.began.set()
        assert self.released.wait(SECONDS)
        return AppendInfo(offsets.start, offsets.stop - 1, -1, log.log_start_offset, -1)

    def end(self) -> Produce:
        """Let the disk answer, and return what the client got."""
        self.released.set()
        assert self._caller.outcome() is None
        return self.produce


def replicas_of(node: Node) -> HostedReplicas:
    replicas = HostedReplicas(node.host, lambda *_: node.replica)
    replicas.open([(NAME, NUMBER)])
    return replicas


def role_of(group: Group, node: Node, **facts: Any) -> NamedRole:
    """Make the role of a leader, in a new version."""
    group.version += 1
    return NamedRole(NAME, group.role(node, group.state(1, **{**ALONE, **facts})))


def only(answers: list[RoleAnswer]) -> RoleAnswer:
    (answer,) = answers
    return answer


@pytest.mark.parametrize("acks", [-1, 1])
def test_regression_a_replica_that_was_answered_as_offline_acknowledges_nothing(
    group: Group, acks: int
) -> None:
    """After such an answer, an unclean election could choose another leader (P16)."""
    node = group.nodes[1]
    replicas = replicas_of(node)
    assert not only(replicas.obey([role_of(group, node)])).is_offline
    hung = Hung(node, acks)
    role = role_of(group, node)
    assert only(replicas.obey([role], seconds=0.01)).is_offline
    produce = hung.end()
    assert (produce.acknowledged, produce.error) == (None, x.ProduceError.TIMED_OUT)
    assert only(replicas.obey([role])).is_offline  # this epoch has ended (P7)
    assert not only(replicas.obey([role_of(group, node)])).is_offline
    assert node.replica.role is Role.LEADER
    again = group.produce(b"again", at=1)
    assert again.acknowledged == 2
    replicas.close()


def test_regression_a_role_that_was_answered_as_offline_is_not_taken_later(group: Group) -> None:
    """The controller could have elected another leader meanwhile (P16)."""
    node = group.nodes[1]
    replicas = replicas_of(node)
    replicas.obey([role_of(group, node)])
    first = Hung(node)
    late = role_of(group, node)
    assert only(replicas.obey([late], seconds=0.01)).is_offline
    dropped = role_of(group, node)
    assert only(replicas.obey([dropped], seconds=0.01)).is_offline
    first.end()
    nobody = group.state(1, (1,))._replace(leader=-1, isr={})
    group.version += 1
    answer = only(replicas.obey([NamedRole(NAME, group.role(node, nobody))]))
    assert (answer.version, node.replica.role) == (group.version, Role.NONE)
    assert group.produce(b"late", at=1).error is x.ProduceError.NOT_LEADER
    replicas.close()


def test_regression_events_do_not_pile_up_for_a_replica_that_hangs(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tick of each leader waited in a queue until the disk answered."""
    node = group.nodes[1]
    replicas = replicas_of(node)
    began, released, told = threading.Event(), threading.Event(), []

    def tell(event: Any) -> None:
        told.append(event)
        began.set()
        assert released.wait(SECONDS)

    monkeypatch.setattr(node.replica, "tell", tell)
    for _ in range(50):
        replicas.tell_all(x.Tick())
        assert began.wait(SECONDS)
    assert len(told) == 1
    released.set()

    def is_told_again() -> bool:
        replicas.tell_all(x.Tick())
        return len(told) > 1

    wait_until(is_told_again)
    replicas.close()


def test_a_waiting_thread_raises_when_the_log_dir_does_not_answer() -> None:
    """Later threads do not wait at all."""
    is_suspect = False

    def check() -> None:
        if is_suspect:
            raise LogDirSuspectError(path="a", reason="it hangs")

    lock = PatientLock(check)
    with lock, lock:  # the same thread may take it again
        waiting = Caller(lock.__enter__)
        assert not waiting.is_back()
        is_suspect = True
        assert isinstance(waiting.outcome(), LogDirSuspectError)
        assert isinstance(Caller(lock.__enter__).outcome(), LogDirSuspectError)
    with lock:
        pass


class Flushed:
    """A replica in a log dir, with a flush that may wait."""

    def __init__(self, log_dir: str, do: Callable[[], object]) -> None:
        self.log, self.log_dir, self.count, self._do = self, log_dir, 0, do

    def flush(self) -> None:
        self.count += 1
        self._do()


def test_regression_flushes_that_hang_delay_no_other_log_dir() -> None:
    """With four such flushes, no replica of the broker was flushed any more."""
    flushes: Any = Flushes()
    released, done = threading.Event(), threading.Event()
    hanging = [Flushed("a", lambda: released.wait(SECONDS)) for _ in range(2 * FLUSH_THREADS)]
    for one in hanging * 3:
        flushes.submit(one)
    flushes.submit(Flushed("b", done.set))
    assert done.wait(SECONDS)
    wait_until(lambda: sum(one.count for one in hanging) == FLUSH_THREADS)
    released.set()
    wait_until(lambda: all(one.count for one in hanging))
    assert all(one.count <= 2 for one in hanging)  # queued once, and perhaps once while it ran
    flushes.close()


def test_regression_a_log_dir_that_hangs_stops_no_replication_of_other_log_dirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The followers' fetches named replicas in both log dirs of the leader, and hung."""
    with Cluster.start(brokers=2, log_dirs=2) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for name, replicas in (("sick", [1, 2]), ("between", [2]), ("well", [1, 2])):
            admin.create_topics([NewTopic(name, 1, replica_assignment=[replicas])])[name].result(
                SECONDS
            )
            produce(cluster, name, b"first")
        stores = {one: cluster._node(one).store for one in (1, 2)}
        dirs = {(one, name): stores[one].log(name, 0).log_dir for one in (1, 2)
                for name in ("sick", "well")}  # fmt: skip
        assert dirs[1, "sick"] != dirs[1, "well"] and dirs[2, "sick"] == dirs[2, "well"]
        with hang(monkeypatch, dirs[1, "sick"], "pwrite", "pwritev") as hung:
            stuck = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
            stuck.produce("sick", b"stuck", partition=0)
            wait_until(lambda: stuck.poll(0.01) is None or hung.began.is_set(), SECONDS)
            assert hung.began.wait(SECONDS)
            produce(cluster, "well", *(b"%d" % number for number in range(20)))
            view = cluster.partition("well")
            assert view is not None and set(view.isr) == {1, 2}
            cluster.wait_for_leader("sick", other_than=1, timeout=SECONDS)
        assert stuck.flush(SECONDS) == 0
        cluster.wait_in_sync("sick", timeout=SECONDS)


def produce(cluster: Cluster, name: str, *values: bytes) -> None:
    """Produce one record after the other with acks=all."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    producer = Producer({**settings, "message.timeout.ms": 20_000})
    errors: list[Any] = []
    for value in values:
        producer.produce(name, value, partition=0, on_delivery=lambda e, _: errors.append(e))
        assert producer.flush(SECONDS) == 0
    assert errors == [None] * len(values)
