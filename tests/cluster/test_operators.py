"""Test that bad requests of operators are refused with a reason, before any change."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.pure import control_exchange as ce
from cluster.pure import operators
from cluster.pure.controller import Controller
from cluster.registration import Registration, TopicIdentity
from cluster.state import State

KEY = ("orders", 0)
TOPIC = TopicIdentity("first", 3)
CONFIG = ce.TopicConfig(min_isr=2)
STATE = State(1, 4, 1, {1: 10, 2: 20, 3: 30}, {}, frozenset(), 10, (1, 2, 3), None, 2)


def controller_of(*live: int, is_read: bool = True) -> Controller:
    """Return a controller of these live brokers that has read one partition, or none."""
    controller = Controller(5)
    registrations = {m: Registration(10 * m, 10 * m, {}) for m in live}
    controller.handle(ce.RegistrationsRead(registrations), 0)
    if is_read:
        controller.handle(ce.StateRead(KEY, TOPIC, 7, STATE, CONFIG), 0)
    return controller


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ((2, 2, 3), "a replica is named twice"),
        ((), "there are no replicas"),
        ((2, -1), "-1 is not a broker id"),
        ((2, True), "True is not a broker id"),
        ((2, "3"), "3 is not a broker id"),
        ((2, 2**31), "2147483648 is not a broker id"),
        ((2, 9), "broker 9 is not registered"),
        ((2,), "there are fewer replicas than min, 2"),
    ],
)
def test_regression_a_bad_reassignment_is_refused(target: Any, reason: str) -> None:
    """The state does not change, and the next reassignment is accepted."""
    controller = controller_of(1, 2, 3, 4)
    bad = ce.Reassign(KEY, target)
    assert controller.handle(bad, 0) == [ce.Reject(bad, reason)]
    (write,) = controller.handle(ce.Reassign(KEY, (2, 3, 4)), 0)
    assert write.state.target == (2, 3, 4)


def test_a_replica_that_is_down_may_stay() -> None:
    """Its broker is known, and will return."""
    controller = controller_of(1, 2, 4)
    (write,) = controller.handle(ce.Reassign(KEY, (2, 3, 4)), 0)
    assert write.state.target == (2, 3, 4)


def test_regression_each_reassignment_is_answered() -> None:
    """This holds during another reassignment or a write, and for an unknown partition."""
    controller = controller_of(1, 2, 3, 4)
    again = ce.Reassign(KEY, (1, 2))
    other = ce.Reassign(("payments", 0), (1, 2))
    reason = "the partition is not known, or its state is just being written"
    assert controller.handle(other, 0) == [ce.Reject(other, reason)]
    (write,) = controller.handle(ce.Reassign(KEY, (2, 3, 4)), 0)
    assert controller.handle(again, 0) == [ce.Reject(again, reason)]
    controller.handle(ce.Written(KEY, write.number, 8), 0)
    rejected = ce.Reject(again, "another reassignment is running")
    assert controller.handle(again, 0) == [rejected]


@pytest.mark.parametrize(
    ("replicas", "min_isr", "reason"),
    [
        ((1, 1), 1, "a replica is named twice"),
        ((), 1, "there are no replicas"),
        ((1, None), 1, "None is not a broker id"),
        ((1, 2), 0, "min is 0, not an integer from 1 to 2147483647"),
        ((8, 9), 1, "none of the replicas is registered"),
    ],
)
def test_regression_a_bad_topic_is_refused(replicas: Any, min_isr: int, reason: str) -> None:
    """No part of the topic is left, so a good request with the same name is accepted."""
    controller = controller_of(1, 2, is_read=False)
    bad = ce.CreateTopic(KEY, TOPIC, replicas, ce.TopicConfig(min_isr))
    assert controller.handle(bad, 0) == [ce.Reject(bad, reason)]
    assert controller.entries == {}
    (write,) = controller.handle(ce.CreateTopic(KEY, TOPIC, (1, 2), CONFIG), 0)
    assert write.state.replicas == (1, 2)


def test_regression_a_topic_is_not_created_twice() -> None:
    """A doubled or late request does not change the known topic."""
    controller = controller_of(1, 2, 3)
    for topic in (TOPIC, TopicIdentity("older", 2)):
        again = ce.CreateTopic(KEY, topic, (1, 2), CONFIG)
        (rejected,) = controller.handle(again, 0)
        assert rejected == ce.Reject(again, "this topic or a later one of its name is known")
    assert controller.entries[KEY].state == STATE


@pytest.mark.parametrize("min_isr", [0, -1, 2**31, True])
def test_regression_a_bad_min_in_the_settings_is_not_used(min_isr: int) -> None:
    """The partition keeps the min of its state."""
    controller = controller_of(1, 2, 3)
    state = STATE._replace(flushes=True)
    read = ce.StateRead(KEY, TOPIC, 8, state, ce.TopicConfig(min_isr, flushes=True))
    reason = f"min is {min_isr}, not an integer from 1 to 2147483647"
    assert controller.handle(read, 0) == [ce.Reject(read, reason)]
    assert controller.entries[KEY].config == ce.TopicConfig(2, flushes=True)
    assert not [one for one in controller.handle(ce.Look(KEY), 0) if type(one) is ce.WriteState]


@pytest.mark.parametrize(
    ("broker", "live", "reason"),
    [
        (1, (1, 2, 3), operators.LEADS_ALREADY),
        (None, (1, 2, 3), operators.LEADS_ALREADY),
        (4, (1, 2, 3, 4), operators.NO_CANDIDATE),
        (2, (1, 3), operators.NO_CANDIDATE),
    ],
)
def test_a_leader_that_may_lack_records_is_refused(
    broker: int | None, live: tuple[int, ...], reason: str
) -> None:
    """An operator can only let a WHOLE member of the ISR lead that does not lead already."""
    controller, wish = controller_of(*live), ce.ElectLeader(KEY, broker)
    assert controller.handle(wish, 0) == [ce.Reject(wish, reason)]


def test_a_member_of_the_isr_leads_on_request() -> None:
    """The leader epoch is new; without a named broker, the first replica leads again."""
    controller = controller_of(1, 2, 3)
    (write,) = controller.handle(ce.ElectLeader(KEY, 3), 0)
    assert (write.state.leader, write.state.leader_epoch) == (3, 5)
    assert (write.state.isr, write.state.leader_registration_epoch) == (STATE.isr, 30)
    effects = controller.handle(ce.Written(KEY, write.number, 8), 0)
    assert {one.broker for one in effects} == {1, 2, 3}
    (write,) = controller.handle(ce.ElectLeader(KEY), 0)
    assert (write.state.leader, write.state.leader_epoch) == (1, 6)


def test_an_operators_unclean_election_is_answered() -> None:
    """The settings repeat their request, so it gets no answer."""
    controller = controller_of(1, 2, 3)
    wish = ce.ElectUncleanly(KEY, is_forced=True)
    assert controller.handle(wish, 0) == [ce.Reject(wish, operators.HAS_LEADER)]
    assert controller.handle(ce.ElectUncleanly(KEY), 0) == []
    unknown = ce.ElectUncleanly(("payments", 0), is_forced=True)
    assert controller.handle(unknown, 0) == [ce.Reject(unknown, operators.NOT_KNOWN)]


def test_a_reassignment_is_cancelled_once() -> None:
    """The old replicas become the target; without a reassignment, there is a reason (P18)."""
    controller = controller_of(1, 2, 3, 4)
    cancel = ce.CancelReassignment(KEY)
    assert controller.handle(cancel, 0) == [ce.Reject(cancel, "no reassignment is under way")]
    (write,) = controller.handle(ce.Reassign(KEY, (2, 3, 4)), 0)
    assert write.state.original == (1, 2, 3)
    controller.handle(ce.Written(KEY, write.number, 8), 0)
    (write,) = controller.handle(cancel, 0)
    assert (write.state.target, write.state.original) == ((1, 2, 3), None)
    controller.handle(ce.Written(KEY, write.number, 9), 0)
    rejected = ce.Reject(cancel, "the reassignment is already cancelled")
    assert controller.handle(cancel, 0) == [rejected]
