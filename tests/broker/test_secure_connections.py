"""Test encrypted connections and logins over real sockets."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from broker import Broker
from broker.config import BrokerConfig
from broker.machines.exchange import Client
from broker.net.connection import ClientRefusedError
from broker.net.logins import Logins
from broker.protocols import Protocol
from broker.security.mechanisms import NOBODY
from support.kafka_client import KafkaClient, batch_of, values_in
from support.secured import (
    USER,
    Certificates,
    SecureClient,
    address_of,
    certificate,
    client_context,
    first_flight,
    secure_broker,
    secure_config,
)

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
BIG = 900_000


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def broker(certificates: Certificates) -> Iterator[Broker]:
    with secure_broker(certificates) as running:
        yield running


def connected(broker: Broker, protocol: str, certificates: Certificates) -> SecureClient:
    """Connect, and log in if the listener asks for it."""
    context = client_context(certificates) if Protocol(protocol).is_tls else None
    client = SecureClient(address_of(broker, protocol), context)
    if Protocol(protocol).is_sasl:
        assert not client.log_in("SCRAM-SHA-256").error_code
    return client


def test_each_listener_gives_the_same_records(broker: Broker, certificates: Certificates) -> None:
    """Each listener returns large records, and its own address."""
    sent = []
    with KafkaClient(address_of(broker, "PLAINTEXT")) as client:
        client.create("records")
    for number, protocol in enumerate(Protocol):
        with connected(broker, protocol, certificates) as client:
            values = [f"{protocol} {number}".encode(), bytes([number]) * BIG, b"end"]
            assert not client.produce("records", batch_of(*values)).error_code
            sent += values
    for protocol in Protocol:
        with connected(broker, protocol, certificates) as client:
            row = client.fetch("records", 0, partition_max_bytes=50 << 20)
            assert values_in(row.records) == sent
            (node,) = client.call("Metadata", topics=[]).brokers
            assert f"{node.host}:{node.port}" == address_of(broker, protocol)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused_late(
    broker: Broker, certificates: Certificates, protocol: str, mechanism: str
) -> None:
    """The client gets error 58 after 100 ms; then the connection is closed, and counted."""
    context = client_context(certificates) if Protocol(protocol).is_tls else None
    before = broker.counts()["login_failure_count"]
    for user, secret in ((USER, "wrong"), ("nobody", "wrong")):
        with SecureClient(address_of(broker, protocol), context) as client:
            began = time.monotonic()
            answer = client.log_in(mechanism, user, secret)
            assert answer.error_code == 58 and "password is wrong" in answer.error_message
            assert time.monotonic() - began >= 0.1
            assert client.is_closed_by_broker
    wait_for(lambda: broker.counts()["login_failure_count"] == before + 2)


def wait_for(is_done: object, seconds: float = 10.0) -> None:
    """Wait until something is true."""
    assert callable(is_done)
    deadline = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < deadline, "it did not happen in time"


@pytest.mark.parametrize("mechanism", ["NOTHING", "PLAIN"])
def test_regression_a_half_closed_client_waits_for_its_refusal(
    certificates: Certificates, mechanism: str
) -> None:
    """A client that could skip the delay could try passwords as fast as it can connect."""
    with (
        secure_broker(certificates, connection_failed_authentication_delay_ms=400) as broker,
        SecureClient(address_of(broker, "SASL_PLAINTEXT")) as client,
    ):
        began = time.monotonic()
        if mechanism == "PLAIN":
            assert not client.handshake(mechanism).error_code
            client.send("SaslAuthenticate", 2, auth_bytes=b"\0alice\0wrong")
        else:
            client.send("SaslHandshake", 1, mechanism=mechanism)
        client.socket.shutdown(socket.SHUT_WR)
        name = "SaslAuthenticate" if mechanism == "PLAIN" else "SaslHandshake"
        answer = client.receive(name, 2 if mechanism == "PLAIN" else 1)[1]
        assert answer.error_code == (58 if mechanism == "PLAIN" else 33)
        assert time.monotonic() - began >= 0.4
        assert client.is_closed_by_broker


@pytest.mark.parametrize("name", ["Metadata", "Produce", "JoinGroup", "DescribeCluster"])
def test_other_requests_before_the_login_close_the_connection(broker: Broker, name: str) -> None:
    """This includes requests between the steps of a login."""
    for steps in range(2):
        with SecureClient(address_of(broker, "SASL_PLAINTEXT")) as client:
            assert not client.call("ApiVersions", 0).error_code
            if steps:
                assert not client.handshake("SCRAM-SHA-256").error_code
            client.send(name)
            assert client.is_closed_by_broker


def test_a_wrong_choice_of_mechanism_gets_the_list(broker: Broker) -> None:
    """The old handshake is refused, too; without SASL, there is no login."""
    with SecureClient(address_of(broker, "SASL_PLAINTEXT")) as client:
        answer = client.handshake("GSSAPI")
        assert (answer.error_code, tuple(answer.mechanisms)) == (33, MECHANISMS)
        assert client.is_closed_by_broker
    with SecureClient(address_of(broker, "SASL_PLAINTEXT")) as client:
        assert client.handshake("PLAIN", version=0).error_code == 35
        assert client.is_closed_by_broker
    with SecureClient(address_of(broker, "PLAINTEXT")) as client:
        assert client.handshake("PLAIN").error_code == 34
        assert client.token(b"\0a\0b").error_code == 34
        assert client.call("Metadata").brokers != []


def test_a_large_request_before_the_login_is_not_read(broker: Broker) -> None:
    """The same request is read after the login."""
    with SecureClient(address_of(broker, "SASL_PLAINTEXT")) as client:
        began = time.monotonic()
        client.socket.sendall((600_000).to_bytes(4))
        assert client.is_closed_by_broker
        assert time.monotonic() - began < 8.0  # earlier than a client that only waits
    with SecureClient(address_of(broker, "SASL_PLAINTEXT")) as client:
        assert not client.log_in("PLAIN").error_code
        client.create("large")
        assert not client.produce("large", batch_of(bytes(BIG))).error_code


def test_a_session_ends_without_a_new_login(certificates: Certificates) -> None:
    """A client that logs in again can continue; other clients are closed."""
    more = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "connections_max_reauth_ms": 1200}
    with secure_broker(certificates, **more) as broker:
        with SecureClient(broker.bootstrap_servers) as client:
            assert client.log_in("SCRAM-SHA-256").session_lifetime_ms == 1200
            serve_for(client, 1.05)
            assert client.log_in("SCRAM-SHA-256").session_lifetime_ms == 1200
            serve_for(client, 0.5)  # the first session would be over
        with SecureClient(broker.bootstrap_servers) as client:
            assert not client.log_in("PLAIN").error_code
            began = time.monotonic()
            with contextlib.suppress(EOFError, ConnectionError):
                serve_for(client, 10.0)
            assert 1.1 < time.monotonic() - began < 8.0


def serve_for(client: KafkaClient, seconds: float) -> None:
    """Send requests for some time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert client.call("Metadata").brokers


