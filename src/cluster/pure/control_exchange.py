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
        version: the zxid of the last write of the settings; 0 without a write. A read with a
            smaller zxid is late.
    """

    min_isr: int
    is_unclean_allowed: bool = False
    flushes: bool = False
    version: int = 0


class Deletion(NamedTuple):
    """The replicas of a deleted partition, which their brokers must delete.

    Attributes:
        version: a later version than all versions that a replica of this topic has obeyed.
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
    """Event: the answer to a WriteState: the store has written the state with this version."""

    key: PartitionKey
    number: int
    version: int


class WriteFailed(NamedTuple):
    """Event: a write was refused because the version changed, or the answer was lost."""

    key: PartitionKey
    number: int


class Deposed(NamedTuple):
    """Event: the store has another controller epoch."""


class Look(NamedTuple):
    """Event: decide about a partition, and ask the replicas that have not answered."""

    key: PartitionKey


class AskAll(NamedTuple):
    """Event: ask all replicas of a partition, for example because a log dir failed."""

    key: PartitionKey


class ConnectionRefused(NamedTuple):
    """Event: a broker's port refused a connection, so its process is gone (P14)."""

    broker: int


class ConnectionAccepted(NamedTuple):
    """Event: a broker accepted a connection."""

    broker: int


class Reassign(NamedTuple):
    """Event: an operator asks for other replicas."""

    key: PartitionKey
    target: tuple[int, ...]


class CancelReassignment(NamedTuple):
    """Event: an operator asks for the replicas from before a reassignment."""

    key: PartitionKey


class ElectLeader(NamedTuple):
    """Event: an operator asks for a member of the ISR as leader.

    Attributes:
        broker: the wanted leader; None for the first replica.
    """

    key: PartitionKey
    broker: int | None = None


class ElectUncleanly(NamedTuple):
    """Event: an operator, or the topic's settings, accept the loss of records.

    Attributes:
        is_forced: whether an operator asserts that brokers without a registration do not lead.
            Otherwise the topic's settings must allow the election, and the last leader must know
            that.
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
    """Event: repeat the unanswered StopReplica requests for deleted topics."""


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
        is_assignment: whether the replicas change. Then the topic is written with the state (P1).
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
    """Effect: report that the controller refuses an event, and why."""

    event: Wish | CreateTopic | DeleteTopic | StateRead | Look
    reason: str


class SendRequest(NamedTuple):
    """Effect: send a request to a broker."""

    broker: int
    request: LeaderAndIsr | StopReplica | AlterRefused


class KeepDeletion(NamedTuple):
    """Effect: write a deletion durably into the store, so that the next controller can read it."""

    deletion: Deletion


class ForgetDeletion(NamedTuple):
    """Effect: remove a deletion from the store, because no broker has a replica left."""

    topic: TopicIdentity
    partition: int


class ReportLoss(NamedTuple):
    """Effect: report that acknowledged records may be lost, and why."""

    key: PartitionKey
    reason: str
