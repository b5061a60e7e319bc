"""Know the directories of replicas that are not served: copies of moves, and ones to be removed.

    `moves`        `.move` directories whose move is to be resumed
    `begun`        `.move` directories that a move of this process made
    `left`         directories that the start-up table neither opens nor purges yet
    `rivals`       live directories beside the open one, which they do not replace
    `superseded`   to be removed as soon as the live copy has as many records
    `doomed`       to be removed now
    `deletions`    to be removed in order

If a replica is deleted, its copies are removed before the record of the deletion. Without that
record, a start would take such a copy, even a half removed one, for the rest of the replica.

Threads: entries change one by one. A thread that iterates over the entries copies them first.
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
    """A directory to be removed; if it records a user's deletion, only while no log dir is bad."""

    log_dir: LogDir
    path: str
    is_deletion: bool = False


class MoveFound(NamedTuple):
    """A `.move` directory whose move is to be resumed, and its size."""

    log_dir: LogDir
    path: str
    size_bytes: int


class OtherCopies:
    """The directories in a store's log dirs that belong to replicas and are not served.

    All but `moves` are keyed by the path of the directory.

    Attributes:
        moves: moves to be resumed, which the start-up table found or a mover left.
        begun: copies that moves of this process have begun. Written by the mover.
        left: copies that the start-up table neither opens nor purges yet. It decides about them
            again at the next start, or when a log dir returns.
        rivals: live copies that outrank the open one, or are of another topic of this name.
        superseded: copies to be removed as soon as the live copy has as many records.
        doomed: directories that keepers were asked to remove and that still exist. Written by the
            keepers.
        deletions: recorded deletions. The copies that a deletion covers are removed before it.
        postponed: deletions whose record stays while a log dir hangs, or is being brought in.
    """

    def __init__(self) -> None:
        self.moves: dict[TopicPartition, MoveFound] = {}
        self.begun: dict[str, tuple[TopicPartition, LogDir]] = {}
        self.left: dict[str, tuple[TopicPartition, LogDir]] = {}
        self.rivals: dict[str, tuple[TopicPartition, LogDir]] = {}
        self.superseded: dict[str, ReplicaFacts] = {}
        self.doomed: dict[str, LogDir] = {}
        self.deletions: dict[str, Sequence[Doomed]] = {}
        self.postponed: deque[Sequence[Doomed]] = deque()

    def forget_in(self, path: str) -> None:
        """Forget the copies in a log dir, and the directories to be removed from it."""
        for name, log_dir in list(self.doomed.items()):
            if log_dir.path == path:
                self.doomed.pop(name, None)
        for copies in (self.begun, self.left, self.rivals):
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
        for known in (self.begun, self.left, self.rivals):
            for path, (of, _) in list(known.items()):
                if of == key:
                    known.pop(path, None)
        self.moves.pop(key, None)
        for path, facts in list(self.superseded.items()):
            if (facts.topic, facts.partition) == key:
                self.superseded.pop(path, None)

    def forget_move(self, key: TopicPartition, paths: Sequence[str]) -> None:
        """Forget the copy that a move left, if it is at one of the paths now decided about."""
        found = self.moves.get(key)
        if found is not None and found.path in paths:
            self.moves.pop(key, None)
