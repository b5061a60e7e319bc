"""Configure the listeners of a broker: their addresses, their protocols, TLS and SASL."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import NamedTuple

from broker.protocols import (
    CLIENT_AUTH,
    MECHANISMS,
    TLS_VERSIONS,
    Protocol,
    parse_choices,
    parse_protocol,
    parse_protocol_map,
)

LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)://(?P<host>\[[^\]]*\]|[^:/\[\]]*):(?P<port>\d+)")
HTTP_LISTENER = re.compile(r"(?P<host>\[[^\]]*\]|[^:/\[\]]+):(?P<port>\d{1,5})")
PROTOCOL = "PLAINTEXT"
PEM_ADVICE = (
    "use PEM files; to convert a JKS file: keytool -importkeystore -srckeystore FILE.jks "
    "-destkeystore FILE.p12 -deststoretype PKCS12, then openssl pkcs12 -in FILE.p12 -out FILE.pem"
)


class Endpoint(NamedTuple):
    """The name, the host and the port of one listener; port 0 means a free port."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_endpoints(text: str, key: str) -> tuple[Endpoint, ...]:
    """Read a list of listeners such as `PLAINTEXT://127.0.0.1:9092,INSIDE://:9093`."""
    found = []
    for one in text.split(","):
        match = LISTENER.fullmatch(one.strip())
        if match is None or int(match["port"]) > 65535:
            raise ValueError(f"{key}: {one.strip()!r} is not of the form {PROTOCOL}://HOST:PORT")
        host = match["host"].strip("[]")
        try:
            host.encode("idna")  # raises an error if no client could connect to this name
        except UnicodeError as error:
            raise ValueError(f"{key}: {host!r} is not a host name: {error}") from error
        found.append(Endpoint(match["name"], host, int(match["port"])))
    names = [endpoint.name for endpoint in found]
    if len(set(names)) < len(names):
        raise ValueError(f"{key}: two listeners have the same name in {text!r}")
    return tuple(found)


def parse_http_listener(text: str, hosts: str) -> Endpoint | None:
    """Read the address of the page; return None for "".

    Args:
        hosts: the names by which other machines reach the page. If this text is empty, only an
            address of the loopback interface is accepted.
    """
    if not text.strip():
        return None
    match = HTTP_LISTENER.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise ValueError(f"http_listener: {text!r} is not of the form HOST:PORT")
    host = match["host"].strip("[]").lower()
    host = "127.0.0.1" if host == "localhost" else host
    try:
        address = ipaddress.ip_address(host)
    except ValueError as error:
        raise ValueError(f"http_listener: {host!r} is neither localhost nor an address") from error
    if not address.is_loopback and not hosts.strip():
        raise ValueError(
            f"http_listener: other machines can reach {text}, and the page asks for no password; "
            "to allow that, list the host names of the page in http_hosts"
        )
    return Endpoint("HTTP", str(address), int(match["port"]))


