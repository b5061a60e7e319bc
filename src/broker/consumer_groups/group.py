"""Hold one group of the new protocol: its members, its epochs and its target assignment.

    group epoch        grows when a member, a subscription or a topic changes
    assignment epoch   the group epoch for which the target assignment was computed
    member epoch       the assignment epoch that a member has reached

    EMPTY        the group has no members
    ASSIGNING    the group epoch is larger than the assignment epoch
    RECONCILING  a member has not reached the target assignment yet
    STABLE       all members have reached it
    DEAD         the group was removed

If a member has a partition in `assigned` or in `revoking`, the partition belongs to this member,
and `owners` names the member. Only `place` changes `assigned`, `revoking` and `owners`. So a
partition never belongs to two members.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any

from broker.consumer_groups.exchange import (
    NOTHING,
    ConsumerSettings,
    HeartbeatAnswer,
    Place,
    Places,
    TopicImage,
)
from broker.consumer_groups.member import Member, MemberState
from broker.groups.exchange import Now
from broker.groups.group import State
from broker.wire.error_codes import ErrorCode

PROTOCOL_TYPE = "consumer"
Lists = tuple[dict[str, Member], dict[str, str], dict[str, Places], dict[str, frozenset[str]]]


class SavedState:
    """The state of a group that the log has; `undoing` returns to this state.

    Attributes:
        copies: the members that have changed, as they were before.
        lists: the members, the instances, the targets and the resolved patterns; None until one of
            these lists is about to change. A member that only changes its partitions does not
            change these lists.
    """

    __slots__ = ("assignment_epoch", "copies", "epoch", "lists", "metadata_hash", "since_ms")

    def __init__(self, group: ConsumerGroup) -> None:
        self.since_ms, self.metadata_hash = group.since_ms, group.metadata_hash
        self.epoch, self.assignment_epoch = group.epoch, group.assignment_epoch
        self.copies: dict[str, Member] = {}
        self.lists: Lists | None = None


class ConsumerGroup:
    """One group. The caller must hold a lock during each call.

    A change adds answers to `replies`, each with the object `waiter` that came with the request. If
    `is_unsaved` is True, the caller must write the group to the log before it sends the answers.

    Attributes:
        since_ms: the time when the group last became empty, or when it was created.
        instances: the member id of each static member; the key is its instance id.
        targets: the target assignment; the key is the member id.
        owners: the member id of the owner, for each partition with an owner.
        resolved: the names of the topics that match each pattern of a member.
        viewed_version: the version of the viewer in the last heartbeat.
        matched: for each pattern, the facts from which its entry in `resolved` was computed.
        metadata_hash: identifies the topics that members have subscribed to, and their partitions.
        looked_at: the last time when the group looked for changes of topics.
        unsaved_facts, unsaved_targets, unsaved_places: ids of the members whose records must be
            written. If a member is no longer in the group, its record must be deleted.
        unsaved_patterns: the patterns whose records must be written, or deleted if no member has
            them.
        before: the state that the log has, after the first change of this state; otherwise None.
        has_new_deadline: whether a deadline may be earlier than all deadlines before, although
            nothing must be written.
    """

    protocol_type = PROTOCOL_TYPE

    def __init__(self, name: str, settings: ConsumerSettings, now: Now) -> None:
        self.name = name
        self.settings = settings
        self.since_ms = now.wall_ms
        self.is_dead = False
        self.epoch = self.assignment_epoch = 0
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        self.targets: dict[str, Places] = {}
        self.owners: dict[Place, str] = {}
        self.resolved: dict[str, frozenset[str]] = {}
        self.matched: dict[str, object] = {}
        self.viewed_version: object = None
        self.metadata_hash = 0
        self.looked_at = float("-inf")
        self.replies: list[tuple[Any, HeartbeatAnswer]] = []
        self.unsaved_facts: dict[str, None] = {}
        self.unsaved_targets: dict[str, None] = {}
        self.unsaved_places: dict[str, None] = {}
        self.unsaved_patterns: dict[str, None] = {}
        self.is_epoch_unsaved = self.is_assignment_epoch_unsaved = False
        self.before: SavedState | None = None
        self.has_new_deadline = False

    # --- answers and records --------------------------------------------------------------------

    def reply(self, waiter: Any, answer: HeartbeatAnswer) -> None:
        """Add the answer to a request to `replies`."""
        self.replies.append((waiter, answer))

    def take_replies(self) -> list[tuple[Any, HeartbeatAnswer]]:
        """Return the answers in `replies`, and empty `replies`."""
        replies, self.replies = self.replies, []
        return replies

    @property
    def is_unsaved(self) -> bool:
        """Whether a change of the group is not in the log yet."""
        return (
            self.is_epoch_unsaved or self.is_assignment_epoch_unsaved or bool(self.unsaved_facts)
            or bool(self.unsaved_targets) or bool(self.unsaved_places)
            or bool(self.unsaved_patterns)
        )  # fmt: skip

    def saved(self) -> None:
        """Remember that the log has all changes."""
        self.is_epoch_unsaved = self.is_assignment_epoch_unsaved = False
        self.unsaved_facts, self.unsaved_targets = {}, {}
        self.unsaved_places, self.unsaved_patterns = {}, {}
        self.before = None

    @property
    def pending(self) -> Mapping[str, float]:
        """Always empty, because a member of this protocol is added at once."""
        return {}

    # --- questions ------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state of the group; a thread may read it without the lock."""
        members = list(self.members.values())
        if self.is_dead:
            return State.DEAD
        if not members:
            return State.EMPTY
        if self.epoch > self.assignment_epoch:
            return State.ASSIGNING
        has_all = all(one.has_reached(self.assignment_epoch) for one in members)
        return State.STABLE if has_all else State.RECONCILING

    def fault_of_commit(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Return NONE if a request is allowed to commit offsets; otherwise return an error.

        If the group has members, only its members are allowed to commit, in their present epoch. As
        in Kafka, the instance id is not checked.
        """
        if self.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and not self.members:
            return ErrorCode.NONE
        return self.fault_of_epoch(member_id, generation)

    def fault_of_transaction(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Return NONE if a transaction is allowed to commit offsets; otherwise return an error.

        A producer that names no member is allowed to commit, because its transactional id fences
        it. TxnOffsetCommit has no error STALE_MEMBER_EPOCH, so the error is ILLEGAL_GENERATION, as
        in Kafka.
        """
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.NONE
        fault = self.fault_of_commit(member_id, instance_id, generation)
        return ErrorCode.ILLEGAL_GENERATION if fault is ErrorCode.STALE_MEMBER_EPOCH else fault

    def fault_of_epoch(self, member_id: str, epoch: int) -> ErrorCode:
        """Return NONE if a request is from a member in its present epoch; otherwise an error."""
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.epoch:
            return ErrorCode.NONE
        is_new = member.classic is None
        return ErrorCode.STALE_MEMBER_EPOCH if is_new else ErrorCode.ILLEGAL_GENERATION

    @property
    def classic_members(self) -> list[Member]:
        """The members that use the classic protocol."""
        return [one for one in self.members.values() if one.classic is not None]

    def topics_of(self, member: Member) -> frozenset[str]:
        """Return the names of the topics that a member has subscribed to."""
        return member.topics | self.resolved.get(member.pattern, frozenset())

    def subscribed(self) -> set[str]:
        """Return the names of the topics that any member has subscribed to."""
        return set[str]().union(*(self.topics_of(one) for one in self.members.values()))

    def has_pattern(self, pattern: str) -> bool:
        """Report whether a member has subscribed to a pattern."""
        return any(one.pattern == pattern for one in self.members.values())

    @property
    def assignor(self) -> str:
        """The assignor that most members want; by default, the broker's first assignor."""
        known = self.settings.assignors
        votes = Counter(one.assignor for one in self.members.values() if one.assignor in known)
        return min(known, key=lambda name: (-votes[name], known.index(name)))

    def hash_of(self, topics: Mapping[str, TopicImage]) -> int:
        """Return a number that changes if a topic changes to which a member has subscribed."""
        digest = hashlib.blake2b(digest_size=8)
        for name in sorted(self.subscribed() & topics.keys()):
            topic = topics[name]
            numbers = ",".join(map(str, topic.partitions))
            digest.update(f"{name}\n{topic.id.hex()}\n{numbers}\n".encode())
        return int.from_bytes(digest.digest(), "big", signed=True)

    # --- changes that keep the parts of the group consistent ------------------------------------

    def changing(self, member: Member | None = None, *, has_lists: bool = True) -> None:
        """Keep the saved state before its first change, and a member as it was before its change.

        This must be called before each change that needs records.

        Args:
            has_lists: whether one of the lists in `SavedState.lists` may change.
        """
        if (before := self.before) is None:
            before = self.before = SavedState(self)
        if has_lists and before.lists is None:
            before.lists = (
                dict(self.members), dict(self.instances), dict(self.targets), dict(self.resolved)
            )  # fmt: skip
        members = self.members if before.lists is None else before.lists[0]
        if member is not None and members.get(member.id) is member:
            before.copies.setdefault(member.id, copy(member))

    def add(self, member: Member) -> None:
        """Add a member that has no partitions yet."""
        self.changing()
        self.members[member.id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.id

    def remove(self, member: Member) -> None:
        """Remove a member. After that, its partitions have no owner."""
        self.changing()
        self.place(member, NOTHING, NOTHING)
        del self.members[member.id]
        if self.instances.get(member.instance_id or "") == member.id:
            del self.instances[member.instance_id or ""]
        self.targets.pop(member.id, None)
        for unsaved in (self.unsaved_facts, self.unsaved_targets, self.unsaved_places):
            unsaved[member.id] = None
        if member.pattern and not self.has_pattern(member.pattern):
            self.resolved.pop(member.pattern, None)
            self.unsaved_patterns[member.pattern] = None

    def place(self, member: Member, assigned: Iterable[Place], revoking: Iterable[Place]) -> None:
        """Change the partitions that a member has."""
        self.changing(member, has_lists=False)
        before = member.assigned | member.revoking
        member.assigned, member.revoking = frozenset(assigned), frozenset(revoking)
        after = member.assigned | member.revoking
        for place in before - after:
            del self.owners[place]
        for place in after - before:
            assert place not in self.owners, "the partition belongs to another member"
            self.owners[place] = member.id
        self.unsaved_places[member.id] = None

    def bump(self) -> None:
        """Begin the next group epoch."""
        self.changing(has_lists=False)
        self.epoch += 1
        self.is_epoch_unsaved = True

    def enter(self, member: Member, state: MemberState, epoch: int) -> None:
        """Change the state and the epoch of a member."""
        self.changing(member, has_lists=False)
        member.previous_epoch, member.epoch, member.state = member.epoch, epoch, state
        self.unsaved_places[member.id] = None
