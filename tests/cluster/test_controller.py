"""Test the controller's own part: decide, write, ask and forget."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.pure import control_exchange as ce
from cluster.pure import operators
from cluster.pure.controller import Controller
from cluster.registration import DELETED_VERSION, NO_BROKER, NO_VERSION, Registration, TopicIdentity
from cluster.requests import (
    AlterPartition,
    AlterRefused,
    LeaderAndIsr,
    RoleAnswer,
    StopAnswer,
    StopReplica,
)
from cluster.state import LEADER_EPOCH_MAX, State, encode_state, parse_state

KEY = ("orders", 0)
TOPIC, NEWER = TopicIdentity("first", 3), TopicIdentity("second", 30)
CONFIG = ce.TopicConfig(min_isr=2)
STATE = State(1, 4, 1, {1: 10, 2: 20, 3: 30}, {}, frozenset(), 10, (1, 2, 3), None, 2)
VERSION = 7


def registered(*gone: int) -> ce.RegistrationsRead:
    """Return the registrations of brokers 1, 2 and 3."""
    epochs = {broker: 10 * broker for broker in (1, 2, 3) if broker not in gone}
    return ce.RegistrationsRead({m: Registration(one, one, {}) for m, one in epochs.items()})


def controller_of(state: State = STATE) -> Controller:
    """Return a controller of epoch 5 that has read one partition."""
    controller = Controller(5)
    controller.handle(registered(), 0)
    controller.handle(ce.StateRead(KEY, TOPIC, VERSION, state, CONFIG), 0)
    return controller


def written(controller: Controller, version: int) -> ce.Written:
    """Return the answer to the running write."""
    pending = controller.entries[KEY].pending
    assert pending is not None
    return ce.Written(KEY, pending.number, version)


def requests(effects: list[Any], kind: type) -> dict[int, Any]:
    """Return the requests of one kind, by broker."""
    return {
        one.broker: one.request
        for one in effects
        if isinstance(one, ce.SendRequest) and isinstance(one.request, kind)
    }


def answer(broker: int, **changes: Any) -> RoleAnswer:
    """Return the answer of a whole replica."""
    found = RoleAnswer(TOPIC, 0, broker, 10 * broker, is_offline=False, version=VERSION)
    return found._replace(**changes)


def test_a_new_controller_asks_all_replicas() -> None:
    """It writes nothing if nothing has to change, and learns from the answers (P23)."""
    controller = controller_of()
    asked = requests(controller.handle(ce.Look(KEY), 0), LeaderAndIsr)
    assert asked[2] == LeaderAndIsr(TOPIC, 0, 20, VERSION, STATE)
    assert set(asked) == {1, 2, 3}
    controller.handle(answer(2), 0)
    assert set(requests(controller.handle(ce.Look(KEY), 0), LeaderAndIsr)) == {1, 3}
    assert set(requests(controller.handle(ce.AskAll(KEY), 0), LeaderAndIsr)) == {1, 2, 3}


def test_a_write_names_version_and_controller_epoch() -> None:
    """Roles are given only after the store has the state (P2)."""
    controller = controller_of()
    controller.handle(registered(1), 0)
    (write,) = controller.handle(ce.Look(KEY), 0)
    assert isinstance(write, ce.WriteState)
    assert (write.version, write.controller_epoch) == (VERSION, 5)
    assert (write.state.leader, write.state.controller_epoch) == (2, 5)
    assert controller.handle(ce.Look(KEY), 0) == []
    asked = requests(controller.handle(written(controller, VERSION + 1), 0), LeaderAndIsr)
    assert set(asked) == {2, 3}
    assert (asked[2].version, asked[2].state) == (VERSION + 1, write.state)


@pytest.mark.parametrize("left", [0, 1])
def test_regression_no_leader_epoch_is_written_that_cannot_be_read(left: int) -> None:
    """The partition does not change; other partitions are not affected."""
    controller = controller_of(STATE._replace(leader_epoch=LEADER_EPOCH_MAX - left))
    controller.handle(registered(1), 0)
    (effect,) = controller.handle(ce.Look(KEY), 0)
    if left:
        assert isinstance(effect, ce.WriteState)
        assert parse_state(encode_state(effect.state), "/state") == effect.state
        assert effect.state.leader_epoch == LEADER_EPOCH_MAX
    else:
        assert effect == ce.Reject(ce.Look(KEY), operators.NO_LEADER_EPOCH)
        assert controller.entries[KEY].pending is None
        assert controller.handle(ce.ElectLeader(KEY, 2), 0) == [effect]


def test_after_a_failed_write_the_state_is_read_again() -> None:
    """The state may have been written although the answer was lost (P2)."""
    controller = controller_of()
    controller.handle(registered(1), 0)
    controller.handle(ce.Look(KEY), 0)
    assert controller.handle(ce.WriteFailed(KEY, 1), 0) == [ce.ReadState(KEY)]
    changed = STATE._replace(isr={2: 20})
    controller.handle(ce.StateRead(KEY, TOPIC, 9, changed, CONFIG), 0)
    (write,) = controller.handle(ce.Look(KEY), 0)
    assert write.version == 9


def test_a_read_during_a_write_changes_only_the_settings() -> None:
    """The answer to the write will decide which state is known (P2)."""
    controller = controller_of()
    controller.handle(registered(1), 0)
    (write,) = controller.handle(ce.Look(KEY), 0)
    config = ce.TopicConfig(min_isr=3)
    controller.handle(ce.StateRead(KEY, TOPIC, VERSION + 1, write.state, config), 0)
    assert controller.handle(ce.Look(KEY), 0) == []
    controller.handle(written(controller, VERSION + 1), 0)
    (write,) = controller.handle(ce.Look(KEY), 0)
    assert (write.version, write.state.min_isr) == (VERSION + 1, 3)


def test_regression_a_read_with_another_creation_number_keeps_what_is_known() -> None:
    """A copied store has other creation numbers; the same id is the same topic (P6)."""
    controller = controller_of()
    controller.handle(answer(2), 0)
    copied = TOPIC._replace(created=900)
    controller.handle(ce.StateRead(KEY, copied, VERSION, STATE, CONFIG), 0)
    assert controller.entries[KEY].answers == {2: answer(2)}
    controller.handle(answer(3, topic=TOPIC._replace(created=5)), 0)
    assert set(controller.entries[KEY].answers) == {2, 3}
    asked = requests(controller.handle(ce.AskAll(KEY), 0), LeaderAndIsr)
    assert asked[1].topic == copied


def test_regression_a_late_read_brings_no_older_topic_back() -> None:
    """A late read does not restore a topic that was replaced or deleted (P2)."""
    controller = controller_of()
    late = ce.StateRead(KEY, TOPIC, VERSION, STATE, CONFIG)
    controller.handle(ce.DeleteTopic(KEY), 0)
    controller.handle(late, 0)
    assert controller.entries == {}
    controller.handle(ce.StateRead(KEY, NEWER, 0, STATE, CONFIG), 0)
    controller.handle(late, 0)
    assert controller.entries[KEY].topic == NEWER
    controller.handle(ce.DeleteTopic(KEY), 0)
    controller.handle(late, 0)
    assert controller.entries == {}


def test_regression_a_late_read_brings_no_older_version_back() -> None:
    """A decision from the old version would be refused, and its settings are outdated (P2)."""
    controller = controller_of()
    older = STATE._replace(leader_epoch=3)
    controller.handle(ce.StateRead(KEY, TOPIC, VERSION - 1, older, ce.TopicConfig(1)), 0)
    entry = controller.entries[KEY]
    assert (entry.version, entry.state, entry.config) == (VERSION, STATE, CONFIG)


def test_regression_a_late_read_brings_no_older_settings_back() -> None:
    """Settings have their own version, even for the same version of the state (P2)."""
    controller = controller_of()
    newer = ce.TopicConfig(2, flushes=True, version=40)
    controller.handle(ce.StateRead(KEY, TOPIC, VERSION, STATE, newer), 0)
    controller.handle(ce.StateRead(KEY, TOPIC, VERSION, STATE, CONFIG), 0)
    assert controller.entries[KEY].config == newer


def test_an_answer_about_an_older_topic_is_too_late() -> None:
    """Such an answer does not count for the topic that was created again."""
    controller = controller_of()
    controller.handle(registered(1), 0)
    controller.handle(ce.Look(KEY), 0)
    controller.handle(ce.DeleteTopic(KEY), 0)
    controller.handle(ce.CreateTopic(KEY, NEWER, (1, 2, 3), CONFIG), 0)
    assert controller.handle(ce.Written(KEY, 1, VERSION + 1), 0) == []
    assert controller.handle(ce.WriteFailed(KEY, 1), 0) == []
    assert controller.entries[KEY].version == NO_VERSION


def test_regression_a_second_answer_to_a_write_is_not_an_answer_to_the_next_one() -> None:
    """Otherwise two states would have the same version (P2)."""
    controller = controller_of()
    controller.handle(registered(1), 0)
    (first,) = controller.handle(ce.Look(KEY), 0)
    controller.handle(ce.WriteFailed(KEY, first.number), 0)
    controller.handle(ce.StateRead(KEY, TOPIC, VERSION, STATE, CONFIG), 0)
    controller.handle(registered(1, 2), 0)
    (second,) = controller.handle(ce.Look(KEY), 0)
    assert second.number != first.number and second.state != first.state
    assert controller.handle(ce.Written(KEY, first.number, VERSION + 1), 0) == []
    assert controller.handle(ce.WriteFailed(KEY, first.number), 0) == []
    assert controller.entries[KEY].version == VERSION
    asked = controller.handle(ce.Written(KEY, second.number, VERSION + 2), 0)
    assert requests(asked, LeaderAndIsr)[3].state == second.state


def test_a_deposed_controller_does_nothing() -> None:
    """Another controller was elected, so this one does nothing."""
    controller = controller_of()
    controller.handle(ce.Deposed(), 0)
    controller.handle(registered(1), 0)
    assert controller.handle(ce.Look(KEY), 0) == []


def test_a_refused_connection_counts_as_gone() -> None:
    """The broker counts as gone until it accepts a connection, or is registered again (P14)."""
    controller = controller_of()
    controller.handle(ce.ConnectionRefused(1), 0)
    assert set(controller.seen) == {2, 3}
    controller.handle(ce.ConnectionAccepted(1), 0)
    assert set(controller.seen) == {1, 2, 3}
    controller.handle(ce.ConnectionRefused(1), 0)
    again = {**registered().registrations, 1: Registration(50, 50, {})}
    controller.handle(ce.RegistrationsRead(again), 0)
    assert set(controller.seen) == {1, 2, 3}


@pytest.mark.parametrize(
    ("late", "is_taken"),
    [
        (answer(2, version=VERSION - 1), False),
        (answer(2, version=VERSION + 1), True),
        (answer(2, version=0, is_offline=True), True),
        (answer(2, registration_epoch=19, version=VERSION + 1), False),
        (answer(2, topic=NEWER, version=VERSION + 1), False),
    ],
)
def test_an_older_answer_is_not_taken(late: RoleAnswer, is_taken: bool) -> None:
    """Only answers of this topic and registration, and of rising versions, count (P5, P6)."""
    controller = controller_of()
    controller.handle(answer(2), 0)
    controller.handle(late, 0)
    assert (controller.entries[KEY].answers[2] == late) is is_taken


def proposal(**changes: Any) -> AlterPartition:
    """Return the leader's proposal of a smaller ISR."""
    return AlterPartition(TOPIC, 0, 1, 10, 4, VERSION, {1: 10, 2: 20})._replace(**changes)


