"""Model a coordination store as a dictionary: what each verb answers, refuses and fires."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

from broker.coordination.verbs import Check, Create, Delete, Event, EventKind, Operation, Set

CREATED, CHANGED, DELETED, CHILDREN = list(EventKind)


class Node(NamedTuple):
    """What the model knows of a znode; `created` counts the children that it ever had."""

    data: bytes
    version: int = 0
    owner: int | None = None
    created: int = 0


class Refusal(Exception):
    """The model refuses an operation: the name of the error, its path and its place."""


def parent(path: str) -> str:
    """Give the path of the parent."""
    return path[: path.rindex("/")] or "/"


class Model:
    """Znodes and watches. A session is a number of the test's own."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"")}
        self.watches: list[tuple[int, str, bool]] = []  # session, path, of children
        self.events: dict[int, list[Event]] = {}

    def children(self, path: str) -> list[str]:
        """List the names of the children of a znode."""
        return sorted(
            one.rpartition("/")[2] for one in self.nodes if one != "/" and parent(one) == path
        )

    def multi(self, session: int, operations: Sequence[Operation]) -> list[tuple[str, Node] | None]:
        """Do all operations or none, and fire watches; raises Refusal."""
        before = copy.copy(self.nodes)
        changes: list[tuple[EventKind, str]] = []
        answers = []
        for place, operation in enumerate(operations):
            try:
                answers.append(self.one(session, operation, changes))
            except Refusal as refusal:
                self.nodes = before
                raise Refusal(*refusal.args, place) from None
        self.fire(changes)
        return answers

    def one(
        self, session: int, operation: Operation, changes: list[tuple[EventKind, str]]
    ) -> tuple[str, Node] | None:
        """Do one operation."""
        path, nodes = operation.path, self.nodes
        if isinstance(operation, Create):
            if path == "/":
                raise Refusal("NodeExistsError", path)
            if parent(path) not in nodes:
                raise Refusal("NoNodeError", path)
            above = nodes[parent(path)]
            if operation.sequence:
                path += f"{above.created:010d}"
            if path in nodes:
                raise Refusal("NodeExistsError", operation.path)
            if above.owner is not None:
                raise Refusal("EphemeralParentError", operation.path)
            nodes[parent(path)] = above._replace(created=above.created + 1)
            nodes[path] = Node(operation.data, owner=session if operation.ephemeral else None)
            changes.append((CREATED, path))
            return path, nodes[path]
        if path not in nodes:
            raise Refusal("NoNodeError", path)
        if operation.version not in (None, nodes[path].version):
            raise Refusal("BadVersionError", path)
        if isinstance(operation, Check):
            return None
        if isinstance(operation, Set):
            old = nodes[path]
            nodes[path] = old._replace(data=operation.data, version=old.version + 1)
            changes.append((CHANGED, path))
            return path, nodes[path]
        assert isinstance(operation, Delete)
        if self.children(path):
            raise Refusal("NotEmptyError", path)
        del nodes[path]
        changes.append((DELETED, path))
        return None

    def watch(self, session: int, path: str, of_children: bool) -> None:
        """Set a watch, unless this session has the same one."""
        if (session, path, of_children) not in self.watches:
            self.watches.append((session, path, of_children))

    def fire(self, changes: Sequence[tuple[EventKind, str]]) -> None:
        """Take out the watches that changes fire, in their order."""
        for kind, path in changes:
            self._fire(path, False, kind)
            if kind is DELETED:
                self._fire(path, True, kind)
            if kind is not CHANGED:
                self._fire(parent(path), True, CHILDREN)

    def _fire(self, path: str, of_children: bool, kind: EventKind) -> None:
        for watch in [one for one in self.watches if one[1:] == (path, of_children)]:
            self.watches.remove(watch)
            self.events.setdefault(watch[0], []).append(Event(kind, path))

    def end(self, session: int) -> None:
        """End a session."""
        self.watches = [watch for watch in self.watches if watch[0] != session]
        owned = sorted(path for path, node in self.nodes.items() if node.owner == session)
        for path in owned:
            del self.nodes[path]
        self.fire([(DELETED, path) for path in owned])
