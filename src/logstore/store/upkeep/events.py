"""Report to listeners what happens to a store; `LogStore.add_listener` adds a listener.

There is an event when a log dir changes its state, and when a partition is created, deleted or
moved. The thread that causes an event only appends the event to queues. Each listener has a thread
of its own, so a listener that blocks delays neither the store nor another listener. A queue has no
bound, so no event is ever dropped. Events are rare, and an event takes a hundred bytes.

Threads: `Events._lock` ensures that all listeners get the events in the same order. A thread holds
this lock only for a moment, and takes no other lock meanwhile. A thread may take this lock while it
holds any other lock. While a listener's thread waits, the thread refers only to the listener's
`Bell`. So a listener that refers to the store does not keep the store open.
"""

from __future__ import annotations

import enum
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from weakref import ref

from logstore.disk.bell import Bell
from logstore.disk.log_dir import LogDir
from logstore.disk.states import Conditions, LogDirState
from logstore.disk.threads import Thread, start_for
from logstore.errors import LogClosedError
from logstore.names import TopicPartition
from logstore.store.replicas import Replicas

# How long a close waits until the listeners have handled the last events.
LAST_SECONDS_MAX = 5.0


class StoreEventKind(enum.Enum):
    """The kind of an event. Ignore unknown members, because later versions may add members."""

    LOG_DIR_OFFLINE = "a log dir failed or was taken offline"
    LOG_DIR_SUSPECT = "a log dir does not answer"
    LOG_DIR_ANSWERING = "a log dir that was suspect answers again"
    LOG_DIR_FULL = "a log dir is full"
    LOG_DIR_HAS_ROOM = "a log dir that was full has room again"
    LOG_DIR_ADDED = "a log dir was added and serves"
    LOG_DIR_RETURNED = "a log dir that was offline serves again"
    LOG_DIR_REMOVED = "a log dir was taken out of the store"
    REPLICA_CREATED = "a partition was created"
    REPLICA_DELETED = "a partition was deleted"
    REPLICA_MOVED = "a replica was moved to another log dir"


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """One event in a store.

    Attributes:
        log_dir: the log dir of the event; for a moved replica, its new log dir. None if the log dir
            of a deleted partition is unknown.
        reason: why the log dir is offline, suspect or full; "" for other events.
        topic, partition: the replica of the event; None if the event is about a log dir.
        source, target: the old and new log dir of a move; None for other events.
    """

    kind: StoreEventKind
    log_dir: str | None
    reason: str = ""
    topic: str | None = None
    partition: int | None = None
    source: str | None = None
    target: str | None = None


Listener = Callable[[StoreEvent], object]


