"""Hold the data of one member of a group, and its partitions.

STABLE       the member has its part of the target assignment
UNREVOKED    the member must give up partitions before it gets an assignment of a later epoch
UNRELEASED   the member lacks partitions that other members have not given up yet
"""

from __future__ import annotations

import enum

from broker.consumer_groups.exchange import (
    JOINS,
    LEAVES_FOR_NOW,
    NOTHING,
    Classic,
    Heartbeat,
    Places,
    Viewer,
)

NEVER = float("inf")
MS = 1000


class MemberState(enum.IntEnum):
    """The state of a member. The values are the same as in Kafka's records."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2


class Member:
    """One member of a group.

    Attributes:
        epoch: the assignment epoch that the member has reached; otherwise JOINS or LEAVES_FOR_NOW.
        previous_epoch: the epoch before `epoch`. If an answer was lost, the member may still send
            this epoch.
        size_bytes: the approximate size of the member's own record in the log.
        assigned: the partitions that the member may read.
        revoking: the partitions that the member must give up first. No other member gets them.
        viewer: the topics that the member may find by its pattern; None if the member may find all
            topics, or if `is_unheard` is True.
        is_unheard: whether the member has sent no heartbeat since the group was loaded.
        deadline: when the member's session ends, unless the member sends a heartbeat before then.
        revocation_deadline: the time by which the member must give up the partitions in `revoking`.
        classic: the facts that only a member of the classic protocol has; otherwise None.
        rejoin_deadline: the time by which a classic member must send the JoinGroup or SyncGroup
            request that the group expects.
    """

    __slots__ = (
        "assigned", "assignor", "classic", "client_host", "client_id", "deadline", "epoch", "id",
        "instance_id", "is_unheard", "pattern", "previous_epoch", "rack_id", "rebalance_timeout_ms",
        "rejoin_deadline", "revocation_deadline", "revoking", "size_bytes", "state", "topics",
        "viewer",
    )  # fmt: skip

    def __init__(self, member_id: str) -> None:
        self.id = member_id
        self.instance_id: str | None = None
        self.rack_id: str | None = None
        self.client_id = self.client_host = ""
        self.rebalance_timeout_ms = -1
        self.topics: frozenset[str] = frozenset()
        self.pattern = ""
        self.assignor: str | None = None
        self.epoch = JOINS
        self.previous_epoch = -1
        self.state = MemberState.STABLE
        self.assigned: Places = NOTHING
        self.revoking: Places = NOTHING
        self.deadline = self.revocation_deadline = self.rejoin_deadline = NEVER
        self.classic: Classic | None = None
        self.viewer: Viewer | None = None
        self.is_unheard = False
        self.size_bytes = 64

    def facts(self) -> tuple[object, ...]:
        """Return the facts from the member's heartbeats, so that the caller can notice a change."""
        return (
            self.instance_id, self.rack_id, self.client_id, self.client_host,
            self.rebalance_timeout_ms, self.topics, self.pattern, self.assignor, self.classic,
        )  # fmt: skip

    def is_changed_by(self, asked: Heartbeat) -> bool:
        """Report whether a heartbeat has other facts about the member."""
        topics = None if asked.topics is None else frozenset(asked.topics)
        timeout_ms = asked.rebalance_timeout_ms if asked.rebalance_timeout_ms >= 0 else None
        given = (
            asked.instance_id, asked.rack_id, asked.client_id, asked.client_host,
            timeout_ms, topics, asked.pattern, asked.assignor,
        )  # fmt: skip
        known = self.facts()[: len(given)]
        return asked.classic != self.classic or any(
            new is not None and new != old for new, old in zip(given, known, strict=True)
        )

    def update(self, asked: Heartbeat) -> None:
        """Store the facts in a heartbeat about the member."""
        self.client_id, self.client_host = asked.client_id, asked.client_host
        self.viewer, self.is_unheard = asked.viewer, False
        self.classic = asked.classic
        if asked.instance_id is not None:
            self.instance_id = asked.instance_id
        if asked.rack_id is not None:
            self.rack_id = asked.rack_id
        if asked.rebalance_timeout_ms >= 0:
            self.rebalance_timeout_ms = asked.rebalance_timeout_ms
        if asked.topics is not None:
            self.topics = frozenset(asked.topics)
        if asked.pattern is not None:
            self.pattern = asked.pattern
        if asked.assignor is not None:
            self.assignor = asked.assignor
        self.size_bytes = self._size()

    def heir(self, member_id: str) -> Member:
        """Return a copy of this member with another id."""
        one = Member(member_id)
        for name in self.__slots__:
            if name not in ("id", "deadline", "rejoin_deadline", "revocation_deadline"):
                setattr(one, name, getattr(self, name))
        one.epoch, one.previous_epoch = JOINS, 0
        if one.state is MemberState.UNREVOKED:  # a joining member has no partitions to give up
            one.state = MemberState.STABLE
        return one

    def hear(self, now: float, session: float) -> None:
        """Let the session begin again.

        Args:
            session: the seconds of a session of the new protocol.
        """
        self.deadline = now + (session if self.classic is None else self.classic.session_ms / MS)

    @property
    def is_away(self) -> bool:
        """Whether this static member has left, and may return."""
        return self.epoch == LEAVES_FOR_NOW

    def has_reached(self, assignment_epoch: int) -> bool:
        """Report whether the member has its part of the target assignment."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def _size(self) -> int:
        names = (self.id, self.instance_id, self.rack_id, self.client_id, self.client_host)
        texts = (*names, self.pattern, self.assignor, *self.topics)
        size = 64 + sum(2 + len((text or "").encode("utf-8", "replace")) for text in texts)
        protocols = () if self.classic is None else self.classic.protocols
        return size + sum(8 + len(name.encode()) + len(data) for name, data in protocols)
