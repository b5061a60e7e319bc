"""Define the events and effects of the controller, besides the requests between brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cluster.registration import Registration, TopicIdentity
from cluster.requests import AlterRefused, LeaderAndIsr, StopReplica
from cluster.state import State

PartitionKey = tuple[str, int]  # topic name and partition


class TopicConfig(NamedTuple):
    """The settings of a topic that elections and roles depend on.

    Attributes:
        version: the zxid at which the settings were written last; 0 if they never were. A read
            with a smaller one is late.
    """

    min_isr: int
    is_unclean_allowed: bool = False
    flushes: bool = False
    version: int = 0


class Deletion(NamedTuple):
    """The replicas of a partition that was deleted, and must be deleted on their brokers.

    Attributes:
        version: a later version than any that a replica of this topic has obeyed.
        brokers: the brokers that have not answered yet.
    """

    topic: TopicIdentity
    partition: int
    version: int
    brokers: frozenset[int]


# --- events ---


class RegistrationsRead(NamedTuple):
    """Event: the registrations in the store, by broker id."""

    registrations: Mapping[int, Registration]


class StateRead(NamedTuple):
    """Event: the state of a partition in the store, with the topic's identity and settings."""

    key: PartitionKey
    topic: TopicIdentity
    version: int
    state: State
    config: TopicConfig


class Written(NamedTuple):
    """Event: the answer to a WriteState: the store has written the state, as this version."""

    key: PartitionKey
    number: int
    version: int


class WriteFailed(NamedTuple):
    """Event: a write was refused because the version changed, or its answer is lost."""

    key: PartitionKey
    number: int


class Deposed(NamedTuple):
    """Event: the store has another controller epoch."""


class Look(NamedTuple):
    """Event: decide about a partition, and ask the replicas that have not answered."""

    key: PartitionKey


class AskAll(NamedTuple):
    """Event: ask all replicas of a partition, for example because a log dir of one failed."""

    key: PartitionKey


class ConnectionRefused(NamedTuple):
    """Event: a broker's port refused a connection, so its process is gone (P14)."""

    broker: int


class ConnectionAccepted(NamedTuple):
    """Event: a broker accepted a connection."""

    broker: int


class Reassign(NamedTuple):
    """Event: an operator wants other replicas."""

    key: PartitionKey
    target: tuple[int, ...]


class CancelReassignment(NamedTuple):
    """Event: an operator wants the replicas back that there were before a reassignment."""

    key: PartitionKey


class ElectLeader(NamedTuple):
    """Event: an operator wants a member of the ISR to lead.

    Attributes:
        broker: the broker that shall lead; None for the first of the replicas.
    """

    key: PartitionKey
    broker: int | None = None


class ElectUncleanly(NamedTuple):
    """Event: an operator, or the topic's settings, accept the loss of records.

    Attributes:
        is_forced: an operator says that no broker leads whose registration is gone. Otherwise the
            topic's settings must allow the election, and its last leader must know that.
    """

    key: PartitionKey
    is_forced: bool = False


Wish = Reassign | CancelReassignment | ElectLeader | ElectUncleanly


class DeleteTopic(NamedTuple):
    """Event: a topic is deleted."""

    key: PartitionKey


class DeletionsRead(NamedTuple):
    """Event: the deletions that earlier controllers have not completed (KeepDeletion)."""

    deletions: tuple[Deletion, ...]


class StopsDue(NamedTuple):
    """Event: ask the brokers again that have not answered a StopReplica for a deleted topic."""


class CreateTopic(NamedTuple):
    """Event: a topic was created, and this partition has no state yet."""

    key: PartitionKey
    topic: TopicIdentity
    replicas: tuple[int, ...]
    config: TopicConfig


# --- effects ---


class WriteState(NamedTuple):
    """Effect: write a state, if the store has this version and this controller epoch.

    Attributes:
        version: the version to replace; NO_VERSION to create the state.
        number: the number of this write of this controller; the answer names it.
        is_assignment: whether the replicas change: then the topic is written with the state (P1).
    """

    key: PartitionKey
    topic: TopicIdentity
    state: State
    version: int | None
    controller_epoch: int | None
    number: int
    is_assignment: bool = False


class ReadState(NamedTuple):
    """Effect: read the state and the registrations again."""

    key: PartitionKey


class Reject(NamedTuple):
    """Effect: tell an operator that the controller refuses what the event asks for, and why.

    For a StateRead it means that the settings have a bad min: the state's own min is used. For a
    Look it means that the next state would need a leader epoch that is too large.
    """

    event: Wish | CreateTopic | DeleteTopic | StateRead | Look
    reason: str


class SendRequest(NamedTuple):
    """Effect: send a request to a broker."""

    broker: int
    request: LeaderAndIsr | StopReplica | AlterRefused


class KeepDeletion(NamedTuple):
    """Effect: write a deletion into the store durably, so that the next controller reads it."""

    deletion: Deletion


class ForgetDeletion(NamedTuple):
    """Effect: remove a deletion from the store, because no broker has a replica any more."""

    topic: TopicIdentity
    partition: int


class ReportLoss(NamedTuple):
    """Effect: report that acknowledged records may be lost, and why."""

    key: PartitionKey
    reason: str
