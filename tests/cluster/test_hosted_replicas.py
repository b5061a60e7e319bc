"""Test that a broker's replicas obey the controller, even if a log dir hangs."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.wire import codec
from broker.wire.error_codes import ErrorCode
from cluster.pure import exchange as x
from cluster.pure.replica import Role
from cluster.registration import TopicIdentity
from cluster.requests import LeaderAndIsr, RoleAnswer, StopReplica
from cluster.run import replica_facts
from cluster.run.control_requests import answer_roles, answer_stops
from cluster.run.hosted_replica import HostedReplica
from cluster.run.hosted_replicas import HostedReplicas
from cluster.state import State
from cluster.wire import roles, stops
from cluster.wire.roles import Controlling, NamedRole, decode_role_answers, encode_roles
from cluster.wire.stops import NamedStop, encode_stops
from cluster.wire.topic_ids import bytes_of, text_of
from logstore import Log, LogStore
from support.places import fast_directory
from support.replica_group import KAFKA, Group, Node
from support.replica_nodes import wait_until

NAMES = ("orders", "other", "third")
PARTITIONS = 4
SENDER = Controlling(9, 4)


@pytest.fixture
def node() -> Iterator[Node]:
    """A broker with two log dirs."""
    with fast_directory() as root, Group(root, brokers=(1,), dirs=2) as group:
        yield group.nodes[1]


@pytest.fixture
def replicas(node: Node) -> Iterator[HostedReplicas]:
    made = replicas_of(node)
    yield made
    made.close()


def replicas_of(node: Node) -> HostedReplicas:
    def make(name: str, number: int) -> HostedReplica:
        return HostedReplica(
            name, number, node.host, node.store, node, lambda: 0.0, lambda _: KAFKA
        )

    return HostedReplicas(node.host, make)


def topic(name: str) -> TopicIdentity:
    return TopicIdentity(text_of(name.encode().ljust(16, b"-")), 50)


def all_roles(node: Node, version: int = 1, *, is_new: bool = True) -> list[NamedRole]:
    epoch = node.host.registration_epoch
    state = State(1, version, 1, {1: epoch}, {}, frozenset(), epoch, (1,), None, 1)
    return [
        NamedRole(
            name,
            LeaderAndIsr(
                topic(name), number, node.host.broker_epoch, version, state, is_new=is_new
            ),
        )
        for name in NAMES
        for number in range(PARTITIONS)
    ]


def test_all_obey_and_answer(node: Node, replicas: HostedReplicas) -> None:
    """New replicas are created in the log dirs in turn, and lead."""
    answers = replicas.obey(all_roles(node))
    dirs = Counter(node.store.log(name, number).log_dir for name, number in node.store)
    assert sorted(dirs.values()) == [6, 6]
    assert len(answers) == len(node.store) == len(NAMES) * PARTITIONS
    assert not any(one.is_offline for one in answers)
    assert len(replicas.leading()) == len(NAMES) * PARTITIONS
    found = replicas.find((topic("other").topic_id, 3))
    assert found is not None and (found.name, found.number) == ("other", 3)
    assert replicas.find((topic("missing").topic_id, 3)) is None


def test_a_start_reads_what_the_disks_have(node: Node, replicas: HostedReplicas) -> None:
    """The replicas have no roles; the next request gives roles, and finds the same logs."""
    replicas.obey(all_roles(node))
    log = node.store.log("orders", 2)
    log.leader_epoch = 1
    log.append(b"kept")
    again = replicas_of(node)
    again.open(node.store)
    assert {one.role for one in again} == {Role.NONE}
    answers = again.obey(all_roles(node, 2, is_new=False))
    ends = {(one.topic, one.partition): one.log_end_offset for one in answers}
    assert ends[topic("orders"), 2] == 1 and sum(ends.values()) == 1
    again.close()


def test_a_log_dir_that_hangs_delays_no_other(node: Node, replicas: HostedReplicas) -> None:
    """Its replicas are answered as offline; when it answers, the next answers have facts."""
    second, identity = node.store.log_dirs[1], bytes_of(topic("third").topic_id)
    node.store.create("third", 0, log_dir=second, config=KAFKA, topic_id=identity)
    replicas.open([("third", 0)])
    replicas.obey(all_roles(node))
    slow = replicas.at("third", 0)
    assert slow is not None and slow.dir_id == second
    gate, obey = threading.Event(), slow.obey

    def hang(role: LeaderAndIsr) -> RoleAnswer | None:
        gate.wait()
        return obey(role)

    slow.obey = hang  # type: ignore[method-assign]
    began = time.monotonic()
    answers = replicas.obey(all_roles(node, 2), seconds=0.3)
    assert time.monotonic() - began < 3
    offline = {(one.topic, one.partition) for one in answers if one.is_offline}
    there = {(topic(one.name), one.number) for one in replicas if one.dir_id == second}
    assert (topic("third"), 0) in offline <= there and len(there) == 6
    assert len(answers) == len(NAMES) * PARTITIONS
    gate.set()
    answers = replicas.obey(all_roles(node, 3))
    assert not any(one.is_offline for one in answers)


def test_a_replica_that_fails_answers_offline(
    node: Node, replicas: HostedReplicas, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of the rules for one replica does not stop the others."""
    replicas.obey(all_roles(node))
    broken = replicas.at("orders", 1)
    assert broken is not None

    def fail(_: object) -> None:
        raise AssertionError("an invariant is broken")

    broken.obey = fail  # type: ignore[method-assign, assignment]
    answers = replicas.obey(all_roles(node, 2))
    assert [(one.topic, one.partition) for one in answers if one.is_offline] == [
        (topic("orders"), 1)
    ]
    assert "an invariant is broken" in caplog.text