class _Listening:
    """One listener, and the events that were not delivered to it yet."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.bell = Bell()
        self.is_over = False
        self._events: deque[StoreEvent] = deque()
        # `end` adds this `_Listening` to `_kept` if the last events must still be delivered.
        # While the thread of the listener waits, it refers only to `_kept`.
        self._kept: list[_Listening] = []
        entry = ref(self, partial(_ring, self.bell))
        arguments = (entry, self._kept, self.bell)
        self.thread = Thread(target=_listen, args=arguments, name="logstore-listener", daemon=True)

    def put(self, event: StoreEvent) -> None:
        """Add an event."""
        self._events.append(event)
        self.bell.ring()

    def end(self, *, is_to_finish: bool) -> None:
        """Make the thread end, now or after all events are delivered."""
        self.is_over = True
        if is_to_finish:
            self._kept.append(self)
        else:
            self._events.clear()
        self.bell.ring()

    def deliver(self) -> bool:
        """Call the listener for each queued event; return False if no more events will come."""
        is_over = self.is_over
        while True:
            try:
                event = self._events.popleft()
            except IndexError:  # no more events, or the listener was removed
                return not is_over
            try:
                self.listener(event)
            except Exception:  # an error of the listener must not end the thread
                import logging

                text = "a listener raised at %s"
                logging.getLogger("logstore").warning(text, event.kind.name, exc_info=True)


def _ring(bell: Bell, _: object) -> None:
    bell.ring()


def _listen(entry: ref[_Listening], kept: list[_Listening], bell: Bell) -> None:
    """Deliver events until the listener is removed, or is dropped with its store.

    Args:
        kept: a list that keeps the listener alive if its last events must still be delivered.
    """
    is_open = True
    while is_open:
        bell.wait()
        bell.clear()
        listening = entry()
        is_open = listening is not None and listening.deliver()
        del listening
    kept.clear()


class Events:
    """The listeners of one store.

    Attributes:
        on_full: a function that is called when a log dir becomes full, with the path of the log
            dir. The function must not wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[_Listening, ...] = ()
        self._is_closed = False
        self.on_full: Callable[[str], object] | None = None

    def add(self, listener: Listener, path: str) -> None:
        """Add a listener, unless it was already added.

        Args:
            path: the path of a log dir, for the error's text.

        Raises:
            LogDirError: the process cannot start another thread; the error is retriable.
            LogClosedError: the store was closed meanwhile.
        """
        listening = _Listening(listener)
        start_for(path, listening.thread)
        with self._lock:
            if not self._is_closed and self._find(listener) is None:
                self._listeners += (listening,)
                return
        listening.end(is_to_finish=False)
        if self._is_closed:
            raise LogClosedError(reason="the store was closed")

    def remove(self, listener: Listener) -> None:
        """Remove a listener; do nothing if it is not registered."""
        with self._lock:
            found = self._find(listener)
            self._listeners = tuple(one for one in self._listeners if one is not found)
        if found is not None:
            found.end(is_to_finish=False)

    def _find(self, listener: Listener) -> _Listening | None:
        return next((one for one in self._listeners if one.listener == listener), None)

    def post(self, event: StoreEvent) -> None:
        """Queue an event for all listeners, without waiting for any of them."""
        if self._listeners:
            with self._lock:
                for one in self._listeners:
                    one.put(event)

    def close(self, timeout: float | None) -> None:
        """End the listeners after their last events; wait for the end for a limited time."""
        with self._lock:
            listeners, self._listeners, self._is_closed = self._listeners, (), True
        for one in listeners:
            one.end(is_to_finish=True)
        deadline = time.monotonic() + (LAST_SECONDS_MAX if timeout is None else timeout)
        for one in listeners:
            if one.thread is not threading.current_thread():
                one.thread.join(max(0.0, deadline - time.monotonic()))

    # --- posting events ---------------------------------------------------------------------------

    def follow(self, replicas: Replicas) -> None:
        """From now on, post the moves of a store's replicas, and the changes of its log dirs."""
        entry = ref(self)

        def moved(key: TopicPartition, source: str, target: str) -> None:
            events = entry()
            if events is not None:
                events._moved(key, source, target)

        replicas.on_move = moved
        for log_dir in replicas.log_dirs:
            self.watch(log_dir)

    def watch(self, log_dir: LogDir) -> None:
        """From now on, post the changes of a log dir's state.

        The log dir refers to this object only weakly, so the object can be freed.
        """
        entry, path = ref(self), log_dir.path

        def changed(before: Conditions, after: Conditions, reason: str) -> None:
            events = entry()
            if events is not None:
                events._changed(path, before, after, reason)

        log_dir.on_change = changed

    def _changed(self, path: str, before: Conditions, after: Conditions, reason: str) -> None:
        """Post a change of state; the caller must hold the log dir's lock, to keep the order."""
        kind, added, ended = StoreEventKind, after - before, before - after
        if LogDirState.OFFLINE in after:
            if LogDirState.OFFLINE in added:
                self.post(StoreEvent(kind.LOG_DIR_OFFLINE, path, reason))
            return
        if LogDirState.SUSPECT in added:
            self.post(StoreEvent(kind.LOG_DIR_SUSPECT, path, reason))
        if LogDirState.SUSPECT in ended:
            self.post(StoreEvent(kind.LOG_DIR_ANSWERING, path))
        if LogDirState.READ_ONLY in added:
            self.post(StoreEvent(kind.LOG_DIR_FULL, path, reason))
            if self.on_full is not None:
                self.on_full(path)
        if LogDirState.READ_ONLY in ended:
            self.post(StoreEvent(kind.LOG_DIR_HAS_ROOM, path))

    def removed(self, path: str | None) -> None:
        """Post that a log dir was removed from the store, even if the path is unknown."""
        self.post(StoreEvent(StoreEventKind.LOG_DIR_REMOVED, path))

    def of_replica(self, kind: StoreEventKind, key: TopicPartition, path: str | None) -> None:
        """Post that a partition was created or deleted; the caller must have reserved the key."""
        self.post(StoreEvent(kind, path, topic=key.topic, partition=key.partition))

    def _moved(self, key: TopicPartition, source: str, target: str) -> None:
        """Post that a replica was moved; the caller must have reserved the key."""
        kind = StoreEventKind.REPLICA_MOVED
        self.post(StoreEvent(kind, target, "", key.topic, key.partition, source, target))
