"""List the directories that belong to replicas, but are not served, such as copies of moves.

    `moves`        `.move` directories whose move will be resumed
    `begun`        `.move` directories that a move of this process made
    `left`         directories that the start-up table does not open, and does not purge yet
    `rivals`       live directories that do not replace the open directory of the replica
    `superseded`   copies that are removed as soon as the live copy has as many records
    `doomed`       directories that are being removed
    `deletions`    directories that are removed in a fixed order

If a replica is deleted, its copies are removed first, and the record of the deletion last. Without
the record of the deletion, a start would serve a copy that remains, even if the copy is half
removed.

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
    """A directory to remove; if it has a user's deletion, it is kept while a log dir is bad."""

    log_dir: LogDir
    path: str
    is_deletion: bool = False


class MoveFound(NamedTuple):
    """A `.move` directory whose move will be resumed, and the directory's size."""

    log_dir: LogDir
    path: str
    size_bytes: int


class OtherCopies:
    """The directories in a store's log dirs that belong to replicas, but are not served.

    In `moves`, the keys are replicas. In all other dicts, the keys are paths of directories.

    Attributes:
        moves: the moves that will be resumed. The start-up table found such a move, or a mover left
            it.
        begun: copies that moves of this process have begun; written by the mover.
        left: copies that the start-up table does not open, and does not purge yet. The table
            decides about the copies in `left` again at the next start, or when a log dir returns.
        rivals: live copies that outrank the open copy, or belong to another topic of the same name.
        superseded: copies that are removed as soon as the live copy has as many records.
        doomed: directories that keepers were asked to remove, but that still exist; written by the
            keepers.
        deletions: recorded deletions. The other copies of the deleted replica are removed first,
            and the record of the deletion last.
        postponed: deletions whose record must be kept while a log dir hangs or is being opened.
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
        """Forget the copies in a log dir, and the directories to be removed from that dir."""
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
        """Forget the unfinished move of a replica if its copy is one of `paths`.

        Record that the start-up table has decided again about the directories in `paths`.
        """
        found = self.moves.get(key)
        if found is not None and found.path in paths:
            self.moves.pop(key, None)
