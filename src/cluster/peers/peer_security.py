"""Connect to another broker, with TLS and a login if the listener of that broker needs them.

With PLAIN, this broker sends its password only after it has verified the certificate of the other
broker. With SCRAM, the password is never sent.
"""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from broker.config import BrokerConfig
from broker.net.tls import peer_context
from broker.protocols import names_in
from broker.secret_files import read_own_password
from broker.security.client_login import ClientLogin
from broker.security.errors import LoginFailedError
from broker.security.passwords import Password
from broker.security.peers import ANYBODY, PeerRule
from broker.wire.frames import FrameSplitter, decode_response, encode_request
from broker.wire.messages import SaslAuthenticateRequest, SaslHandshakeRequest

LOG = logging.getLogger("cluster")
HANDSHAKE, HANDSHAKE_VERSION = 17, 1
AUTHENTICATE, AUTHENTICATE_VERSION = 36, 2
ANSWER_BYTES_MAX = 64 << 10
SESSION_PART = 0.8  # a new connection is made when this part of the session's time is over
FOREVER = float("inf")


class Opened(NamedTuple):
    """A connection that is ready for requests, and the time when its session ends (monotonic)."""

    socket: socket.socket
    expires_at: float


class PeerSecurity:
    """The way in which this broker connects to other brokers.

    Threads: any thread may call any method.

    Attributes:
        listener: the name of the listener between brokers; "" means the first listener.
    """

    def __init__(
        self,
        listener: str = "",
        make_context: Callable[[], ssl.SSLContext] | None = None,
        mechanism: str = "",
        own: Password | None = None,
    ) -> None:
        """Store the settings of connections. By default, there is no TLS and no login.

        Args:
            make_context: loads the certificates. This function is called for each connection, so
                new certificates are used at once. If the function fails, the last certificates that
                worked are used.
        """
        self.listener, self._make_context = listener, make_context
        self._context = None if make_context is None else make_context()
        self._mechanism, self._own = mechanism, own

    @classmethod
    def of(cls, config: BrokerConfig) -> PeerSecurity:
        """Read the files that the settings name. Raises ValueError."""
        config.check_peers()
        name = config.inter_broker_name
        protocol = config.protocol_of(name)
        own = None
        if protocol.is_sasl:
            key = "sasl_inter_broker_credentials_file"
            own = read_own_password(config.sasl_inter_broker_credentials_file, key)
        return cls(
            name,
            partial(peer_context, config) if protocol.is_tls else None,
            config.sasl_mechanism_inter_broker_protocol,
            own,
        )

    def rule(self, config: BrokerConfig) -> PeerRule:
        """Return which principals are brokers.

        Without authentication, every client counts as a broker.
        """
        if not config.knows_clients(self.listener or config.inter_broker_name):
            return ANYBODY
        principals = names_in(config.super_users, ";")
        if self._own is not None:
            principals.append(f"User:{self._own.user}")
        return PeerRule(principals)

    def open(self, address: tuple[str, int], seconds: float, client_id: str) -> Opened:
        """Connect and log in.

        Args:
            seconds: the time limit for each of three steps: to connect, to set up TLS, to log in.

        Raises:
            OSError: the broker cannot be reached, or its certificate is refused.
            LoginFailedError: the broker refuses the login.
            WireError: an answer cannot be read.
        """
        made = socket.create_connection(address, seconds)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if (context := self._present_context()) is not None:
                made = context.wrap_socket(made, server_hostname=address[0])
            lifetime = 0.0
            if self._own is not None:
                asking = _Asking(made, client_id, time.monotonic() + seconds)
                lifetime = self._log_in(asking, self._own)
        except BaseException:
            made.close()
            raise
        expires_at = time.monotonic() + lifetime * SESSION_PART if lifetime else FOREVER
        return Opened(made, expires_at)

    def _present_context(self) -> ssl.SSLContext | None:
        if self._make_context is not None:
            try:
                self._context = self._make_context()
            except ValueError as error:
                LOG.warning("connections to brokers keep the old certificates: %s", error)
        return self._context

    def _log_in(self, asking: _Asking, own: Password) -> float:
        """Log in; return the seconds until the session ends, or 0 if it does not end."""
        answer = asking.ask(
            HANDSHAKE, HANDSHAKE_VERSION, SaslHandshakeRequest(mechanism=self._mechanism)
        )
        if answer.error_code:
            if not answer.mechanisms:
                raise LoginFailedError(
                    "the listener has no logins: use its security protocol (PLAINTEXT or SSL), or "
                    "the port of another listener"
                )
            known = ", ".join(answer.mechanisms)
            raise LoginFailedError(
                f"the listener does not accept {self._mechanism}; it accepts {known}"
            )
        login = ClientLogin(self._mechanism, own)
        token: bytes | None = login.first()
        while token is not None:
            message = SaslAuthenticateRequest(auth_bytes=token)
            answer = asking.ask(AUTHENTICATE, AUTHENTICATE_VERSION, message)
            if answer.error_code:
                raise LoginFailedError(f"error {answer.error_code}: {answer.error_message}")
            token = login.next(bytes(answer.auth_bytes))
        return float(max(answer.session_lifetime_ms, 0)) / 1000


class _Asking:
    """Send the requests of a login, one at a time."""

    def __init__(self, connected: socket.socket, client_id: str, deadline: float) -> None:
        self._socket, self._client_id, self._deadline = connected, client_id, deadline
        self._number = 0

    def ask(self, key: int, version: int, message: Any) -> Any:
        """Send a request, and return its answer."""
        self._number += 1
        self._socket.sendall(encode_request(key, version, self._number, self._client_id, message))
        splitter = FrameSplitter(ANSWER_BYTES_MAX)
        while True:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            data = self._socket.recv(ANSWER_BYTES_MAX)
            if not data:
                raise LoginFailedError("the broker closed the connection during the login")
            if frames := splitter.feed(data):
                number, answer = decode_response(key, version, frames[0])
                if number != self._number or len(frames) > 1:
                    raise LoginFailedError("the broker did not answer the request of the login")
                return answer


OPEN = PeerSecurity()
