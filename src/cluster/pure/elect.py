"""Decide the next state of a partition from the known facts about its replicas.

First, each member of the ISR and the ELR gets a standing (P5):

| the member's registration, and its answer | standing |
|---|---|
| it is not registered, or its port refused a connection | DOWN |
| its answer says that the replica cannot be used | OFFLINE |
| its registration is the same as at its admission | WHOLE |
| it was registered again, and has not answered since | UNKNOWN |
| its answer says that it lost nothing since its admission | WHOLE, and it is admitted again |
| its answer says that it lost records since its admission | LOSSY |

Then the state changes:

| found | next state |
|---|---|
| a LOSSY member | it becomes a suspect |
| a member of the ISR is DOWN or OFFLINE | it leaves the ISR (P14) |
| the leader is in the ISR and did not come back after its election | it leads, even if UNKNOWN |
| else, a member of the ISR is WHOLE | it leads; UNKNOWN members leave the ISR (P13) |
| else, a member of the ELR is WHOLE | it leads (P13) |
| else, some broker leads | no broker leads, and the whole ISR goes to the ELR (P13) |
| else, there are only suspects, and all answered for this version | the longest log leads (P15) |
| else | no broker leads |
| a leaving broker leads, and another member of the ISR is WHOLE and stays | the other leads (P21) |
| a leaving broker follows, and another broker leads | the follower leaves the ISR (P21) |
| a member left, and the ISR is below min | it goes to the ELR (P12) |
| the ISR has min members | the ELR and the suspects are emptied (P12) |
| the topic's min was changed | the state gets it, and the two rows above apply again (P8) |
| unclean elections are now allowed | the state says so; later, that the leader knows it (P16) |
| `flush.before.ack` was turned on | the same leader gets a new leader epoch (P24) |
| a removed replica was deleted | its broker gets no further request (P19) |
| a reassignment can end | replicas become the target, in a new leader epoch (P18) |
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cluster.pure.control_exchange import TopicConfig
from cluster.pure.log_ends import longest
from cluster.registration import NO_BROKER, Registration
from cluster.requests import AlterPartition, RoleAnswer
from cluster.state import State

LEADS = "the leader stays"
NO_CANDIDATE = "no member of the ISR or ELR is known to be whole"


class Known(NamedTuple):
    """The facts about the brokers for a decision about one partition.

    Attributes:
        registrations: the registrations of the brokers that are not DOWN.
        answers: the last answer of each replica of the partition.
        version: the version of the present state, from which the controller decides.
        stopped: brokers whose answer for this version says that they have no replica.
        leaving: brokers that have announced, in their present session, that they will stop.
    """

    registrations: Mapping[int, Registration]
    answers: Mapping[int, RoleAnswer]
    version: int
    stopped: frozenset[int] = frozenset()
    leaving: frozenset[int] = frozenset()

    def registration_epoch(self, broker: int) -> int:
        """Return the registration epoch of a registered broker."""
        return self.registrations[broker].registration_epoch

    def fresh_answer(self, broker: int) -> RoleAnswer | None:
        """Return the last answer of a replica; None if its broker was registered again later."""
        answer, registration = self.answers.get(broker), self.registrations.get(broker)
        if answer is None or registration is None:
            return None
        is_fresh = answer.registration_epoch == registration.registration_epoch
        return answer if is_fresh else None


class Standing(enum.Enum):
    """The standing of a member of the ISR or ELR."""

    WHOLE = "whole"
    UNKNOWN = "unknown"
    LOSSY = "lossy"
    OFFLINE = "offline"
    DOWN = "down"


class Decision(NamedTuple):
    """The next state, and the reason for its leader.

    Attributes:
        is_recovery: whether the new leader may lack acknowledged records.
    """

    state: State
    reason: str
    is_recovery: bool = False


def standing_of(known: Known, broker: int, admitted: int) -> Standing:
    """Return the standing of a member that was admitted at this registration epoch."""
    registration = known.registrations.get(broker)
    if registration is None:
        return Standing.DOWN
    answer = known.fresh_answer(broker)
    if answer is not None and answer.is_offline:
        return Standing.OFFLINE
    if is_same_registration(registration, admitted):
        return Standing.WHOLE
    if answer is None:
        return Standing.UNKNOWN
    return Standing.WHOLE if answer.whole_since <= admitted else Standing.LOSSY


def is_same_registration(registration: Registration, admitted: int) -> bool:
    """Check that a broker still has the registration at which it was admitted."""
    return registration.registration_epoch == admitted


def leads_still(known: Known, state: State, standing: Standing) -> bool:
    """Check that since the election, neither the leader's broker nor its log dir returned (P11)."""
    if standing not in (Standing.WHOLE, Standing.UNKNOWN):
        return False
    elected = state.leader_registration_epoch
    answer = known.fresh_answer(state.leader)
    is_held = answer is None or answer.held_since <= elected
    return known.registrations[state.leader].broker_epoch <= elected and is_held


