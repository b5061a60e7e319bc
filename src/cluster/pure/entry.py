"""Hold a controller's facts about one partition, and its running write."""

from __future__ import annotations

from typing import NamedTuple

from cluster.pure.control_exchange import StateRead, TopicConfig, WriteFailed, Written
from cluster.requests import RoleAnswer
from cluster.state import State


class PendingWrite(NamedTuple):
    """A write that has no answer yet, and the facts that are needed after its success.

    Attributes:
        number: the number of the write. The answer to the write names this number.
    """

    state: State
    informed: tuple[int, ...]
    loss: str
    number: int = 0


class Entry:
    """Hold the controller's facts about one partition.

    Attributes:
        answers: the last answer of each replica, for this topic.
        stopped: for each broker that has answered that it has no replica, the version of the last
            such answer.
        is_new: whether this controller created the topic, and the partition had no leader yet
            (P17).
        pending: the running write.
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
        """Use these settings, unless newer settings are known: a read may be late."""
        if config.version >= self.config.version:
            self.config = config

    def awaits(self, answer: Written | WriteFailed) -> bool:
        """Check that an answer is for the running write, not for an earlier write."""
        return self.pending is not None and self.pending.number == answer.number
