"""Change one rule of elections and the controller: the functions that mutants use instead."""

from __future__ import annotations

from typing import Any

from cluster.pure import controller, elect, operators, unclean
from cluster.pure.control_exchange import Written
from cluster.pure.controller import Controller
from cluster.pure.deletions import Deletions
from cluster.pure.elect import Decision, Known, Standing
from cluster.pure.entry import Entry
from cluster.registration import NO_BROKER, Registration, TopicIdentity
from cluster.requests import AlterPartition
from cluster.state import State
from cluster_sim.changed_replica import name_of

_decide, _on_alter, _leads_still = Controller.decide, Controller._on_alter, elect.leads_still
_standing_of, _next_state = elect.standing_of, elect.next_state
_let_leave, _hand_over, _change_isr = elect.let_leave, elect.hand_over, elect.change_isr


def admissions_of(room: Controller, key: Any) -> dict[int, int]:
    """Give what this controller remembers of registrations; a new controller knows nothing."""
    memory: dict[Any, dict[int, int]] = vars(room).setdefault("admissions", {})
    return memory.setdefault(key, {})


def admit_what_was_seen(self: Controller, entry: Entry) -> Decision:
    """Replace each admission by the registration that this controller saw first, or admitted."""
    known, admissions = self.known(entry), admissions_of(self, entry.topic)

    def seen_first(members: Any) -> dict[int, int]:
        for m, admitted in members.items():
            registration = known.registrations.get(m)
            now = admitted if registration is None else registration.registration_epoch
            admissions.setdefault(m, now)
        return {m: admissions[m] for m in members}

    state = entry.state._replace(isr=seen_first(entry.state.isr), elr=seen_first(entry.state.elr))
    decision = _next_state(state, known, entry.config)
    if decision.state == state:
        return decision._replace(state=entry.state)
    admissions.update(decision.state.isr)
    return decision


def admit_and_remember(self: Controller, asked: AlterPartition) -> None:
    _on_alter(self, asked)
    found = self.find(asked.topic, asked.partition)
    if found is not None and found[1].pending is None and found[1].state.isr == asked.isr:
        admissions_of(self, found[1].topic).update(asked.isr)


IDS_ONLY = [
    (Controller, "decide", admit_what_was_seen),
    (Controller, "_on_alter", admit_and_remember),
]


def whole_if_registered(known: Known, broker: int, admitted: int) -> Standing:
    standing = _standing_of(known, broker, admitted)
    return standing if standing in (Standing.DOWN, Standing.OFFLINE) else Standing.WHOLE


RESTART_IS_WHOLE = [(elect, "standing_of", whole_if_registered)]


def resume(known: Known, state: State, standing: Standing) -> bool:
    return standing is Standing.WHOLE


def decide_and_raise(self: Controller, entry: Entry) -> Decision:
    """Let a leader that stays continue at its present registration."""
    decision = _decide(self, entry)
    state = decision.state
    if state.leader == NO_BROKER or state.leader_epoch != entry.state.leader_epoch:
        return decision
    epoch = self.known(entry).registration_epoch(state.leader)
    return decision._replace(state=state._replace(leader_registration_epoch=epoch))


RESUME_EPOCH = [(elect, "leads_still", resume), (Controller, "decide", decide_and_raise)]


def end_early(state: State, known: Known) -> dict[int, int]:
    return {m: known.registration_epoch(m) for m in state.target or () if m in known.registrations}


def complete_early(state: State, known: Known) -> State | None:
    return _complete(state._replace(elr={}, suspects=frozenset()), known)


_complete = elect.complete
REASSIGN_EARLY = [(elect, "remaining_isr", end_early), (elect, "complete", complete_early)]


def recover_from_any(state: State, known: Known) -> tuple[list[int], str]:
    if state.leader != NO_BROKER:
        return [], ""
    return _longest(state, known, is_version_needed=True)


def _longest(state: State, known: Known, *, is_version_needed: bool) -> tuple[list[int], str]:
    logs = []
    for m in state.suspects:
        answer = known.fresh_answer(m)
        if answer is None or answer.is_offline:
            continue
        if answer.version == known.version or not is_version_needed:
            logs.append(((answer.last_epoch, answer.log_end_offset), -m))
    return ([-max(logs)[1]] if logs else []), "the longest log"


def recover_by_old_answers(state: State, known: Known) -> tuple[list[int], str]:
    answers = [known.fresh_answer(m) for m in state.suspects]
    if any(one is None or one.is_offline for one in answers):
        return [], ""
    return _longest(state, known, is_version_needed=False)


