"""Use Apache ZooKeeper 3.8 or 3.9 as the coordination store of a cluster.

    store = ZooKeeperStore("zk1:2181,zk2:2181,zk3:2181/logstore")
    session = store.connect()

kazoo owns the connection. If the connection is lost, the session is SUSPENDED, a running write
raises OutcomeUnknownError, and kazoo connects again. On the new connection, the watches are set
again. If a watched znode has changed in the meantime, its watch is called at once. If ZooKeeper has
ended the session, the session is EXPIRED for ever, and no new session replaces this session. If
ZooKeeper refuses the user, or kazoo itself fails, the session is FAILED for ever. But ZooKeeper
ends a FAILED session only after its time-out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kazoo import exceptions
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from broker.coordination.callbacks import Callbacks
from broker.coordination.errors import (
    AccessDeniedError,
    CoordinationError,
    NodeExistsError,
    NotConnectedError,
    OutcomeUnknownError,
    SessionClosedError,
    SessionError,
    SessionExpiredError,
    SessionFailedError,
    UnexpectedAnswerError,
)
from broker.coordination.paths import ROOT, check_path
from broker.coordination.verbs import (
    Create,
    Operation,
    Session,
    SessionKey,
    SessionState,
    StateCallback,
    Store,
    WatchCallback,
    Znode,
)
from cluster.zookeeper_requests import (
    IN_DOUBT,
    LOST,
    Client,
    EndSession,
    Multi,
    OneSessionHandler,
    Refused,
    encoded,
    error_of,
    refusal,
)
from cluster.zookeeper_watches import Watch, WatchSetter, znode_of

RETRY_SECONDS, RETRY_SECONDS_MAX = 0.05, 1.0


class Credentials(NamedTuple):
    """The user and the password of ZooKeeper's digest authentication."""

    user: str
    password: str