# --- certificates ---------------------------------------------------------------------------------


@pytest.fixture
def mutual(certificates: Certificates) -> Iterator[Broker]:
    rules = r"RULE:CN=([a-z]+),OU=tests.*/$1/L,DEFAULT"
    more = {"ssl_client_auth": "required", "ssl_principal_mapping_rules": rules}
    with secure_broker(certificates, **more) as running:
        yield running


def test_a_certificate_names_its_client(mutual: Broker, certificates: Certificates) -> None:
    """The certificate counts from the first request on; a login with a password replaces it."""
    context = client_context(certificates, certificates.client)
    for protocol, principal in (("SSL", "User:alice"), ("SASL_SSL", "User:ANONYMOUS")):
        with SecureClient(address_of(mutual, protocol), context) as client:
            assert not client.call("ApiVersions", 0).error_code
            (served,) = mutual._server._connections
            assert served.client.principal == principal
        wait_for(lambda: not mutual._server._connections)


def test_a_client_without_a_good_certificate_is_refused(
    mutual: Broker, certificates: Certificates, tmp_path: Path
) -> None:
    """The certificate is missing, expired, or of another authority."""
    yesterday = datetime.now(UTC) - timedelta(days=1)
    foreign = certificate(trustme.CA(), tmp_path / "foreign.pem", "a@example.com")
    expired = certificate(certificates.made, tmp_path / "old.pem", "a@example.com", until=yesterday)
    before = mutual.counts()["handshake_failure_count"]
    for own in (None, foreign, expired):
        context = client_context(certificates, own)
        with (
            pytest.raises((ssl.SSLError, ConnectionError, EOFError)),
            SecureClient(address_of(mutual, "SSL"), context) as client,
        ):
            client.call("ApiVersions", 0)  # with TLS 1.3, a client learns of it only now
    wait_for(lambda: mutual.counts()["handshake_failure_count"] == before + 3)


def test_a_server_that_is_not_trusted_is_noticed(broker: Broker) -> None:
    """The client breaks off, and the broker counts the failed handshake."""
    before = broker.counts()["handshake_failure_count"]
    with pytest.raises(ssl.SSLCertVerificationError):
        SecureClient(address_of(broker, "SSL"), ssl.create_default_context())
    wait_for(lambda: broker.counts()["handshake_failure_count"] == before + 1)


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_both_versions_of_tls_serve(
    broker: Broker, certificates: Certificates, version: str
) -> None:
    """Older versions of TLS are refused."""
    context = client_context(certificates)
    context.maximum_version = context.minimum_version = ssl.TLSVersion[version]
    with SecureClient(address_of(broker, "SSL"), context) as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        assert client.socket.version() == version.replace("_", ".")
        assert client.call("Metadata").brokers


