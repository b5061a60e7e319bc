"""Hold what a controller knows about one partition, and the write that is under way."""

from __future__ import annotations

from typing import NamedTuple

from cluster.pure.control_exchange import StateRead, TopicConfig, WriteFailed, Written
from cluster.requests import RoleAnswer
from cluster.state import State


class PendingWrite(NamedTuple):
    """A write whose answer is missing, and what follows if it succeeds.

    Attributes:
        number: the number of the write, which its answer names.
    """

    state: State
    informed: tuple[int, ...]
    loss: str
    number: int = 0


class Entry:
    """Hold what the controller knows about one partition.

    Attributes:
        answers: the last answer of each replica, for this topic.
        stopped: the last version for which a broker answered that it has no replica.
        is_new: whether this controller created the topic, and nobody has led it yet (P17).
        pending: the write that is under way.
    """

    __slots__ = ("answers", "config", "is_new", "pending", "state", "stopped", "topic", "version")

    def __init__(self, read: StateRead) -> None:
        self.topic, self.config = read.topic, read.config
        self.version, self.state = read.version, read.state
        self.answers: dict[int, RoleAnswer] = {}
        self.stopped: dict[int, int] = {}
        self.is_new = False
        self.pending: PendingWrite | None = None

    def use(self, config: TopicConfig) -> None:
        """Take over settings, unless newer ones are known: a read may come late."""
        if config.version >= self.config.version:
            self.config = config

    def awaits(self, answer: Written | WriteFailed) -> bool:
        """Check that an answer is for the write that is under way, not for an earlier one."""
        return self.pending is not None and self.pending.number == answer.number
