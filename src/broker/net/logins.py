"""Check TLS, certificates and deadlines of each new client, until it has logged in."""

from __future__ import annotations

import logging
import math
import socket
import ssl
import threading
import time
from functools import partial
from typing import NamedTuple

from broker.config import BrokerConfig
from broker.machines.exchange import Client, Scheduler
from broker.net.connection import RECEIVED_BYTES, ClientRefusedError, Connection
from broker.net.tls import file_state, listener_context
from broker.net.tls_connection import TlsConnection
from broker.security.authentication import Authentication, State
from broker.security.mechanisms import Directory
from broker.security.principals import parse_rules, principal_of_certificate

LOG = logging.getLogger("broker")
LOOK_SECONDS = 30.0  # after this time at the latest, a new certificate is used


class FailureCounts(NamedTuple):
    """How many TLS handshakes and how many logins have failed so far."""

    handshakes: int
    logins: int


class Logins:
    """Apply the login settings of the listeners to new clients.

    Threads: any thread may call any method for a connection that this thread owns. `_lock` guards
    the counts.
    """

    def __init__(self, config: BrokerConfig, directory: Directory) -> None:
        """Load the certificates; raise ValueError if they cannot be used."""
        self._config, self._directory = config, directory
        self._rules = parse_rules(config.ssl_principal_mapping_rules)
        self._protocols = {one.name: config.protocol_of(one.name) for one in config.endpoints}
        is_sasl = any(one.is_sasl for one in self._protocols.values())
        self._mechanisms = config.mechanisms if is_sasl else ()
        self._seen: object = None  # the state of the files that were loaded
        # Only `_look` replaces the context, when all files of the new context are loaded.
        self._context: ssl.SSLContext | None = None
        if any(one.is_tls for one in self._protocols.values()):
            self._context = listener_context(config)
        self._lock = threading.Lock()
        self._failed_handshakes = self._failed_logins = 0

    def watch_files(self, scheduler: Scheduler) -> None:
        """Check regularly whether the certificates have changed. If so, load them."""
        if self._context is not None:
            self._seen = file_state(self._config)
            scheduler.call_at(time.monotonic() + LOOK_SECONDS, partial(self._look, scheduler))

    def _look(self, scheduler: Scheduler) -> None:
        """Load changed files.

        If the new certificates cannot be used, keep the old certificates and warn once.
        """
        try:
            seen = file_state(self._config)
            if seen != self._seen:
                self._seen = seen
                self._context = listener_context(self._config)
                LOG.info("the certificate of the broker was loaded again")
        except ValueError as error:
            LOG.warning("the broker keeps its old certificate: %s", error)
        except Exception:  # new clients still get the old certificate
            LOG.exception("the certificate files could not be checked")
        scheduler.call_at(time.monotonic() + LOOK_SECONDS, partial(self._look, scheduler))

    @property
    def failures(self) -> FailureCounts:
        """The numbers of failed handshakes and logins."""
        return FailureCounts(self._failed_handshakes, self._failed_logins)

    def begin(self, sock: socket.socket, client: Client) -> Connection:
        """Make the connection of a new client. Raises OSError if the client has closed it."""
        config, now = self._config, time.monotonic()
        protocol = self._protocols[client.endpoint.name]
        limit = config.socket_request_max_bytes
        if protocol.is_sasl:
            client.login = Authentication(
                self._mechanisms, self._directory, config.connections_max_reauth_ms
            )
            # A client that has not logged in must not reserve memory for large requests.
            limit = min(limit, config.sasl_server_max_receive_size, RECEIVED_BYTES)
        if protocol.is_tls and self._context is not None:
            connection: Connection = TlsConnection(sock, client, limit, now, self._context)
        else:
            connection = Connection(sock, client, limit, now)
        if protocol.is_sasl or protocol.is_tls:
            connection.login_deadline = now + config.authentication_timeout_ms / 1000
        return connection

    def follow(self, connection: Connection) -> None:
        """Remember that a client has logged in.

        The caller must call `follow` only while the `login_deadline` of the connection is finite.

        Raises:
            ClientRefusedError: the login failed, the client is too late, or no rule maps the
                client's certificate to a name.
        """
        client, login = connection.client, connection.client.login
        if client.ended:
            raise ClientRefusedError(client.ended)
        is_done = connection.is_secured and (login is None or login.state is State.DONE)
        if is_done:
            if login is None and isinstance(connection, TlsConnection):
                self._name_by_certificate(connection)
            connection.login_deadline = math.inf
            connection.splitter.frame_bytes_max = self._config.socket_request_max_bytes
        elif time.monotonic() > connection.login_deadline:
            raise ClientRefusedError(lateness_of(connection))

    def _name_by_certificate(self, connection: TlsConnection) -> None:
        certificate = connection.certificate
        if certificate is None:
            return
        principal = principal_of_certificate(certificate, self._rules)
        if not principal:
            raise ClientRefusedError(
                "no rule of ssl.principal.mapping.rules matches the certificate of the client"
            )
        connection.client.principal = principal

    def count(self, connection: Connection) -> None:
        """Count a handshake or login that failed."""
        with self._lock:
            if connection.is_secured:
                self._failed_logins += 1
            else:
                self._failed_handshakes += 1


def lateness_of(connection: Connection) -> str:
    """Describe the step that a client did not complete in time."""
    if not connection.is_secured:
        return "the TLS handshake is not complete in time"
    return "the client has not logged in in time"
