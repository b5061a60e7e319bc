"""A session without a store: it notes the changes, and its end is made by the test."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from broker.coordination.errors import CoordinationError
from broker.coordination.verbs import (
    Operation,
    Session,
    SessionKey,
    SessionState,
    StateCallback,
    WatchCallback,
    Znode,
)

ids = itertools.count(1)


class FakeSession(Session):
    """Every znode exists, and is empty.

    Attributes:
        paths: the paths of all changes.
        error: if it is set, each read raises it.
    """

    def __init__(self) -> None:
        self._key = SessionKey(next(ids), bytes(16))
        self.paths: list[str] = []
        self.listeners: list[StateCallback] = []
        self.error: CoordinationError | None = None
        self.is_closed = False

    @property
    def key(self) -> SessionKey:
        return self._key

    def get(self, path: str) -> Znode:
        if self.error is not None:
            raise self.error
        return Znode(path, b"", 1, 1, 0)

    def children(self, path: str) -> list[str]:
        return []

    def _commit(self, operations: Sequence[Operation]) -> list[Znode | None]:
        self.paths += [one.path for one in operations]
        return [Znode(one.path, b"", 1, 1, 0) for one in operations]

    def watch(self, path: str, callback: WatchCallback) -> Znode | None:
        return self.get(path)

    def watch_children(self, path: str, callback: WatchCallback) -> list[str]:
        return []

    def on_session(self, callback: StateCallback) -> None:
        self.listeners.append(callback)

    def zxid(self) -> int:
        return 1

    def close(self) -> None:
        self.is_closed = True

    def end(self, state: SessionState) -> None:
        """Report a state to the listeners."""
        for listener in list(self.listeners):
            listener(state)
