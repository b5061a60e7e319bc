"""Define the heartbeats that a group gets, the answers that it returns, and its settings."""

from __future__ import annotations

import enum
from typing import NamedTuple, Protocol

from broker.wire.error_codes import ErrorCode

Place = tuple[bytes, int]  # one partition: the id of its topic, and its number
Places = frozenset[Place]
NOTHING: Places = frozenset()
JOINS = 0  # the epoch of a member that joins
LEAVES = -1  # the epoch of a member that leaves
LEAVES_FOR_NOW = -2  # the epoch of a static member that leaves and will return
UNCHANGED_MS = -1  # the rebalance timeout in a heartbeat that does not change it


class Viewer(Protocol):
    """The topics that one client may see. Two viewers are equal if their clients are equal."""

    @property
    def version(self) -> object:
        """An object that is replaced when the client may see other topics."""

    def sees(self, name: str) -> bool:
        """Report whether the client may know of a topic."""


class Migration(enum.Enum):
    """Which groups with members may change their protocol. The values are Kafka's names."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def has_upgrade(self) -> bool:
        """Whether a classic group changes when a member of the new protocol joins."""
        return self in (Migration.UPGRADE, Migration.BIDIRECTIONAL)

    @property
    def has_downgrade(self) -> bool:
        """Whether a group becomes classic when its last member of the new protocol leaves."""
        return self in (Migration.DOWNGRADE, Migration.BIDIRECTIONAL)


class Classic(NamedTuple):
    """The facts in a JoinGroup request that only a member of the classic protocol has.

    Attributes:
        session_ms: if the member sends no request for this time, it is removed.
        protocols: the names of the member's assignors, each with bytes that the member sent.
    """

    session_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Heartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat request of a member that joins, or continues.

    A JoinGroup request to a group of the new protocol is a Heartbeat, too. It has `classic`.

    Attributes:
        topics, pattern, assignor: None if the member does not change them.
        pattern: a regular expression; "" subscribes to no topic.
        owned: the partitions that the member still has; None if the heartbeat does not list them.
        viewer: the topics that the client may see; None if it may see all topics.
        classic: None if the member uses the new protocol.
    """

    member_id: str
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED_MS
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Places | None = None
    viewer: Viewer | None = None
    classic: Classic | None = None

    @property
    def is_full(self) -> bool:
        """Whether the heartbeat has all facts about the member.

        The answer to a heartbeat with all facts has the assignment.
        """
        has_topics = self.topics is not None or self.pattern is not None
        return self.rebalance_timeout_ms != UNCHANGED_MS and has_topics and self.owned is not None


class HeartbeatAnswer(NamedTuple):
    """The answer to a heartbeat. If the assignment did not change, `assignment` is None."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    assignment: Places | None = None


class TopicImage(Protocol):
    """The facts about a topic that a group needs."""

    @property
    def id(self) -> bytes:
        """The topic's id."""

    @property
    def partitions(self) -> tuple[int, ...]:
        """The numbers of the topic's partitions."""


class ConsumerSettings(NamedTuple):
    """The limits of all groups of the new protocol.

    Attributes:
        session: if a member sends no heartbeat for this many seconds, it is removed.
        heartbeat_ms: how often members send heartbeats.
        size_max: the largest number of members of one group.
        member_bytes_max: the largest total size of the texts that describe one member and its
            subscriptions.
        bytes_max: the largest total size of these texts for all members of a group together.
        assignors: the names of the assignors. If the members of a group prefer no assignor, the
            group uses the first assignor.
        migration: which groups with members may change their protocol.
    """

    session: float = 45.0
    heartbeat_ms: int = 5_000
    size_max: int = 10_000
    member_bytes_max: int = 1 << 20
    bytes_max: int = 64 << 20
    assignors: tuple[str, ...] = ("uniform", "range")
    migration: Migration = Migration.BIDIRECTIONAL


class Refused(Exception):  # noqa: N818 - an answer, not a fault of the program
    """Report that a heartbeat was refused. The refused heartbeat has not changed the group."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
