"""Serve the admin socket: one loop for all clients, a thread for each request.

Limits prevent a client from harming the store or another client:

    connections    if there are too many, the oldest connection without a running request is closed
    bytes          one request, and progress that a client has not received yet, have a size limit
    seconds        a client must send its request, and receive each part of an answer, in time
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from logstore.disk.threads import Thread
from logstore.errors import LogStoreError
from logstore.store.admin import place as admin_place
from logstore.store.admin.protocol import REQUEST_BYTES_MAX, encode_error, encode_line

CONNECTIONS_MAX = 64
RECEIVE_BYTES = 1 << 16
OUTGOING_BYTES_MAX = 1 << 20
PATIENCE_SECONDS = 10.0
DEAF_SECONDS = 1.0  # the pause if a connection cannot be accepted for lack of descriptors
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid

# A function that answers a request, and returns the last line of the answer.
# The first argument is the line of the request.
# The second argument is a function that sends lines of progress.
# The third argument is a function that returns whether the client has closed the connection.
# Each call runs in a separate thread and raises no error.
Answer = Callable[[bytes, Callable[[bytes], object], Callable[[], bool]], bytes]


class Connection:
    """The connection of one client, which sends one request and gets one answer."""

    def __init__(self, peer: socket.socket, deadline: float) -> None:
        self.peer = peer
        self.deadline: float | None = deadline
        self.incoming = bytearray()
        self.outgoing = bytearray()
        self.is_asked = False
        self.is_answered = False
        self.is_gone = False

    @property
    def is_waiting(self) -> bool:
        """Check whether a part of the request has not arrived yet."""
        return not self.is_asked and not self.is_answered


class AdminServer:
    """Serve the admin socket of one store.

    The socket listens when the object is created, and answers after the call of `start`.
    """

    def __init__(
        self,
        path: str,
        answer: Answer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Listen at `path`. Raises OSError."""
        self.path = path
        self._answer = answer
        self._clock = clock
        self._listener = admin_place.listen(path)
        self._wakes, self._waker = socket.socketpair()
        for end in (self._wakes, self._waker):
            end.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wakes, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._deaf_until: float | None = None
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, Connection] = {}
        self._is_stopped = False
        self._thread = Thread(target=self._run, name="logstore-admin", daemon=True)

    def start(self) -> None:
        """Start the loop."""
        self._thread.start()

    def stop(self) -> None:
        """End the loop, close all connections, and remove the socket's name."""
        self.leave()
        if self._thread.ident is not None:
            self._thread.join()

    def leave(self) -> None:
        """Ask the loop to end, like `stop`, but do not wait for its end."""
        self._is_stopped = True
        self.wake()
        if self._thread.ident is None:
            self._end()

    def drop(self) -> None:
        """Close the descriptors in a forked child; the parent's socket continues to work."""
        for connection in list(self._connections.values()):
            connection.peer.close()
        self._close()

    def wake(self) -> None:
        """Wake the loop, so that it checks all connections again."""
        with suppress(OSError):  # the pipe is full or closed: the loop is awake, or has ended
            self._waker.send(b"\0")

    # --- the loop ---------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_stopped:
                with suppress(MemoryError):  # there may be more memory in the next turn of the loop
                    self._turn()
        finally:
            self._end()

    def _end(self) -> None:
        admin_place.remove(self.path)
        for connection in list(self._connections.values()):
            self._hang_up(connection)
        self._close()

    def _turn(self) -> None:
        """Wait for an event and handle it."""
        for key, _ in self._selector.select(self._patience()):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._wakes:
                with suppress(OSError):
                    self._wakes.recv(RECEIVE_BYTES)
            else:
                connection = self._connections.get(cast(socket.socket, key.fileobj))
                if connection is not None:
                    self._receive(connection)
        now = self._clock()
        if self._deaf_until is not None and now >= self._deaf_until:
            self._deaf_until = None
            self._selector.register(self._listener, selectors.EVENT_READ)
        for connection in list(self._connections.values()):
            if connection.deadline is not None and now >= connection.deadline:
                self._hang_up(connection)
            else:
                self._send(connection)

    def _patience(self) -> float | None:
        """Return the seconds until the next deadline; return None if there is no deadline."""
        times = [c.deadline for c in self._connections.values() if c.deadline is not None]
        if self._deaf_until is not None:
            times.append(self._deaf_until)
        return max(0.0, min(times) - self._clock()) if times else None

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:
            self._selector.unregister(self._listener)
            self._deaf_until = self._clock() + DEAF_SECONDS
            return
        peer.setblocking(False)
        connection = Connection(peer, self._clock() + PATIENCE_SECONDS)
        if len(self._connections) >= CONNECTIONS_MAX:
            every = list(self._connections.values())
            idle = [c for c in every if c.is_waiting] or [c for c in every if c.is_answered]
            for oldest in idle[:1]:
                self._hang_up(oldest)
        self._connections[peer] = connection
        self._selector.register(peer, selectors.EVENT_READ)
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        user_id = _CREDENTIALS.unpack(credentials)[1]
        if not is_welcome(user_id):
            self._refuse(connection, f"user {user_id} may not operate this store")
        elif len(self._connections) > CONNECTIONS_MAX:
            self._refuse(connection, f"{CONNECTIONS_MAX} clients are already served; try again")

    def _receive(self, connection: Connection) -> None:
        """Receive bytes of a request; close the connection if the client has closed its end."""
        try:
            data = connection.peer.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._hang_up(connection)
            return
        if not connection.is_waiting:
            return  # a connection has one request; bytes after the request are ignored
        connection.incoming += data
        line, newline, _ = connection.incoming.partition(b"\n")
        if len(line) > REQUEST_BYTES_MAX:
            self._refuse(connection, f"a request has at most {REQUEST_BYTES_MAX} bytes")
        elif newline:
            self._take(connection, bytes(line))

    def _take(self, connection: Connection, line: bytes) -> None:
        """Start the thread that works on a request."""
        connection.is_asked = True
        connection.deadline = None
        connection.incoming = bytearray()
        thread = Thread(
            target=self._work, args=(connection, line), name="logstore-admin-request", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            self._refuse(connection, f"no thread can be started: {error}")

    def _work(self, connection: Connection, line: bytes) -> None:
        """Work on a request; this runs in the thread of the request."""
        last_line = self._answer(
            line,
            lambda progress: self._tell(connection, progress),
            lambda: connection.is_gone or self._is_stopped,
        )
        self._answered(connection, last_line)

    def _refuse(self, connection: Connection, reason: str) -> None:
        line = encode_line({"error": encode_error(LogStoreError(reason))})
        self._answered(connection, line)

    def _tell(self, connection: Connection, line: bytes) -> None:
        """Queue a line of progress, unless the client has too many unread bytes."""
        with self._lock:
            if connection.is_answered or len(connection.outgoing) > OUTGOING_BYTES_MAX:
                return
            connection.outgoing += line
        self.wake()

    def _answered(self, connection: Connection, line: bytes) -> None:
        """Queue the last line of the answer."""
        with self._lock:
            connection.outgoing += line
            connection.is_answered = True
        self.wake()

    def _send(self, connection: Connection) -> None:
        """Send as many bytes as the socket accepts; close the connection after the last line."""
        with self._lock:
            if connection.outgoing:
                try:
                    sent = connection.peer.send(connection.outgoing)
                except BlockingIOError:
                    sent = 0
                except OSError:
                    connection.is_gone = True
                    sent = 0
                del connection.outgoing[:sent]
                if sent or connection.deadline is None:
                    connection.deadline = self._clock() + PATIENCE_SECONDS
            is_left = bool(connection.outgoing)
            is_over = connection.is_answered and not is_left
            if not is_left and connection.is_asked:
                connection.deadline = None
        if is_over or connection.is_gone:
            self._hang_up(connection)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_left else 0)
        if self._selector.get_key(connection.peer).events != events:
            self._selector.modify(connection.peer, events)

    def _hang_up(self, connection: Connection) -> None:
        connection.is_gone = True
        if self._connections.pop(connection.peer, None) is not None:
            self._selector.unregister(connection.peer)
            connection.peer.close()

    def _close(self) -> None:
        self._selector.close()
        for end in (self._listener, self._wakes, self._waker):
            end.close()


def is_welcome(user_id: int) -> bool:
    """Check whether a user may operate the store: only root and the owner's user may do so."""
    return user_id in (os.geteuid(), 0)