def test_a_new_certificate_is_used_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The file may be behind a link; an unusable file is reported, and changes nothing."""
    monkeypatch.setattr("broker.net.logins.LOOK_SECONDS", 0.02)
    found = Certificates.make(tmp_path)
    link = tmp_path / "link.pem"
    link.symlink_to(found.server)
    with secure_broker(found, ssl_keystore_location=str(link)) as broker:
        first = served_certificate(broker, found)
        other = certificate(found.made, tmp_path / "other.pem", "127.0.0.1")
        (tmp_path / "next").symlink_to(other)
        (tmp_path / "next").rename(link)
        wait_for(lambda: served_certificate(broker, found) != first)
        second = served_certificate(broker, found)
        Path(other).write_text("no certificate")
        wait_for(lambda: "keeps its old certificate" in caplog.text)
        assert served_certificate(broker, found) == second


def served_certificate(broker: Broker, trusted: Certificates) -> bytes | None:
    """Connect, and return the broker's certificate."""
    with SecureClient(address_of(broker, "SSL"), client_context(trusted)) as client:
        assert client.call("Metadata").brokers and isinstance(client.socket, ssl.SSLSocket)
        return client.socket.getpeercert(binary_form=True)


# --- clients that do harm -------------------------------------------------------------------------


def test_a_slow_or_senseless_handshake_holds_up_nobody(certificates: Certificates) -> None:
    """Silent clients, half handshakes and other protocols are closed; others are served."""
    more = {"authentication_timeout_ms": 800}
    with secure_broker(certificates, **more) as broker:
        address = address_of(broker, "SSL").split(":")
        idle = [socket.create_connection((address[0], int(address[1]))) for _ in range(100)]
        hello = first_flight()
        for number, one in enumerate(idle):
            if number % 3:
                one.sendall(hello[: len(hello) - number % 7 * 30 - 1])
        with connected(broker, "SSL", certificates) as client:
            began = time.monotonic()
            assert client.call("Metadata").brokers and time.monotonic() - began < 2.0
        for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x10" + bytes(16), bytes(1000)):
            with socket.create_connection((address[0], int(address[1])), 10.0) as other:
                other.sendall(sent)
                assert is_ended(other)
        for one in idle:
            one.settimeout(10.0)
            assert is_ended(one)
            one.close()
        wait_for(lambda: broker.counts()["handshake_failure_count"] == 103)
        wait_for(lambda: broker.counts()["connection_count"] == 0)
        assert broker.counts()["thread_count"] < 64
        with SecureClient(address_of(broker, "SASL_PLAINTEXT")) as client:  # it never logs in
            assert not client.handshake("PLAIN").error_code and client.is_closed_by_broker


def is_ended(sock: socket.socket) -> bool:
    """Read until the broker closes the connection."""
    with contextlib.suppress(ConnectionResetError):
        while sock.recv(4096):
            pass
    return True


def test_a_client_that_trickles_bytes_is_closed_in_time(certificates: Certificates) -> None:
    """Its login has a deadline, although the client is never silent."""
    with secure_broker(certificates, authentication_timeout_ms=500) as broker:
        host, port = address_of(broker, "SASL_PLAINTEXT").split(":")
        with socket.create_connection((host, int(port)), 0.02) as client:
            client.sendall(b"\0\0\xff\0")
            began = time.monotonic()
            with contextlib.suppress(ConnectionError):
                while time.monotonic() < began + 10.0:
                    client.sendall(b"\0")
                    with contextlib.suppress(TimeoutError):
                        assert client.recv(1) == b""
                        break
            assert 0.4 < time.monotonic() - began < 5.0


def test_a_busy_client_has_a_deadline_too(certificates: Certificates) -> None:
    """Each step checks the deadline, because a connection with a thread has no timer."""
    config = BrokerConfig.of(secure_config(certificates))
    logins = Logins(config, NOBODY)
    for protocol, text in (("SASL_PLAINTEXT", "not logged in"), ("SSL", "handshake is not comp")):
        with socket.create_server(("127.0.0.1", 0)) as server:
            own = socket.create_connection(server.getsockname())
        with own:
            (endpoint,) = (one for one in config.endpoints if one.name == protocol)
            connection = logins.begin(own, Client(endpoint, "127.0.0.1"))
            logins.follow(connection)
            connection.login_deadline = time.monotonic() - 0.1
            with pytest.raises(ClientRefusedError, match=text):
                logins.follow(connection)
            logins.count(connection)
    assert logins.failures == (1, 1)


def test_wrong_files_are_named(certificates: Certificates, tmp_path: Path) -> None:
    """The error for a readable key, or a file that is missing or without a key, has advice."""
    open_key = tmp_path / "open.pem"
    open_key.write_bytes(Path(certificates.server).read_bytes())
    open_key.chmod(0o644)
    users = tmp_path / "users"
    users.write_text("alice:hush\nno colon hush\n")
    users.chmod(0o600)
    for more, text in (
        ({"ssl_keystore_location": str(open_key)}, "others than its owner"),
        ({"ssl_keystore_location": certificates.authority}, "ssl_keystore_location"),
        ({"ssl_keystore_location": str(tmp_path / "none")}, "No such file"),
        ({"sasl_users_file": str(users)}, "line 2 is not of the form user:password"),
    ):
        config = secure_config(certificates) | more
        with pytest.raises(ValueError, match=text) as caught:
            Broker.start(config=config)
        assert "hush" not in str(caught.value)
