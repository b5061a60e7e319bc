"""Hold the set of open connections, choose some to cut, and wait until all are closed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from broker.net.connection import Connection


class OpenConnections:
    """The connections of a server that are not closed yet.

    Threads: any thread may call any method. An iteration uses a copy of the set.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all_closed = threading.Condition(self._lock)
        self._connections: set[Connection] = set()

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[Connection]:
        with self._lock:
            return iter(list(self._connections))

    def add(self, connection: Connection) -> None:
        """Add a new connection."""
        with self._lock:
            self._connections.add(connection)

    def discard(self, connection: Connection) -> bool:
        """Remove a connection; return False if it was already removed."""
        with self._lock:
            is_first = connection in self._connections
            self._connections.discard(connection)
            if not self._connections:
                self._all_closed.notify_all()
        return is_first

    def least_reading(self, bytes_max: int) -> list[Connection]:
        """Choose connections to cut, so that unread answers need at most `bytes_max` of memory.

        The connection with the largest unread answer comes first.
        """
        unread = [(one.unread_bytes, one) for one in self if one.unread_bytes]
        left, chosen = sum(size for size, _ in unread), []
        for size, connection in sorted(unread, key=lambda row: row[0], reverse=True):
            if left <= bytes_max:
                break
            chosen.append(connection)
            left -= size
        return chosen

    def wait_until_empty(self, seconds: float) -> None:
        """Wait until all connections are closed, or the time is over."""
        with self._lock:
            if self._connections:
                self._all_closed.wait(seconds)
