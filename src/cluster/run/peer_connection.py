"""Send requests to another broker over one connection, one request at a time.

The first request makes the connection. After any error, the connection is closed, and the next
request makes a new connection. So an answer is never mistaken for the answer to another request.

Only the thread that calls `ask` closes the socket. Other threads only shut it down. If another
thread closed the socket, a new file could get the same descriptor. So the thread in `ask` could
read from the wrong file.
"""

from __future__ import annotations

import errno
import itertools
import ssl
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from broker.security.errors import LoginFailedError
from broker.wire.byte_cursor import WireError
from broker.wire.frames import FRAME_BYTES_MAX, SIZE, decode_response, encode_request
from cluster.errors import PeerError, PeerGoneError
from cluster.peers.byte_stream import ByteStream, stream_of
from cluster.peers.peer_security import FOREVER, OPEN, Opened, PeerSecurity
from logstore import LogStoreError

LARGE_BYTES = 2 << 20
CONNECT_SECONDS = 2.0

Read = Callable[[int], bytes]


class ReadLarge(Protocol):
    """Read a large answer. `ask` returns the result."""

    def __call__(self, read: Read, size_bytes: int, number: int) -> Any:
        """Read exactly `size_bytes`. The answer must have the correlation id `number`."""


class PeerConnection:
    """A connection to one broker.

    Threads: one thread calls `ask` and `check`. Any thread may call `close` or `interrupt`, which
    end a running `ask`. An interruption ends one `ask` or one `check`.
    """

    def __init__(
        self,
        where: Callable[[], tuple[str, int]],
        client_id: str,
        *,
        connect_seconds: float = CONNECT_SECONDS,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        security: PeerSecurity = OPEN,
    ) -> None:
        """Store the arguments; do not connect yet.

        Args:
            where: returns the broker's host and port. This function is called for each new
                connection, because a broker may be registered again at another address.
            frame_bytes_max: the size of the largest answer. A larger answer is refused before it is
                read.
            security: the way to encrypt the connection and to log in.
        """
        self._where = where
        self._client_id = client_id
        self._connect_seconds = connect_seconds
        self._frame_bytes_max = frame_bytes_max
        self._security = security
        self._expires_at = FOREVER  # the time when the broker ends the session of the login
        self._numbers = itertools.count(1)
        self._stream: ByteStream | None = None
        self._lock = threading.Lock()  # guards the socket and the flags
        self._is_closed = self._is_asking = self._is_interrupted = False

    def __repr__(self) -> str:
        return f"<PeerConnection {self.address}>"

    @property
    def address(self) -> str:
        """The present host and port of the broker."""
        try:
            host, port = self._where()
        except (OSError, LogStoreError, ValueError) as error:
            return f"an unknown address ({error})"
        return f"{host}:{port}"

    def ask(
        self,
        key: int,
        version: int,
        message: Any,
        seconds: float,
        large: ReadLarge | None = None,
    ) -> Any:
        """Send a request, and return the answer.

        Args:
            seconds: the longest time to wait for the answer, after the connection is made.
            large: reads an answer of more than `LARGE_BYTES`. The time limit `seconds` applies to
                each read of `large`.

        Raises:
            PeerGoneError: the port refuses connections, so the broker's process is gone (P14).
            PeerError: there is no answer in time, or the answer belongs to another request. The
                broker may still have received this request.
        """
        number = next(self._numbers) & 0x7FFFFFFF
        frame = encode_request(key, version, number, self._client_id, message)
        with self._lock:
            self._is_asking = True
        try:
            stream = self._connected()
            size = self._send(stream, frame, time.monotonic() + seconds)
            if large is None or size <= LARGE_BYTES:
                answer = stream.read(size, time.monotonic() + seconds)
                answered, decoded = decode_response(key, version, answer)
                if answered != number:
                    raise self._error(
                        f"the broker answered request {answered}, not request {number}"
                    )
            else:
                decoded = self._read_large(stream, size, seconds, partial(large, number=number))
            if stream.has_excess():
                raise self._error("the broker sent bytes that answer no request")
        except BaseException as error:
            self._disconnect()
            if isinstance(error, (OSError, WireError, LoginFailedError)):
                raise self._converted(error) from error
            raise
        finally:
            self._finish()
        return decoded

    def check(self) -> None:
        """If the broker has closed the connection since the last answer, connect again.

        If the process of the broker is killed, the operating system closes its connections. So this
        check notices the end of the process.

        Raises:
            PeerGoneError: the port refuses connections, so the broker's process is gone (P14).
            PeerError: the broker cannot be reached for another reason.
        """
        with self._lock:
            known, is_interrupted = self._stream, self._is_interrupted
        try:
            if known is not None and not is_interrupted and known.is_idle():
                return
            self._disconnect()
            self._connected()
        except (OSError, WireError, LoginFailedError) as error:
            raise self._converted(error) from error
        finally:
            self._finish()

    def interrupt(self) -> None:
        """Let the running call fail; if no call is running, the next call fails."""
        with self._lock:
            self._is_interrupted = True
            if self._is_asking and self._stream is not None:
                self._stream.shut_down()

    def close(self) -> None:
        """Close the connection for ever. A running `ask` fails."""
        with self._lock:
            self._is_closed = True
            if self._is_asking and self._stream is not None:
                self._stream.shut_down()  # this wakes the reading thread, which closes the socket
            is_asking = self._is_asking
        if not is_asking:
            self._disconnect()

    def _finish(self) -> None:
        """Mark the end of a call; if it was interrupted, forget this and close the connection."""
        with self._lock:
            is_over = self._is_closed or self._is_interrupted
            self._is_asking = self._is_interrupted = False
        if is_over:
            self._disconnect()

    def _connected(self) -> ByteStream:
        """Return the connection. If no connection is open, make a new connection."""
        with self._lock:
            if self._is_closed:
                raise self._error("the connection was closed by this broker")
            if self._is_interrupted:
                raise self._error("the request was given up by this broker")
            known = self._stream
        if known is not None and time.monotonic() < self._expires_at:
            return known
        self._disconnect()
        opened = self._opened()
        made, self._expires_at = stream_of(opened.socket), opened.expires_at
        with self._lock:
            if not self._is_closed and not self._is_interrupted:
                self._stream = made
                return made
        made.close()
        raise self._error("the connection was given up by this broker")

    def _opened(self) -> Opened:
        """Make a connection; raise PeerError if the address cannot be used."""
        try:
            return self._security.open(self._where(), self._connect_seconds, self._client_id)
        except (LogStoreError, ValueError) as error:  # such as a host name with an empty label
            raise self._error(f"the address of the broker cannot be used: {error}") from error

    def _send(self, stream: ByteStream, frame: bytes | bytearray, deadline: float) -> int:
        """Send a frame; wait for the answer, and return its size."""
        stream.send(frame, deadline)
        (size,) = SIZE.unpack(stream.read(SIZE.size, deadline))
        if not 0 <= size <= self._frame_bytes_max:
            raise self._error(f"the broker sent a frame of {size} bytes")
        return int(size)

    def _read_large(
        self, stream: ByteStream, size_bytes: int, seconds: float, large: Callable[..., Any]
    ) -> Any:
        """Let `large` read an answer. `large` must read the whole answer, and nothing after it."""
        left = size_bytes

        def read(size: int) -> bytes:
            nonlocal left
            assert size <= left, "the reader reads more than the answer"
            left -= size
            return stream.read(size, time.monotonic() + seconds)

        decoded = large(read, size_bytes)
        assert not left, "the reader left a part of the answer"
        return decoded

    def _disconnect(self) -> None:
        with self._lock:
            known, self._stream = self._stream, None
        if known is not None:
            known.close()

    def _converted(self, error: OSError | WireError | LoginFailedError) -> PeerError:
        if isinstance(error, TimeoutError | BlockingIOError):
            return self._error("the broker did not answer in time")
        if isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
            return PeerGoneError(address=self.address, reason="it refuses connections")
        if isinstance(error, ssl.SSLEOFError) or "WRONG_VERSION_NUMBER" in str(error):
            return self._error(f"the TLS handshake failed; perhaps this port has no TLS: {error}")
        return self._error(str(error))

    def _error(self, reason: str) -> PeerError:
        return PeerError(address=self.address, reason=reason)