def test_a_proposal_is_written_and_answered() -> None:
    """The leader gets the state with its new version (P10)."""
    controller = controller_of()
    (write,) = controller.handle(proposal(), 0)
    assert write.state.isr == {1: 10, 2: 20}
    asked = requests(controller.handle(written(controller, VERSION + 1), 0), LeaderAndIsr)
    assert set(asked) == {1} and asked[1].version == VERSION + 1


def test_a_proposal_is_refused() -> None:
    """A proposal from another version, or during another write, is refused (P10)."""
    controller = controller_of()
    refused = controller.handle(proposal(version=VERSION - 1), 0)
    assert requests(refused, AlterRefused) == {1: AlterRefused(TOPIC, 0, VERSION - 1)}
    controller.handle(proposal(), 0)
    assert 1 in requests(controller.handle(proposal(), 0), AlterRefused)
    assert controller.handle(proposal(topic=NEWER), 0) == []


def test_a_reassignment_adds_replicas_first() -> None:
    """Old and new replicas exist together until the end; then the old ones are deleted (P18)."""
    controller = controller_of()
    everyone = {**registered().registrations, 4: Registration(40, 40, {})}
    controller.handle(ce.RegistrationsRead(everyone), 0)
    (write,) = controller.handle(ce.Reassign(KEY, (2, 3, 4)), 0)
    assert (write.state.replicas, write.state.target) == ((1, 2, 3, 4), (2, 3, 4))
    controller.handle(written(controller, 8), 0)
    second = ce.Reassign(KEY, (2, 3))
    refused = ce.Reject(second, "another reassignment is running")
    assert controller.handle(second, 0) == [refused]
    controller.handle(proposal(version=8, isr={1: 10, 2: 20, 3: 30, 4: 40}), 0)
    controller.handle(written(controller, 9), 0)
    (write,) = controller.handle(ce.Look(KEY), 0)
    assert write.state.replicas == (2, 3, 4)
    effects = controller.handle(written(controller, 10), 0)
    assert requests(effects, StopReplica) == {1: StopReplica(TOPIC, 0, 10, 10)}
    assert set(requests(effects, LeaderAndIsr)) == {2, 3, 4}
    again = controller.handle(ce.Look(KEY), 0)
    assert requests(again, StopReplica) == {1: StopReplica(TOPIC, 0, 10, 10)}
    controller.handle(StopAnswer(TOPIC, 0, 1, 9), 0)
    assert 1 in requests(controller.handle(ce.Look(KEY), 0), StopReplica)
    controller.handle(StopAnswer(TOPIC, 0, 1, 10), 0)
    (write,) = controller.handle(ce.Look(KEY), 0)
    assert write.state.removed == frozenset()


