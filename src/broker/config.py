"""Configure a broker with Kafka's keys in snake case.

A size is a whole number of bytes, or text like "64MiB". A duration is a whole number of
milliseconds, or text like "30s". An unknown key is refused. The error names the most similar key.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from broker.authorization.authorizer import AuthorizerSettings, parse_super_users
from broker.listener_config import Endpoint, ListenerConfig, parse_http_listener
from logstore import LogConfig, StoreConfig
from logstore.config import parse_duration, parse_size

DAY_MS = 24 * 3600 * 1000
ASSIGNORS = frozenset({"uniform", "range"})  # as in `broker.consumer_groups`
MIGRATIONS = ("disabled", "upgrade", "downgrade", "bidirectional")  # as in the same room
SIZES_MAX = 2**31 - 1
# Kafka's names of an authorizer that decides by ACLs.
# All these names mean the authorizer of this broker.
AUTHORIZERS = (
    "AclAuthorizer",
    "StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
# These defaults of Kafka differ from the defaults of this library.
# Records are stored in Kafka's own layout.
KAFKA_LOG_CONFIG = LogConfig(
    record_format="kafka", max_message_bytes=1_048_588, retention_ms=7 * DAY_MS
)

# If a disk hangs for `log_dir_suspect_ms`, requests to this disk get an error, and no longer wait.
STORE_CONFIG = StoreConfig(log_dir_suspect_ms=1_000)


RACK_AWARE = "RackAwareReplicaSelector"  # Kafka's name of the class, without its package


def _check_text(name: str, value: object) -> None:
    """Check the settings whose text has a special form. Raises ValueError."""
    if name == "authorizer_class_name" and value not in ("", *AUTHORIZERS):
        raise ValueError(f"{name}={value} is not one of {', '.join(AUTHORIZERS)}")
    if name == "super_users":
        try:
            parse_super_users(str(value))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(ListenerConfig):
    """Configure a broker by Kafka's keys. `ListenerConfig` has the keys of the listeners.

    Attributes:
        num_partitions: the number of partitions of a new topic, if its creator gives no number.
        default_replication_factor: in a cluster, the number of replicas of a new topic, if its
            creator gives no number. A broker without a cluster has one replica of each partition.
        min_insync_replicas: in a cluster, how many replicas must have a record that is acknowledged
            with `acks=all`, if the settings of the topic do not say so. 0 means a majority of the
            replicas. Kafka's default is 1.
        zookeeper_connect: the servers of ZooKeeper that the brokers of a cluster share, such as
            `zk1:2181,zk2:2181/cluster`. "" means that this broker has no cluster, and then the
            other settings of clusters have no effect.
        zookeeper_session_timeout_ms: if ZooKeeper hears nothing from a broker for this long, the
            broker counts as gone.
        zookeeper_credentials_file: a file with one line, `user:password`, for ZooKeeper's digest
            authentication. Only the owner of the file may read it. "" means no authentication.
        zookeeper_set_acl: whether only this user may read and change the znodes that the broker
            creates. This setting needs credentials, which must be the same at all brokers.
        reserved_broker_max_id: if a new broker gets its id from ZooKeeper, the id is larger than
            this.
        broker_rack: the rack of this broker. The replicas of a partition are spread over the racks.
        replica_selector_class: in a cluster, `RackAwareReplicaSelector` lets consumers read from a
            replica in their own rack (KIP-392). "" means that they read from the leader.
        unclean_leader_election_enable: in a cluster, whether a new topic may elect a leader that
            lacks records, if its creator does not say so.
        replica_lag_time_max_ms: in a cluster, a follower that is behind its leader for this long
            leaves the ISR.
        replica_fetch_max_bytes: in a cluster, the largest number of bytes of records that a
            follower gets for one partition in one answer. There are two exceptions: a single batch
            may be larger, and a partition that is far behind may get more.
        replica_fetch_response_max_bytes: the largest number of bytes of records in one answer to a
            follower. The partitions that are far behind share this number. If the fetch also asks
            for other partitions, the partitions that are far behind share a quarter of this number.
            Kafka's default is 10 MiB.
        authorizer_class_name: with "AclAuthorizer" or "StandardAuthorizer", ACLs decide what
            clients may do. Kafka's package name may precede the class name. With "", every client
            may do everything.
        allow_everyone_if_no_acl_found: whether every client may do everything with a resource that
            has no ACL.
        max_acls: the largest number of ACLs that clients can create.
        auto_create_topics_enable: whether a client that asks for an unknown topic creates it.
        delete_topic_enable: whether clients are allowed to delete topics.
        max_connections: the largest number of connections, at all listeners together. In a
            cluster, a separate listener between brokers may have as many further connections.
        max_connections_per_ip: the largest number of connections from one IP address, at all
            listeners together.
        connections_max_idle_ms: a connection without a request for this time is closed.
        socket_request_max_bytes: the largest size of a request.
        queued_max_request_bytes: the most memory that all requests larger than 64 KiB use together;
            also the most memory for all answers that clients do not read.
        decompressed_batch_bytes_max: the most memory that one batch of a client needs when it is
            decompressed. A larger batch is refused.
        decompressed_bytes_max: the most memory that all batches of clients together need while they
            are decompressed. A request waits for this memory, and is refused after 10 s.
        request_arrival_ms: how long a request may take to arrive after its first byte. For each
            64 KiB of its size, a request gets one second more.
        response_progress_ms: if a client takes no byte of an answer for this time, its connection
            is closed. Otherwise, a client that has stopped reading would keep deleted segments on
            the disk.
        request_stuck_ms: if a request runs longer than this, the broker assumes that a disk hangs,
            and closes the request's connection.
        slow_request_ms: a request that takes longer than this is logged. The time while the request
            waits for records or members is ignored.
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
        group_consumer_session_timeout_ms: a member of a group of the new protocol (KIP-848) that
            sends no heartbeat for this long is removed.
        group_consumer_heartbeat_interval_ms: how often these members send heartbeats.
        group_consumer_max_size: the largest number of members of one of these groups.
        group_consumer_assignors: the assignors that these members may choose: `uniform`, `range` or
            both. If the members of a group choose none, the group uses the first assignor.
        group_consumer_migration_policy: which groups with members may change their protocol: none
            (`disabled`), classic groups (`upgrade`), groups of the new protocol (`downgrade`), or
            both (`bidirectional`).
        max_groups_per_partition: the largest number of groups in one partition of
            `__consumer_offsets`.
        offsets_topic_num_partitions: the number of partitions of `__consumer_offsets`. This key
            cannot be changed after the topic was created.
        offsets_topic_replication_factor: in a cluster, the number of replicas of each partition of
            `__consumer_offsets`. If there are fewer live brokers when the topic is created, each
            of them gets one replica.
        offsets_commit_timeout_ms: in a cluster, the longest time that a commit of offsets waits for
            the in-sync replicas.
        offsets_retention_minutes: how long offsets are kept after their group became empty.
        offsets_retention_check_interval_ms: the time between two searches for expired offsets.
        offset_metadata_max_bytes: the largest size of the text that a client may store with an
            offset.
        http_listener: the address of the page for operators, such as `127.0.0.1:8080`. "" means
            that there is no page.
        http_hosts: the names and addresses by which browsers on other machines reach the page,
            separated by commas. An address that other machines can reach needs them.
        transaction_max_timeout_ms: the longest timeout that a client may ask for its transactions.
        transactional_id_expiration_ms: a transactional id that was not used for this time is
            forgotten.
        transaction_state_log_num_partitions: the number of partitions of `__transaction_state`.
            This key cannot be changed after the topic was created.
        transaction_state_log_replication_factor: in a cluster, the number of replicas of each
            partition of `__transaction_state`. If there are fewer live brokers when the topic is
            created, each of them gets one replica.
        transaction_abort_timed_out_transaction_cleanup_interval_ms: the time between two searches
            for transactions that have run longer than their timeout.
        transaction_remove_expired_transaction_cleanup_interval_ms: the time between two searches
            for transactional ids that are not used.
        max_transactional_ids_per_partition: the largest number of transactional ids in one
            partition of `__transaction_state`.
        transaction_version: the first level of the feature `transaction.version`, for a store that
            has no level yet: 2, or 1 without the newer protocol of transactions.
        log_config: the configuration of topics that are created without settings.
        store_config: the configuration of a store that the broker opens itself. The broker's own
            `log_config` replaces the `log_config` of this configuration.
    """

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
    authorizer_class_name: str = ""
    allow_everyone_if_no_acl_found: bool = False
    max_acls: int = 20_000
    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = True
    max_connections: int = 20_000
    max_connections_per_ip: int = 20_000
    connections_max_idle_ms: int = 600_000
    socket_request_max_bytes: int = 100 << 20
    queued_max_request_bytes: int = 512 << 20
    decompressed_batch_bytes_max: int = 128 << 20
    decompressed_bytes_max: int = 512 << 20
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
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 10_000
    group_consumer_assignors: str = "uniform,range"
    group_consumer_migration_policy: str = "bidirectional"
    max_groups_per_partition: int = 100_000
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_commit_timeout_ms: int = 5_000
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4096
    http_listener: str = ""
    http_hosts: str = ""
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * DAY_MS
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    max_transactional_ids_per_partition: int = 100_000
    transaction_version: int = 2
    log_config: LogConfig = field(default=KAFKA_LOG_CONFIG)
    store_config: StoreConfig = field(default=STORE_CONFIG)

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            object.__setattr__(self, one.name, self.checked(one.name, value))
        if self.log_config.record_format != "kafka":
            raise ValueError("log_config: a broker keeps records with record_format='kafka'")
        self.check_listeners(has_peers=bool(self.zookeeper_connect))
        selector = self.replica_selector_class
        if selector and selector.rpartition(".")[2] != RACK_AWARE:
            raise ValueError(
                f"replica_selector_class={selector!r} is not supported; use {RACK_AWARE}, or none"
            )
        parse_http_listener(self.http_listener, self.http_hosts)
        if not self.assignors or not set(self.assignors) <= ASSIGNORS:
            known = " and ".join(sorted(ASSIGNORS))
            raise ValueError(
                f"group_consumer_assignors={self.group_consumer_assignors!r}: the assignors are "
                f"{known}"
            )
        if self.migration not in MIGRATIONS:
            raise ValueError(
                f"group_consumer_migration_policy={self.group_consumer_migration_policy!r}: the "
                f"policies are {', '.join(MIGRATIONS)}"
            )
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise ValueError(
                f"group_consumer_heartbeat_interval_ms={self.group_consumer_heartbeat_interval_ms} "
                "must be less than group_consumer_session_timeout_ms="
                f"{self.group_consumer_session_timeout_ms}"
            )
        if self.transaction_version > 2:
            raise ValueError(
                f"transaction_version={self.transaction_version} is not known; use 1 or 2"
            )
        if self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise ValueError(
                f"queued_max_request_bytes={self.queued_max_request_bytes} must not be less than "
                f"socket_request_max_bytes={self.socket_request_max_bytes}"
            )

    @property
    def peer_listener(self) -> str:
        """The listener whose connections have a limit of their own; "" if there is none.

        This is the listener between the brokers of a cluster, if clients have another listener.
        """
        is_own = bool(self.zookeeper_connect) and len(self.endpoints) > 1
        return self.inter_broker_name if is_own else ""

    @property
    def http_endpoint(self) -> Endpoint | None:
        """The address of the page; None if there is no page."""
        return parse_http_listener(self.http_listener, self.http_hosts)

    @property
    def assignors(self) -> tuple[str, ...]:
        """The names in `group_consumer_assignors`."""
        names = (name.strip() for name in self.group_consumer_assignors.split(","))
        return tuple(dict.fromkeys(name for name in names if name))

    @property
    def migration(self) -> str:
        """The policy in `group_consumer_migration_policy`. As in Kafka, its case is ignored."""
        return self.group_consumer_migration_policy.lower()

    @property
    def authorizer(self) -> AuthorizerSettings | None:
        """The settings of the ACLs; None if every client may do everything."""
        if not self.authorizer_class_name:
            return None
        return AuthorizerSettings(
            parse_super_users(self.super_users), self.allow_everyone_if_no_acl_found
        )

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
            _check_text(name, value)
            return value
        parse: Callable[[str, str], int] = parse_duration if name.endswith("_ms") else parse_size
        number = parse(value, name) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"{name} must be a whole number, not {value!r}")
        smallest = 0 if default == 0 else 1
        if not smallest <= number <= SIZES_MAX:
            raise ValueError(f"{name}={number} is not in {smallest}..{SIZES_MAX}")
        return number
