"""Give a broker certificates, users and listeners of each security protocol; and its clients."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import trustme
from scramp import ScramClient

from broker import Broker
from broker.protocols import Protocol
from broker.security.scram_credential import credential_of_password
from broker.security.user_settings import Changes
from support.kafka_client import KafkaClient

USER, SECRET = "alice", "alice:s-secret"
SALT = b"0123456789abcdef"
LISTENERS = ",".join(f"{protocol}://127.0.0.1:0" for protocol in Protocol)


class Certificates(NamedTuple):
    """Files of a test's certificate authority.

    Attributes:
        authority: its certificate, which clients trust.
        server, client: a key with its certificates; the client is called alice.
    """

    made: trustme.CA
    directory: Path
    authority: str
    server: str
    client: str

    @classmethod
    def make(cls, directory: Path) -> Certificates:
        """Make an authority, a server and a client."""
        made = trustme.CA()
        authority = directory / "authority.pem"
        made.cert_pem.write_to_path(authority)
        server = certificate(made, directory / "server.pem", "127.0.0.1", "localhost")
        client = certificate(made, directory / "client.pem", "alice@example.com", name="alice")
        return cls(made, directory, str(authority), server, client)


def certificate(
    authority: trustme.CA,
    path: Path,
    *identities: str,
    name: str | None = None,
    until: datetime | None = None,
) -> str:
    """Write a private key and its certificates to a file; give its name."""
    made = authority.issue_cert(
        *identities, common_name=name, not_after=until, organization_unit_name="tests"
    )
    path.write_bytes(made.private_key_and_cert_chain_pem.bytes())
    path.chmod(0o600)
    return str(path)


def secure_config(certificates: Certificates, **more: Any) -> dict[str, Any]:
    """Give the settings of a broker with a listener of each protocol."""
    users = certificates.directory / "users"
    users.write_text(f"# the users of PLAIN\n{USER}:{SECRET}\n")
    users.chmod(0o600)
    return {
        "listeners": LISTENERS,
        "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl_users_file": str(users),
        "ssl_keystore_location": certificates.server,
        "ssl_truststore_location": certificates.authority,
        **more,
    }


def scram_users(user: str = USER, secret: str = SECRET) -> Changes:
    """Give the credentials of a user for both mechanisms."""
    names = ("SCRAM-SHA-256", "SCRAM-SHA-512")
    return {user: {one: credential_of_password(one, secret, SALT) for one in names}}


@contextmanager
def secure_broker(certificates: Certificates, **more: Any) -> Iterator[Broker]:
    """Run a broker with a listener of each protocol, and with the user alice."""
    with Broker.start(config=secure_config(certificates, **more)) as broker:
        broker._services.users.change(scram_users())
        yield broker


def address_of(broker: Broker, protocol: str) -> str:
    """Give the address of a listener."""
    (found,) = (one for one in broker.endpoints if one.name == protocol)
    return f"{found.host}:{found.port}"


def client_context(certificates: Certificates, own: str | None = None) -> ssl.SSLContext:
    """Make the TLS context of a client, which trusts the test's authority."""
    context = ssl.create_default_context(cafile=certificates.authority)
    if own is not None:
        context.load_cert_chain(own)
    return context


class SecureClient(KafkaClient):
    """A bare client that can speak TLS and log in."""

    def __init__(
        self, servers: str, context: ssl.SSLContext | None = None, timeout: float = 20.0
    ) -> None:
        super().__init__(servers, timeout)
        # As all clients do: TLS sends a large request in several parts, which must not wait.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            try:
                self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
            except BaseException:
                self.socket.close()
                raise

    def handshake(self, mechanism: str, version: int = 1) -> Any:
        """Choose a mechanism."""
        return self.call("SaslHandshake", version, mechanism=mechanism)

    def token(self, data: bytes, version: int = 2) -> Any:
        """Send a token."""
        return self.call("SaslAuthenticate", version, auth_bytes=data)

    def log_in(self, mechanism: str, user: str = USER, secret: str = SECRET) -> Any:
        """Log in; returns the last answer, which has an error if the login failed."""
        answer = self.handshake(mechanism)
        if answer.error_code:
            return answer
        if mechanism == "PLAIN":
            return self.token(f"\0{user}\0{secret}".encode())
        scram = ScramClient([mechanism], user, secret)
        answer = self.token(scram.get_client_first().encode())
        if answer.error_code:
            return answer
        scram.set_server_first(bytes(answer.auth_bytes).decode())
        answer = self.token(scram.get_client_final().encode())
        if not answer.error_code:
            scram.set_server_final(bytes(answer.auth_bytes).decode())
        return answer


def first_flight() -> bytes:
    """Give what a client of TLS sends first."""
    sent = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return sent.read()
