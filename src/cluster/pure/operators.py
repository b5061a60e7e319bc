"""Check the requests of operators to the controller, and make the next state of the partition.

Each check returns the reason why the controller refuses the request, or "".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cluster.pure import elect, unclean
from cluster.pure.control_exchange import (
    CancelReassignment,
    CreateTopic,
    ElectLeader,
    ElectUncleanly,
    Reassign,
    TopicConfig,
    Wish,
)
from cluster.pure.elect import Known
from cluster.pure.entry import Entry, PendingWrite
from cluster.registration import NO_BROKER, Registration
from cluster.state import State
from cluster.znode_document import ID_MAX

NOT_KNOWN = "the partition is not known, or its state is just being written"
UNDER_WAY = "another reassignment is running"
NOT_UNDER_WAY = "no reassignment is under way"
CANCELLED = "the reassignment is already cancelled"
LEADS_ALREADY = "this broker already leads"
HAS_LEADER = "the partition has a leader"
NO_CANDIDATE = "the broker is not in the ISR, is leaving, or is not known to have all records"
NO_LEADER_EPOCH = "no larger leader epoch is left: repair the znode of the partition's state"
NOT_YET = "no replica has answered, or a former leader may not have stopped"


def fulfilled(
    wish: Wish, entry: Entry, known: Known, registered: Mapping[int, Registration]
) -> PendingWrite | str:
    """Return the write that an operator's request needs, or the reason for its rejection."""
    match wish:
        case Reassign(_, target):
            fault = fault_of_target(entry.state, entry.config, registered, target)
            state = entry.state if fault else reassigned(entry.state, target)
        case CancelReassignment():
            fault = fault_of_cancellation(entry.state)
            state = entry.state if fault else cancelled(entry.state)
        case ElectLeader(_, broker):
            broker = entry.state.replicas[0] if broker is None else broker
            fault = fault_of_leader(entry.state, known, broker)
            state = entry.state if fault else elected(entry.state, known, broker)
        case ElectUncleanly(_, is_forced):
            return _unclean(entry.state, known, registered, is_forced=is_forced)
    return fault or PendingWrite(state, state.replicas, "")


def _unclean(
    state: State, known: Known, registered: Mapping[int, Registration], *, is_forced: bool
) -> PendingWrite | str:
    if state.leader != NO_BROKER:
        return HAS_LEADER
    decision = unclean.elect_uncleanly(state, known, registered, is_forced=is_forced)
    if decision is None:
        return NOT_YET
    return PendingWrite(decision.state, decision.state.replicas, decision.reason)


def fault_of_leader(state: State, known: Known, broker: int) -> str:
    """Check that a broker may lead. A replica that may lack records is refused."""
    if broker == state.leader:
        return LEADS_ALREADY
    return "" if broker in elect.candidates(state, known) else NO_CANDIDATE


def elected(state: State, known: Known, broker: int) -> State:
    """Return the state in which a candidate leads, in a new leader epoch."""
    removed: dict[int, int] = {}
    return elect.settle(elect.hand_over(state, known, broker, removed), removed)


def is_held(entry: Entry, known: Known, broker: int) -> bool:
    """Report whether a leaving broker has to wait for a partition (P21).

    The broker has to wait in two cases. In the first case, the leaving broker leads, and another
    live replica may lead soon. In the second case, the new leader in the state has not answered
    yet, so perhaps no broker leads.
    """
    state = entry.state
    if state.leader == broker:
        others = [m for m in elect.staying(state.replicas, known) if m != broker]
        return any(may_lead_soon(known, m) for m in others)
    if broker not in state.replicas or state.leader not in known.registrations:
        return False
    answer = known.fresh_answer(state.leader)
    return answer is None or answer.version < entry.version


def may_lead_soon(known: Known, broker: int) -> bool:
    """Check that the broker of a replica runs, so that the replica may be in sync soon."""
    answer = known.fresh_answer(broker)
    is_offline = answer is not None and answer.is_offline
    return broker in known.registrations and not is_offline


def fault_of_min(min_isr: int) -> str:
    """Check a topic's smallest ISR size at which records with acks=all are acknowledged."""
    is_good = type(min_isr) is int and 1 <= min_isr <= ID_MAX
    return "" if is_good else f"min is {min_isr}, not an integer from 1 to {ID_MAX}"


def fault_of_replicas(replicas: Sequence[int]) -> str:
    """Check a list of brokers."""
    for broker in replicas:
        if type(broker) is not int or not 0 <= broker <= ID_MAX:
            return f"{broker} is not a broker id"
    if not replicas:
        return "there are no replicas"
    return "" if len(set(replicas)) == len(replicas) else "a replica is named twice"


def fault_of_creation(event: CreateTopic, registered: Collection[int]) -> str:
    """Check a new topic. At least one broker in the list must be registered, for the first ISR."""
    if fault := fault_of_replicas(event.replicas) or fault_of_min(event.config.min_isr):
        return fault
    is_any_live = any(broker in registered for broker in event.replicas)
    return "" if is_any_live else "none of the replicas is registered"


def fault_of_target(
    state: State, config: TopicConfig, registered: Collection[int], target: Sequence[int]
) -> str:
    """Check the target of a reassignment. A reassignment to a bad target would never end (P18)."""
    if state.target is not None:
        return UNDER_WAY
    if fault := fault_of_replicas(target):
        return fault
    unknown = [m for m in target if m not in registered and m not in state.replicas]
    if unknown:
        return f"broker {unknown[0]} is not registered"
    smallest = max(state.min_isr, config.min_isr)
    return "" if len(target) >= smallest else f"there are fewer replicas than min, {smallest}"


def fault_of_cancellation(state: State) -> str:
    """Check that a reassignment is running, and that it was not cancelled yet."""
    if state.target is None:
        return NOT_UNDER_WAY
    return CANCELLED if state.original is None else ""


def first_state(
    event: CreateTopic, registered: Mapping[int, Registration], controller_epoch: int
) -> State:
    """Return the first state: the registered brokers are in the ISR, and no broker leads yet."""
    return State(
        leader=NO_BROKER,
        leader_epoch=0,
        controller_epoch=controller_epoch,
        isr={
            broker: registered[broker].registration_epoch
            for broker in event.replicas
            if broker in registered
        },
        elr={},
        suspects=frozenset(),
        leader_registration_epoch=0,
        replicas=event.replicas,
        target=None,
        min_isr=event.config.min_isr,
        flushes=event.config.flushes,
        is_unclean_allowed=event.config.is_unclean_allowed,
        is_lease_kept=event.config.is_unclean_allowed,  # there was no leader yet
    )


def reassigned(state: State, target: tuple[int, ...]) -> State:
    """Return the state in which a reassignment begins, with old and new replicas (P18)."""
    replicas = tuple(dict.fromkeys((*state.replicas, *target)))
    return state._replace(
        replicas=replicas,
        target=target,
        original=state.replicas,
        removed=state.removed.difference(target),
    )


def cancelled(state: State) -> State:
    """Return the state in which a reassignment goes back to the original replicas (P18)."""
    return state._replace(target=state.original, original=None)
