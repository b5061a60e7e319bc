"""Test that a leader whose log failed does not lead the same epoch again (P7)."""

from __future__ import annotations

from typing import Any

from cluster.pure.exchange import Appended, Opened, RoleEnded, SendToController
from cluster.pure.partition import handle
from cluster.pure.replica import Replica, Role
from cluster.requests import AlterPartition, FollowerFetch, LeaderAndIsr, RoleAnswer
from support.replicas import STATE, TOPIC, order, replica_of


def failed_leader() -> Replica:
    """Return a leader of epoch 4 that proposed broker 3 before its log failed."""
    replica = replica_of()
    handle(replica, order(7), 0)
    handle(replica, Appended(replica.log_life, ((4, 4),), None, 4, 4), 0)
    request = FollowerFetch(TOPIC, 0, 3, 30, 4, 4, 4)
    effects = handle(replica, request, 0)
    assert any(isinstance(one.request, AlterPartition) for one in sent(effects))
    assert replica.proposed == {1, 2, 3}
    fail(replica)
    return replica


def fail(replica: Replica) -> None:
    """Let a call to the log fail, and read the log again."""
    handle(replica, RoleEnded(), 1)
    spans = ((2, 3), (4, 4))
    handle(replica, Opened(replica.dir_id, TOPIC, True, spans, 4, 2), 1)


def sent(effects: list[Any]) -> list[SendToController]:
    return [one for one in effects if isinstance(one, SendToController)]


def answer(replica: Replica, request: LeaderAndIsr) -> RoleAnswer:
    """Give a role; return the only answer."""
    (one,) = sent(handle(replica, request, 2))
    assert isinstance(one.request, RoleAnswer)
    return one.request


def test_the_epoch_is_not_led_again() -> None:
    """The proposal may be accepted, but the leader would not count the new member."""
    replica = failed_leader()
    assert answer(replica, order(7)).is_offline
    assert replica.role is Role.NONE


def test_another_epoch_is_led() -> None:
    """The controller elects again after the answer, perhaps the same broker."""
    replica = failed_leader()
    answer(replica, order(7))
    state = STATE._replace(leader=-1, leader_epoch=5, isr={}, elr={1: 10, 2: 20})
    assert not answer(replica, order(8, state=state)).is_offline
    assert not answer(replica, order(9, state=STATE._replace(leader_epoch=6))).is_offline
    assert replica.role is Role.LEADER and replica.leader_epoch == 6


def test_a_late_request_is_answered_as_before() -> None:
    """A late request is no reason to leave the ISR."""
    replica = failed_leader()
    follower = STATE._replace(leader=2, leader_epoch=5)
    assert not answer(replica, order(8, state=follower)).is_offline
    assert replica.role is Role.FOLLOWER
    assert not answer(replica, order(7)).is_offline
    assert replica.role is Role.FOLLOWER


def test_a_follower_follows_the_same_epoch_again() -> None:
    """A follower has proposed nothing, so it may follow the same epoch again."""
    replica = replica_of()
    following = order(7, state=STATE._replace(leader=2))
    handle(replica, following, 0)
    fail(replica)
    assert not answer(replica, following).is_offline
    assert replica.role is Role.FOLLOWER
