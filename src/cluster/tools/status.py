"""Describe the state of a cluster in rows. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MIN_ISR = "min.insync.replicas"
OFFLINE, BELOW_MIN, UNDER_REPLICATED, GOOD = "offline", "below min", "under-replicated", "good"
CONTROLLER, GONE = "controller", "gone"

Row = dict[str, Any]


def broker_rows(metadata: Any) -> Iterator[Row]:
    """Describe each broker; `state` names the controller.

    A broker is gone if it is not registered, but a partition has a replica on it.
    """
    for one in sorted(metadata.brokers, key=lambda broker: broker.node_id):
        is_controller = one.node_id == metadata.controller_id
        yield {
            "kind": "broker",
            "name": str(one.node_id),
            "state": CONTROLLER if is_controller else GOOD,
            "address": f"{one.host}:{one.port}",
            "rack": one.rack,
        }
    for broker in sorted(gone_brokers(metadata)):
        yield {"kind": "broker", "name": str(broker), "state": GONE}


def gone_brokers(metadata: Any) -> set[int]:
    """Return the brokers that have replicas, but are not registered."""
    partitions = (one for topic in metadata.topics for one in topic.partitions)
    holders = {broker for one in partitions for broker in one.replica_nodes}
    return holders - {one.node_id for one in metadata.brokers}


def summary(brokers: Sequence[Row], partitions: Sequence[Row]) -> str:
    """Count the brokers, and the partitions in each state."""
    gone = sum(row["state"] == GONE for row in brokers)
    states = Counter(row["state"] for row in partitions)
    counted = ", ".join(
        f"{states[state]} {state}" for state in (OFFLINE, BELOW_MIN, UNDER_REPLICATED, GOOD)
    )
    is_led = any(row["state"] == CONTROLLER for row in brokers)
    leader = "" if is_led else "; no broker is the controller"
    return f"brokers: {len(brokers) - gone} live, {gone} gone; partitions: {counted}{leader}"


def partition_rows(metadata: Any, min_isr: Mapping[str, str]) -> Iterator[Row]:
    """Describe each partition; `state` names the worst fault of the partition."""
    for topic in sorted(metadata.topics, key=lambda one: one.name):
        text = min_isr.get(topic.name, "")
        smallest = int(text) if text.isascii() and text.isdigit() else None
        for one in sorted(topic.partitions, key=lambda row: row.partition_index):
            yield {
                "kind": "partition",
                "name": f"{topic.name}-{one.partition_index}",
                "topic": topic.name,
                "partition": one.partition_index,
                "state": state_of(one, smallest),
                "leader": one.leader_id if one.leader_id >= 0 else None,
                "replicas": list(one.replica_nodes),
                "isr": list(one.isr_nodes),
                "offline": list(one.offline_replicas),
                "min": smallest,
            }


def state_of(partition: Any, smallest: int | None) -> str:
    """Return the worst fault of a partition.

    Args:
        smallest: the partition's min.insync.replicas; None if it is not known.
    """
    if partition.leader_id < 0:
        return OFFLINE
    if smallest is not None and len(partition.isr_nodes) < smallest:
        return BELOW_MIN
    if len(partition.isr_nodes) < len(partition.replica_nodes):
        return UNDER_REPLICATED
    return GOOD
