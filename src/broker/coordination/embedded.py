"""Keep a coordination store for the sessions of one process, in files in its log dirs.

A store needs no server. The store serves a single broker, or, in tests, several brokers in one
process. All sessions end when their process ends, so an open deletes the ephemeral znodes that it
finds.

    with EmbeddedStore(["/disk1/logs", "/disk2/logs"]) as store:
        session = store.connect()

There are two locks. The outer lock, `_writing`, is held while a change is checked, written to the
disks and applied to the tree. `_lock` is held only for a short time: while the tree is read, and
while a change is made in the tree and fires watches. So a read does not wait for a disk.

The store has a thread, `coordination-return`. This thread brings log dirs that were left out up to
date, and uses them again.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from broker.coordination.callbacks import Callbacks
from broker.coordination.copies import Copies, FailureCallback
from broker.coordination.errors import (
    NoNodeError,
    SessionClosedError,
    SessionExpiredError,
    StoreClosedError,
)
from broker.coordination.found_copies import Past
from broker.coordination.paths import check_path
from broker.coordination.tree import Draft, EmbeddedSettings
from broker.coordination.verbs import (
    Delete,
    Operation,
    Session,
    SessionKey,
    SessionState,
    StateCallback,
    Store,
    WatchCallback,
    Znode,
)
from broker.coordination.watches import Watch, Watches
from logstore.disk.threads import Thread, start

SESSION_ID_BITS = 62
_log = logging.getLogger(__name__)

DEFAULTS = EmbeddedSettings()
RETURN_STEP_SECONDS_MAX = 1.0
CALLBACK_SECONDS_MAX = 5.0  # a close waits at most this long for a change and for queued callbacks


class EmbeddedStore(Store):
    """A coordination store for one process; a context manager.

    Attributes:
        is_new: whether no log dir had a copy, so that the store began empty.
    """

    def __init__(
        self,
        log_dirs: Sequence[str],
        settings: EmbeddedSettings = DEFAULTS,
        on_failure: FailureCallback = lambda path, error: None,
        *,
        accept_incomplete: bool = False,
        past: Past | None = None,
    ) -> None:
        """Open the copies in the log dirs. The caller must hold the locks of the log dirs.

        Args:
            on_failure: if a disk fails, this function gets its log dir and the error. The function
                must not call the store.
            accept_incomplete: open the store, even if missing copies may be newer than the others.
                Only an operator can decide that the missing copies are lost for ever.
            past: the result of `past`, if this process has used the store before.

        Raises:
            ValueError: no log dir is given.
            CopyError, CopiesOfflineError, CopiesIncompleteError: see `Copies`.
        """
        if not log_dirs:
            raise ValueError("a coordination store needs at least one log dir")
        self._settings = settings
        self._writing, self._lock = threading.Lock(), threading.Lock()
        self._is_closed = False
        self._watches = Watches()
        self._sessions: dict[int, _State] = {}
        paths = [str(path) for path in log_dirs]
        self._is_closing, self._wake = threading.Event(), threading.Event()
        self._copies = Copies(
            paths, settings, partial(self._left_out, on_failure),
            accept_incomplete=accept_incomplete, past=past,
        )  # fmt: skip
        self._tree = self._copies.tree
        self.is_new = self._copies.is_new
        self._returns = Thread(target=self._let_return, name="coordination-return", daemon=True)
        try:
            self._delete_owned(lambda owner: True)
            start(self._returns)
        except BaseException:
            self._copies.close()
            raise

    @property
    def failures(self) -> dict[str, OSError]:
        """The log dirs that are left out, with their errors."""
        return dict(self._copies.failures)

    def _left_out(self, on_failure: FailureCallback, path: str, error: OSError) -> None:
        self._wake.set()
        on_failure(path, error)

    def _let_return(self) -> None:
        """From time to time, try to use again the log dirs that were left out."""
        while self._wake.wait() and not self._is_closing.is_set():
            self._wake.clear()
            seconds = min(self._settings.return_seconds, RETURN_STEP_SECONDS_MAX)
            while self._copies.failures and not self._is_closing.wait(seconds):
                try:
                    with self._writing:
                        self._copies.take_in()
                except Exception:  # noqa: BLE001 - the loop tries again
                    if not self._is_closed:
                        _log.exception("no log dir of a coordination store could return")

    def connect(self, key: SessionKey | None = None) -> EmbeddedSession:
        """Begin a session, or return another holder of a session that has not ended."""
        if self._is_closed:
            raise StoreClosedError
        if key is None:
            key = SessionKey(secrets.randbits(SESSION_ID_BITS) + 1, secrets.token_bytes(16))
            state = _State(key)
            with self._lock:
                if not self._is_closed:
                    self._sessions[key.session_id] = state
        else:
            known = self._sessions.get(key.session_id)
            if known is None or not secrets.compare_digest(known.key.password, key.password):
                raise SessionExpiredError(key.session_id)
            state = known
        session = EmbeddedSession(self, state)
        if not state.add(session):
            raise SessionExpiredError(key.session_id)
        if self._is_closed:
            state.end(None)
            raise StoreClosedError
        return session

    def past(self) -> Past:
        """Return the state of the store, so that this process can open it in other log dirs."""
        with self._lock:
            return self._copies.past(self._tree.copy())

    def leave_out(self, log_dir: str, error: OSError) -> None:
        """Close the journal of a log dir. The store does not use the log dir before the next open.

        Args:
            error: why the log dir is left out, for `failures`.
        """
        with self._writing:
            self._copies.leave_out(log_dir, error)

    def close(self) -> None:
        """End all sessions, and close the files. The next open deletes ephemeral znodes.

        If the disk of the last log dir hangs during a change, do not wait for this change.
        """
        with self._lock:  # no session begins from now on
            self._is_closed = True
        self._is_closing.set()
        self._wake.set()
        is_idle = self._writing.acquire(timeout=CALLBACK_SECONDS_MAX)
        try:
            states = list(self._sessions.values())
            self._sessions.clear()
            self._copies.close()
        finally:
            if is_idle:
                self._writing.release()
        for state in states:
            state.end(None)
        if is_idle:
            self._returns.join(CALLBACK_SECONDS_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- for sessions -----------------------------------------------------------------------------

    def read(self, path: str) -> Znode | None:
        """Read a znode; None if it does not exist."""
        with self._lock:
            node = self._tree.nodes.get(path)
        return node.shown(path) if node else None

    def names(self, path: str) -> list[str]:
        """List the children of a znode. Raises NoNodeError."""
        with self._lock:
            if path not in self._tree.nodes:
                raise NoNodeError(path)
            return sorted(self._tree.children.get(path, ()))

    def newest_zxid(self) -> int:
        """Return the number of the newest change."""
        with self._lock:
            return self._tree.zxid

    def add_watch(self, path: str, watch: Watch) -> Znode | None:
        """Read a znode and watch it."""
        with self._lock:
            self._watches.add(path, watch)
            node = self._tree.nodes.get(path)
            return node.shown(path) if node else None

    def add_children_watch(self, path: str, watch: Watch) -> list[str]:
        """List the children of a znode, and watch the list."""
        with self._lock:
            if path not in self._tree.nodes:
                raise NoNodeError(path)
            self._watches.add_children(path, watch)
            return sorted(self._tree.children.get(path, ()))

    def commit(self, state: _State, operations: Sequence[Operation]) -> list[Znode | None]:
        """Make a change for a session."""
        with self._writing:
            self._check(state)
            draft = Draft(self._tree, self._settings)
            answers = draft.perform(operations, state.key.session_id)
            self._make(draft)
        return answers

    def end(self, state: _State, closed_by: EmbeddedSession) -> None:
        """End a session: delete its ephemeral znodes, and inform its other holders."""
        with self._writing:
            if state.key.session_id not in self._sessions:
                return
            self._delete_owned(lambda owner: owner == state.key.session_id, state)
            del self._sessions[state.key.session_id]
            with self._lock:
                self._watches.drop(state)
        state.end(closed_by)

    def _check(self, state: _State) -> None:
        if state.key.session_id not in self._sessions:
            raise SessionExpiredError(state.key.session_id)

    def _delete_owned(self, is_gone: Callable[[int], bool], ending: _State | None = None) -> None:
        """Delete the ephemeral znodes of sessions that have ended, or of the session that ends."""
        paths = self._tree.owned(is_gone)
        if paths:
            draft = Draft(self._tree)
            draft.perform([Delete(path) for path in paths], 0)
            self._make(draft, ending)

    def _make(self, draft: Draft, ending: _State | None = None) -> None:
        """Write a change to the disks, make it in the tree, and queue the callbacks of watches.

        Args:
            ending: the session that ends with this change. The watches of this session are not
                called.
        """
        self._copies.append(draft)
        with self._lock:
            self._tree.apply(draft)
            fired = self._watches.fire(draft.rows)
        for watch, event in fired:
            if watch.session is not ending:
                watch.call(event)
        self._copies.confirm()  # `confirm` is last: if it fails, the change has already happened.


class _State:
    """A session, and its holders: the objects that `connect` returned for the session.

    Attributes:
        callbacks: one thread, which calls the callbacks of all holders.
    """

    def __init__(self, key: SessionKey) -> None:
        self.key = key
        self._lock = threading.Lock()  # no holder is added after the end of the session
        self._holders: list[EmbeddedSession] = []
        self._is_over = False
        self.callbacks = Callbacks(f"coordination-{key.session_id:x}")

    def add(self, holder: EmbeddedSession) -> bool:
        """Add a holder of this session; return False if the session has ended."""
        with self._lock:
            if not self._is_over:
                self._holders.append(holder)
            return not self._is_over

    def end(self, closed_by: EmbeddedSession | None) -> None:
        """Inform all holders of the end, and end the thread after the queued callbacks."""
        with self._lock:
            self._is_over = True
        for holder in self._holders:
            is_closed = closed_by in (holder, None)
            holder.ended(SessionState.CLOSED if is_closed else SessionState.EXPIRED)
        self.callbacks.close()
        self.callbacks.join(CALLBACK_SECONDS_MAX)


class EmbeddedSession(Session):
    """A session of an embedded store."""

    def __init__(self, store: EmbeddedStore, state: _State) -> None:
        self._store, self._state = store, state
        self._ended: SessionState | None = None
        self._lock = threading.Lock()  # a listener that is added later is also called
        self._listeners: list[StateCallback] = []

    @property
    def key(self) -> SessionKey:
        """The id and the password of this session."""
        return self._state.key

    def get(self, path: str) -> Znode:
        """Read a znode."""
        self._check()
        znode = self._store.read(check_path(path))
        if znode is None:
            raise NoNodeError(path)
        return znode

    def children(self, path: str) -> list[str]:
        """List the names of the children of a znode, sorted."""
        self._check()
        return self._store.names(check_path(path))

    def _commit(self, operations: Sequence[Operation]) -> list[Znode | None]:
        self._check()
        return self._store.commit(self._state, operations)

    def watch(self, path: str, callback: WatchCallback) -> Znode | None:
        """Read a znode, and call back once at its next change."""
        self._check()
        return self._store.add_watch(check_path(path), self._watch(callback))

    def watch_children(self, path: str, callback: WatchCallback) -> list[str]:
        """List the children. Call back once, when a child is created or deleted."""
        self._check()
        return self._store.add_children_watch(check_path(path), self._watch(callback))

    def _watch(self, callback: WatchCallback) -> Watch:
        return Watch(self._state, partial(self._state.callbacks.call, callback))

    def on_session(self, callback: StateCallback) -> None:
        """Call back when the session ends, or now if it has already ended."""
        with self._lock:
            self._listeners.append(callback)
            if self._ended is not None:
                self._state.callbacks.call_even_if_closed(callback, self._ended)

    def zxid(self) -> int:
        """Return the number of the newest change."""
        self._check()
        return self._store.newest_zxid()

    def close(self) -> None:
        """End the session, and delete its ephemeral znodes."""
        if self._ended is None:
            self._store.end(self._state, self)

    def ended(self, state: SessionState) -> None:
        """Remember that the session has ended, and queue the calls of the listeners."""
        with self._lock:
            self._ended = state
            for listener in self._listeners:
                self._state.callbacks.call(listener, state)

    def _check(self) -> None:
        if self._ended is SessionState.CLOSED:
            raise SessionClosedError(self.key.session_id)
        if self._ended is not None:
            raise SessionExpiredError(self.key.session_id)