@pytest.mark.parametrize(("created", "new_to"), [(25, {1, 2}), (15, {1}), (5, set())])
def test_a_topic_is_created(created: int, new_to: set[int]) -> None:
    """Its first ISR are the registered replicas; only its first roles call it new (P17).

    It is not new to a broker that was registered later: that may have a replica which it lost.
    """
    controller = Controller(5)
    controller.handle(registered(3), 0)
    topic = TopicIdentity("created", created)
    (write,) = controller.handle(ce.CreateTopic(KEY, topic, (1, 2, 3), CONFIG), 0)
    assert (write.version, write.state.leader, write.state.isr) == (
        NO_VERSION,
        NO_BROKER,
        {1: 10, 2: 20},
    )
    controller.handle(written(controller, 0), 0)
    asked = requests(controller.handle(ce.AskAll(KEY), 0), LeaderAndIsr)
    assert {one.is_new for one in asked.values()} == {False}
    controller.handle(ce.Look(KEY), 0)
    asked = requests(controller.handle(written(controller, 1), 0), LeaderAndIsr)
    assert {broker for broker, one in asked.items() if one.is_new} == new_to
    asked = requests(controller.handle(ce.AskAll(KEY), 0), LeaderAndIsr)
    assert {one.is_new for one in asked.values()} == {False}


