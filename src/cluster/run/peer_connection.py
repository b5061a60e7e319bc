"""Send requests to another broker over one connection, one request at a time.

The connection is made by the first request. After any error it is closed, and the next request
makes a new one, so an answer is never taken for the answer to another request.

Only the thread that asks closes the socket. Another thread only shuts it down: if it closed the
socket, the number of the descriptor could be given out again, and a thread that is just about to
read would read from a connection of somebody else.
"""

from __future__ import annotations

import errno
import itertools
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from broker.security.errors import LoginFailedError
from broker.wire.byte_cursor import WireError
from broker.wire.frames import FRAME_BYTES_MAX, FrameSplitter, decode_response, encode_request
from cluster.errors import PeerError, PeerGoneError
from cluster.peers.peer_security import FOREVER, OPEN, Opened, PeerSecurity
from logstore import LogStoreError

RECEIVE_BYTES = 1 << 18
CONNECT_SECONDS = 2.0


class PeerConnection:
    """A connection to one broker.

    Threads: one thread calls `ask` and `check`; any thread may call `close` or `interrupt`, which
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
        """Remember how to find the broker.

        Args:
            where: gives the broker's host and port; it is called for each new connection, because
                a broker may be registered again at another address.
            frame_bytes_max: a larger answer is an error, before it is read.
            security: how to encrypt the connection and to log in.
        """
        self._where = where
        self._client_id = client_id
        self._connect_seconds = connect_seconds
        self._frame_bytes_max = frame_bytes_max
        self._security = security
        self._expires_at = FOREVER  # when the broker ends the session of the login
        self._numbers = itertools.count(1)
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()  # guards socket and flags against `close` and `interrupt`
        self._is_closed = self._is_asking = self._is_interrupted = False

    def __repr__(self) -> str:
        return f"<PeerConnection {self.address}>"

    @property
    def address(self) -> str:
        """The host and the port of the broker, as it is known now."""
        try:
            host, port = self._where()
        except (OSError, LogStoreError, ValueError) as error:
            return f"an unknown address ({error})"
        return f"{host}:{port}"

    def ask(self, key: int, version: int, message: Any, seconds: float) -> Any:
        """Send a request, and return the answer.

        Args:
            seconds: how long to wait for the answer, after the connection is made.

        Raises:
            PeerGoneError: the port refuses connections, so the broker's process is gone (P14).
            PeerError: there is no answer in time, or it is no answer to this request. The broker
                may have received the request.
        """
        number = next(self._numbers) & 0x7FFFFFFF
        frame = encode_request(key, version, number, self._client_id, message)
        with self._lock:
            self._is_asking = True
        try:
            connected = self._connected()
            answer = self._exchange(connected, frame, time.monotonic() + seconds)
            answered, decoded = decode_response(key, version, answer)
            if answered != number:
                raise self._error(f"it answered request {answered}, not request {number}")
        except BaseException as error:
            self._disconnect()
            if isinstance(error, (OSError, WireError, LoginFailedError)):
                raise self._converted(error) from error
            raise
        finally:
            self._finish()
        return decoded

    def check(self) -> None:
        """Connect again if the broker has closed the connection since the last answer.

        The system closes the connections of a process that is killed, so this notices its end.

        Raises:
            PeerGoneError: the port refuses connections, so the broker's process is gone (P14).
            PeerError: the broker cannot be reached for another reason.
        """
        with self._lock:
            known, is_interrupted = self._socket, self._is_interrupted
        try:
            if known is not None and not is_interrupted and _is_idle(known):
                return
            self._disconnect()
            self._connected()
        except (OSError, WireError, LoginFailedError) as error:
            raise self._converted(error) from error
        finally:
            self._finish()

    def interrupt(self) -> None:
        """Let the running call fail, or else the next one; the call after it connects again."""
        with self._lock:
            self._is_interrupted = True
            if self._is_asking and self._socket is not None:
                with suppress(OSError):
                    _shut_down(self._socket)

    def close(self) -> None:
        """Close the connection for good; a running `ask` fails."""
        with self._lock:
            self._is_closed = True
            if self._is_asking and self._socket is not None:
                with suppress(OSError):  # wakes the thread that reads, which closes the socket
                    _shut_down(self._socket)
            is_asking = self._is_asking
        if not is_asking:
            self._disconnect()

    def _finish(self) -> None:
        """Forget an interruption with the call that it ended, and close the connection."""
        with self._lock:
            is_over = self._is_closed or self._is_interrupted
            self._is_asking = self._is_interrupted = False
        if is_over:
            self._disconnect()

    def _connected(self) -> socket.socket:
        """Give the connection, or make one."""
        with self._lock:
            if self._is_closed:
                raise self._error("the connection was closed by this broker")
            if self._is_interrupted:
                raise self._error("the request was given up by this broker")
            known = self._socket
        if known is not None and time.monotonic() < self._expires_at:
            return known
        self._disconnect()
        made, self._expires_at = self._opened()
        with self._lock:
            if not self._is_closed and not self._is_interrupted:
                self._socket = made
                return made
        made.close()
        raise self._error("the connection was given up by this broker")

    def _opened(self) -> Opened:
        """Make a connection; an address that cannot be read or used is an error of the broker."""
        try:
            return self._security.open(self._where(), self._connect_seconds, self._client_id)
        except (LogStoreError, ValueError) as error:  # such as a host name with an empty label
            raise self._error(f"its address cannot be used: {error}") from error

    def _exchange(
        self, connected: socket.socket, frame: bytes | bytearray, deadline: float
    ) -> memoryview:
        """Send a frame, and read one."""
        connected.settimeout(_left(deadline))
        connected.sendall(frame)
        splitter = FrameSplitter(self._frame_bytes_max)
        while True:
            connected.settimeout(_left(deadline))
            data = connected.recv(RECEIVE_BYTES)
            if not data:
                raise self._error("it closed the connection")
            frames = splitter.feed(data)
            if frames and (len(frames) > 1 or not splitter.is_between_frames):
                raise self._error("it sent bytes that answer no request")
            if frames:
                return frames[0]

    def _disconnect(self) -> None:
        with self._lock:
            known, self._socket = self._socket, None
        if known is not None:
            known.close()

    def _converted(self, error: OSError | WireError | LoginFailedError) -> PeerError:
        if isinstance(error, TimeoutError):
            return self._error("it did not answer in time")
        if isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
            return PeerGoneError(address=self.address, reason="it refuses connections")
        return self._error(str(error))

    def _error(self, reason: str) -> PeerError:
        return PeerError(address=self.address, reason=reason)


def _is_idle(connected: socket.socket) -> bool:
    """Tell whether a connection is open, and has nothing to read."""
    connected.settimeout(0.0)
    try:
        connected.recv(1)
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        return False
    return False  # it is closed, or has bytes that answer no request


def _shut_down(connected: socket.socket) -> None:
    """Shut down a socket; an SSLSocket must not forget TLS, for another thread may use it."""
    socket.socket.shutdown(connected, socket.SHUT_RDWR)


def _left(deadline: float) -> float:
    """Give the seconds until a deadline; raise TimeoutError if none is left."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
