"""Hold the parts of the broker that all handlers use."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from broker.authorization.authorizer import EVERYTHING, Rights
from broker.authorization.bindings import CLUSTER_NAME, Operation, ResourceType
from broker.catalog.admin.acls import Acls
from broker.catalog.admin.client_quotas import ClientQuotas
from broker.catalog.admin.features import Features
from broker.catalog.admin.login_decoys import LoginDecoys
from broker.catalog.admin.sole_topic_admin import SoleTopicAdmin
from broker.catalog.admin.sole_users import SoleUsers
from broker.catalog.admin.topic_admin import TopicAdmin
from broker.catalog.client_appends import Appends, LogAppends
from broker.catalog.dynamic_settings import DynamicSettings, SetRate
from broker.catalog.leadership import Leadership, SoleBroker
from broker.catalog.producer_ids import ProducerIds
from broker.catalog.replica_changes import ReplicaChanges, SoleReplicas
from broker.catalog.served_topics import ServedTopics
from broker.catalog.topics import TopicCatalog
from broker.config import BrokerConfig
from broker.consumer_groups.exchange import ConsumerSettings, Migration
from broker.coordination.shared_documents import SharedDocuments
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.group_logs import GroupLogs
from broker.coordinator.internal_topic import SoleTopic
from broker.coordinator.offsets_topic import OffsetsTopic
from broker.coordinator.upkeep import OffsetUpkeep
from broker.groups.group import GroupSettings
from broker.machines.decompression import DecompressionMemory
from broker.machines.exchange import Answer, Client, Pending, Scheduler
from broker.machines.fetch_sessions import FetchSessions
from broker.machines.running_time import RunningTime
from broker.machines.traffic import Gauge, Traffic
from broker.net.complaint_log import ComplaintLog
from broker.quotas.entities import user_of
from broker.quotas.quotas import REQUEST, Quotas
from broker.security.peers import ANYBODY, PeerRule
from broker.security.user_settings import UserCredentials
from broker.transaction_coordinator.marker_routes import SoleRoutes
from broker.transaction_coordinator.parts import TransactionParts, transaction_parts
from broker.transaction_coordinator.state_topic import TRANSACTION_STATE
from broker.wire.frames import Request, encode_response
from broker.wire.schemas import api_names
from broker.wire.versions import ApiVersions
from logstore import LogStore
from logstore.store.kafka.hands import kafka_cluster_id

Encode = Callable[[int, int, Any], bytearray]
MILESTONES = (
    "base", "groups", "consumer groups", "admin", "quotas", "features", "logins",
    "transactions", "acls",
)  # fmt: skip
PEERS = "cluster"  # the APIs of requests between brokers
MS = 1000


class Parts(NamedTuple):
    """The parts of a broker that depend on whether it belongs to a cluster.

    Attributes:
        answer_follower: a function that answers the Fetch of another broker, from its decoded
            message.
        documents: small documents that all brokers know, such as quotas.
        features: the levels of features, which all brokers know.
        peer_handlers: answer the requests that only brokers send; ApiVersions does not list them.
        users: the SCRAM credentials.
        peers: the clients that are brokers of this cluster.
        set_replication_rate: a function that sets the rates of replication; None without a cluster.
        gauges: a function that returns the additional values of a cluster's broker for Prometheus.
        elr: a function for the page. The function returns the eligible leader replicas of each
            partition that has some. Only the controller knows the eligible leader replicas; on any
            other broker, the function returns None.
    """

    topics: ServedTopics
    replica_changes: ReplicaChanges
    topic_admin: TopicAdmin
    leadership: Leadership
    appends: Appends
    producer_ids: ProducerIds
    groups: GroupCoordinator
    transactions: TransactionParts
    documents: SharedDocuments
    features: Features
    users: UserCredentials
    answer_follower: Callable[[Request, Any], Answer | Pending] | None = None
    peer_handlers: Mapping[int, Callable[[Request], Answer | Pending]] = {}
    gauges: Callable[[], Iterable[Gauge]] = tuple
    peers: PeerRule = ANYBODY
    set_replication_rate: SetRate | None = None
    elr: Callable[[], Mapping[tuple[str, int], tuple[int, ...]] | None] = dict


def coordinator_of(
    topic: GroupLogs, config: BrokerConfig, clock: Callable[[], float] = time.monotonic
) -> GroupCoordinator:
    """Make the coordinator of the groups."""
    return GroupCoordinator(
        topic,
        GroupSettings(config.group_initial_rebalance_delay_ms / MS, config.group_max_size),
        groups_max=config.max_groups_per_partition,
        commit_seconds=config.offsets_commit_timeout_ms / MS,
        clock=clock,
        consumers=ConsumerSettings(
            config.group_consumer_session_timeout_ms / MS,
            config.group_consumer_heartbeat_interval_ms,
            config.group_consumer_max_size,
            assignors=config.assignors,
            migration=Migration(config.migration),
        ),
    )


def sole_parts(store: LogStore, config: BrokerConfig, clock: Callable[[], float]) -> Parts:
    """Make the parts of a broker without a cluster."""
    topics = TopicCatalog(store)

    def is_known(name: str, partition: int) -> bool:
        topic = topics.get(name)
        return topic is not None and partition in topic.partitions

    groups = coordinator_of(
        OffsetsTopic(topics, config.offsets_topic_num_partitions, clock), config, clock
    )
    states = SoleTopic(
        TRANSACTION_STATE, topics, config.transaction_state_log_num_partitions, clock
    )
    appends, producer_ids = LogAppends(topics), ProducerIds(store)
    features = Features(topics.documents, config.transaction_version)
    return Parts(
        topics,
        SoleReplicas(store.broker_id, is_known),
        SoleTopicAdmin(topics, config, store.broker_id),
        SoleBroker(store.broker_id, kafka_cluster_id(store.log_dirs) or store.cluster_id, topics),
        appends,
        producer_ids,
        groups,
        transaction_parts(
            states,
            groups,
            appends,
            SoleRoutes(topics),
            producer_ids,
            config,
            lambda: features.transaction_version,
            clock=clock,
        ),
        topics.documents,
        features,
        SoleUsers(store),
    )


class Services:
    """The parts of one broker.

    Threads: `sessions_lock` guards `sessions`. The other parts have their own locks.
    """

    def __init__(
        self,
        store: LogStore,
        config: BrokerConfig,
        clock: Callable[[], float] = time.monotonic,
        parts: Parts | None = None,
    ) -> None:
        """Store the parts. By default, make the parts of a broker without a cluster."""
        parts = parts or sole_parts(store, config, clock)
        self.store = store
        self.config = config
        self.clock = clock
        self.running_time = RunningTime(clock())
        self.apis = ApiVersions(MILESTONES, silent=(PEERS,) if parts.peer_handlers else ())
        self.leadership = parts.leadership
        self.topics = parts.topics
        self.topic_admin = parts.topic_admin
        self.appends = parts.appends
        self.producer_ids = parts.producer_ids
        self.replica_changes = parts.replica_changes
        self.answer_follower = parts.answer_follower
        self.peer_handlers = parts.peer_handlers
        self.gauges = parts.gauges
        self.documents = parts.documents
        self.features = parts.features
        self.quotas = Quotas()
        self.client_quotas = ClientQuotas(self.documents, self.quotas)
        self.decoys = LoginDecoys(self.documents)
        self.elr = parts.elr
        settings = config.authorizer
        self.acls = Acls(self.documents, settings, config.max_acls) if settings else None
        self._complain = ComplaintLog().warn
        self.decompression = DecompressionMemory(
            config.decompressed_batch_bytes_max, config.decompressed_bytes_max, self._complain
        )
        self.traffic = Traffic()
        self.settings = DynamicSettings(
            store, config.num_replica_alter_log_dirs_threads, parts.set_replication_rate
        )
        self.groups = parts.groups
        self.transactions = parts.transactions
        self.users = parts.users
        self.peers = parts.peers
        self.groups.consumers.topics = lambda: self.topics.current().by_name
        self.upkeep = OffsetUpkeep(
            self.groups,
            config.offsets_retention_minutes * 60.0,
            config.offsets_retention_check_interval_ms / MS,
        )
        draw = random.SystemRandom()
        self.sessions_lock = threading.Lock()
        self.sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots, lambda: draw.randrange(1, 2**31)
        )

    def start(self, scheduler: Scheduler) -> None:
        """Start the background work, such as moves and the loading of groups."""
        scheduler.each_second(self.running_time.at)
        self.topics.start()
        if self.acls is not None:
            self.acls.start()
        self.settings.start()
        self.features.start()
        self.client_quotas.start()
        if self.config.has_scram:
            self.decoys.start()
        self.groups.start(scheduler)
        self.upkeep.start(scheduler)
        self.transactions.start(scheduler)

    def close(self) -> None:
        """Stop listening to the store, and to the documents of the cluster."""
        self.features.close()
        self.client_quotas.close()
        self.decoys.close()
        if self.acls is not None:
            self.acls.close()
        self.topics.close()
        self.producer_ids.close()
        self.users.close()

    def rights_of(self, client: Client, key: int) -> Rights:
        """Return the rights of a client, during a request of one API."""
        if self.acls is None:
            return EVERYTHING
        return Rights(
            self.acls.authorizer, client.principal, client.address, api_names()[key], self._complain
        )


class Call(NamedTuple):
    """One request for a handler, with the services and the client.

    Attributes:
        rights: the rights of the client.
        finish: a function that adds rows to the answer of the handler: the rows of refused parts,
            which the handler must not see (`requests.access`).
    """

    services: Services
    request: Request
    client: Client
    rights: Rights = EVERYTHING
    finish: Callable[[Any], Any] | None = None

    def is_from_broker(self) -> bool:
        """Report whether the client may send the requests of brokers.

        If there is an authorizer, a client that did not log in as a broker needs CLUSTER_ACTION.
        """
        peers, principal = self.services.peers, self.client.principal
        if self.services.acls is None or (not peers.is_open and peers.accepts(principal)):
            return peers.accepts(principal)
        return self.rights.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)

    def charge(self, quota: str, amount: float) -> None:
        """Charge an amount to the client's quota. The client's next request may have to wait."""
        quotas = self.services.quotas
        login = self.client.login
        if login is not None and not login.principal:
            return  # a client can claim any client id before its login
        if quotas.is_active:
            now, user = self.services.clock(), user_of(self.client.principal)
            seconds = quotas.charge(quota, user, self.request.client_id or "", amount, now)
            if seconds:
                self.client.muted_until = max(self.client.muted_until, now + seconds)

    def charge_time(self) -> None:
        """Charge the time of the request's thread since the request began or last waited."""
        if self.services.quotas.is_active:
            seconds = self.services.clock() - self.client.begun_at
            self.charge(REQUEST, 100 * max(seconds, 0.0))

    def burst(self, quota: str) -> int | None:
        """Return the largest amount that the request should use; None if there is no quota."""
        quotas = self.services.quotas
        if not quotas.is_active:
            return None
        user = user_of(self.client.principal)
        return quotas.burst_for(quota, user, self.request.client_id or "")

    def throttle_ms(self) -> int:
        """Charge the time of the request; return how long its client must wait (KIP-219)."""
        self.charge_time()
        until = self.client.muted_until
        return math.ceil(max(until - self.services.clock(), 0.0) * MS) if until else 0

    def answer(self, message: Any, encode: Encode | None = None) -> Answer:
        """Encode the response, with the time that the client has to wait.

        Args:
            encode: encodes the response of a frequent API, faster than the codec.
        """
        request = self.request
        if self.finish is not None:
            message = self.finish(message)
        if self.services.quotas.is_active and hasattr(message, "throttle_time_ms"):
            message = message._replace(throttle_time_ms=self.throttle_ms())
        if encode is not None:
            return [encode(request.version, request.correlation_id, message)]
        return [encode_response(request.key, request.version, request.correlation_id, message)]