class ZooKeeperStore(Store):
    """A store in ZooKeeper. All znodes of the store are below one path.

    Args:
        hosts: the servers as in `zookeeper.connect`: `host:port,host:port/path`. A missing path is
            created.
        session_timeout_ms: if ZooKeeper hears nothing from a session for this time, it ends the
            session.
        request_timeout_ms: if a call has no answer after this time, the call raises.
        credentials: the user and password of each connection.
        is_private: allow only the creator of a znode to access it. This needs credentials.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int = 9_000,
        request_timeout_ms: int = 15_000,
        credentials: Credentials | None = None,
        is_private: bool = False,
    ) -> None:
        self.servers, slash, chroot = hosts.partition("/")
        self.chroot = check_path(slash + chroot) if chroot else ""
        if is_private and credentials is None:
            raise ValueError("znodes that only their creator may access need credentials")
        self.session_timeout_ms = session_timeout_ms
        self.request_timeout_ms = request_timeout_ms
        self.credentials = credentials
        self.acl = CREATOR_ALL_ACL if is_private else OPEN_ACL_UNSAFE

    def connect(self, key: SessionKey | None = None) -> ZooKeeperSession:
        """Begin a session, or take over a live session from another connection or process."""
        return ZooKeeperSession(self, key)


class ZooKeeperSession(Session):
    """A session of a `ZooKeeperStore`.

    Threads: a thread of kazoo calls `_heard`, which does not wait. `_callbacks`, a thread of this
    session, sets watches again, calls callbacks, and frees the client after the session ends.
    """

    def __init__(self, store: ZooKeeperStore, key: SessionKey | None) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._connected = threading.Event()  # also set after the end, to wake waiting threads
        self._ended: SessionState | None = None
        self._told = SessionState.CONNECTED  # the last state that the listeners got
        self._listeners: list[StateCallback] = []
        self._key = key or SessionKey(0, bytes(16))
        self._is_taken, self._is_ending, self._is_refused = False, False, False
        self._handler = OneSessionHandler()
        given = store.credentials
        self._client = Client(
            hosts=store.servers,
            timeout=store.session_timeout_ms / 1000,
            client_id=key,
            handler=self._handler,
            auth_data=[("digest", f"{given.user}:{given.password}")] if given else None,
            connection_retry=KazooRetry(
                max_tries=-1, delay=RETRY_SECONDS, max_delay=RETRY_SECONDS_MAX,
                interrupt=lambda: self._handler.is_over,
            ),
        )  # fmt: skip
        self._callbacks = Callbacks("zookeeper-callbacks")
        self._watches = WatchSetter(
            self._client,
            self._read,
            self._callbacks,
            lambda: self._connected.is_set() and self._ended is None,
        )
        self._client.add_listener(self._heard)
        try:
            self._client.start_async()
            self._key = self._found_key()
            self._is_taken = self._key == key
            if key is None:
                self._make_chroot()
            elif not self._is_taken:
                raise SessionExpiredError(key.session_id)  # kazoo has begun a new session
        except BaseException:
            self.close()
            raise

    def _found_key(self) -> SessionKey:
        """Return the key of the session that was begun or taken over."""
        while True:
            self._wait_connected()
            found = self._client.client_id  # None if the connection was lost in the meantime
            if found is not None:
                return SessionKey(*found)

    @property
    def key(self) -> SessionKey:
        """The id and the password of this session."""
        return self._key

    # --- reads ------------------------------------------------------------------------------------

    def get(self, path: str) -> Znode:
        """Read a znode."""
        data, stat = self._read(check_path(path), self._client.get_async)
        return znode_of(path, data, stat)

    def children(self, path: str) -> list[str]:
        """List the names of the children of a znode, sorted."""
        return sorted(self._read(check_path(path), self._client.get_children_async))

    def zxid(self) -> int:
        """Return the number of the newest change; the server asks the leader for this number."""
        self._read(ROOT, self._client.sync_async)
        return int(self._client.last_zxid)

    def _read(self, path: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Send a read and wait for its answer."""
        self._wait_connected()
        try:
            return self._answer(call(self._full(path), *arguments))
        except LOST:
            self._check()
            raise NotConnectedError(self._key.session_id) from None
        except exceptions.ZookeeperError as error:
            raise refusal(error, path, None, None) from None
        except (CoordinationError, MemoryError):
            raise
        except Exception as error:  # kazoo raises any error if it cannot decode an answer
            raise UnexpectedAnswerError(path, f"an unreadable answer: {error!r}") from error

    # --- writes -----------------------------------------------------------------------------------

    def _commit(self, operations: Sequence[Operation]) -> list[Znode | None]:
        paths = [self._full(one.path) for one in operations]
        answers = self._send(operations, paths)
        done: list[Znode | None] = []
        for operation, answer in zip(operations, answers, strict=True):
            if answer.stat is None:
                done.append(None)
                continue
            path = operation.path
            if answer.path is not None:
                path = answer.path.removeprefix(self._store.chroot)
            done.append(znode_of(path, getattr(operation, "data", b""), answer.stat))
        return done

    def _send(self, operations: Sequence[Operation], paths: Sequence[str]) -> list[Any]:
        """Send operations on whole paths, and wait for their results."""
        self._wait_connected()
        wanted = [encoded(*one, self._store.acl) for one in zip(operations, paths, strict=True)]
        try:
            answers = list(self._answer(self._client.send_async(Multi(wanted))))
        except IN_DOUBT:
            raise OutcomeUnknownError(self._key.session_id) from None
        except exceptions.ZookeeperError as error:
            raise refusal(error, operations[0].path, 0, operations[0]) from None
        except SessionError:
            raise
        except Exception as error:  # kazoo raises any error if it cannot decode an answer
            raise OutcomeUnknownError(self._key.session_id) from error
        if answers and isinstance(answers[0], Refused):
            place, code = answers[0]
            operation = operations[place]
            raise refusal(error_of(code), operation.path, place, operation)
        if len(answers) != len(operations):
            raise OutcomeUnknownError(self._key.session_id)
        return answers

    def _make_chroot(self) -> None:
        """Create the root path of all znodes, and its parents, if they are missing.

        Existing parts are not created, because the user may have no right to create them.
        """
        parts = self._store.chroot.split("/")[1:]
        for end in range(1, len(parts) + 1):
            path = "/" + "/".join(parts[:end])
            try:
                if not (self._exists(self._store.chroot) or self._exists(path)):
                    self._send([Create(path)], [path])
            except NodeExistsError:
                continue
            except OutcomeUnknownError:
                raise NotConnectedError(self._key.session_id) from None

    def _exists(self, path: str) -> bool:
        """Ask whether a whole path exists."""
        try:
            return self._read(path, lambda _: self._client.exists_async(path)) is not None
        except AccessDeniedError as error:
            # the server checks the right to read only if the path exists
            if isinstance(error.__context__, exceptions.NoAuthError):
                return True
            raise

    # --- watches ----------------------------------------------------------------------------------

    def watch(self, path: str, callback: WatchCallback) -> Znode | None:
        """Read a znode, and call back once at its next change."""
        watch = Watch(check_path(path), callback, is_of_children=False)
        return self._watches.set_first(watch, self._watches.set_on_node)

    def watch_children(self, path: str, callback: WatchCallback) -> list[str]:
        """List children, and call back once when a child is created or deleted."""
        watch = Watch(check_path(path), callback, is_of_children=True)
        return self._watches.set_first(watch, self._watches.set_on_children)

    # --- the session ------------------------------------------------------------------------------

    def on_session(self, callback: StateCallback) -> None:
        """Call back at each change of the state; if the state is not CONNECTED, also call now."""
        with self._lock:
            self._listeners.append(callback)
            if self._told is not SessionState.CONNECTED:
                self._callbacks.call_even_if_closed(callback, self._told)

    def close(self) -> None:
        """End the session, and delete its ephemeral znodes.

        If the connection is lost, ZooKeeper ends the session later, after its time-out. But if the
        session was taken over from another process, this call waits until the session has ended,
        because that process may still run and take the session back.

        Raises:
            NotConnectedError: the session of another process may not have ended.
        """
        try:
            if self._is_taken:
                self._end_for_all()
        finally:
            if self._end(SessionState.CLOSED):
                self._free()

    def _end_for_all(self) -> None:
        """End the session; if another process takes the session back first, try again."""
        self._is_ending = True
        deadline = time.monotonic() + self._store.request_timeout_ms / 1000
        while self._ended is None:
            if time.monotonic() > deadline:
                raise NotConnectedError(self._key.session_id)
            try:
                self._wait_connected()
                self._answer(self._client.send_async(EndSession()))
                return
            except (SessionClosedError, SessionExpiredError):
                return
            except LOST:
                continue

    def _heard(self, state: str) -> None:
        """Handle a change of state; kazoo calls this method in the thread of its connection."""
        if state == KazooState.LOST:
            if self._end(self._how_ended()):
                self._callbacks.call(self._free)
            return
        if state == KazooState.CONNECTED:
            self._connected.set()
            self._callbacks.call(self._watches.set_again)
        else:
            self._connected.clear()
        is_connected = state == KazooState.CONNECTED
        self._inform(SessionState.CONNECTED if is_connected else SessionState.SUSPENDED)

    def _how_ended(self) -> SessionState:
        """Return the last state of the session; called while kazoo reports the session's end."""
        if self._is_ending:
            return SessionState.CLOSED
        found = self._client.client_state
        self._is_refused = found == KeeperState.AUTH_FAILED
        is_expired = found == KeeperState.EXPIRED_SESSION
        return SessionState.EXPIRED if is_expired else SessionState.FAILED

    def _inform(self, state: SessionState) -> None:
        with self._lock:
            if self._told in (SessionState.EXPIRED, SessionState.CLOSED, SessionState.FAILED):
                return
            self._told = state
            for listener in self._listeners:
                self._callbacks.call(listener, state)

    def _end(self, state: SessionState) -> bool:
        """Remember that the session has ended; return False if its end was already recorded."""
        with self._lock:
            if self._ended is not None:
                return False
            self._ended = state
        self._watches.stop()
        self._handler.is_over = True
        self._connected.set()
        self._inform(state)
        return True

    def _free(self) -> None:
        """Stop the client, and free its threads; if the session still lives, end the session."""
        # `stop` prevents new connections, but still ends the session over the old connection
        self._client.stop()
        self._client.close()
        self._callbacks.close()

    def _full(self, path: str) -> str:
        """Return the whole path on the server."""
        return path if not self._store.chroot else (self._store.chroot + path).removesuffix(ROOT)

    def _check(self) -> None:
        if self._ended is SessionState.CLOSED:
            raise SessionClosedError(self._key.session_id)
        if self._is_refused:
            raise AccessDeniedError(ROOT)
        if self._ended is SessionState.FAILED:
            raise SessionFailedError(self._key.session_id)
        if self._ended is not None:
            raise SessionExpiredError(self._key.session_id)

    def _wait_connected(self) -> None:
        """Wait for the connection. Raises NotConnectedError, or SessionError after the session."""
        is_connected = self._connected.wait(self._store.request_timeout_ms / 1000)
        self._check()
        if not is_connected:
            raise NotConnectedError(self._key.session_id)

    def _answer(self, result: Any) -> Any:
        """Wait for an answer. Raises kazoo's errors."""
        try:
            return result.get(timeout=self._store.request_timeout_ms / 1000)
        except exceptions.ConnectionClosedError:  # for kazoo, this error is a kind of expiry
            raise
        except exceptions.SessionExpiredError:
            raise SessionExpiredError(self._key.session_id) from None
