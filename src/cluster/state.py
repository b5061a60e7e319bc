"""Define the state of a partition, and convert it to and from the JSON text of its znode.

    {"version":1,"leader":2,"leader_epoch":7,"controller_epoch":3,"isr":[2,3],
     "isr_epochs":{"2":90,"3":41},"elr":{},"suspects":[],"leader_registration_epoch":90,
     "replicas":[1,2,3],"target":null,"min":2,"unclean_epoch":-1,"flushes":false,
     "unclean_allowed":false,"lease_kept":false,"removed":[],"original":null}

The first five keys are Kafka's. Kafka's tools ignore the other keys. The version of the znode is
not in the JSON. The version counts the writes of the state. Each write names the version that it
replaces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from cluster.registration import NO_BROKER
from cluster.znode_document import EPOCH_MAX, ID_MAX, ZnodeDocument

STATE_VERSION = 1
# the next election needs a larger epoch, and the protocol has 32 bits for an epoch
LEADER_EPOCH_MAX = ID_MAX - 1
NEVER_UNCLEAN = -1


class State(NamedTuple):
    """The state of a partition. This object is never changed; each change makes a new object.

    Attributes:
        leader: the broker that leads, or NO_BROKER.
        isr: the in-sync replicas, each with the registration epoch at which it was admitted.
        elr: the eligible leader replicas, each with the registration epoch at which it was
            admitted. An eligible leader replica left an ISR that was then below `min_isr`, and has
            every acknowledged record.
        suspects: replicas of the ISR or ELR that lost records after their admission.
        leader_registration_epoch: the registration epoch of the leader at the time of its election.
        replicas: the brokers that have a replica, including the brokers that a reassignment adds.
        target: the replicas after the running reassignment, or None.
        min_isr: the smallest size of the ISR at which a write with acks=all is acknowledged.
        unclean_epoch: the leader epoch of the last election that may have lost records, or -1.
        flushes: whether only flushed records count (`flush.before.ack`).
        is_unclean_allowed: whether the topic may elect a leader that lacks records.
        is_lease_kept: whether the last leader knows `is_unclean_allowed`, and so stops leading when
            its lease ends.
        original: the replicas before the running reassignment; None without a reassignment, or
            after it was cancelled.
        removed: brokers that no longer belong to the replicas, but may still have a replica on
            disk.
    """

    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: Mapping[int, int]
    elr: Mapping[int, int]
    suspects: frozenset[int]
    leader_registration_epoch: int
    replicas: tuple[int, ...]
    target: tuple[int, ...] | None
    min_isr: int
    unclean_epoch: int = NEVER_UNCLEAN
    flushes: bool = False
    is_unclean_allowed: bool = False
    is_lease_kept: bool = False
    removed: frozenset[int] = frozenset()
    original: tuple[int, ...] | None = None


def assignment_of(state: State) -> tuple[object, ...]:
    """Return the fields that are also in the topic's znode: the replicas, and their change."""
    return state.replicas, *changes_of(state)


