"""Accept clients at all listeners, up to the limits."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

from broker.config import BrokerConfig
from broker.listener_config import Endpoint
from broker.machines.connection_counts import ConnectionCounts
from broker.machines.exchange import Client
from broker.net.listener import Listener
from broker.net.poller import READABLE, Poller
from broker.net.tasks import Tasks
from logstore.disk.spare import SHORTAGES, relieve

# A listener accepts at most this many clients in a row; then the poller does its other work.
ACCEPTED_MAX = 64
REST_SECONDS = 0.2  # if the process has no descriptors left, a listener pauses this long


class Acceptor:
    """Accept clients at the listeners of a broker, and count the connections.

    Threads: the poller's thread accepts. `_lock` guards the count.

    Args:
        on_client: a function that takes a new socket and its client; raises OSError if the client
            has closed the connection.
        complain: logs a warning; its first argument is the kind of the warning.
        tasks: closes cached files in another thread, because their disk may hang.
    """

    def __init__(
        self,
        config: BrokerConfig,
        poller: Poller,
        on_client: Callable[[socket.socket, Client], None],
        complain: Callable[[str, str], None],
        tasks: Tasks,
    ) -> None:
        """Bind the listeners; raise OSError if an address is in use."""
        self._poller = poller
        self._on_client = on_client
        self._complain = complain
        self._tasks = tasks
        self._lock = threading.Lock()
        self._counts = ConnectionCounts(config.max_connections, config.max_connections_per_ip)
        self._peer_listener = config.peer_listener
        self._is_closed = False
        self.listeners: list[Listener] = []
        advertised = {endpoint.name: endpoint for endpoint in config.advertised}
        try:
            for endpoint in config.endpoints:
                self.listeners.append(Listener(endpoint, advertised.get(endpoint.name)))
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Begin to accept clients."""
        for listener in self.listeners:
            self._poller.add(listener, READABLE)

    def close(self) -> None:
        """Stop accepting."""
        self._is_closed = True
        for listener in self.listeners:
            self._poller.remove(listener)
            listener.close()

    def resume(self, listener: Listener) -> None:
        """Let a listener accept clients again after a pause."""
        if not self._is_closed:
            self._poller.add(listener, READABLE)

    def forget(self, client: Client) -> None:
        """Stop counting the connection of a client."""
        with self._lock:
            self._counts.remove(client.address, is_peer=self._is_peer(client.endpoint))

    def _is_peer(self, endpoint: Endpoint) -> bool:
        return endpoint.name == self._peer_listener

    def accept(self, listener: Listener) -> None:
        """Accept the new clients of a listener."""
        for _ in range(ACCEPTED_MAX):
            try:
                accepted = listener.accept()
            except OSError as error:
                if not self._is_closed:
                    self._rest(listener, error)
                return
            if accepted is None:
                return
            self._take(*accepted, listener)

    def _rest(self, listener: Listener, error: OSError) -> None:
        """Pause a listener after an error, because the next try would fail at once, too.

        If the process has no descriptors left, the stores close the files in their caches of open
        files.
        """
        if error.errno in SHORTAGES:
            self._tasks.submit(_relieve)
        self._complain("accept", f"accepting a connection failed: {error}")
        self._poller.remove(listener)
        self._poller.set_timer(time.monotonic() + REST_SECONDS, listener)

    def _take(self, sock: socket.socket, address: str, listener: Listener) -> None:
        with self._lock:
            refusal = self._counts.add(address, is_peer=self._is_peer(listener.endpoint))
        if refusal:
            sock.close()
            self._complain("limit", f"a connection of {address} was refused: {refusal}")
            return
        client = Client(listener.endpoint, address)
        try:
            self._on_client(sock, client)
        except OSError:
            sock.close()
            self.forget(client)


def _relieve() -> None:
    relieve()
