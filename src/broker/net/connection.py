"""Hold one connection: its socket, the bytes that arrived, and the answer that is being sent.

A call to the socket waits for at most 50 ms. The timeouts of the socket itself (SO_RCVTIMEO) limit
its calls, so no other system call is needed. After 50 ms without a byte, the connection is parked,
so that it uses no thread. A client that sends or takes a few bytes every 50 ms would keep its
thread. So while other requests need threads, calls do not wait at all.
"""

from __future__ import annotations

import enum
import errno
import math
import os
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from broker.machines.exchange import Answer, Client, Pending, Piece
from broker.machines.request_times import RequestClock
from broker.machines.timers import Timer
from broker.wire.fetch import FileRange
from broker.wire.frames import FrameSplitter

BLOCKED_SECONDS = 0.05
SHORT_WAIT_SECONDS = 1.0  # see `Connection.gives_up`
RECEIVED_BYTES = 64 << 10  # one call reads this much, or more for a large frame
RECEIVED_BYTES_MAX = 1 << 20  # one call reads at most this much of a large frame
SENT_BYTES_MAX = 256 << 10  # one call sends at most this much of a file
PIECES_MAX = 512  # one call sends at most this many pieces; Linux allows 1,024
# Errors of sendfile that come from the socket. All other errors come from the file.
SOCKET_ERRORS = {
    errno.EPIPE, errno.ECONNRESET, errno.ECONNABORTED, errno.ENOTCONN, errno.ETIMEDOUT,
    errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EBADF, errno.ENOTSOCK,
}  # fmt: skip


class Phase(enum.Enum):
    """The state of a connection: a thread owns it, or it waits for an event."""

    RUNNING = "a thread has it"
    INPUT = "it is parked until bytes arrive"
    OUTPUT = "it is parked until the client takes more of an answer"
    WAITING = "its request is pending"
    MUTED = "its client exceeded a quota, so its next request waits"
    MEMORY = "its request is too large for the memory that is free"
    CLOSED = "it is closed"


class EndOfStreamError(Exception):
    """Report that the client sends no more bytes."""


class ClientRefusedError(Exception):
    """Report that a client may send no requests: it did not log in, or did not complete TLS."""


class FileFailedError(Exception):
    """Report that a file could not be read while it was being sent."""


