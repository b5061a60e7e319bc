"""Set watches in ZooKeeper, and set them again after each loss of the connection.

kazoo forgets its watches when the connection is lost. So a watch stores the last answer of the
server. When the connection is back, the watch is set again, and the new answer is compared with the
stored answer. If the two answers differ, the watch fires at once. A watch also fires if the server
refuses to set it again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from kazoo.protocol.states import EventType

from broker.coordination.callbacks import Callbacks
from broker.coordination.errors import NoNodeError, NotConnectedError, SessionError
from broker.coordination.verbs import Event, EventKind, WatchCallback, Znode

KINDS = {
    EventType.CREATED: EventKind.CREATED,
    EventType.CHANGED: EventKind.CHANGED,
    EventType.DELETED: EventKind.DELETED,
    EventType.CHILD: EventKind.CHILDREN,
}
# the key is `Watch.is_of_children`
CHANGES = {False: EventKind.CHANGED, True: EventKind.CHILDREN}
Answer = TypeVar("Answer")


class Watch:
    """A watch that is set again after each loss of the connection, until it is called.

    Attributes:
        attempt: how many times the watch was set. An event of an earlier attempt is ignored,
            because the answer to the later attempt already includes its change.
        seen: the zxids in the last answer. If a later answer has other zxids, there was a change.
    """

    def __init__(self, path: str, callback: WatchCallback, is_of_children: bool) -> None:
        self.path, self.callback, self.is_of_children = path, callback, is_of_children
        # held while the watch is set; the holder may wait for the server
        self.setting = threading.Lock()
        self.attempt = 0
        self.is_done = False
        self.seen: tuple[int, ...] | None = None


class WatchSetter:
    """The watches of one session.

    Threads: kazoo's threads call `_event`, which does not wait. The thread of `callbacks` sets
    watches again. Only one thread at a time sets a watch, and this thread holds the lock `setting`
    of the watch.

    Args:
        client: kazoo's client, for its reads.
        read: sends a read for a path, and waits for the answer.
        callbacks: calls callbacks, one at a time.
        is_connected: returns whether the session lives and is connected.
    """

    def __init__(
        self,
        client: Any,
        read: Callable[..., Any],
        callbacks: Callbacks,
        is_connected: Callable[[], bool],
    ) -> None:
        self._client, self._read = client, read
        self._callbacks, self._is_connected = callbacks, is_connected
        self._lock = threading.Lock()
        self._lost: list[Watch] = []
        self._is_over = False

    def stop(self) -> None:
        """Stop firing watches, because the session has ended."""
        with self._lock:
            self._is_over = True

    def set_first(self, watch: Watch, set_on: Callable[[Watch], Answer]) -> Answer:
        """Set a watch for the first time; if this fails, its callback is never called."""
        with watch.setting:
            try:
                return set_on(watch)
            except BaseException:
                watch.is_done = True
                raise

    def set_on_node(self, watch: Watch) -> Znode | None:
        """Read a znode and watch it; None if it does not exist."""
        while True:
            try:
                event = self._next_attempt(watch)
                data, stat = self._read(watch.path, self._client.get_async, event)
            except NoNodeError:
                event = self._next_attempt(watch)
                if self._read(watch.path, self._client.exists_async, event) is None:
                    watch.seen = None
                    return None
            else:
                watch.seen = (stat.czxid, stat.mzxid)
                return znode_of(watch.path, data, stat)

    def set_on_children(self, watch: Watch) -> list[str]:
        """List children and watch them. Raises NoNodeError."""
        event = self._next_attempt(watch)
        names, stat = self._read(watch.path, self._client.get_children_async, event, True)
        watch.seen = (stat.czxid, stat.pzxid)
        return sorted(names)

    def _next_attempt(self, watch: Watch) -> Callable[[Any], None]:
        """Count an attempt to set a watch; return the function that kazoo calls at its event."""
        with self._lock:
            watch.attempt += 1
            attempt = watch.attempt
        return lambda event: self._event(watch, attempt, event)

    def _event(self, watch: Watch, attempt: int, event: Any) -> None:
        """Take an event from kazoo: a change, or the loss of the connection."""
        kind = KINDS.get(event.type)
        if kind is not None:
            self._fire(watch, kind, attempt)
            return
        with self._lock:
            self._lost.append(watch)
        self._callbacks.call(self.set_again)

    def _fire(self, watch: Watch, kind: EventKind, attempt: int) -> None:
        """Queue the callback of a watch, once."""
        with self._lock:
            is_first = not (watch.is_done or self._is_over) and attempt == watch.attempt
            watch.is_done |= is_first
        if is_first:
            self._callbacks.call(watch.callback, Event(kind, watch.path))

    def set_again(self) -> None:
        """Set lost watches again, until the connection is lost again.

        If the server refuses a watch, its callback is called, so that the owner of the watch reads
        again and gets the error itself.
        """
        while self._lost and self._is_connected():
            watch = self._lost[0]
            try:
                self._set_one_again(watch)
            except NotConnectedError:
                continue
            except SessionError:  # the session has ended
                return
            except Exception:  # noqa: BLE001 - after any error, the other watches must be set
                self._fire(watch, CHANGES[watch.is_of_children], watch.attempt)
            with self._lock:
                self._lost.remove(watch)

    def _set_one_again(self, watch: Watch) -> None:
        """Set a watch again; if its znode has changed since the last time, fire the watch now."""
        with watch.setting:
            before = watch.seen
            try:
                if not watch.is_done and watch.is_of_children:
                    self.set_on_children(watch)
                elif not watch.is_done:
                    self.set_on_node(watch)
            except NoNodeError:  # the znode whose children are watched was deleted
                watch.seen = None
            kind = _change(before, watch.seen, watch.is_of_children)
        if kind is not None:
            self._fire(watch, kind, watch.attempt)


def znode_of(path: str, data: bytes | None, stat: Any) -> Znode:
    """Convert kazoo's answer to this library's answer."""
    return Znode(path, data or b"", stat.czxid, stat.mzxid, stat.version, stat.ephemeralOwner)


def _change(
    before: tuple[int, ...] | None, now: tuple[int, ...] | None, is_of_children: bool
) -> EventKind | None:
    """Compare the answers before and after a lost connection; return the change, or None."""
    if before == now:
        return None
    if before is None:
        return EventKind.CREATED
    if now is None or before[0] != now[0]:
        return EventKind.DELETED
    return CHANGES[is_of_children]