def settle(state: State, removed: Mapping[int, int]) -> State:
    """Put removed members into the ELR if the ISR is below min; otherwise, empty the ELR (P12)."""
    if len(state.isr) >= state.min_isr:
        return state._replace(elr={}, suspects=frozenset())
    elr = {m: a for m, a in {**state.elr, **removed}.items() if m not in state.isr}
    return state._replace(elr=elr, suspects=state.suspects - state.isr.keys())


def next_state(state: State, known: Known, config: TopicConfig) -> Decision:
    """Decide the next state of a partition. If nothing changes, the decision has the same state."""
    members = {**state.elr, **state.isr}
    standings = {m: standing_of(known, m, admitted) for m, admitted in members.items()}
    is_lease_kept = state.is_unclean_allowed and keeps_lease(state, known)
    state, removed = _judge(state, known, standings)
    reason, is_recovery = LEADS, False
    leader = state.leader
    if leader not in state.isr or not leads_still(known, state, standings[leader]):
        able = [m for m in state.isr if standings[m] is Standing.WHOLE]
        able = able or [m for m in state.elr if standings[m] is Standing.WHOLE]
        able = staying(able, known) or able
        reason = "the first whole replica of the ISR, or else of the ELR, leads"
        if not able and not state.isr and not state.elr and not removed:
            able, reason = recoverable(state, known)
            is_recovery = bool(able) and has_led(state)
        if able:
            state = _lead(state, known, _first(state.replicas, able), standings, removed)
            if is_recovery:
                state = state._replace(unclean_epoch=state.leader_epoch)
        elif leader != NO_BROKER:  # if no broker leads, the state already says so
            removed.update(state.isr)
            state, reason = _without_leader(state), NO_CANDIDATE
    if known.leaving and state.leader != NO_BROKER:
        state = let_leave(state, known, removed)
    state = settle(state, removed)
    if state.min_isr != config.min_isr:
        state = settle(state._replace(min_isr=config.min_isr), {})
    if state.flushes != config.flushes:
        state = change_flushes(state, flushes=config.flushes)
    is_allowed = config.is_unclean_allowed
    state = state._replace(
        is_unclean_allowed=is_allowed,
        is_lease_kept=is_allowed and is_lease_kept,
        removed=still_removed(state, known),
    )
    if state.target is not None and state.leader != NO_BROKER:
        finished = complete(state, known)
        if finished is not None:
            return Decision(finished, "the reassignment is complete", is_recovery)
    return Decision(state, reason, is_recovery)


def staying(brokers: Iterable[int], known: Known) -> list[int]:
    """Return the brokers that do not leave."""
    return [m for m in brokers if m not in known.leaving]


def candidates(state: State, known: Known) -> list[int]:
    """Return the members of the ISR that are WHOLE and do not leave."""
    isr = {m: a for m, a in state.isr.items() if standing_of(known, m, a) is Standing.WHOLE}
    return staying(isr, known)


