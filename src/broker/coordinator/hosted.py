"""Hold a group together with its lock, its offsets and its timer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from broker.catalog.client_appends import Wait
from broker.consumer_groups import undoing
from broker.consumer_groups.exchange import HeartbeatAnswer
from broker.coordinator import group_kinds
from broker.coordinator.group_kinds import AnyGroup, Record
from broker.groups import rebalance
from broker.groups.exchange import JoinAnswer, Now, SyncAnswer
from broker.groups.group import Group, State
from broker.groups.offsets import Committed, Key
from broker.wire.error_codes import ErrorCode


class Write:
    """Records of a group that other replicas do not have yet; the group's lock guards them.

    Attributes:
        apply: this function is called when all in-sync replicas have the records.
        keys: the offsets that the records commit.
        replies: the answers to send when all in-sync replicas have the records.
    """

    __slots__ = ("apply", "keys", "replies", "timer", "wait")

    def __init__(self, wait: Wait, apply: Callable[[], None], keys: Iterable[Key] = ()) -> None:
        self.wait, self.apply, self.keys = wait, apply, frozenset(keys)
        self.replies: list[tuple[Any, Any]] = []
        self.timer: Any = None


class PendingOffsets:
    """Offsets that an open transaction commits. The group's lock guards the offsets.

    Attributes:
        offsets: the offset of each key; None if a later commit, which is already valid, has
            replaced the offset.
        epoch: the epoch of the producer; -1 if the offsets were loaded from the log.
        is_ending: whether the marker of the transaction is in the log.
    """

    __slots__ = ("epoch", "is_ending", "offsets", "producer_id")

    def __init__(
        self, producer_id: int, offsets: Mapping[Key, Committed | None], epoch: int = -1
    ) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self.offsets, self.is_ending = dict(offsets), False

    def is_ended_by(self, producer_id: int, epoch_limit: int) -> bool:
        """Check whether a marker ends these offsets: their epoch must be below its limit."""
        return self.producer_id == producer_id and self.epoch < epoch_limit

    def replace(self, keys: Iterable[Key]) -> None:
        """Set the offsets of some keys to None, because later commits replaced these offsets."""
        self.offsets.update(dict.fromkeys(self.offsets.keys() & set(keys)))


class Hosted:
    """One group of a broker.

    Threads: `lock` guards the other attributes. A thread holds the lock while it writes the group
    to its log. If the disk hangs, this thread keeps the lock, so a request waits for the lock at
    most one second.

    Attributes:
        offsets: the committed offsets that all in-sync replicas have.
        writes: the records that some in-sync replicas do not have yet, in the order of the log.
        pending: the offsets of open transactions, in the order of the log. A transaction may have
            several entries, each with other keys.
        timer: fires at the first deadline of the group; None if there is no deadline.
        timer_at: the time at which the timer fires.
        is_recorded: whether the log has a record of this group.
        replaced: if this group has replaced a group of the other type, these records delete that
            group. They are written in one batch with the records of the new group.
        before: the group that was replaced, and the value of `replaced` at that time, until the
            replacement is in the log; otherwise None.
        said: answers that are sent when all changes of the group are written.
        was_held: whether requests were refused since the last deadline, because a thread held the
            lock for too long. The refused requests may be heartbeats. Any thread may set this to
            True.
    """

    __slots__ = (
        "before", "group", "is_recorded", "lock", "offsets", "pending", "replaced", "said", "timer",
        "timer_at", "was_held", "writes",
    )  # fmt: skip

    def __init__(self, group: AnyGroup) -> None:
        self.group: AnyGroup = group
        self.replaced: list[Record] = []
        self.before: tuple[AnyGroup, list[Record]] | None = None
        self.said: list[tuple[Any, Any]] = []
        self.lock = threading.Lock()
        self.offsets: dict[Key, Committed] = {}
        self.writes: deque[Write] = deque()
        self.pending: list[PendingOffsets] = []
        self.timer: Any = None
        self.timer_at = float("inf")
        self.is_recorded = self.was_held = False

    @property
    def name(self) -> str:
        """The group id."""
        return self.group.name

    @property
    def is_unused(self) -> bool:
        """Whether the group can be forgotten: it has no members, no offsets and no records."""
        group = self.group
        is_idle = group.state is State.EMPTY and not group.pending
        return is_idle and not self.offsets and not self.pending and not self.is_recorded

    @property
    def keys(self) -> set[Key]:
        """The keys of all offsets, including offsets that are not replicated or not decided yet."""
        undecided = [one.offsets for one in self.pending]
        return set(self.offsets).union(*[write.keys for write in self.writes], *undecided)

    @property
    def unstable(self) -> frozenset[Key]:
        """The keys of the offsets that open transactions commit."""
        return frozenset().union(*[one.offsets for one in self.pending])

    def replace_pending(self, keys: Iterable[Key]) -> None:
        """Let no open transaction change some keys, because later commits changed these keys."""
        for one in self.pending:
            one.replace(keys)

    def replace(self, group: AnyGroup, now: Now) -> None:
        """Replace the group by a group of the other type. The offsets stay."""
        if self.before is None:
            self.before = self.group, list(self.replaced)
        self.replaced += self.deletions(now)
        self.said += self.group.take_replies()
        self.group = group

    @property
    def is_converting(self) -> bool:
        """Whether the log does not have the conversion of a group with members yet."""
        return self.before is not None and self.before[0].state is not State.EMPTY

    def deletions(self, now: Now) -> list[Record]:
        """Return the records that delete the group, and all its members that have just left."""
        if not self.is_recorded:
            return []
        changes = group_kinds.changes_of(self.group, now)
        left = [(key, value) for key, value in changes if value is None]
        return [*left, *group_kinds.deletion_of(self.group)]

    def say(self, waiter: Any, said: Any) -> None:
        """Add an answer to `said`."""
        self.said.append((waiter, said))

    def unsaved(self, now: Now) -> list[Record]:
        """Return the records that are not in the log yet."""
        return [*self.replaced, *group_kinds.changes_of(self.group, now)]

    def saved(self) -> None:
        """Remember that the log has all changes of the group."""
        group_kinds.saved(self.group)
        self.replaced, self.before, self.is_recorded = [], None, True

    def undo(self, code: ErrorCode, now: Now) -> None:
        """Undo the changes that the log has refused, and answer their requests with an error.

        The error INVALID_COMMIT_OFFSET_SIZE is for commits only. As in Kafka, other requests get
        UNKNOWN_SERVER_ERROR instead.
        """
        if code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        if isinstance(self.group, Group):
            if rebalance.undo(self.group, now):
                self.refuse_answers(code)
            return
        self.refuse_answers(code)
        if self.before is None:
            undoing.undo(self.group, now)
        else:
            self.group, self.replaced = self.before
            self.before = None

    def give_answers(self) -> None:
        """Send the group's answers as soon as its records are replicated."""
        replies = self._take_replies()
        if self.writes:
            self.writes[-1].replies += replies
            return
        for waiter, said in replies:
            waiter.put(said)

    def refuse_answers(self, code: ErrorCode) -> None:
        """Answer the requests in `replies` with an error."""
        for waiter, said in self._take_replies():
            waiter.put(refusal_of(said, code, code))

    def _take_replies(self) -> list[tuple[Any, Any]]:
        replies, self.said = [*self.said, *self.group.take_replies()], []
        return replies

    def drop_writes(self, code: ErrorCode) -> None:
        """Send an error to the requests that wait for other replicas, and stop waiting."""
        writes, self.writes = self.writes, deque()
        for write in writes:
            write.wait.close()
            for waiter, said in write.replies:
                waiter.put(refusal_of(said, code, code))
            write.replies.clear()

    def end(self, code: ErrorCode, now: Now) -> None:
        """End the group. Answer its waiting requests with an error."""
        group_kinds.end(self.group, code, now)
        self.refuse_answers(code)


def refusal_of(said: Any, code: ErrorCode, code_of_sync: ErrorCode) -> Any:
    """Return the error answer that replaces a successful answer."""
    if isinstance(said, JoinAnswer):
        return JoinAnswer(code, said.member_id)
    if isinstance(said, HeartbeatAnswer):
        return HeartbeatAnswer(code)
    return SyncAnswer(code_of_sync) if isinstance(said, SyncAnswer) else code
