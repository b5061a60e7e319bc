"""Configure a broker with Kafka's keys in snake case.

A size is a whole number of bytes, or text like "64MiB". A duration is a whole number of
milliseconds, or text like "30s". An unknown key is refused, and the error names the most similar
key.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from broker.protocols import (
    CLIENT_AUTH,
    MECHANISMS,
    TLS_VERSIONS,
    Protocol,
    parse_choices,
    parse_protocol,
    parse_protocol_map,
)
from logstore import LogConfig, StoreConfig
from logstore.config import parse_duration, parse_size

DAY_MS = 24 * 3600 * 1000
LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)://(?P<host>\[[^\]]*\]|[^:/\[\]]*):(?P<port>\d+)")
PROTOCOL = "PLAINTEXT"
SIZES_MAX = 2**31 - 1
PEM_ADVICE = (
    "use PEM files; to convert a JKS file: keytool -importkeystore -srckeystore FILE.jks "
    "-destkeystore FILE.p12 -deststoretype PKCS12, then openssl pkcs12 -in FILE.p12 -out FILE.pem"
)
# These defaults of Kafka differ from the defaults of this library. Records are stored in Kafka's
# own layout.
KAFKA_LOG_CONFIG = LogConfig(
    record_format="kafka", max_message_bytes=1_048_588, retention_ms=7 * DAY_MS
)

# If a disk hangs for `log_dir_suspect_ms`, requests to this disk get an error instead of waiting.
STORE_CONFIG = StoreConfig(log_dir_suspect_ms=1_000)


class Endpoint(NamedTuple):
    """Hold the name, the host and the port of one listener; port 0 means a free port."""

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
            host.encode("idna")  # as a connection to it does
        except UnicodeError as error:
            raise ValueError(f"{key}: {host!r} is no host name: {error}") from error
        found.append(Endpoint(match["name"], host, int(match["port"])))
    names = [endpoint.name for endpoint in found]
    if len(set(names)) < len(names):
        raise ValueError(f"{key}: two listeners have the same name in {text!r}")
    return tuple(found)


RACK_AWARE = "RackAwareReplicaSelector"  # Kafka's name of the class, without its package


@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    """Configure a broker by Kafka's keys.

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
        sasl_users_file: a file with a line `user:password` for each user of PLAIN. Only its owner
            may read it.
        sasl_mechanism_inter_broker_protocol: how this broker logs in at other brokers.
        sasl_inter_broker_credentials_file: a file with one line, `user:password`, with which this
            broker logs in at other brokers. Only its owner may read it.
        sasl_server_max_receive_size: the size of the largest request of a client that has not
            logged in yet.
        connections_max_reauth_ms: a client must log in again after this time; 0 means never.
        connection_failed_authentication_delay_ms: how long a client waits for the answer that its
            login failed.
        authentication_timeout_ms: how long a client may take for its TLS handshake and its login.
        ssl_keystore_type, ssl_keystore_location: PEM, and a file with the private key and the
            certificate chain of this broker. Only its owner may read it.
        ssl_key_password_file: a file with the password of the private key; "" if it has none.
        ssl_truststore_type, ssl_truststore_location: PEM, and a file with the certificates of the
            authorities that sign the certificates of clients and brokers.
        ssl_client_auth: whether clients send a certificate: none, requested or required.
        ssl_enabled_protocols: the versions of TLS: TLSv1.2, TLSv1.3.
        ssl_endpoint_identification_algorithm: `https` if this broker checks the host name in the
            certificates of other brokers; "" if not.
        ssl_principal_mapping_rules: how the subject of a client's certificate becomes a principal.
        super_users: the principals that may do everything, separated by semicolons, such as
            `User:admin;User:CN=broker1`. In a cluster, the brokers are among them.
        num_partitions: the number of partitions of a new topic, if its creator gives no number.
        default_replication_factor: in a cluster, the number of replicas of a new topic, if its
            creator gives no number. A broker without a cluster has one replica of each partition.
        min_insync_replicas: in a cluster, how many replicas must have a record that is acknowledged
            with `acks=all`, unless its topic says so. 0 means a majority of the replicas. Kafka's
            default is 1.
        zookeeper_connect: the servers of ZooKeeper that the brokers of a cluster share, such as
            `zk1:2181,zk2:2181/cluster`. "" means that this broker has no cluster, and then the
            other settings of clusters have no effect.
        zookeeper_session_timeout_ms: ZooKeeper counts a broker as gone if it hears nothing from the
            broker for this long.
        zookeeper_credentials_file: a file with one line, `user:password`, for ZooKeeper's digest
            authentication. Only its owner may read it. "" means no authentication.
        zookeeper_set_acl: whether only this user may read and change the znodes that the broker
            creates. This needs credentials, and the same ones at all brokers.
        reserved_broker_max_id: ids that ZooKeeper gives to new brokers are larger than this.
        broker_rack: the rack of this broker. The replicas of a partition are spread over the racks.
        replica_selector_class: in a cluster, `RackAwareReplicaSelector` lets consumers read from a
            replica in their own rack (KIP-392). "" means that they read from the leader.
        unclean_leader_election_enable: in a cluster, whether a new topic may elect a leader that
            lost records, unless its creator says so.
        replica_lag_time_max_ms: in a cluster, a follower that is behind its leader for this long
            leaves the ISR.
        replica_fetch_max_bytes: in a cluster, the largest number of bytes of records that a
            follower gets for one partition in one answer, or one batch. A partition that is far
            behind may get more.
        replica_fetch_response_max_bytes: the largest number of bytes of records in one answer to a
            follower. The partitions that are far behind share it, or a quarter of it if the fetch
            is for others, too. Kafka's default is 10 MiB.
        auto_create_topics_enable: whether a client that asks for an unknown topic creates it.
        delete_topic_enable: whether clients are allowed to delete topics.
        max_connections: the largest number of connections, at all listeners together.
        max_connections_per_ip: the largest number of connections from one IP address, at all
            listeners together.
        connections_max_idle_ms: a connection without a request for this time is closed.
        socket_request_max_bytes: the size of the largest request.
        queued_max_request_bytes: the most memory that all requests larger than 64 KiB use together.
        request_arrival_ms: how long a request may take to arrive after its first byte. For each
            64 KiB of its size, a request gets one second more.
        response_progress_ms: if a client takes no byte of an answer for this time, its connection
            is closed. So a client that stopped reading does not keep deleted segments on the disk.
        request_stuck_ms: if a request runs longer than this, the broker assumes that a disk hangs,
            and closes the request's connection.
        slow_request_ms: a request that takes longer than this is logged. The time in which the
            request waits for records or members does not count.
        max_worker_threads: the largest number of requests that run at the same time.
        num_replica_alter_log_dirs_threads: the largest number of moves between log dirs that run at
            the same time.
        max_incremental_fetch_session_cache_slots: the largest number of fetch sessions.
        fetch_max_bytes: the largest number of bytes of records in one answer to Fetch.
        group_initial_rebalance_delay_ms: how long an empty group waits for further members after
            the first one. Kafka's default is 3 s, which is long for tests.
        group_min_session_timeout_ms, group_max_session_timeout_ms: the shortest and the longest
            session timeout that a member may ask for.
        group_max_size: the largest number of members of one group.
        max_groups_per_partition: the largest number of groups in one partition of
            `__consumer_offsets`.
        offsets_topic_num_partitions: the number of partitions of `__consumer_offsets`. This key
            cannot be changed after the topic was created.
        offsets_topic_replication_factor: in a cluster, the number of replicas of each partition of
            `__consumer_offsets`, but at most one on each broker that lives when it is created.
        offsets_commit_timeout_ms: in a cluster, how long a commit of offsets waits until all
            in-sync replicas have it.
        offsets_retention_minutes: how long offsets are kept after their group became empty.
        offsets_retention_check_interval_ms: the time between two searches for expired offsets.
        offset_metadata_max_bytes: the size of the longest text that a client may store with an
            offset.
        log_config: the configuration of topics that are created without settings of their own.
        store_config: the configuration of a store that the broker opens itself. The broker's own
            `log_config` replaces the `log_config` of this configuration.
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
    num_partitions: int = 1
    default_replication_factor: int = 1
    min_insync_replicas: int = 0
    zookeeper_connect: str = ""
    zookeeper_session_timeout_ms: int = 9_000
    zookeeper_credentials_file: str = ""
    zookeeper_set_acl: bool = False
    reserved_broker_max_id: int = 1_000
    broker_rack: str = ""
    replica_selector_class: str = ""
    unclean_leader_election_enable: bool = False
    replica_lag_time_max_ms: int = 30_000
    replica_fetch_max_bytes: int = 1 << 20
    replica_fetch_response_max_bytes: int = 32 << 20
    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = True
    max_connections: int = 20_000
    max_connections_per_ip: int = 20_000
    connections_max_idle_ms: int = 600_000
    socket_request_max_bytes: int = 100 << 20
    queued_max_request_bytes: int = 512 << 20
    request_arrival_ms: int = 30_000
    response_progress_ms: int = 30_000
    request_stuck_ms: int = 30_000
    slow_request_ms: int = 1_000
    max_worker_threads: int = 2_000
    num_replica_alter_log_dirs_threads: int = 2
    max_incremental_fetch_session_cache_slots: int = 1_000
    fetch_max_bytes: int = 55 << 20
    group_initial_rebalance_delay_ms: int = 0
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 10_000
    max_groups_per_partition: int = 100_000
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_commit_timeout_ms: int = 5_000
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4096
    log_config: LogConfig = field(default=KAFKA_LOG_CONFIG)
    store_config: StoreConfig = field(default=STORE_CONFIG)

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            object.__setattr__(self, one.name, self.checked(one.name, value))
        if self.log_config.record_format != "kafka":
            raise ValueError("log_config: a broker keeps records with record_format='kafka'")
        names = [endpoint.name for endpoint in self.endpoints]
        self._check_security()
        for endpoint in self.advertised:
            if endpoint.name not in names:
                raise ValueError(f"advertised_listeners: there is no listener {endpoint.name!r}")
            if not endpoint.port or endpoint.host in ("", "0.0.0.0", "::"):
                raise ValueError(f"advertised_listeners: no client can connect to {endpoint}")
        selector = self.replica_selector_class
        if selector and selector.rpartition(".")[2] != RACK_AWARE:
            raise ValueError(
                f"replica_selector_class={selector!r} is not supported; use {RACK_AWARE}, or none"
            )
        if self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise ValueError(
                f"queued_max_request_bytes={self.queued_max_request_bytes} must not be less than "
                f"socket_request_max_bytes={self.socket_request_max_bytes}"
            )

    def _check_security(self) -> None:
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
            raise ValueError("ssl_endpoint_identification_algorithm: it is neither https nor empty")
        if any(one.is_tls for one in protocols) and not self.ssl_keystore_location:
            raise ValueError(f"ssl_keystore_location: a listener with TLS needs it; {PEM_ADVICE}")
        if any(one.is_sasl for one in protocols):
            if not self.mechanisms:
                raise ValueError("sasl_enabled_mechanisms: a listener with SASL needs one")
            if "PLAIN" in self.mechanisms and not self.sasl_users_file:
                raise ValueError("sasl_users_file: the mechanism PLAIN needs it")
        if self.ssl_client_auth != "none" and not self.ssl_truststore_location:
            raise ValueError(
                f"ssl_truststore_location: ssl_client_auth={self.ssl_client_auth} needs it"
            )
        if self.zookeeper_connect:
            self.check_peers()

    def check_peers(self) -> None:
        """Raise ValueError if brokers cannot connect to one another, or recognize one another."""
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

    def protocol_of(self, listener: str) -> Protocol:
        """Give the security protocol of a listener."""
        key = "listener_security_protocol_map"
        given = parse_protocol_map(self.listener_security_protocol_map, key)
        name = listener.upper()
        if name in given or name in list(Protocol):
            return given.get(name) or Protocol(name)
        if given:
            raise ValueError(f"{key}: the listener {listener} is missing")
        return Protocol.PLAINTEXT

    def knows_clients(self, listener: str) -> bool:
        """Report whether a client of a listener proves who it is."""
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

    @classmethod
    def of(cls, given: BrokerConfig | Mapping[str, Any] | None) -> BrokerConfig:
        """Make a configuration from None, from a mapping of keys, or from a `BrokerConfig`."""
        if isinstance(given, BrokerConfig):
            return given
        settings = dict(given or {})
        known = [one.name for one in fields(cls)]
        for name in settings:
            if name not in known:
                wanted = str(name).replace(".", "_")
                near = difflib.get_close_matches(wanted, known, n=1) or known
                raise TypeError(f"BrokerConfig has no key {name!r}; did you mean {near[0]!r}?")
        return cls(**settings)

    @classmethod
    def checked(cls, name: str, value: object) -> object:
        """Check that a value has the type of its setting; convert the text of a number."""
        default = getattr(cls, name)
        if isinstance(default, bool | str | LogConfig | StoreConfig):
            if type(value) is not type(default):
                raise TypeError(f"{name} must be {type(default).__name__}, not {value!r}")
            return value
        parse: Callable[[str, str], int] = parse_duration if name.endswith("_ms") else parse_size
        number = parse(value, name) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"{name} must be a whole number, not {value!r}")
        smallest = 0 if default == 0 else 1
        if not smallest <= number <= SIZES_MAX:
            raise ValueError(f"{name}={number} is not in {smallest}..{SIZES_MAX}")
        return number