@dataclass(frozen=True, kw_only=True)
class ListenerConfig:
    """Configure the listeners by Kafka's keys.

    Attributes:
        listeners: the addresses at which clients connect.
        advertised_listeners: for each listener, the address that the broker sends to clients; ""
            means the addresses of `listeners`.
        listener_security_protocol_map: the security protocol of each listener, such as
            `CLIENT:SASL_SSL,INSIDE:PLAINTEXT`. "" means that a listener with the name of a protocol
            has this protocol, and any other listener has PLAINTEXT.
        inter_broker_listener_name: in a cluster, the listener at which the brokers connect to one
            another. "" means the first listener with `security_inter_broker_protocol`.
        security_inter_broker_protocol: the protocol between brokers, if no listener is named.
        sasl_enabled_mechanisms: the ways to log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512.
        sasl_users_file: a file with a line `user:password` for each user of PLAIN. Only the owner
            of the file may read it. sasl_mechanism_inter_broker_protocol: the mechanism with which
            this broker logs in at other brokers.
        sasl_inter_broker_credentials_file: a file with one line, `user:password`, with which this
            broker logs in at other brokers. Only its owner may read it.
        sasl_server_max_receive_size: the largest size of a request if its client has not logged in
            yet.
        connections_max_reauth_ms: a client must log in again after this time; 0 means never.
        connection_failed_authentication_delay_ms: if a login fails, the client gets the answer
            after this time.
        authentication_timeout_ms: how long a client may take for its TLS handshake and its login.
        ssl_keystore_type, ssl_keystore_location: the type must be PEM. The location is a file with
            the private key and the certificate chain of this broker. Only its owner and its group
            may read it.
        ssl_key_password_file: a file with the password of the private key; "" if the key has no
            password. Only its owner may read the file.
        ssl_truststore_type, ssl_truststore_location: the type must be PEM. The location is a file
            with the certificates of the authorities that sign the certificates of clients and
            brokers.
        ssl_client_auth: whether clients send a certificate: none, requested or required.
        ssl_enabled_protocols: the versions of TLS: TLSv1.2, TLSv1.3.
        ssl_endpoint_identification_algorithm: `https` if this broker checks the host name in the
            certificates of other brokers; "" means that this broker does not check it.
        ssl_principal_mapping_rules: how the subject of a client's certificate becomes a principal.
        super_users: the principals that may do everything, separated by semicolons, such as
            `User:admin;User:CN=broker1`. If the brokers of a cluster identify themselves by their
            certificates, the principal of each broker must be in this list.
    """

    listeners: str = "PLAINTEXT://127.0.0.1:0"
    advertised_listeners: str = ""
    listener_security_protocol_map: str = ""
    inter_broker_listener_name: str = ""
    security_inter_broker_protocol: str = PROTOCOL
    sasl_enabled_mechanisms: str = "SCRAM-SHA-256,SCRAM-SHA-512"
    sasl_users_file: str = ""
    sasl_mechanism_inter_broker_protocol: str = "SCRAM-SHA-512"
    sasl_inter_broker_credentials_file: str = ""
    sasl_server_max_receive_size: int = 512 << 10
    connections_max_reauth_ms: int = 0
    connection_failed_authentication_delay_ms: int = 100
    authentication_timeout_ms: int = 10_000
    ssl_keystore_type: str = "PEM"
    ssl_keystore_location: str = ""
    ssl_key_password_file: str = ""
    ssl_truststore_type: str = "PEM"
    ssl_truststore_location: str = ""
    ssl_client_auth: str = "none"
    ssl_enabled_protocols: str = "TLSv1.2,TLSv1.3"
    ssl_endpoint_identification_algorithm: str = "https"
    ssl_principal_mapping_rules: str = "DEFAULT"
    super_users: str = ""

    def check_listeners(self, *, has_peers: bool) -> None:
        """Raise ValueError if the listeners cannot be served.

        Args:
            has_peers: whether other brokers connect to these listeners.
        """
        protocols = {self.protocol_of(endpoint.name) for endpoint in self.endpoints}
        for kind, location in (
            ("ssl_keystore_type", self.ssl_keystore_location),
            ("ssl_truststore_type", self.ssl_truststore_location),
        ):
            if location and getattr(self, kind).upper() != "PEM":
                raise ValueError(f"{kind}={getattr(self, kind)} is not supported; {PEM_ADVICE}")
        parse_choices(self.ssl_enabled_protocols, "ssl_enabled_protocols", TLS_VERSIONS)
        parse_choices(self.ssl_client_auth, "ssl_client_auth", CLIENT_AUTH)
        if self.ssl_endpoint_identification_algorithm.lower() not in ("", "https"):
            raise ValueError(
                "ssl_endpoint_identification_algorithm: the value is neither https nor empty"
            )
        if any(one.is_tls for one in protocols) and not self.ssl_keystore_location:
            raise ValueError(f"ssl_keystore_location: a listener with TLS needs it; {PEM_ADVICE}")
        if any(one.is_sasl for one in protocols):
            if not self.mechanisms:
                raise ValueError(
                    "sasl_enabled_mechanisms: a listener with SASL needs at least one mechanism"
                )
            if "PLAIN" in self.mechanisms and not self.sasl_users_file:
                raise ValueError("sasl_users_file: the mechanism PLAIN needs it")
        if self.ssl_client_auth != "none" and not self.ssl_truststore_location:
            raise ValueError("ssl_truststore_location: certificates of clients need it")
        self._check_advertised()
        if has_peers:
            self.check_peers()

    def _check_advertised(self) -> None:
        names = [endpoint.name for endpoint in self.endpoints]
        for endpoint in self.advertised:
            if endpoint.name not in names:
                raise ValueError(f"advertised_listeners: there is no listener {endpoint.name!r}")
            if not endpoint.port or endpoint.host in ("", "0.0.0.0", "::"):
                raise ValueError(f"advertised_listeners: no client can connect to {endpoint}")

    def check_peers(self) -> None:
        """Raise ValueError if brokers could not connect to each other, or identify each other."""
        name = self.inter_broker_name
        protocol = self.protocol_of(name)
        if protocol.is_sasl:
            if not self.sasl_inter_broker_credentials_file:
                raise ValueError(
                    f"sasl_inter_broker_credentials_file: the listener {name} between brokers "
                    f"has {protocol}, so it needs a file with one line, user:password"
                )
            if self.sasl_mechanism_inter_broker_protocol not in self.mechanisms:
                raise ValueError(
                    f"sasl_mechanism_inter_broker_protocol: "
                    f"{self.sasl_mechanism_inter_broker_protocol} is not in sasl_enabled_mechanisms"
                )
        elif self.knows_clients(name) and not self.super_users:
            raise ValueError(
                f"super_users: the listener {name} between brokers has certificates, so it needs "
                "the principal of each broker's certificate"
            )
        if protocol.is_tls and not self.ssl_truststore_location:
            raise ValueError(
                f"ssl_truststore_location: the listener {name} between brokers needs it"
            )

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The enabled mechanisms of SASL."""
        return parse_choices(self.sasl_enabled_mechanisms, "sasl_enabled_mechanisms", MECHANISMS)

    @property
    def has_scram(self) -> bool:
        """Whether clients may log in with SCRAM at any listener."""
        is_sasl = any(self.protocol_of(one.name).is_sasl for one in self.endpoints)
        return is_sasl and any(one.startswith("SCRAM") for one in self.mechanisms)

    def protocol_of(self, listener: str) -> Protocol:
        """Return the security protocol of a listener."""
        key = "listener_security_protocol_map"
        given = parse_protocol_map(self.listener_security_protocol_map, key)
        name = listener.upper()
        if name in given or name in list(Protocol):
            return given.get(name) or Protocol(name)
        if given:
            raise ValueError(f"{key}: the listener {listener} is missing")
        return Protocol.PLAINTEXT

    def knows_clients(self, listener: str) -> bool:
        """Report whether the clients of a listener must authenticate themselves."""
        protocol = self.protocol_of(listener)
        return protocol.is_sasl or (protocol.is_tls and self.ssl_client_auth == "required")

    @property
    def inter_broker_name(self) -> str:
        """The name of the listener at which the brokers of a cluster connect to one another."""
        named, names = self.inter_broker_listener_name, [one.name for one in self.endpoints]
        if named:
            for name in names:
                if name.upper() == named.upper():
                    return name
            raise ValueError(f"inter_broker_listener_name: there is no listener {named!r}")
        key = "security_inter_broker_protocol"
        protocol = parse_protocol(self.security_inter_broker_protocol, key)
        for name in names:
            if self.protocol_of(name) is protocol:
                return name
        raise ValueError(f"{key}: no listener has the protocol {protocol}")

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The name and the address of each listener."""
        return parse_endpoints(self.listeners, "listeners")

    @property
    def advertised(self) -> tuple[Endpoint, ...]:
        """The listeners in `advertised_listeners`, each with its address for clients."""
        text = self.advertised_listeners
        return parse_endpoints(text, "advertised_listeners") if text else ()