def test_a_topic_without_a_live_replica_is_not_created() -> None:
    """The first ISR needs a member (P2)."""
    controller = Controller(5)
    controller.handle(registered(1, 2, 3), 0)
    event = ce.CreateTopic(KEY, TOPIC, (1, 2, 3), CONFIG)
    refused = ce.Reject(event, "none of the replicas is registered")
    assert controller.handle(event, 0) == [refused]


def test_a_topic_is_deleted_and_created_again() -> None:
    """No fact about the older topic is used for the newer topic (P2, P19)."""
    controller = controller_of()
    controller.handle(answer(2), 0)
    effects = controller.handle(ce.DeleteTopic(KEY), 0)
    assert requests(effects, StopReplica)[2] == StopReplica(TOPIC, 0, 20, DELETED_VERSION)
    controller.handle(ce.CreateTopic(KEY, NEWER, (1, 2, 3), CONFIG), 0)
    assert controller.entries[KEY].answers == {}
    controller.handle(answer(2), 0)
    assert controller.entries[KEY].answers == {}


def test_regression_an_unknown_event_is_an_error() -> None:
    """So a caller that sends a wrong event notices this at once."""
    with pytest.raises(TypeError, match="a controller does not know the event"):
        controller_of().handle("a word", 0)


def test_a_loss_is_reported() -> None:
    """An unclean election, and a recovery, may lose acknowledged records (P15, P16)."""
    leaderless = STATE._replace(leader=NO_BROKER, isr={}, elr={1: 10, 2: 20, 3: 30})
    controller = controller_of(leaderless)
    controller.handle(answer(3), 0)
    forced = ce.ElectUncleanly(KEY, is_forced=True)
    (rejected,) = controller.handle(forced, 0)
    assert rejected == ce.Reject(forced, operators.NOT_YET)
    controller.handle(registered(1, 2), 0)
    assert controller.handle(ce.ElectUncleanly(KEY), 0) == []
    (write,) = controller.handle(forced, 0)
    assert (write.state.leader, write.state.unclean_epoch) == (3, 5)
    effects = controller.handle(written(controller, 8), 0)
    assert effects[-1] == ce.ReportLoss(KEY, "an unclean election")
