"""If the coordination store has ended a session, begin a new session.

    old session ends -> connect, repeat if needed -> the callback registers the broker

Ephemeral znodes and watches end with their session, so the callback makes them again. Until the new
session begins, each call raises the error of the old session.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

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

LOG = logging.getLogger("cluster")
RETRY_SECONDS = 0.5
ENDED = (SessionState.EXPIRED, SessionState.FAILED)

RenewalCallback = Callable[[Session], object]


class LastingSession(Session):
    """A session. If the store ends the session, a new session replaces it.

    Threads: any thread may call any method. One thread waits for the end of the session.
    """

    def __init__(
        self, connect: Callable[[], Session], retry_seconds: float = RETRY_SECONDS
    ) -> None:
        """Begin the first session.

        Args:
            connect: begins a session; it raises CoordinationError if the store does not answer.
            retry_seconds: the time between two tries.
        """
        self._connect, self._retry_seconds = connect, retry_seconds
        self._changed = threading.Condition()  # guards the next five fields
        self._is_over = self._is_closed = self._is_suspended = False
        self._on_state: list[StateCallback] = []
        self._on_renewal: list[RenewalCallback] = []
        self._session = connect()
        self._session.on_session(self._heard)
        self._thread = threading.Thread(target=self._run, name="session", daemon=True)
        self._thread.start()

    @property
    def current(self) -> Session:
        """The present session, which may have ended."""
        return self._session

    @property
    def key(self) -> SessionKey:
        """The id and the password of the present session."""
        return self._session.key

    def on_renewal(self, callback: RenewalCallback) -> None:
        """Call a callback with each new session. If the callback raises an error, call it again.

        The callbacks are called in the order of their registration.
        """
        self._on_renewal.append(callback)

    def get(self, path: str) -> Znode:
        """Read a znode."""
        return self._session.get(path)

    def children(self, path: str) -> list[str]:
        """List the names of the children of a znode, sorted."""
        return self._session.children(path)

    def _commit(self, operations: Sequence[Operation]) -> list[Znode | None]:
        return self._session.multi(operations)

    def watch(self, path: str, callback: WatchCallback) -> Znode | None:
        """Read a znode, and call back once at its next change in this session."""
        return self._session.watch(path, callback)

    def watch_children(self, path: str, callback: WatchCallback) -> list[str]:
        """List children, and call back once at their next change in this session."""
        return self._session.watch_children(path, callback)

    def zxid(self) -> int:
        """Return the number of the newest change; no change before this call is newer."""
        return self._session.zxid()

    def on_session(self, callback: StateCallback) -> None:
        """Call back at each change of the state, also in later sessions."""
        with self._changed:
            self._on_state.append(callback)
            session = self._session
        session.on_session(callback)

    def close(self) -> None:
        """End the present session, and begin no new session."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._session.close()

    def _heard(self, state: SessionState) -> None:
        self._log(state)
        if state in ENDED:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _log(self, state: SessionState) -> None:
        """Log once that the store does not answer, and once that it answers again."""
        with self._changed:
            was_suspended = self._is_suspended
            if state in (SessionState.CONNECTED, SessionState.SUSPENDED):
                self._is_suspended = state is SessionState.SUSPENDED
            is_suspended = self._is_suspended
        if is_suspended and not was_suspended:
            LOG.warning(
                "the coordination store does not answer; until it answers again, no leader, ISR "
                "or topic can change"
            )
        elif was_suspended and not is_suspended:
            LOG.warning("the coordination store answers again")

    def _run(self) -> None:
        while self._wait_for_end():
            if self._renew():
                self._tell()

    def _wait_for_end(self) -> bool:
        """Wait until the session has ended; return False if no new session may begin."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._is_closed)
            return not self._is_closed

    def _renew(self) -> bool:
        """Begin a new session; return False if this object was closed in the meantime."""
        LOG.warning("the session of this broker has ended; a new session will begin")
        while not self._is_closed:
            try:
                made = self._connect()
            except CoordinationError as error:
                LOG.info("no new session could begin yet: %s", error)
                self._pause()
                continue
            except Exception:
                LOG.exception("a new session failed; another will begin")
                self._pause()
                continue
            with self._changed:
                self._session, self._is_over = made, False
                listeners, is_closed = [self._heard, *self._on_state], self._is_closed
            self._log(SessionState.CONNECTED)
            for listener in listeners:
                made.on_session(listener)
            if is_closed:
                made.close()
            return not is_closed
        return False

    def _tell(self) -> None:
        """Repeat the callbacks until all succeed, or until this session has also ended."""
        session, callbacks = self._session, [*self._on_renewal]
        while callbacks and not (self._is_over or self._is_closed):
            try:
                callbacks[0](session)
                del callbacks[0]
            except CoordinationError as error:
                LOG.warning("the new session cannot be used yet: %s", error)
                self._pause()
            except Exception:
                LOG.exception("a callback of the new session failed, and is called again")
                self._pause()

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed, self._retry_seconds)