def let_leave(state: State, known: Known, removed: dict[int, int]) -> State:
    """Move the leadership away from a leaving broker; remove leaving followers from the ISR (P21).

    If no other member of the ISR can lead, the leaving broker leads until it is gone.
    """
    if state.leader in known.leaving and (able := candidates(state, known)):
        state = hand_over(state, known, _first(state.replicas, able), removed)
    away = {m: a for m, a in state.isr.items() if m in known.leaving and m != state.leader}
    removed.update(away)
    return state._replace(isr={m: a for m, a in state.isr.items() if m not in away})


def hand_over(state: State, known: Known, leader: int, removed: dict[int, int]) -> State:
    """Let another member of the ISR lead, even if the present leader still works."""
    standings = {m: standing_of(known, m, admitted) for m, admitted in state.isr.items()}
    return _lead(state, known, leader, standings, removed)


def change_flushes(state: State, *, flushes: bool) -> State:
    """Turn `flush.before.ack` on or off (P24); to turn this setting on, begin a new leader epoch.

    A follower that knows the new leader epoch also knows the new setting. So in the new epoch, the
    leader uses only positions below which all records are flushed.
    """
    if flushes and state.leader != NO_BROKER:
        state = state._replace(leader_epoch=state.leader_epoch + 1)
    return state._replace(flushes=flushes)


def still_removed(state: State, known: Known) -> frozenset[int]:
    """Return the brokers that may still have a removed replica, and are asked again (P19)."""
    return state.removed - known.stopped


def keeps_lease(state: State, known: Known) -> bool:
    """Check that the last leader knows the setting for unclean elections (P16).

    A leader that knows this setting stops when its lease ends. If a leader was replaced before it
    knew the setting, the old leader does no harm. The old leader acknowledges a record only after
    all members of its maximal ISR have fetched the record. The next leader is a member of this
    maximal ISR, and no longer fetches from the old leader.
    """
    answer = known.fresh_answer(state.leader)
    return state.is_lease_kept or (answer is not None and answer.version == known.version)


def _judge(
    state: State, known: Known, standings: Mapping[int, Standing]
) -> tuple[State, dict[int, int]]:
    """Make LOSSY members suspects, remove absent members, and admit WHOLE members again."""
    lossy = frozenset(m for m, standing in standings.items() if standing is Standing.LOSSY)
    isr, removed = {}, {}
    for m, admitted in state.isr.items():
        standing = standings[m]
        if standing in (Standing.DOWN, Standing.OFFLINE):
            removed[m] = admitted
        elif standing is Standing.WHOLE and m != state.leader:
            isr[m] = known.registration_epoch(m)
        elif standing is not Standing.LOSSY:
            isr[m] = admitted
    elr = {m: a for m, a in state.elr.items() if m not in lossy}
    return state._replace(isr=isr, elr=elr, suspects=state.suspects | lossy), removed


def _first(order: Sequence[int], brokers: Iterable[int]) -> int:
    """Return the broker that comes first in the list of replicas."""
    return min(brokers, key=order.index)


def _lead(
    state: State,
    known: Known,
    leader: int,
    standings: Mapping[int, Standing],
    removed: dict[int, int],
) -> State:
    """Let a replica lead; remove UNKNOWN members from the ISR."""
    epoch = known.registration_epoch(leader)
    unknown = {m: a for m, a in state.isr.items() if standings.get(m) is Standing.UNKNOWN}
    removed.update(unknown)
    isr = {m: a for m, a in state.isr.items() if m not in unknown}
    isr[leader] = epoch
    return state._replace(
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        leader_registration_epoch=epoch,
        isr=isr,
    )


def _without_leader(state: State) -> State:
    return state._replace(
        leader=NO_BROKER,
        leader_epoch=state.leader_epoch + 1,
        leader_registration_epoch=0,
        isr={},
    )


