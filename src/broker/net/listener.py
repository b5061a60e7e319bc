"""Listen for new clients at one address."""

from __future__ import annotations

import socket

from broker.listener_config import Endpoint

BACKLOG = 1024


def address_error(error: OSError, what: str) -> OSError:
    """Make an error that names what could not listen; Python's error may not name the address."""
    reason = (error.strerror or str(error)).partition(" (while attempting")[0]
    return OSError(error.errno, f"cannot listen: {reason}", what)


class Listener:
    """A listening socket, and the address that the broker advertises for it."""

    def __init__(self, endpoint: Endpoint, advertised: Endpoint | None) -> None:
        """Bind the socket. If the address is in use, raise an OSError that names the listener."""
        family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
        try:
            self.socket = socket.create_server(
                (endpoint.host, endpoint.port), family=family, backlog=BACKLOG
            )
        except OSError as error:
            raise address_error(error, f"the listener {endpoint}") from error
        self.socket.setblocking(False)
        self.fd = self.socket.fileno()
        bound = Endpoint(endpoint.name, *self.socket.getsockname()[:2])
        self.endpoint = bound if advertised is None else advertised
        if self.endpoint.host in ("0.0.0.0", "::"):
            # clients need a host name that they can resolve
            self.endpoint = bound._replace(host=socket.gethostname())

    def accept(self) -> tuple[socket.socket, str] | None:
        """Return the socket and the address of the next client; None if no client waits.

        Raises:
            OSError: the process has no descriptors left.
        """
        try:
            accepted, address = self.socket.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            return None
        return accepted, str(address[0])

    def close(self) -> None:
        """Stop listening."""
        self.socket.close()
