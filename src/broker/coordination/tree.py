"""Hold the znodes in memory, and compute the changes that operations make. No I/O.

A `Draft` is a change that is planned, but not made yet. A draft shows the tree as if its changes
were made already. So each operation is checked after the earlier operations. `Tree.apply` makes the
change. If any operation is refused, the draft is dropped, and the tree does not change.

A draft also lists its changes as rows for the journal. A row says what happened, with the final
path of the znode: `["create", path, data, owner]`, `["set", path, data]` or `["delete", path]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.coordination.errors import (
    BadVersionError,
    EphemeralParentError,
    LimitError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ZnodeError,
)
from broker.coordination.paths import ROOT, name_of, parent_of
from broker.coordination.verbs import Check, Create, Delete, Operation, Set, Znode

SEQUENCE_MAX = 2**31 - 1


class EmbeddedSettings(NamedTuple):
    """The limits of an embedded store.

    Attributes:
        nodes_max: the largest number of znodes.
        store_bytes_max: the largest size of all paths and data together.
        rewrite_bytes_min: a journal is rewritten when two conditions hold: the changes at its end
            take more bytes than this, and they take more bytes than the part before the changes.
        disk_seconds_max: if a disk takes this much longer than another disk, its log dir is left
            out.
        return_seconds: if a log dir is left out because its disk is slow or full, the store tries
            the log dir again after this time. After each failure, this time grows.
    """

    nodes_max: int = 100_000
    store_bytes_max: int = 64 << 20
    rewrite_bytes_min: int = 1 << 20
    disk_seconds_max: float = 5.0
    return_seconds: float = 10.0


class Node(NamedTuple):
    """A znode in the tree. `created` counts all children that were ever created below it."""

    data: bytes
    czxid: int
    mzxid: int
    version: int = 0
    owner: int = 0
    created: int = 0

    def shown(self, path: str) -> Znode:
        """Return the znode in the form of an answer."""
        return Znode(path, self.data, self.czxid, self.mzxid, self.version, self.owner)


Row = tuple[str, ...] | tuple[str, str, bytes] | tuple[str, str, bytes, int]


class Tree:
    """All znodes, as of one zxid."""

    def __init__(self, zxid: int = 0) -> None:
        self.zxid = zxid
        self.nodes: dict[str, Node] = {ROOT: Node(b"", 0, 0)}
        self.children: dict[str, set[str]] = {}
        self.size_bytes = 1

    def copy(self) -> Tree:
        """Return a copy of this tree; later changes of this tree do not change the copy."""
        made = Tree(self.zxid)
        made.nodes, made.size_bytes = dict(self.nodes), self.size_bytes
        made.children = {parent: set(names) for parent, names in self.children.items()}
        return made

    def put(self, path: str, node: Node) -> None:
        """Add or replace a znode."""
        known = self.nodes.get(path)
        self.size_bytes += len(node.data) - (len(known.data) if known else -len(path))
        self.nodes[path] = node
        if known is None:
            self.children.setdefault(parent_of(path), set()).add(name_of(path))

    def remove(self, path: str) -> None:
        """Remove a znode."""
        node = self.nodes.pop(path)
        self.size_bytes -= len(node.data) + len(path)
        siblings = self.children[parent_of(path)]
        siblings.discard(name_of(path))
        if not siblings:
            del self.children[parent_of(path)]

    def apply(self, draft: Draft) -> None:
        """Make the change that a draft has planned."""
        for path, node in draft.nodes.items():
            if node is not None:
                self.put(path, node)
            elif path in self.nodes:
                self.remove(path)
        self.zxid = draft.zxid

    def owned(self, is_gone: Callable[[int], bool]) -> list[str]:
        """List the ephemeral znodes of sessions that have ended."""
        return sorted(
            path for path, node in self.nodes.items() if node.owner and is_gone(node.owner)
        )


class Draft:
    """One change of a tree, before the change is made.

    Attributes:
        nodes: the changed znodes with their new content; None if a znode is deleted.
        rows: the changes, for the journal and for watches.
    """

    def __init__(self, tree: Tree, settings: EmbeddedSettings | None = None) -> None:
        self.tree, self.zxid = tree, tree.zxid + 1
        self.nodes: dict[str, Node | None] = {}
        self.rows: list[Row] = []
        self._counts: dict[str, int] = {}  # for each parent, the added minus the removed children
        self._settings = settings
        self._nodes_more = self._bytes_more = 0

    def find(self, path: str) -> Node:
        """Return a znode as it is after this draft. Raises NoNodeError."""
        node = self.nodes[path] if path in self.nodes else self.tree.nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        return node

    def _parent(self, path: str) -> Node:
        """Return the parent of a new znode. Raises NoNodeError with the path of the new znode."""
        if not self._exists(parent_of(path)):
            raise NoNodeError(path)
        return self.find(parent_of(path))

    def _exists(self, path: str) -> bool:
        return (self.nodes[path] if path in self.nodes else self.tree.nodes.get(path)) is not None

    def perform(self, operations: Sequence[Operation], owner: int) -> list[Znode | None]:
        """Add operations to the draft. A ZnodeError has the place of the refused operation.

        Args:
            owner: the id of the session, for ephemeral znodes.
        """
        answers = []
        for place, operation in enumerate(operations):
            try:
                answers.append(self._one(operation, owner))
            except ZnodeError as error:
                error.operation = place
                raise
        self._check_limits()
        return answers

    def _one(self, operation: Operation, owner: int) -> Znode | None:
        if isinstance(operation, Create):
            path = operation.path
            if operation.sequence:
                path += f"{self._next_number(path):010d}"
            owned = owner if operation.ephemeral else 0
            return self.create(path, operation.data, owned, operation.path)
        self._check_version(operation)
        if isinstance(operation, Set):
            return self.set(operation.path, operation.data)
        if isinstance(operation, Delete):
            self.delete(operation.path)
        return None

    def _next_number(self, path: str) -> int:
        number = self._parent(path).created
        if number > SEQUENCE_MAX:
            raise LimitError("SEQUENCE_MAX", SEQUENCE_MAX, number)
        return number

    def _check_version(self, operation: Set | Delete | Check) -> None:
        found = self.find(operation.path).version
        if operation.version not in (None, found):
            raise BadVersionError(operation.path, None, operation.version, found)

    def _check_limits(self) -> None:
        settings = self._settings
        if settings is None:
            return
        count = len(self.tree.nodes) + self._nodes_more
        if self._nodes_more > 0 and count > settings.nodes_max:
            raise LimitError("nodes_max", settings.nodes_max, count)
        size_bytes = self.tree.size_bytes + self._bytes_more
        if self._bytes_more > 0 and size_bytes > settings.store_bytes_max:
            raise LimitError("store_bytes_max", settings.store_bytes_max, size_bytes)

    def create(self, path: str, data: bytes, owner: int, asked: str = "") -> Znode:
        """Create a znode with its final path. An error names the path in the request."""
        parent_path, parent = parent_of(path), self._parent(path)
        if self._exists(path):
            raise NodeExistsError(asked or path)
        if parent.owner:
            raise EphemeralParentError(asked or path)
        self.nodes[parent_path] = parent._replace(created=parent.created + 1)
        node = self.nodes[path] = Node(data, self.zxid, self.zxid, owner=owner)
        self._count(parent_path, 1)
        self._bytes_more += len(path) + len(data)
        self.rows.append(("create", path, data, owner))
        return node.shown(path)

    def set(self, path: str, data: bytes) -> Znode:
        """Replace the data of a znode."""
        old = self.find(path)
        new = old._replace(data=data, mzxid=self.zxid, version=old.version + 1)
        self.nodes[path] = new
        self._bytes_more += len(data) - len(old.data)
        self.rows.append(("set", path, data))
        return new.shown(path)

    def delete(self, path: str) -> None:
        """Delete a znode that has no children."""
        old = self.find(path)
        if len(self.tree.children.get(path, ())) + self._counts.get(path, 0):
            raise NotEmptyError(path)
        self.nodes[path] = None
        self._count(parent_of(path), -1)
        self._bytes_more -= len(path) + len(old.data)
        self.rows.append(("delete", path))

    def _count(self, parent: str, more: int) -> None:
        self._counts[parent] = self._counts.get(parent, 0) + more
        self._nodes_more += more
