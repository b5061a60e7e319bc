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
        version: the zxid of the last write of the settings; 0 if there was no write. If a read has
            a smaller zxid than an earlier read, it is out of date.
    """

    min_isr: int
    is_unclean_allowed: bool = False
    flushes: bool = False
    version: int = 0


class Deletion(NamedTuple):
    """A deleted partition, and the brokers that must still delete their replicas.

    Attributes:
        version: a version that is later than each version that a replica of this topic has obeyed.
        brokers: the brokers that have not answered yet.
    """

    topic: TopicIdentity
    partition: int
    version: int
    brokers: frozenset[int]


# --- events ---


class RegistrationsRead(NamedTuple):
    """Event: the registrations in the store; the key is the broker id."""

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
    """Event: the port of a broker refused a connection, so its process is gone (P14)."""

    broker: int


class ConnectionAccepted(NamedTuple):
    """Event: a broker accepted a connection."""

    broker: int


class Reassign(NamedTuple):
    """Event: an operator asks for other replicas."""

    key: PartitionKey
    target: tuple[int, ...]


class CancelReassignment(NamedTuple):
    """Event: an operator cancels a reassignment, and wants the original replicas back."""

    key: PartitionKey


class ElectLeader(NamedTuple):
    """Event: an operator wants a member of the ISR to lead.

    Attributes:
        broker: the wanted leader; None for the first replica.
    """

    key: PartitionKey
    broker: int | None = None


class ElectUncleanly(NamedTuple):
    """Event: elect a leader that may lack records; an operator or the topic's settings allow it.

    Attributes:
        is_forced: whether an operator asserts that all brokers without a registration have stopped.
            Without this assertion, the topic's settings must allow the election, and the last
            leader must know these settings.
    """

    key: PartitionKey
    is_forced: bool = False


Wish = Reassign | CancelReassignment | ElectLeader | ElectUncleanly


class DeleteTopic(NamedTuple):
    """Event: a topic is deleted."""

    key: PartitionKey


class DeletionsRead(NamedTuple):
    """Event: the deletions in the store that earlier controllers have begun and not completed."""

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
    """Effect: write a state, on condition that the store has this version and controller epoch.

    Attributes:
        version: the version to replace; NO_VERSION to create the state.
        number: this controller numbers its writes; the answer to a write names this number.
        is_assignment: whether the replicas change. The transaction of a change of replicas also
            writes the topic (P1).
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
    """Effect: remove a deletion from the store, because all replicas are deleted."""

    topic: TopicIdentity
    partition: int


class ReportLoss(NamedTuple):
    """Effect: report that acknowledged records may be lost, and why."""

    key: PartitionKey
    reason: str
