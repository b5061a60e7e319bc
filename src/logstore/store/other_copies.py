"""Know the directories of replicas besides the live ones: what moves left, and what is to go.

    a `.move`       `moves` if it is to be resumed, `begun` if a move of this process made it
    undecided       `left`: the start-up table neither opens nor purges it yet
    to be removed   `superseded` once it is covered, `doomed` now, `deletions` in order

If a replica is deleted, its copies are removed before the record of the deletion is: half removed,
or without that record, they would count as what is left of the replica.

Threads: entries change one by one; a thread that iterates copies them first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from logstore.disk.log_dir import LogDir
from logstore.names import TopicPartition

if TYPE_CHECKING:
    from logstore.store.start.startup_table import ReplicaFacts


class Doomed(NamedTuple):
    """A directory to be removed; if its user deleted it, only while no log dir is bad."""

    log_dir: LogDir
    path: str
    is_deletion: bool = False


class MoveFound(NamedTuple):
    """A `.move` directory whose move is to be resumed, and the bytes in it."""

    log_dir: LogDir
    path: str
    size_bytes: int


class OtherCopies:
    """The directories in a store's log dirs that belong to replicas and are not served.

    All but `moves` are keyed by the path of the directory.

    Attributes:
        moves: moves to be resumed, which the start-up table found or a mover left.
        begun: copies that moves of this process have begun. Written by the mover.
        left: copies that the start-up table neither opens nor purges yet. A later start, or a
            returning log dir, decides again.
        superseded: copies that go once they are covered.
        doomed: what the keepers are asked to remove, and is not gone yet. Written by them.
        deletions: deletions on record. The copies that a deletion keeps dead are removed before it.
        postponed: deletions that stay on record while a log dir hangs, or is being brought in.
    """

    def __init__(self) -> None:
        self.moves: dict[TopicPartition, MoveFound] = {}
        self.begun: dict[str, tuple[TopicPartition, LogDir]] = {}
        self.left: dict[str, tuple[TopicPartition, LogDir]] = {}
        self.superseded: dict[str, ReplicaFacts] = {}
        self.doomed: dict[str, LogDir] = {}
        self.deletions: dict[str, Sequence[Doomed]] = {}
        self.postponed: deque[Sequence[Doomed]] = deque()

    def forget_in(self, path: str) -> None:
        """Forget what was found in a log dir, and what was to be removed from it."""
        for name, log_dir in list(self.doomed.items()):
            if log_dir.path == path:
                self.doomed.pop(name, None)
        for copies in (self.begun, self.left):
            for name, (_, log_dir) in list(copies.items()):
                if log_dir.path == path:
                    copies.pop(name, None)
        for key, move in list(self.moves.items()):
            if move.log_dir.path == path:
                self.moves.pop(key, None)
        for name, facts in list(self.superseded.items()):
            if facts.log_dir == path:
                self.superseded.pop(name, None)

    def forget_of(self, key: TopicPartition) -> None:
        """Forget the copies of a replica that was deleted."""
        for known in (self.begun, self.left):
            for path, (of, _) in list(known.items()):
                if of == key:
                    known.pop(path, None)
        self.moves.pop(key, None)
        for path, facts in list(self.superseded.items()):
            if (facts.topic, facts.partition) == key:
                self.superseded.pop(path, None)

    def forget_move(self, key: TopicPartition, paths: Sequence[str]) -> None:
        """Forget that a move left a copy, if that copy is decided about again."""
        found = self.moves.get(key)
        if found is not None and found.path in paths:
            self.moves.pop(key, None)
