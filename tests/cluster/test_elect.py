"""Test each row of the tables of an election, and each condition of an ISR change."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.pure.control_exchange import TopicConfig
from cluster.pure.elect import (
    Decision,
    Known,
    Standing,
    change_isr,
    next_state,
    standing_of,
)
from cluster.pure.log_ends import longest
from cluster.registration import NO_BROKER, Registration, TopicIdentity
from cluster.requests import NEVER, AlterPartition, RoleAnswer
from cluster.state import State, fault_of

TOPIC = TopicIdentity("orders", 5)
VERSION = 4
STATE = State(1, 3, 1, {1: 10, 2: 20, 3: 30}, {}, frozenset(), 10, (1, 2, 3), None, 2)
LEADERLESS = STATE._replace(leader=NO_BROKER, leader_registration_epoch=0, isr={})


def registered(**epochs: int | None) -> dict[int, Registration]:
    """Return registrations at 10, 20 and 30, with changes by name: `b2=25`, or None if gone."""
    found: dict[int, Registration] = {}
    for broker, epoch in {"b1": 10, "b2": 20, "b3": 30, **epochs}.items():
        if epoch is not None:
            found[int(broker[1:])] = Registration(epoch, epoch, {})
    return found


def answer(broker: int, epoch: int, **facts: Any) -> RoleAnswer:
    """Return the answer of a replica for the present version."""
    return RoleAnswer(TOPIC, 0, broker, epoch, **{"is_offline": False, "version": VERSION, **facts})


def decided(
    state: State,
    registrations: dict[int, Registration],
    *answers: RoleAnswer,
    min_isr: int = 2,
    flushes: bool = False,
    is_unclean_allowed: bool = False,
) -> Decision:
    """Return the decision, after checking the invariants of the next state."""
    known = Known(registrations, {one.broker: one for one in answers}, VERSION)
    decision = next_state(state, known, TopicConfig(min_isr, is_unclean_allowed, flushes))
    assert fault_of(decision.state) == ""
    assert decision.reason
    return decision


@pytest.mark.parametrize(
    ("registrations", "answers", "standing"),
    [
        (registered(b2=None), [], Standing.DOWN),
        (registered(), [answer(2, 20, is_offline=True)], Standing.OFFLINE),
        (registered(), [], Standing.WHOLE),
        (registered(), [answer(2, 19, is_offline=True)], Standing.WHOLE),
        (registered(b2=25), [], Standing.UNKNOWN),
        (registered(b2=25), [answer(2, 20)], Standing.UNKNOWN),
        (registered(b2=25), [answer(2, 25, whole_since=20)], Standing.WHOLE),
        (registered(b2=25), [answer(2, 25, whole_since=21)], Standing.LOSSY),
        (registered(b2=25), [answer(2, 25, whole_since=NEVER)], Standing.LOSSY),
    ],
)
def test_a_member_is_judged(
    registrations: dict[int, Registration], answers: list[RoleAnswer], standing: Standing
) -> None:
    """A member that was registered again is whole only by its answer (P5)."""
    known = Known(registrations, {one.broker: one for one in answers}, VERSION)
    assert standing_of(known, 2, 20) is standing


def test_nothing_changes_while_all_is_well() -> None:
    """Without a cause, the next state is the same state."""
    assert decided(STATE, registered()).state == STATE


def test_a_broker_that_is_gone_leaves_the_isr() -> None:
    """The leader stays; a removed member is forgotten if the ISR has min members (P14)."""
    assert decided(STATE, registered(b3=None)).state == STATE._replace(isr={1: 10, 2: 20})


def test_a_member_below_min_becomes_eligible() -> None:
    """It keeps its admission, because it has all acknowledged records (P12)."""
    state = decided(STATE, registered(b2=None, b3=None)).state
    assert state == STATE._replace(isr={1: 10}, elr={2: 20, 3: 30})


def test_a_replica_whose_dir_failed_leaves_the_isr() -> None:
    """The answer that a replica is offline has the same effect as a broker that is gone (P14)."""
    assert 3 not in decided(STATE, registered(), answer(3, 30, is_offline=True)).state.isr


def test_a_leader_that_is_gone_is_replaced() -> None:
    """The first WHOLE replica leads, in a new epoch, at its present registration (P13)."""
    state = decided(STATE, registered(b1=None)).state
    assert (state.leader, state.leader_epoch, state.leader_registration_epoch) == (2, 4, 20)
    assert state.isr == {2: 20, 3: 30}


def test_the_preferred_replica_leads() -> None:
    """The first candidate in the order of the replicas leads."""
    state = STATE._replace(replicas=(1, 3, 2))
    assert decided(state, registered(b1=None)).state.leader == 3


def test_a_leader_that_was_registered_again_gets_a_new_epoch() -> None:
    """Its old epoch ends with its incarnation, even if it is elected again (P11)."""
    whole = answer(1, 15, whole_since=2)
    state = decided(STATE, registered(b1=15), whole).state
    assert (state.leader, state.leader_epoch, state.leader_registration_epoch) == (1, 4, 15)


def test_a_leader_stays_while_its_answer_is_missing() -> None:
    """Another log dir of its broker returned: its session and its role did not end (P11)."""
    registrations = registered()
    registrations[1] = Registration(10, 15, {})
    assert decided(STATE, registrations).state == STATE
    held = answer(1, 15, whole_since=2, held_since=10)
    assert decided(STATE, registrations, held).state.leader_epoch == 3
    moved = answer(1, 15, whole_since=2, held_since=15)
    assert decided(STATE, registrations, moved).state.leader_epoch == 4


def test_an_unknown_member_is_not_elected_and_not_forgotten() -> None:
    """It leaves the ISR of a new leader, and becomes eligible below min (P5, P13)."""
    state = decided(STATE._replace(isr={1: 10, 2: 20}), registered(b1=None, b2=25)).state
    assert (state.leader, state.isr, state.elr) == (NO_BROKER, {}, {1: 10, 2: 20})
    state = decided(STATE, registered(b1=None, b2=25)).state
    assert (state.leader, state.isr, state.elr) == (3, {3: 30}, {1: 10, 2: 20})


def test_a_whole_member_is_admitted_anew() -> None:
    """Its later losses are compared with its present registration."""
    state = decided(STATE, registered(b2=25), answer(2, 25, whole_since=7)).state
    assert state.isr == {1: 10, 2: 25, 3: 30}


def test_a_lossy_member_becomes_a_suspect_below_min() -> None:
    """If the ISR has min members, the LOSSY member is not needed, and is forgotten."""
    lossy = answer(2, 25, whole_since=25)
    assert decided(STATE, registered(b2=25), lossy).state.suspects == frozenset()
    state = decided(STATE._replace(isr={1: 10, 2: 20}), registered(b2=25), lossy).state
    assert (state.isr, state.elr, state.suspects) == ({1: 10}, {}, frozenset({2}))


def test_a_member_of_the_elr_leads() -> None:
    """It leads only if no member of the ISR can lead (P13)."""
    state = LEADERLESS._replace(elr={1: 10, 3: 30}, suspects=frozenset({2}))
    state = decided(state, registered(b1=None)).state
    assert (state.leader, state.isr, state.elr, state.suspects) == (
        3,
        {3: 30},
        {1: 10},
        frozenset({2}),
    )


def test_without_a_candidate_nobody_leads() -> None:
    """The state has no leader, in a new epoch, and all members are in the ELR (P13)."""
    state = decided(STATE, registered(b1=None, b2=None, b3=None)).state
    assert (state.leader, state.leader_epoch, state.isr) == (NO_BROKER, 4, {})
    assert state.elr == STATE.isr
    assert decided(state, registered(b1=None, b2=None, b3=None)).state == state


SUSPECTS = LEADERLESS._replace(suspects=frozenset({1, 2}))


def test_the_longest_log_of_the_suspects_leads() -> None:
    """All suspects answered for the leaderless version; the election is marked (P15)."""
    short = answer(1, 10, whole_since=10, last_epoch=2, log_end_offset=90)
    long = answer(2, 20, whole_since=20, last_epoch=3, log_end_offset=8)
    decision = decided(SUSPECTS, registered(), short, long)
    state = decision.state
    assert (state.leader, state.isr, state.suspects) == (2, {2: 20}, frozenset({1}))
    assert decision.is_recovery and state.unclean_epoch == state.leader_epoch == 4


def test_regression_a_topic_that_nobody_has_led_loses_nothing() -> None:
    """Its brokers restarted before the first election, so their replicas are not whole."""
    never = SUSPECTS._replace(leader_epoch=0)
    decision = decided(never, registered(), answer(1, 10), answer(2, 20))
    assert (decision.state.leader, decision.is_recovery) == (1, False)
    assert decision.state.unclean_epoch == -1


@pytest.mark.parametrize(
    "second",
    [
        [],
        [answer(2, 19)],
        [answer(2, 20, version=VERSION - 1)],
        [answer(2, 20, is_offline=True)],
    ],
)
def test_recovery_waits_for_every_suspect(second: list[RoleAnswer]) -> None:
    """A missing, old or offline answer, or one for an older version, does not count (P15)."""
    assert decided(SUSPECTS, registered(), answer(1, 10), *second).state.leader == NO_BROKER


def test_recovery_waits_for_the_leaderless_version() -> None:
    """The last leader becomes a suspect; its state is written before answers count (P15)."""
    state = STATE._replace(isr={1: 10}, suspects=frozenset({2}))
    lossy = answer(1, 15, whole_since=15)
    decision = decided(state, registered(b1=15), lossy, answer(2, 20))
    assert (decision.state.leader, decision.state.suspects) == (NO_BROKER, frozenset({1, 2}))


def test_recovery_does_not_replace_a_member_of_the_elr() -> None:
    """A member that had everything may come back whole."""
    state = SUSPECTS._replace(suspects=frozenset({1}), elr={2: 20})
    assert decided(state, registered(b2=None), answer(1, 10)).state.leader == NO_BROKER


def test_a_changed_min_is_written_with_its_consequences() -> None:
    """A larger min keeps members that leave later; a smaller min empties the ELR (P8)."""
    below = STATE._replace(isr={1: 10}, elr={2: 20})
    assert decided(below, registered(), min_isr=1).state == below._replace(min_isr=1, elr={})
    assert decided(STATE, registered(), min_isr=3).state == STATE._replace(min_isr=3)


def test_flushed_records_alone_count_in_a_new_epoch() -> None:
    """The same leader gets the new epoch; without a leader, the next election does (P24)."""
    state = decided(STATE, registered(), flushes=True).state
    assert state == STATE._replace(flushes=True, leader_epoch=4)
    assert decided(state, registered()).state == state._replace(flushes=False)
    nobody = LEADERLESS._replace(elr={1: 10})
    state = decided(nobody, registered(b1=None), flushes=True).state
    assert state == nobody._replace(flushes=True)


def test_the_state_says_when_the_leader_knows_that_its_lease_matters() -> None:
    """Only an answer for a version with the setting sets the flag; a new leader knows it (P16)."""
    allowed = decided(STATE, registered(), answer(1, 10), is_unclean_allowed=True).state
    assert allowed == STATE._replace(is_unclean_allowed=True)
    late = answer(1, 10, version=VERSION - 1)
    assert decided(allowed, registered(), late, is_unclean_allowed=True).state == allowed
    kept = decided(allowed, registered(), answer(1, 10), is_unclean_allowed=True).state
    assert kept == allowed._replace(is_lease_kept=True)
    assert decided(kept, registered(b1=None), is_unclean_allowed=True).state.is_lease_kept
    assert decided(kept, registered()).state == STATE


MOVING = STATE._replace(replicas=(1, 2, 3, 4), target=(2, 3, 4), original=(1, 2, 3))


def test_a_reassignment_ends_when_all_are_in_sync() -> None:
    """The target becomes the replicas, with a leader of the target in a new epoch (P18)."""
    registrations = registered(b4=40)
    assert decided(MOVING, registrations).state == MOVING
    ready = MOVING._replace(isr={**MOVING.isr, 4: 40})
    decision = decided(ready, registrations)
    state = decision.state
    assert (state.leader, state.leader_epoch, state.leader_registration_epoch) == (2, 4, 20)
    assert (state.replicas, state.target) == ((2, 3, 4), None)
    assert state.removed == {1}


def test_a_removed_replica_is_remembered_until_it_is_deleted() -> None:
    """The broker must answer for the present version of the state (P19)."""
    state = STATE._replace(removed=frozenset({4, 5}))
    assert decided(state, registered()).state == state
    known = Known(registered(), {}, VERSION, frozenset({4}))
    assert next_state(state, known, TopicConfig(2)).state.removed == {5}


@pytest.mark.parametrize("broker", ["b2", "b4"])
def test_a_reassignment_waits_for_replicas_that_are_away(broker: str) -> None:
    """Until then, the replicas do not change (P18)."""
    ready = MOVING._replace(isr={**MOVING.isr, 4: 40})
    assert decided(ready, registered(**{"b4": 40, broker: None})).state.target == (2, 3, 4)


def test_a_reassignment_needs_min_members() -> None:
    """A reassignment to a target smaller than min cannot end."""
    state = STATE._replace(target=(2,), original=(1, 2, 3))
    assert decided(state, registered()).state == state


@pytest.mark.parametrize(
    ("isr", "min_isr", "is_over"),
    [
        ({1: 10, 2: 20, 4: 40}, 2, True),
        ({1: 10, 4: 40}, 2, False),
        ({1: 10, 2: 20, 3: 30, 4: 40}, 4, True),
        ({1: 10, 2: 20, 4: 40}, 4, False),
    ],
)
def test_a_cancelled_reassignment_goes_back(
    isr: dict[int, int], min_isr: int, is_over: bool
) -> None:
    """It ends with min original replicas in the ISR, or all of them if there are fewer (P18)."""
    back = MOVING._replace(target=(1, 2, 3), original=None, isr=isr, min_isr=min_isr)
    state = decided(back, registered(b4=40), min_isr=min_isr).state
    assert (state.target is None) is is_over
    assert state.replicas == ((1, 2, 3) if is_over else (1, 2, 3, 4))


def proposed(isr: dict[int, int], **changes: Any) -> State | None:
    """Propose an ISR for the state with the ISR of 1 and 2."""
    asked = AlterPartition(TOPIC, 0, 1, 10, 3, VERSION, isr)._replace(**changes)
    known = Known(registered(), {3: answer(3, 30)}, VERSION)
    return change_isr(STATE._replace(isr={1: 10, 2: 20}), known, asked)


def test_the_leader_changes_the_isr() -> None:
    """New members have their registration epoch; removed members may become eligible (P10)."""
    larger, smaller = proposed({1: 10, 2: 20, 3: 30}), proposed({1: 10})
    assert larger is not None and larger.isr == STATE.isr
    assert smaller is not None and (smaller.isr, smaller.elr) == ({1: 10}, {2: 20})


@pytest.mark.parametrize(
    ("isr", "changes"),
    [
        ({1: 10, 3: 30}, {"version": VERSION - 1}),
        ({1: 10, 3: 30}, {"leader_epoch": 2}),
        ({1: 10, 3: 30}, {"leader": 3}),
        ({1: 10, 3: 30}, {"leader_registration_epoch": 9}),
        ({3: 30}, {}),
        ({1: 10, 3: 29}, {}),
        ({1: 10, 4: 40}, {}),
    ],
)
def test_a_proposal_is_refused(isr: dict[int, int], changes: dict[str, Any]) -> None:
    """It must have the present leader, epoch, version and members (P10)."""
    assert proposed({1: 10, 3: 30}) is not None
    assert proposed(isr, **changes) is None


def test_an_offline_replica_is_not_admitted() -> None:
    """Its last answer shows that its log dir is bad (P10)."""
    asked = AlterPartition(TOPIC, 0, 1, 10, 3, VERSION, {1: 10, 3: 30})
    known = Known(registered(), {3: answer(3, 30, is_offline=True)}, VERSION)
    assert change_isr(STATE._replace(isr={1: 10}), known, asked) is None


def test_an_admission_is_kept() -> None:
    """A proposal does not change the registration epoch at which a member was admitted."""
    state = proposed({1: 99, 2: 99, 3: 30})
    assert state is not None and state.isr == STATE.isr


@pytest.mark.parametrize(
    ("logs", "wanted"),
    [
        ([(2, 5, 1), (3, 4, 2)], 2),
        ([(2, 5, 2), (2, 5, 1)], 1),
        ([(2, 5, 1), (-1, 6, 2)], 2),
        ([(2, 5, 1), (-1, 5, 2)], 1),
        ([(-1, 5, 1), (-1, 6, 3), (-1, 6, 2)], 2),
    ],
)
def test_the_longest_log(logs: list[tuple[int, int, int]], wanted: int) -> None:
    """A log without records is compared by its end, because all earlier records were replicated."""
    assert longest(logs) == wanted
