"""Hold one encrypted connection, with the same socket calls as an unencrypted connection.

    socket -> ciphertext -> SSLObject -> frames        pieces -> SSLObject -> ciphertext -> socket

The handshake is part of `receive` and `send`. So the handshake uses a thread only while bytes
arrive, and other connections do not wait for it. Each `receive` reads until the SSLObject has no
more data, because the poller could not see data inside the SSLObject. `send` first sends all
ciphertext of a part of an answer, and then encrypts the next part. So at most `ENCRYPTED_BYTES`
wait.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from broker.machines.exchange import Client
from broker.net.connection import (
    ClientRefusedError,
    Connection,
    EndOfStreamError,
    FileFailedError,
)
from broker.wire.fetch import FileRange
from logstore.disk import files

# One step encrypts this much of an answer, or decrypts this much of a request.
# The data should fit into the processor's cache: with 1 MiB, TLS took twice the CPU time.
ENCRYPTED_BYTES = DECRYPTED_BYTES = 128 << 10
RECORD_BYTES = 16 << 10  # the data of one TLS record


class TlsConnection(Connection):
    """A connection whose bytes are encrypted.

    Attributes:
        is_secured: whether the handshake is complete.
    """

    received_bytes_max = DECRYPTED_BYTES
    # TLS holds the bytes of a record until the record is complete.
    # A call must not wait for bytes that TLS holds, because then the call would end only after 50
    # ms.
    held_bytes_max = RECORD_BYTES + 1024

    def __init__(
        self,
        sock: socket.socket,
        client: Client,
        frame_bytes_max: int,
        now: float,
        context: ssl.SSLContext,
    ) -> None:
        super().__init__(sock, client, frame_bytes_max, now)
        self._incoming, self._encrypted = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._encrypted, server_side=True)
        self._unsent = memoryview(b"")
        self._is_finished = False  # whether the client has ended its TLS stream
        self.is_secured = False

    @property
    def has_output(self) -> bool:
        """Whether there is something to send, including a part of the handshake."""
        return bool(self.outgoing or self._unsent or self._encrypted.pending)

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The verified certificate of the client; None if the client sent none."""
        return self._tls.getpeercert() or None

    def receive(self, *, is_hurried: bool = False) -> bool:
        """Read arrived bytes. Continue the handshake, or decrypt the bytes into `frames`.

        Raises:
            ClientRefusedError: the client does not speak TLS, or its certificate is refused.
        """
        if self._is_finished:
            raise EndOfStreamError
        data = self.receive_bytes(is_hurried=is_hurried)
        if data is None:
            return False
        if not data:
            raise EndOfStreamError
        self._incoming.write(data)
        self.received_at = time.monotonic()
        if not self.is_secured and not self._shake_hands():
            return True
        self._decrypt()
        return True

    def _shake_hands(self) -> bool:
        """Continue the handshake; return whether it is complete."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            self._send_last()  # this sends the alert with the reason
            raise ClientRefusedError(f"TLS: {_reason(error)}") from error
        self.is_secured = True
        return True

    def _decrypt(self) -> None:
        try:
            while data := self._tls.read(RECORD_BYTES):
                self.frames.extend(self.splitter.feed(data))
        except ssl.SSLWantReadError:
            return
        except ssl.SSLZeroReturnError:
            pass
        self._is_finished = True  # frames before the end are still answered

    def send(self, is_crowded: Callable[[], bool] = bool) -> bool:
        """Encrypt and send what the client takes; return False if it took nothing for 50 ms.

        Raises:
            FileFailedError: a file could not be read. OSError: the connection is broken.
        """
        try:
            while self.has_output:
                if not self._unsent:
                    self._encrypt()
                flags = socket.MSG_DONTWAIT if is_crowded() else 0
                sent = self.socket.send(self._unsent, flags)
                self._unsent = self._unsent[sent:]
                self.sent_bytes += sent
        except BlockingIOError:
            self.unread_bytes = self.output_bytes() + len(self._unsent)
            return False
        self.unread_bytes = 0
        return True

    def _encrypt(self) -> None:
        """Encrypt the next part of the answer."""
        room = ENCRYPTED_BYTES
        while self.outgoing and room > 0:
            first = self.outgoing[0]
            if isinstance(first, FileRange):
                data = memoryview(self._read(first, min(room, first.size_bytes)))
            else:
                data = memoryview(first)[:room]
            done = 0
            while done < len(data):
                done += self._tls.write(data[done:])
            room -= max(len(data), 1)
            self.take_off(len(data))
        self._unsent = memoryview(self._encrypted.read())

    @staticmethod
    def _read(piece: FileRange, size_bytes: int) -> bytes:
        try:
            data = files.read_up_to(piece.file.fileno(), size_bytes, piece.position)
        except OSError as error:
            piece.file.failed()
            raise FileFailedError(f"reading a segment failed: {error}") from error
        if len(data) < size_bytes:
            raise FileFailedError("a segment is shorter than the range that is being sent")
        return data

    def close(self) -> None:
        """Report the end of TLS to the client, and close the socket."""
        if self.is_secured and not self.has_output:
            with suppress(ssl.SSLError, OSError):
                self._tls.unwrap()
            self._send_last()
        super().close()

    def _send_last(self) -> None:
        """Send the last bytes, but only if the client takes them at once."""
        with suppress(OSError):
            self.socket.send(self._encrypted.read(), socket.MSG_DONTWAIT)


def _reason(error: ssl.SSLError) -> str:
    text = getattr(error, "verify_message", "") or error.reason or str(error)
    return str(text).replace("_", " ").lower()
