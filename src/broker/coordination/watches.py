"""Hold the watches that clients set in an embedded store, and find those that a change fires."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from broker.coordination.paths import parent_of
from broker.coordination.tree import Row
from broker.coordination.verbs import Event, EventKind

KINDS = {"create": EventKind.CREATED, "set": EventKind.CHANGED, "delete": EventKind.DELETED}


class Watch(NamedTuple):
    """One watch: the session that set it, and its callback."""

    session: object
    call: Callable[[Event], object]


class Watches:
    """The watches on the data and on the children of each path."""

    def __init__(self) -> None:
        self._of_nodes: dict[str, list[Watch]] = {}
        self._of_children: dict[str, list[Watch]] = {}

    def add(self, path: str, watch: Watch) -> None:
        """Watch a znode. It need not exist."""
        self._of_nodes.setdefault(path, []).append(watch)

    def add_children(self, path: str, watch: Watch) -> None:
        """Watch the list of children of a znode."""
        self._of_children.setdefault(path, []).append(watch)

    def fire(self, rows: Sequence[Row]) -> list[tuple[Watch, Event]]:
        """Remove and return the watches that a change fires, in the order of its rows."""
        return [found for row in rows for found in self._fire(row[0], str(row[1]))]

    def _fire(self, what: str, path: str) -> Iterator[tuple[Watch, Event]]:
        kind = KINDS[what]
        fired = self._of_nodes.pop(path, [])
        if kind is EventKind.DELETED:
            fired += self._of_children.pop(path, [])
        for watch in fired:
            yield watch, Event(kind, path)
        if kind is not EventKind.CHANGED:
            parent = parent_of(path)
            for watch in self._of_children.pop(parent, []):
                yield watch, Event(EventKind.CHILDREN, parent)

    def drop(self, session: object) -> None:
        """Forget the watches of a session that has ended."""
        for table in (self._of_nodes, self._of_children):
            for path, watches in list(table.items()):
                kept = [watch for watch in watches if watch.session is not session]
                if kept:
                    table[path] = kept
                else:
                    del table[path]