def changes_of(state: State) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the replicas that the present reassignment adds, and the replicas that it removes."""
    if state.target is None:
        return (), ()
    original = state.target if state.original is None else state.original
    added = tuple(m for m in state.target if m not in original)
    return added, tuple(m for m in state.replicas if m not in state.target)


def fault_of(state: State) -> str:
    """Return the invariant that a state breaks; "" for a valid state."""
    isr, elr, suspects = set(state.isr), set(state.elr), state.suspects
    replicas = set(state.replicas)
    checks = (
        (bool(replicas), "there are no replicas"),
        (len(replicas) == len(state.replicas), "a replica is named twice"),
        (isr <= replicas, "the ISR has a broker without a replica"),
        (elr <= replicas, "the ELR has a broker without a replica"),
        (suspects <= replicas, "the suspects have a broker without a replica"),
        (not isr & elr and not isr & suspects and not elr & suspects, "ISR, ELR, suspects overlap"),
        (not state.removed & replicas, "a removed broker has a replica"),
        (state.leader == NO_BROKER or state.leader in isr, "the leader is not in the ISR"),
        (
            state.leader == NO_BROKER or state.leader_epoch >= 1,
            "there is a leader without a leader epoch",
        ),
        (state.min_isr >= 1, "min is below 1"),
        (state.unclean_epoch <= state.leader_epoch, "unclean_epoch is after leader_epoch"),
        (
            state.is_unclean_allowed or not state.is_lease_kept,
            "lease_kept is set without unclean_allowed",
        ),
        (
            not (elr or suspects) or len(isr) < state.min_isr,
            "there are ELR or suspects although the ISR has min members",
        ),
    )
    for holds, fault in checks:
        if not holds:
            return fault
    if state.target is None:
        return "" if state.original is None else "original replicas without a target"
    if not _are_some(state.target, replicas):
        return "a bad target"
    is_known = state.original is None or _are_some(state.original, replicas)
    return "" if is_known else "bad original replicas"


def _are_some(brokers: tuple[int, ...], replicas: set[int]) -> bool:
    """Check that a list names only replicas, and no replica twice."""
    return bool(brokers) and set(brokers) <= replicas and len(set(brokers)) == len(brokers)


def encode_state(state: State) -> bytes:
    """Encode a state as the JSON text of its znode."""
    document = {
        "version": STATE_VERSION,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "controller_epoch": state.controller_epoch,
        "isr": list(state.isr),
        "isr_epochs": {str(broker): epoch for broker, epoch in state.isr.items()},
        "elr": {str(broker): epoch for broker, epoch in state.elr.items()},
        "suspects": sorted(state.suspects),
        "leader_registration_epoch": state.leader_registration_epoch,
        "replicas": list(state.replicas),
        "target": None if state.target is None else list(state.target),
        "min": state.min_isr,
        "unclean_epoch": state.unclean_epoch,
        "flushes": state.flushes,
        "unclean_allowed": state.is_unclean_allowed,
        "lease_kept": state.is_lease_kept,
        "removed": sorted(state.removed),
        "original": None if state.original is None else list(state.original),
    }
    return json.dumps(document, separators=(",", ":")).encode()


def parse_state(data: bytes | None, path: str) -> State:
    """Decode a state from the JSON text of its znode. An error names the path.

    Raises:
        BadZnodeError: the data is not a state, or its leader epoch is too large for a next
            election. Unknown keys are ignored.
    """
    document = ZnodeDocument(data, path)
    version = document.number("version", 0, ID_MAX)
    if version != STATE_VERSION:
        raise document.error(f"version is {version}, but only {STATE_VERSION} can be read")
    isr = document.epochs("isr_epochs")
    if set(document.brokers("isr")) != set(isr):
        raise document.error("isr and isr_epochs name different brokers")
    state = State(
        leader=document.number("leader", NO_BROKER, ID_MAX),
        leader_epoch=document.number("leader_epoch", 0, LEADER_EPOCH_MAX),
        controller_epoch=document.number("controller_epoch", 0, ID_MAX),
        isr={broker: isr[broker] for broker in document.brokers("isr")},
        elr=document.epochs("elr"),
        suspects=frozenset(document.brokers("suspects")),
        leader_registration_epoch=document.number("leader_registration_epoch", 0, EPOCH_MAX),
        replicas=document.brokers("replicas"),
        target=None if document.get("target") is None else document.brokers("target"),
        min_isr=document.number("min", 1, ID_MAX),
        unclean_epoch=document.number("unclean_epoch", NEVER_UNCLEAN, ID_MAX),
        flushes=document.flag("flushes"),
        is_unclean_allowed=document.flag("unclean_allowed"),
        is_lease_kept=document.flag("lease_kept"),
        removed=frozenset(document.brokers("removed")),
        original=None if document.get("original") is None else document.brokers("original"),
    )
    if fault := fault_of(state):
        raise document.error(fault)
    return state