def recoverable(state: State, known: Known) -> tuple[list[int], str]:
    """Choose the suspect with the longest log, if all suspects answered for this version (P15).

    In this version of the state, no broker leads. An answer for an earlier version may lack the
    last records of the suspect.
    """
    if state.leader != NO_BROKER:
        return [], "the state must first say that no broker leads"
    if not state.suspects:
        return [], "there is no replica to recover from"
    logs = []
    for m in state.suspects:
        answer = known.fresh_answer(m)
        if not may_recover_by(answer, known.version):
            return [], f"suspect {m} has not answered since the partition has no leader"
        assert answer is not None
        logs.append((answer.last_epoch, answer.log_end_offset, m))
    return [longest(logs)], "all candidates lost records, so the replica with the latest log leads"


def has_led(state: State) -> bool:
    """Check that a broker has ever led. Otherwise, there are no acknowledged records to lose."""
    return state.leader_epoch > 0


def may_recover_by(answer: RoleAnswer | None, version: int) -> bool:
    """Check that a suspect has answered for this version. In this version, no broker leads."""
    return answer is not None and not answer.is_offline and answer.version == version


def complete(state: State, known: Known) -> State | None:
    """End a reassignment if the added replicas are in the ISR, and enough members remain (P18)."""
    assert state.target is not None
    isr = remaining_isr(state, known)
    if isr is None:
        return None
    able = [m for m, a in isr.items() if standing_of(known, m, a) is Standing.WHOLE]
    if not able:
        return None
    able = staying(able, known) or able
    leader = state.leader if state.leader in able else _first(state.target, able)
    isr[leader] = known.registration_epoch(leader)
    return state._replace(
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        leader_registration_epoch=isr[leader],
        isr=isr,
        elr={m: a for m, a in state.elr.items() if m in state.target},
        suspects=state.suspects & set(state.target),
        replicas=state.target,
        target=None,
        original=None,
        removed=state.removed | frozenset(state.replicas) - set(state.target),
    )


def remaining_isr(state: State, known: Known) -> dict[int, int] | None:
    """Return the ISR after the end of a reassignment; None if the reassignment cannot end yet."""
    target = state.target or ()
    isr = {m: a for m, a in state.isr.items() if m in target}
    if state.original is None:
        return isr if len(isr) >= enough_to_go_back(state) else None
    return isr if len(isr) == len(target) and len(isr) >= state.min_isr else None


def enough_to_go_back(state: State) -> int:
    """Return how many original replicas must be in the ISR when a cancelled reassignment ends.

    The number is `min_isr`. The reassignment does not wait for all original replicas, because a
    broker may be down. If there are fewer than `min_isr` original replicas, all of them must be in
    the ISR.
    """
    return min(state.min_isr, len(state.target or ()))


def change_isr(state: State, known: Known, asked: AlterPartition) -> State | None:
    """Return the state with the ISR that the leader proposes; None to refuse the proposal (P10)."""
    if not is_current(state, known, asked):
        return None
    for m, admitted in asked.isr.items():
        registration, answer = known.registrations.get(m), known.fresh_answer(m)
        if m in state.isr:
            continue
        if registration is None or not is_same_registration(registration, admitted):
            return None
        if m not in state.replicas or (answer is not None and answer.is_offline):
            return None
        if m in known.leaving:
            return None
    removed = {m: a for m, a in state.isr.items() if m not in asked.isr}
    isr = {m: state.isr.get(m, a) for m, a in asked.isr.items()}
    return settle(state._replace(isr=isr), removed)


def is_current(state: State, known: Known, asked: AlterPartition) -> bool:
    """Check that the leader in `state` made the proposal, and that it knew the present version."""
    return (
        asked.version == known.version
        and asked.leader_epoch == state.leader_epoch
        and asked.leader == state.leader
        and asked.leader_registration_epoch == state.leader_registration_epoch
        and asked.leader in asked.isr
    )
