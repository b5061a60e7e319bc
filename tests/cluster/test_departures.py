"""Test that a stopping broker's leaderships move, and that it leaves the ISRs (P21)."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.pure import control_exchange as ce
from cluster.pure.attest import LeaveBegan
from cluster.pure.control_exchange import TopicConfig
from cluster.pure.controller import Controller
from cluster.pure.elect import Known, change_isr, next_state
from cluster.pure.exchange import FetchDue, SendToBroker, SendToController
from cluster.pure.partition import handle
from cluster.pure.replica import Role
from cluster.registration import NO_BROKER, Registration, TopicIdentity
from cluster.requests import (
    AlterPartition,
    ControlledShutdown,
    FollowerFetch,
    LeaderAndIsr,
    RoleAnswer,
)
from cluster.state import State, fault_of
from support import replicas as support

KEY, OTHER = ("orders", 0), ("orders", 1)
TOPIC = TopicIdentity("first", 3)
STATE = State(1, 4, 1, {1: 10, 2: 20, 3: 30}, {}, frozenset(), 10, (1, 2, 3), None, 2)
VERSION = 7


def registrations(**epochs: int) -> dict[int, Registration]:
    """Return the registrations of brokers 1, 2 and 3, with changes by name: `b2=25`."""
    found = {"b1": 10, "b2": 20, "b3": 30, **epochs}
    return {int(name[1:]): Registration(one, one, {}) for name, one in found.items()}


def decided(state: State, *leaving: int, answers: Any = (), **epochs: int) -> State:
    """Return the next state while brokers leave."""
    heard = {one.broker: one for one in answers}
    known = Known(registrations(**epochs), heard, VERSION, leaving=frozenset(leaving))
    decision = next_state(state, known, TopicConfig(state.min_isr))
    assert fault_of(decision.state) == ""
    return decision.state


def test_a_leader_that_leaves_is_replaced() -> None:
    """The next leader has a new epoch, and the same write removes the broker from the ISR."""
    state = decided(STATE, 1)
    assert (state.leader, state.leader_epoch, state.leader_registration_epoch) == (2, 5, 20)
    assert state.isr == {2: 20, 3: 30} and state.elr == {}


def test_a_follower_that_leaves_is_no_member() -> None:
    """The leader keeps its epoch; below min, the follower becomes eligible (P12)."""
    assert decided(STATE, 3) == STATE._replace(isr={1: 10, 2: 20})
    two = STATE._replace(isr={1: 10, 2: 20})
    assert decided(two, 2) == STATE._replace(isr={1: 10}, elr={2: 20})


def test_a_leader_below_min_that_leaves_becomes_eligible() -> None:
    """It has every acknowledged record (P12)."""
    two = STATE._replace(isr={1: 10, 2: 20})
    state = decided(two, 1)
    assert (state.leader, state.isr, state.elr) == (2, {2: 20}, {1: 10})


@pytest.mark.parametrize("leaving", [(1,), (1, 2), (1, 2, 3)])
def test_the_only_candidate_leads_until_it_is_gone(leaving: tuple[int, ...]) -> None:
    """The other replicas leave too, lack records, or are not in sync."""
    alone = STATE._replace(isr={1: 10}, elr={2: 20})
    assert decided(alone, *leaving).leader == 1
    together = STATE._replace(isr={m: 10 * m for m in leaving})
    state = decided(together, *leaving)
    assert (state.leader, state.leader_epoch, set(state.isr)) == (1, 4, {1})


def test_a_member_that_has_not_answered_does_not_lead() -> None:
    """It may have lost records, so it leaves the ISR of the new leader (P13)."""
    state = decided(STATE, 1, b2=25)
    assert (state.leader, state.isr) == (3, {3: 30})
    assert set(state.elr) == {1, 2}


def test_a_broker_that_stays_is_preferred() -> None:
    """A leaving broker is elected only if no other broker can lead."""
    leaderless = STATE._replace(
        leader=NO_BROKER, leader_registration_epoch=0, isr={}, elr={1: 10, 2: 20}
    )
    assert decided(leaderless, 1).leader == 2
    assert decided(leaderless, 1, 2, 3).leader == 1


def test_a_reassignment_ends_with_a_leader_that_stays() -> None:
    """The target waits for its leaving members; another member leads."""
    state = STATE._replace(target=(2, 3), original=(1, 2, 3))
    state = decided(state, 1)
    assert (state.leader, state.replicas, state.target) == (2, (2, 3), None)
    waits = STATE._replace(target=(2, 3), original=(1, 2, 3))
    assert decided(waits, 2).target == (2, 3)


def test_a_leaving_broker_is_not_admitted() -> None:
    """But a leaving member may stay in a proposal that was made before (P10)."""
    two, known = STATE._replace(isr={1: 10, 2: 20}), registrations()
    asked = AlterPartition(TOPIC, 0, 1, 10, 4, VERSION, {1: 10, 2: 20, 3: 30})
    assert change_isr(two, Known(known, {}, VERSION, leaving=frozenset({3})), asked) is None
    assert change_isr(two, Known(known, {}, VERSION, leaving=frozenset({2})), asked) is not None


def controller_of(*keys: ce.PartitionKey, **epochs: int) -> Controller:
    """Return a controller that has read partitions."""
    controller = Controller(5)
    controller.handle(ce.RegistrationsRead(registrations(**epochs)), 0)
    for key in keys or (KEY,):
        controller.handle(ce.StateRead(key, TOPIC, VERSION, STATE, TopicConfig(2)), 0)
    return controller


def leave(controller: Controller, broker: int = 1, epoch: int = 10) -> list[State]:
    """Announce that a broker will stop, and let the writes succeed; return the written states."""
    states = []
    for effect in controller.handle(ControlledShutdown(broker, epoch), 0):
        if isinstance(effect, ce.WriteState):
            states.append(effect.state)
            controller.handle(ce.Written(effect.key, effect.number, VERSION + 1), 0)
    return states


def answer(broker: int, partition: int, version: int) -> RoleAnswer:
    """Return the answer of a whole replica."""
    epoch = 10 * broker
    return RoleAnswer(TOPIC, partition, broker, epoch, is_offline=False, version=version)


def test_all_partitions_are_decided_at_once() -> None:
    """These are the partitions where the broker is in sync; other replicas get their roles."""
    controller = controller_of(KEY, OTHER)
    assert [state.leader for state in leave(controller)] == [2, 2]
    (effects,) = [controller.handle(ce.Look(KEY), 0)]
    assert {type(one.request) for one in effects} == {LeaderAndIsr}


def test_what_a_broker_leads_moves_first() -> None:
    """The producers of these partitions wait, unlike those of partitions where it follows."""
    controller = controller_of(KEY)
    followed = STATE._replace(leader=2, leader_registration_epoch=20)
    read = ce.StateRead(("a", 0), TOPIC._replace(topic_id="a"), VERSION, followed, TopicConfig(2))
    controller.handle(read, 0)
    controller.handle(ce.StateRead(OTHER, TOPIC, VERSION, STATE, TopicConfig(2)), 0)
    assert [state.leader_epoch for state in leave(controller)] == [5, 5, 4]


def test_an_earlier_incarnation_does_not_leave() -> None:
    """Its late request changes nothing (P6), and a new session ends a departure."""
    controller = controller_of()
    assert leave(controller, epoch=9) == [] and controller.leaving == frozenset()
    assert leave(controller, broker=9) == []
    assert len(leave(controller)) == 1 and controller.leaving == {1}
    controller.handle(ce.RegistrationsRead(registrations(b1=40)), 0)
    assert controller.leaving == frozenset()


def test_a_broker_waits_until_the_new_leader_has_answered() -> None:
    """Otherwise there may be no leader for a time, until the request arrives."""
    controller = controller_of()
    leave(controller)
    assert controller.held_by(1) == [KEY]
    controller.handle(answer(2, 0, VERSION), 0)
    assert controller.held_by(1) == [KEY]
    controller.handle(answer(2, 0, VERSION + 1), 0)
    assert controller.held_by(1) == []


def test_a_broker_waits_only_for_replicas_that_live() -> None:
    """The others are away, leave too, or are on a failed log dir."""
    controller = controller_of()
    alone = STATE._replace(isr={1: 10}, elr={2: 20})
    controller.handle(ce.StateRead(KEY, TOPIC, VERSION + 1, alone, TopicConfig(2)), 0)
    assert leave(controller) == [] and controller.held_by(1) == [KEY]
    controller.handle(answer(3, 0, VERSION)._replace(is_offline=True), 0)
    assert controller.held_by(1) == [KEY]
    leave(controller, 2, 20)
    assert controller.held_by(1) == []


def test_a_leaving_follower_says_so() -> None:
    """Its leader counts its position, and does not propose it for the ISR."""
    follower = support.replica_of(3)
    handle(follower, support.order(), 0)
    assert follower.role is Role.FOLLOWER
    for is_leaving in (False, True):
        leader = support.replica_of()
        handle(leader, support.order(), 0)
        assert leader.role is Role.LEADER
        (sent,) = handle(follower, FetchDue(), 0)
        assert isinstance(sent, SendToBroker) and isinstance(sent.request, FollowerFetch)
        assert sent.request.is_leaving is is_leaving
        effects = handle(leader, sent.request, 0)
        assert any(isinstance(one, SendToController) for one in effects) is not is_leaving
        assert leader.followers[3].offset == sent.request.offset
        follower.host.handle(LeaveBegan(), 0)
