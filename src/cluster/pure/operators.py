"""Check what operators ask of the controller, before anything is changed.

Each check gives the reason why the controller refuses; "" if it does not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cluster.pure.control_exchange import CreateTopic, TopicConfig
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
    """Check the replicas that a reassignment ends with: otherwise it could never end (P18)."""
    if state.target is not None:
        return "another reassignment is under way"
    if fault := fault_of_replicas(target):
        return fault
    unknown = [m for m in target if m not in registered and m not in state.replicas]
    if unknown:
        return f"broker {unknown[0]} is not registered"
    smallest = max(state.min_isr, config.min_isr)
    return "" if len(target) >= smallest else f"there are fewer replicas than min, {smallest}"
