"""Simulate a loss of the connection for a session of the embedded store.

While the connection is cut, each call such as `get` raises NotConnectedError. Callbacks are called
when the connection is back. If the connection is cut for longer than the session timeout, the
session ends. When a session ends, its ephemeral znodes are deleted, and its listeners are called
with EXPIRED.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from broker.coordination.errors import NotConnectedError, SessionExpiredError
from broker.coordination.verbs import (
    Operation,
    Session,
    SessionKey,
    SessionState,
    StateCallback,
    WatchCallback,
    Znode,
)


class GatedSession(Session):
    """A session whose user can cut and heal its connection.

    Threads: any thread may call any method.
    """

    def __init__(self, session: Session, timeout_seconds: float) -> None:
        """Use a session of the embedded store. `close` closes that session."""
        self._session, self._timeout = session, timeout_seconds
        self._lock = threading.Lock()  # guards the next five fields
        self._is_cut = self._is_expired = False
        self._held: list[Callable[[], object]] = []
        self._listeners: list[StateCallback] = []
        self._timer: threading.Timer | None = None

    def cut(self) -> None:
        """Cut the connection. If `heal` is not called before the timeout, the session ends."""
        with self._lock:
            if self._is_cut or self._is_expired:
                return
            self._is_cut = True
            self._timer = threading.Timer(self._timeout, self._expire)
            self._timer.daemon = True
            self._timer.start()
        self._tell(SessionState.SUSPENDED)

    def heal(self) -> None:
        """Connect again, and call the callbacks that waited, in their order."""
        with self._lock:
            if not self._is_cut or self._is_expired:
                return
            self._is_cut = False
            held, self._held = self._held, []
            if self._timer is not None:
                self._timer.cancel()
        self._tell(SessionState.CONNECTED)
        for call in held:
            call()

    def _expire(self) -> None:
        with self._lock:
            if not self._is_cut:
                return
            self._is_expired = True
            self._held.clear()
        self._session.close()
        self._tell(SessionState.EXPIRED)

    def _tell(self, state: SessionState) -> None:
        with self._lock:
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener(state)

    # --- verbs ------------------------------------------------------------------------------------

    @property
    def key(self) -> SessionKey:
        """The id and the password of this session."""
        return self._session.key

    def get(self, path: str) -> Znode:
        """Read a znode."""
        return self._connected().get(path)

    def children(self, path: str) -> list[str]:
        """List the names of the children of a znode, sorted."""
        return self._connected().children(path)

    def _commit(self, operations: Sequence[Operation]) -> list[Znode | None]:
        return self._connected().multi(operations)

    def watch(self, path: str, callback: WatchCallback) -> Znode | None:
        """Read a znode, and call back once at its next change."""
        return self._connected().watch(path, self._gated(callback))

    def watch_children(self, path: str, callback: WatchCallback) -> list[str]:
        """List children, and call back once when a child is created or deleted."""
        return self._connected().watch_children(path, self._gated(callback))

    def on_session(self, callback: StateCallback) -> None:
        """Call back at each change of the state, and now if the session is not connected."""
        with self._lock:
            self._listeners.append(callback)
            is_expired, is_cut = self._is_expired, self._is_cut
        if is_expired or is_cut:
            callback(SessionState.EXPIRED if is_expired else SessionState.SUSPENDED)

    def zxid(self) -> int:
        """Return the number of the newest change; no change before this call is newer."""
        return self._connected().zxid()

    def close(self) -> None:
        """End the session, and delete its ephemeral znodes."""
        with self._lock:
            is_ended, self._is_expired = self._is_expired, True
            if self._timer is not None:
                self._timer.cancel()
        if not is_ended:
            self._session.close()
            self._tell(SessionState.CLOSED)

    def _connected(self) -> Session:
        if self._is_expired:
            raise SessionExpiredError(self.key.session_id)
        if self._is_cut:
            raise NotConnectedError(self.key.session_id)
        return self._session

    def _gated(self, callback: Callable[[Any], object]) -> Callable[[Any], object]:
        """Make a callback wait while the connection is cut; drop it after the session's end."""

        def call(event: Any) -> None:
            with self._lock:
                if self._is_expired:
                    return
                if self._is_cut:
                    self._held.append(lambda: callback(event))
                    return
            callback(event)

        return call
