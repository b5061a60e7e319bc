"""Check what operators ask of the controller, and give the state that follows.

Each check gives the reason why the controller refuses; "" if it does not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cluster.pure.control_exchange import CreateTopic, TopicConfig
from cluster.registration import NO_BROKER, Registration
from cluster.state import State
from cluster.znode_document import ID_MAX


def fault_of_min(min_isr: int) -> str:
    """Check the smallest ISR that the settings of a topic ask for."""
    is_good = type(min_isr) is int and 1 <= min_isr <= ID_MAX
    return "" if is_good else f"min is {min_isr}, not an integer from 1 to {ID_MAX}"


def fault_of_replicas(replicas: Sequence[int]) -> str:
    """Check a list of brokers."""
    for broker in replicas:
        if type(broker) is not int or not 0 <= broker <= ID_MAX:
            return f"{broker} is no broker id"
    if not replicas:
        return "there are no replicas"
    return "" if len(set(replicas)) == len(replicas) else "a replica is named twice"


def fault_of_creation(event: CreateTopic, registered: Collection[int]) -> str:
    """Check a new topic: one of its replicas must live, because a first ISR has a member (P2)."""
    if fault := fault_of_replicas(event.replicas) or fault_of_min(event.config.min_isr):
        return fault
    is_any_live = any(broker in registered for broker in event.replicas)
    return "" if is_any_live else "none of the replicas is registered"


def fault_of_target(
    state: State, config: TopicConfig, registered: Collection[int], target: Sequence[int]
) -> str:
    """Check the target of a reassignment. A reassignment to a bad target would never end (P18)."""
    if state.target is not None:
        return "another reassignment is under way"
    if fault := fault_of_replicas(target):
        return fault
    unknown = [m for m in target if m not in registered and m not in state.replicas]
    if unknown:
        return f"broker {unknown[0]} is not registered"
    smallest = max(state.min_isr, config.min_isr)
    return "" if len(target) >= smallest else f"there are fewer replicas than min, {smallest}"


def fault_of_cancellation(state: State) -> str:
    """Check that there is a reassignment which was not cancelled yet."""
    if state.target is None:
        return "no reassignment is under way"
    return "the reassignment is cancelled already" if state.original is None else ""


def first_state(
    event: CreateTopic, registered: Mapping[int, Registration], controller_epoch: int
) -> State:
    """Give the first state: its ISR are the replicas that are registered, and nobody leads yet."""
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
        is_lease_kept=event.config.is_unclean_allowed,  # nobody has led
    )


def reassigned(state: State, target: tuple[int, ...]) -> State:
    """Give the state in which a reassignment begins: old and new replicas together (P18)."""
    replicas = tuple(dict.fromkeys((*state.replicas, *target)))
    return state._replace(
        replicas=replicas,
        target=target,
        original=state.replicas,
        removed=state.removed.difference(target),
    )


def cancelled(state: State) -> State:
    """Give the state in which a reassignment goes back to the original replicas (P18)."""
    return state._replace(target=state.original, original=None)