class Connection:
    """The socket of one client, with the unfinished requests and answers.

    Threads: only the thread that owns the connection uses its fields. `claim` changes the owner,
    under `_lock`. There is one exception: other threads may read `busy_since`, `is_hung_up`,
    `unread_bytes` and `phase`; an old value does no harm.

    Attributes:
        phase: RUNNING while a thread owns the connection.
        busy_since: the time when the running request began; 0.0 if no request runs.
        is_hung_up: whether the client has stopped sending. This is set only while a request waits.
        has_sent_silently: whether a request had no answer (`acks=0`). Such a client does not wait
            for answers before it closes the connection.
        deadline: at this time, the connection is closed, or its pending request is answered. If a
            thread claims the connection earlier, the deadline has no effect.
        sent_bytes: the number of all bytes that were sent to the client.
        sent_since: the last time when bytes were sent.
        unread_bytes: the memory of the answer that the client does not take; 0 while the client
            takes all bytes.
        arriving_since: the time when the first byte of an incomplete frame arrived.
        received_at: the last time when bytes arrived.
        clock: the times of the request that is not answered yet.
        has_memory: whether the connection has reserved memory, or waits for it.
        login_deadline: the time by which the client must complete its TLS handshake and its login;
            infinity if both are complete or not needed.
        is_secured: whether requests can be read. This is False only during a TLS handshake.
    """

    received_bytes_max = RECEIVED_BYTES_MAX
    held_bytes_max = 0  # the most bytes that were read, but are not in the splitter yet

    def __init__(
        self, sock: socket.socket, client: Client, frame_bytes_max: int, now: float
    ) -> None:
        self.socket = sock
        self.client = client
        self.splitter = FrameSplitter(frame_bytes_max)
        self.frames: deque[memoryview] = deque()
        self.outgoing: deque[Piece] = deque()
        self.pending: Pending | None = None
        self.phase = Phase.RUNNING
        self.busy_since = 0.0
        self.is_hung_up = self.has_sent_silently = False
        self.deadline = 0.0
        self.timer: Timer[object] | None = None
        self.sent_bytes = self.unread_bytes = 0
        self.sent_since = self.arriving_since = now
        self.received_at = now
        self.clock: RequestClock | None = None
        self.has_memory = False
        self.login_deadline = math.inf
        self.is_secured = True
        self.fd = sock.fileno()
        self._lock = threading.Lock()
        timeout = struct.pack("ll", 0, int(BLOCKED_SECONDS * 1e6))
        sock.setblocking(True)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # this notices a lost client

    def gives_up(self, seconds: float) -> bool:
        """Report whether a client that hangs up during a wait gives up the requests that it sent.

        Perhaps the client has sent these requests again on another connection. So they must not be
        executed minutes later. A client that waits for no answers gives up nothing.
        """
        return seconds > SHORT_WAIT_SECONDS and not self.has_sent_silently

    def __repr__(self) -> str:
        return f"<Connection of {self.client.address}, {self.phase.value}>"

    def claim(self, *phases: Phase, at: float | None = None) -> Phase | None:
        """Make this thread the owner, if the connection is in one of these phases.

        Args:
            at: claim the connection only if its deadline is not later than this time.

        Returns:
            The phase that the connection had; None if the connection was not claimed.
        """
        with self._lock:
            phase = self.phase
            if phase not in phases or (at is not None and at < self.deadline):
                return None
            self.phase = Phase.RUNNING
            return phase

    def receive(self, *, is_hurried: bool = False) -> bool:
        """Read arrived bytes into `frames`; return False if no byte came for 50 ms.

        Args:
            is_hurried: whether other clients need the thread, so that this call must not wait for
                50 ms. If it is True, a busy client costs more CPU time, because its connection is
                parked after each answer.

        Raises:
            EndOfStreamError: the client sends no more bytes.
            WireError: a frame is too large. OSError: the connection is broken.
        """
        data = self.receive_bytes(is_hurried=is_hurried)
        if data is None:
            return False
        if not data:
            raise EndOfStreamError
        self.received_at = time.monotonic()
        self.frames.extend(self.splitter.feed(data))
        return True

    def receive_bytes(self, *, is_hurried: bool) -> bytes | None:
        """Read from the socket; return None if no byte came for 50 ms, and b"" at the end."""
        missing = self.splitter.missing_bytes
        try:
            if missing > RECEIVED_BYTES:
                size = min(missing - self.held_bytes_max, self.received_bytes_max)
                return self.socket.recv(
                    size, socket.MSG_DONTWAIT if is_hurried else socket.MSG_WAITALL
                )
            return self.socket.recv(RECEIVED_BYTES, socket.MSG_DONTWAIT if is_hurried else 0)
        except BlockingIOError:
            return None

    @property
    def has_output(self) -> bool:
        """Whether there is something to send."""
        return bool(self.outgoing)

    def put(self, answer: Answer) -> None:
        """Add the pieces of an answer to `outgoing`."""
        self.outgoing.extend(answer)
        self.has_sent_silently |= not answer

    def send(self, is_crowded: Callable[[], bool] = bool) -> bool:
        """Send as much as the client takes; return False if it took nothing for 50 ms.

        Args:
            is_crowded: reports whether other clients need the thread, so that a call must not wait
                for 50 ms.

        Raises:
            FileFailedError: a file could not be read. OSError: the connection is broken.
        """
        outgoing = self.outgoing
        try:
            while outgoing:
                flags = socket.MSG_DONTWAIT if is_crowded() else 0
                first = outgoing[0]
                if isinstance(first, FileRange):
                    self._sent(self._send_file(first, is_hurried=bool(flags)))
                elif len(outgoing) == 1:
                    self._sent(self.socket.send(first, flags))
                else:
                    self._sent(self._send_data(flags))
        except BlockingIOError:
            self.unread_bytes = self.output_bytes()
            return False
        self.unread_bytes = 0
        return True

    def output_bytes(self) -> int:
        """Return the memory of the answer that is left; a range of a file needs none.

        If only a part of a piece was sent, the piece still needs all its memory.
        """
        data = [piece for piece in self.outgoing if not isinstance(piece, FileRange)]
        whole = [piece.obj if isinstance(piece, memoryview) else piece for piece in data]
        return sum({id(one): memoryview(one).nbytes for one in whole}.values())

    def cut(self) -> None:
        """Shut down the socket. The thread that owns the connection then closes the connection."""
        with suppress(OSError):  # the socket is closed already
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket, and release the files of an answer."""
        with self._lock:
            self.phase = Phase.CLOSED
        self.unread_bytes = 0
        for piece in self.outgoing:
            _release(piece)
        self.outgoing.clear()
        self.frames.clear()
        self.socket.close()

    def _send_data(self, flags: int) -> int:
        """Send all pieces before the next range of a file, in one call."""
        run: list[bytes | bytearray | memoryview] = []
        for piece in self.outgoing:
            if isinstance(piece, FileRange) or len(run) == PIECES_MAX:
                return self.socket.sendmsg(run, (), flags | socket.MSG_MORE)
            run.append(piece)
        return self.socket.sendmsg(run, (), flags)

    def _send_file(self, piece: FileRange, *, is_hurried: bool) -> int:
        """Send a part of a file.

        A sendfile waits up to 50 ms again each time when the client has taken some bytes. So a call
        sends only a small part, and while other clients need the thread, a call does not wait.
        """
        size_bytes = min(piece.size_bytes, SENT_BYTES_MAX)
        if is_hurried:
            os.set_blocking(self.fd, False)  # sendfile has no flag for one call
        try:
            sent = os.sendfile(self.fd, piece.file.fileno(), piece.position, size_bytes)
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno in SOCKET_ERRORS:
                raise
            piece.file.failed()
            raise FileFailedError(f"reading a segment failed: {error}") from error
        finally:
            if is_hurried:
                os.set_blocking(self.fd, True)
        if not sent:
            raise FileFailedError("a segment is shorter than the range that is being sent")
        return sent

    def _sent(self, size_bytes: int) -> None:
        """Count the sent bytes, and remove them from the front of `outgoing`."""
        self.sent_bytes += size_bytes
        self.take_off(size_bytes)

    def take_off(self, size_bytes: int) -> None:
        """Remove bytes from the front of `outgoing`."""
        outgoing = self.outgoing
        while outgoing:
            first = outgoing.popleft()
            size = first.size_bytes if isinstance(first, FileRange) else len(first)
            if size > size_bytes:
                outgoing.appendleft(_rest(first, size_bytes))
                return
            _release(first)
            size_bytes -= size


def _rest(piece: Piece, sent: int) -> Piece:
    """Return a piece without its first bytes."""
    if not sent:
        return piece
    if isinstance(piece, FileRange):
        return FileRange(piece.file, piece.position + sent, piece.size_bytes - sent)
    return memoryview(piece)[sent:]


def _release(piece: Piece) -> None:
    if isinstance(piece, FileRange):
        piece.file.close()
