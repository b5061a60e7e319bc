"""Send and receive bytes on a connection to another broker, with or without TLS.

Each call has a deadline. Without TLS, the operating system enforces the deadline (SO_RCVTIMEO), so
one call can read a whole answer.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from contextlib import suppress

# One call reads at most this many bytes. The call uses memory only for bytes that arrive.
RECEIVE_BYTES_MAX = 16 << 20
EXCESS_BYTES = 1 << 16
TIMEVAL = struct.Struct("ll")  # seconds and microseconds; both 0 would mean no limit


class ByteStream:
    """A connection without TLS.

    Threads: one thread reads and writes; any thread may call `shut_down`.
    """

    def __init__(self, connected: socket.socket) -> None:
        """Use a connected socket, and own it from now on."""
        self._socket = connected
        connected.settimeout(None)

    @property
    def is_open(self) -> bool:
        """Whether the socket is still open."""
        return self._socket.fileno() >= 0

    def send(self, data: bytes | bytearray, deadline: float) -> None:
        """Send all bytes; raise OSError if this fails, or if the deadline passes."""
        self._limit(socket.SO_SNDTIMEO, deadline)
        self._socket.sendall(data)

    def receive(self, size_bytes: int, deadline: float) -> bytes:
        """Read bytes, at most this many; b"" means that the peer has closed the connection.

        Raises:
            OSError: the connection is broken, or the deadline has passed.
        """
        self._limit(socket.SO_RCVTIMEO, deadline)
        return self._socket.recv(min(size_bytes, RECEIVE_BYTES_MAX), socket.MSG_WAITALL)

    def read(self, size_bytes: int, deadline: float) -> bytes:
        """Read exactly this many bytes.

        Without TLS, one system call reads up to `RECEIVE_BYTES_MAX`.

        Raises:
            OSError: the connection is broken or closed, or the deadline has passed.
        """
        pieces = []
        while size_bytes:
            data = self.receive(size_bytes, deadline)
            if not data:
                raise ConnectionError("the broker closed the connection")
            pieces.append(data)
            size_bytes -= len(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def has_excess(self) -> bool:
        """Report whether unrequested bytes have arrived."""
        with suppress(OSError):
            return bool(self._socket.recv(EXCESS_BYTES, socket.MSG_DONTWAIT))
        return False

    def is_idle(self) -> bool:
        """Report whether the connection is open, and has nothing to read."""
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def shut_down(self) -> None:
        """Wake the thread that reads or writes; this thread gets an error."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _limit(self, option: int, deadline: float) -> None:
        """Let the next calls raise BlockingIOError at the deadline."""
        seconds, micros = divmod(max(int(_left(deadline) * 1e6), 1), 1_000_000)
        self._socket.setsockopt(socket.SOL_SOCKET, option, TIMEVAL.pack(seconds, micros))


class TlsStream(ByteStream):
    """A connection with TLS.

    The `ssl` module enforces the deadlines. The `recv` of this module accepts no flags.
    """

    def send(self, data: bytes | bytearray, deadline: float) -> None:
        """Send all bytes; raise OSError if this fails, or if the deadline passes."""
        self._socket.settimeout(_left(deadline))
        self._socket.sendall(data)

    def receive(self, size_bytes: int, deadline: float) -> bytes:
        """Read at most this many bytes; b"" means that the peer has closed the connection."""
        self._socket.settimeout(_left(deadline))
        return self._socket.recv(min(size_bytes, RECEIVE_BYTES_MAX))

    def has_excess(self) -> bool:
        """Report whether unrequested bytes have arrived."""
        with suppress(OSError):
            return bool(self._now())
        return False

    def is_idle(self) -> bool:
        """Report whether the connection is open, and has nothing to read."""
        try:
            self._now()
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def shut_down(self) -> None:
        """Wake the thread that reads or writes; this thread gets an error.

        Do not free the TLS state of the socket, because the other thread uses this state.
        """
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _now(self) -> bytes:
        self._socket.settimeout(0.0)
        return self._socket.recv(1)


def stream_of(connected: socket.socket) -> ByteStream:
    """Make the stream of a connected socket; the stream owns the socket from now on."""
    return (TlsStream if isinstance(connected, ssl.SSLSocket) else ByteStream)(connected)


def _left(deadline: float) -> float:
    """Return the seconds until a deadline; raise TimeoutError if the deadline has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
