"""Hold a group together with its lock, its offsets and its timer."""

from __future__ import annotations

import threading
from typing import Any

from broker.groups import sessions
from broker.groups.exchange import JoinAnswer, Now, SyncAnswer
from broker.groups.group import Group, State
from broker.groups.offsets import Committed, Key
from broker.wire.error_codes import ErrorCode


class Hosted:
    """One group of a broker.

    Threads: `lock` guards the other attributes, and is held while the group is written to its log.
    If the disk hangs, the lock stays held. So a request waits for the lock at most one second.

    Attributes:
        timer: fires at the first deadline of the group; None if there is no deadline.
        timer_at: when the timer fires.
        is_recorded: whether the log has a record of this group.
    """

    __slots__ = ("group", "is_recorded", "lock", "offsets", "timer", "timer_at")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.lock = threading.Lock()
        self.offsets: dict[Key, Committed] = {}
        self.timer: Any = None
        self.timer_at = float("inf")
        self.is_recorded = False

    @property
    def is_unused(self) -> bool:
        """Whether the group can be forgotten: it has no members, no offsets and no records."""
        group = self.group
        is_idle = group.state is State.EMPTY and not group.pending
        return is_idle and not self.offsets and not self.is_recorded

    def give_answers(self) -> None:
        """Send the answers that the group has decided on."""
        for waiter, said in self.group.take_replies():
            waiter.put(said)

    def refuse_answers(self, code: ErrorCode) -> None:
        """Answer the group's requests with an error, instead of the answers in `replies`."""
        for waiter, said in self.group.take_replies():
            if isinstance(said, JoinAnswer):
                waiter.put(JoinAnswer(code, said.member_id))
            else:
                waiter.put(SyncAnswer(code))

    def end(self, code: ErrorCode, now: Now) -> None:
        """End the group; its waiting requests are answered with an error."""
        sessions.end(self.group, code, now)
        self.refuse_answers(code)
