"""Stand between a client and a server on loopback: cut the connection, or swallow answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

CHUNK_BYTES = 65536


class TcpLink:
    """Forwards connections to a port; a context manager.

    Attributes:
        port: where clients connect.
        forwarded: how many connections have reached the server since the start.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.forwarded = 0
        self._is_cut = False
        self._swallowing: set[socket.socket] = set()
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    def cut(self) -> None:
        """Close the connections, and each new one at once, until `heal`."""
        with self._lock:
            self._is_cut = True
            sockets, self._sockets = self._sockets, []
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        """Forward again."""
        with self._lock:
            self._is_cut = False

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Cut, and heal again."""
        self.cut()
        try:
            yield
        finally:
            self.heal()

    def swallow_answers(self) -> None:
        """Let requests through, but no answer any more, on the present connections."""
        with self._lock:
            self._swallowing |= set(self._sockets)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                is_cut = self._is_cut
            if is_cut:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self.forwarded += 1
                self._sockets += [client, server]
            for source, target in ((client, server), (server, client)):
                arguments = (source, target, source is server)
                thread = threading.Thread(target=self._forward, args=arguments, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _forward(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                if not (is_answer and source in self._swallowing):
                    target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        if is_answer:
            source.close()
            target.close()