def test_replicas_are_found_by_the_topic_that_they_have_now(
    node: Node, replicas: HostedReplicas
) -> None:
    """A deleted and recreated topic does not find them; after a start, the log decides."""
    replicas.obey(all_roles(node))
    old, new = topic("orders"), TopicIdentity(text_of(b"created again---"), 60)
    again = [
        one._replace(role=one.role._replace(topic=new)) for one in all_roles(node)[:PARTITIONS]
    ]
    assert len(replicas.obey(again)) == PARTITIONS
    for found in (replicas, reopened := replicas_of(node)):
        found.open(node.store)
        for number in range(PARTITIONS):
            assert found.find((new.topic_id, number)) is found.at("orders", number) is not None
            assert found.find((topic("third").topic_id, number)) is found.at("third", number)
            assert found.find((old.topic_id, number)) is None
        assert found.find((new.topic_id, PARTITIONS)) is None
        assert found.find(("", 0)) is None
    reopened.close()


def break_opening(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    """Let the description of one log raise an error that nobody expects."""
    real = replica_facts.describe

    def describe(store: LogStore, log: Log) -> x.Opened:
        if (log.topic, log.partition) == (name, number):
            raise RuntimeError("a bug")
        return real(store, log)

    monkeypatch.setattr(replica_facts, "describe", describe)


def break_rules(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    """Let the rules of one replica refuse the facts of its log."""
    real = replica_facts.describe

    def describe(store: LogStore, log: Log) -> x.Opened:
        found = real(store, log)
        is_broken = (log.topic, log.partition) == (name, number)
        return found._replace(start=7, log_start_offset=9) if is_broken else found

    monkeypatch.setattr(replica_facts, "describe", describe)


@pytest.mark.parametrize("break_one", [break_opening, break_rules])
def test_regression_one_bad_replica_does_not_stop_a_start(
    node: Node,
    replicas: HostedReplicas,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    break_one: Callable[[pytest.MonkeyPatch, str, int], None],
) -> None:
    """Only this replica is offline, with its reason; when it can be read, it takes its role."""
    replicas.obey(all_roles(node))
    again = replicas_of(node)
    with monkeypatch.context() as patch:
        break_one(patch, "orders", 1)
        again.open(node.store)
        (bad,) = (one for one in again if one.is_offline)
        assert (bad.name, bad.number, bad.log) == ("orders", 1, None)
        assert "Error: " in bad.unread_reason
        (trace,) = (one for one in caplog.records if one.exc_info is not None)
        assert "orders-1 is offline, because it cannot be read" in trace.getMessage()
        assert node.alarms == [bad.unread_reason]
        answers = again.obey(all_roles(node, 2, is_new=False))
        offline = [(one.topic, one.partition) for one in answers if one.is_offline]
        assert offline == [(topic("orders"), 1)]
        assert len(again.leading()) == len(NAMES) * PARTITIONS - 1
        assert len(node.alarms) == 1, "the same fault is reported once"
    answers = again.obey(all_roles(node, 3, is_new=False))
    assert not any(one.is_offline for one in (*answers, *again))
    assert bad.role is Role.LEADER and bad.unread_reason == ""
    again.close()


@pytest.mark.parametrize("break_one", [break_opening, break_rules])
def test_regression_a_replica_that_cannot_be_read_is_not_called_deleted(
    node: Node,
    replicas: HostedReplicas,
    monkeypatch: pytest.MonkeyPatch,
    break_one: Callable[[pytest.MonkeyPatch, str, int], None],
) -> None:
    """If its topic is known, it is deleted; else the controller must ask again."""
    replicas.obey(all_roles(node))
    again = replicas_of(node)
    break_one(monkeypatch, "orders", 1)
    again.open(node.store)
    stop = StopReplica(topic("orders"), 1, node.host.broker_epoch, 3)
    answers = again.stop([NamedStop("orders", stop)])
    assert bool(answers) is (("orders", 1) not in node.store)
    again.close()


def test_regression_one_bad_replica_does_not_hide_a_returned_log_dir(
    node: Node, replicas: HostedReplicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other replicas of the log dir are read when it returns."""
    replicas.obey(all_roles(node))
    second = replicas_of(node)
    break_opening(monkeypatch, *min(node.store))
    second.open_new(node.store)
    assert [one.log is None for one in second].count(True) == 1
    second.close()


class Walkless(HostedReplicas):
    """Replicas over which no one may iterate."""

    def __iter__(self) -> Iterator[HostedReplica]:
        pytest.fail("it walks")


def test_regression_a_search_for_an_unknown_partition_walks_over_no_replicas(
    node: Node, replicas: HostedReplicas
) -> None:
    """A client may ask for millions of partitions in one request."""
    replicas.obey(all_roles(node))
    replicas.__class__ = Walkless
    for number in range(100):
        assert replicas.find((topic("unknown").topic_id, number)) is None
        assert replicas.find((topic("orders").topic_id, 0)) is replicas.at("orders", 0)


def there_and_back(message: Any, version: int) -> Any:
    return codec.decode(type(message).__name__, version, bytes(codec.encode(message, version)))


def test_requests_come_over_the_wire(node: Node, replicas: HostedReplicas) -> None:
    """Roles and deletions name the present broker epoch."""
    message = there_and_back(encode_roles(SENDER, all_roles(node), {}), roles.VERSION)
    answer = there_and_back(answer_roles(message, node.host, replicas), roles.VERSION)
    assert len(decode_role_answers(answer, 1)) == len(NAMES) * PARTITIONS
    old = message._replace(broker_epoch=message.broker_epoch - 1)
    assert answer_roles(old, node.host, replicas).error_code == ErrorCode.STALE_BROKER_EPOCH
    stop = StopReplica(topic("orders"), 1, node.host.broker_epoch, 2)
    message = there_and_back(encode_stops(SENDER, [NamedStop("orders", stop)]), stops.VERSION)
    assert answer_stops(message, node.host, replicas).error_code == ErrorCode.NONE
    wait_until(lambda: ("orders", 1) not in node.store)
    assert len(node.store) == len(NAMES) * PARTITIONS - 1
    old = message._replace(broker_epoch=message.broker_epoch + 1)
    assert answer_stops(old, node.host, replicas).error_code == ErrorCode.STALE_BROKER_EPOCH
    bad = message._replace(topic_states=[message.topic_states[0]._replace(created_zxid=-1)])
    assert answer_stops(bad, node.host, replicas).error_code == ErrorCode.INVALID_REQUEST


def test_a_log_dir_that_failed_ends_its_roles(node: Node, replicas: HostedReplicas) -> None:
    """Replicas in the other log dir keep their roles."""
    replicas.obey(all_roles(node))
    first = node.store.log_dirs[0]
    node.store.take_offline(first)
    node.host.dirs[first].is_good = False
    replicas.reopen(first)
    lost = {one for one in replicas if one.dir_id == first}
    wait_until(lambda: len(replicas.leading()) == 6)
    assert len(lost) == 6 and not lost & {*replicas.leading()}
    assert all((one.log is None) is (one in lost) for one in replicas)
    answers = replicas.obey(all_roles(node, 2, is_new=False))
    offline = {(one.topic, one.partition) for one in answers if one.is_offline}
    assert offline == {(one.topic, one.number) for one in lost}
