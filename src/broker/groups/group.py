"""Hold one consumer group: its members, its leader and its generation.

    EMPTY       the group has no members
    PREPARING   a rebalance has begun: the group waits until all members have joined again
    COMPLETING  all members have joined: the group waits for the leader's assignments
    STABLE      each member has its assignment
    DEAD        the group was removed

    state       a member joins, leaves, expires    all joined, or time over    the leader's sync
    EMPTY       PREPARING                          -                           -
    PREPARING   PREPARING                          COMPLETING or EMPTY         -
    COMPLETING  PREPARING                          -                           STABLE
    STABLE      PREPARING                          -                           STABLE

The functions that change a group are in `joining`, `rebalance`, `assignment` and `sessions`. Groups
follow Kafka's classic protocol (KIP-62, 345, 394, 559, 814).
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from broker.groups.exchange import JoinAnswer, Now, Reply, SyncAnswer
from broker.groups.member import Member
from broker.wire.error_codes import ErrorCode

NEVER = float("inf")
CONSUMERS = "consumer"  # the protocol type whose members subscribe to topics


class State(enum.Enum):
    """The state of a group; the values are Kafka's names for the states."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    # Only groups of the new protocol (`broker.consumer_groups`) have these states.
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class GroupSettings(NamedTuple):
    """The limits of all groups.

    Attributes:
        initial_delay: how many seconds an empty group waits for further members, after the first
            member has joined.
        size_max: the largest number of members of one group.
        bytes_max: the largest size of a group's record in the log.
    """

    initial_delay: float = 0.0
    size_max: int = 10_000
    bytes_max: int = 7 << 20


class Group:
    """One group. The caller must hold a lock during each call.

    A change adds answers to `replies`, each with the object `waiter` that came with the request. If
    `is_unsaved` is True, the caller must write the group to the log before it sends the answers.

    Attributes:
        since_ms: the time when the present state began.
        leader_id: the member that makes the assignments; None if the group has no member.
        instances: the member id of each static member; the key is its instance id.
        pending: the ids of new members that have not joined yet; each id has the time when it
            expires.
        unsynced: members of this generation that have not sent a SyncGroup request.
        delay_left: the first rebalance of an empty group can still be delayed for this many
            seconds; None in any other rebalance.
        has_grown: whether a member joined during the present delay.
        replaced: the members, the instances and the leader before a static member was replaced,
            until the log has the replacement; otherwise None.
        is_converted: whether the group has just become a classic group. Until its first rebalance
            is complete, the assignments of its members are not those of a leader.

    Args:
        draw_id: returns a new member id that begins with a given prefix.
    """

    def __init__(
        self, name: str, settings: GroupSettings, draw_id: Callable[[str], str], now: Now
    ) -> None:
        self.name = name
        self.settings = settings
        self.draw_id = draw_id
        self.state = State.EMPTY
        self.since_ms = now.wall_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        self.pending: dict[str, float] = {}
        self.unsynced: set[str] = set()
        self.join_deadline = self.sync_deadline = NEVER
        self.delay_left: float | None = None
        self.has_grown = self.is_converted = False
        self.is_unsaved = False
        self.replaced: tuple[dict[str, Member], dict[str, str], str | None] | None = None
        self.replies: list[Reply] = []

    def enter(self, state: State, now: Now) -> None:
        """Change the state."""
        self.state, self.since_ms = state, now.wall_ms

    def reply(self, waiter: Any, answer: JoinAnswer | SyncAnswer) -> None:
        """Add the answer to a request to `replies`."""
        self.replies.append((waiter, answer))

    def take_replies(self) -> list[Reply]:
        """Return the answers in `replies`, and empty `replies`."""
        replies, self.replies = self.replies, []
        return replies

    # --- questions ------------------------------------------------------------------------------

    def fault_of_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return NONE if a request may be from a member of this group; otherwise an error."""
        if instance_id is not None:
            known = self.instances.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def fault_of(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Return NONE if a request is from a member of the present generation, or else an error."""
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        fault = self.fault_of_member(member_id, instance_id)
        if fault is ErrorCode.FENCED_INSTANCE_ID and generation > self.generation:
            # The broker crashed before it wrote this generation and its member ids to the log.
            # So no newer process has this instance id.
            # The error FENCED_INSTANCE_ID would end the process of the client.
            # After UNKNOWN_MEMBER_ID, the process joins again.
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not fault and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return fault

    def fault_of_commit(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Return NONE if a request is allowed to commit offsets; otherwise return an error.

        If the group has members, only its members are allowed to commit.
        """
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        fault = self.fault_of(member_id, instance_id, generation)
        if not fault and self.state is State.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return fault

    def fault_of_transaction(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Return NONE if a transaction is allowed to commit offsets; otherwise return an error.

        A producer that names no member is allowed to commit, because its transactional id fences
        it.
        """
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.NONE
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE
        return self.fault_of(member_id, instance_id, generation)

    def common_protocols(self) -> set[str]:
        """Return the protocols that all members support."""
        names = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*names) if names else set()

    def vote(self) -> str | None:
        """Return the protocol that most members prefer, among the protocols that all support."""
        common = self.common_protocols()
        votes = Counter(
            next(name for name, _ in member.protocols if name in common)
            for member in self.members.values()
            if common
        )
        return votes.most_common(1)[0][0] if votes else None

    @property
    def is_of_consumers(self) -> bool:
        """Whether the members are consumers, which could also use the new protocol."""
        return self.protocol_type == CONSUMERS

    @property
    def rebalance_timeout(self) -> float:
        """The largest rebalance timeout of all members."""
        return max((member.rebalance_timeout for member in self.members.values()), default=0.0)

    @property
    def size_bytes(self) -> int:
        """The approximate size of the group's record in the log."""
        return sum(member.size_bytes for member in self.members.values())

    def all_metadata(self) -> tuple[tuple[str, str | None, bytes], ...]:
        """Return the id, the instance id and the metadata of each member, for the leader."""
        return tuple(
            (member.id, member.instance_id, member.metadata_for(self.protocol))
            for member in self.members.values()
        )

    def join_answer(self, member: Member) -> JoinAnswer:
        """Return the answer to a member that has joined the present generation."""
        is_leader = member.id == self.leader_id and self.state is State.COMPLETING
        return JoinAnswer(
            ErrorCode.NONE,
            member.id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader_id or "",
            self.all_metadata() if is_leader else (),
        )

    def sync_answer(self, member: Member) -> SyncAnswer:
        """Return the answer to a member that asked for its assignment."""
        return SyncAnswer(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)