RECOVER_ANY = [(elect, "recoverable", recover_from_any)]
RECOVER_STALE = [(elect, "recoverable", recover_by_old_answers)]


def take_any_answer(self: Controller, answer: Written) -> None:
    entry = self.entries.get(answer.key)
    if entry is not None and entry.pending is not None:
        _on_written(self, answer._replace(number=entry.pending.number))


_on_written = Controller._on_written
ANY_ANSWER = [(Controller, "_on_written", take_any_answer)]
NEW_TO_ALL = [(controller, "is_older", lambda registration, topic: True)]
NO_CONTROLLER_EPOCH = [(Controller, "expected_controller_epoch", lambda self: None)]


def is_from_leader(state: State, known: Known, asked: AlterPartition) -> bool:
    return asked.leader == state.leader and asked.leader in asked.isr


BLIND_WRITES = [
    (Controller, "expected_version", lambda self, entry: None),
    (elect, "is_current", is_from_leader),
]


def has_dir_epoch(registration: Registration, admitted: int) -> bool:
    return admitted in registration.dir_epochs.values()


MEMBER_BY_DIR_EPOCH = [(elect, "is_same_registration", has_dir_epoch)]


def find_by_name(self: Controller, topic: TopicIdentity, partition: int) -> Any:
    for key, entry in self.entries.items():
        if name_of(entry.topic) == name_of(topic):
            return key, entry
    return None


REQUESTS_BY_NAME = [(Controller, "find", find_by_name)]
GONE_FOR_EVER = [(Controller, "accept", lambda self, broker: None)]
HASTY_UNCLEAN = [(unclean, "is_lease_over", lambda state, known, registered, *, is_forced: True)]
UNHEARD_LEASE = [(elect, "keeps_lease", lambda state, known: True)]


def forget_below_min(state: State, removed: Any) -> State:
    if len(state.isr) >= state.min_isr:
        return state._replace(elr={}, suspects=frozenset())
    elr = dict(state.elr)
    if not state.isr and removed:
        last = min(removed)
        elr = {last: removed[last]}
    elr = {m: a for m, a in elr.items() if m not in state.isr}
    return state._replace(elr=elr, suspects=state.suspects - state.isr.keys())


def keep_epoch(state: State, *, flushes: bool) -> State:
    return state._replace(flushes=flushes)


FLUSH_SAME_EPOCH = [(elect, "change_flushes", keep_epoch)]
ANY_SETTINGS = [(Entry, "use", lambda self, config: setattr(self, "config", config))]
BACK_TOO_EARLY = [(elect, "enough_to_go_back", lambda state: 1)]
STOP_ONCE: list[Any] = [(elect, "still_removed", lambda state, known: frozenset())]
DELETE_ONCE: list[Any] = [(Deletions, "requests", lambda self, seen: [])]
DELETION_FORGOTTEN = [(Deletions, "read", lambda self, deletions: None)]
NO_ELR = [(elect, "settle", forget_below_min)]


def down_if_leaving(known: Known, broker: int, admitted: int) -> Standing:
    return Standing.DOWN if broker in known.leaving else _standing_of(known, broker, admitted)


LEAVE_IS_DEATH = [(elect, "standing_of", down_if_leaving)]
LEAVE_FOR_EVER = [(Controller, "is_session", lambda self, m, epoch: m in self.registrations)]


def hand_over_in_epoch(state: State, known: Known, leader: int, removed: dict[int, int]) -> State:
    after = _hand_over(state, known, leader, removed)
    return after._replace(leader_epoch=state.leader_epoch)


HAND_OVER_IN_EPOCH = [(elect, "hand_over", hand_over_in_epoch)]


def unasked(state: State, known: Known) -> list[int]:
    return [m for m in elect.staying(state.isr, known) if m in known.registrations]


LEAD_UNASKED = [(elect, "candidates", unasked)]


def leave_for_good(state: State, known: Known, removed: dict[int, int]) -> State:
    return _let_leave(state, known, {})


LEAVE_WITHOUT_ELR = [(elect, "let_leave", leave_for_good)]


def change_any_isr(state: State, known: Known, asked: AlterPartition) -> State | None:
    return _change_isr(state, known._replace(leaving=frozenset()), asked)


ADMIT_LEAVING = [(elect, "change_isr", change_any_isr)]


def any_leader(state: State, known: Known, broker: int) -> str:
    is_possible = broker != state.leader and broker in known.registrations
    return "" if is_possible else operators.NO_CANDIDATE


ELECT_ANY = [(operators, "fault_of_leader", any_leader)]
