"""Serve a store as one broker of a cluster: to Kafka's clients, and to the other brokers.

clients, brokers -> Broker (sockets) -> Dispatcher -> the handlers of broker.requests
                                            |               |
                        peer_handlers       |               +-> leadership, appends, topics
                              +-------------+                          |
                              v                                        v
                        ClusterMember  <-------------------------------+
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

from broker.catalog.admin.features import Features
from broker.catalog.admin.topic_admin import TopicRefusedError
from broker.catalog.client_appends import Appends
from broker.catalog.producer_ids import ProducerIds
from broker.config import BrokerConfig
from broker.coordination.continuity import found_cluster
from broker.coordination.errors import CoordinationError
from broker.coordination.verbs import Session
from broker.coordinator.internal_topic import InternalTopic
from broker.coordinator.offsets_topic import OFFSETS
from broker.machines.exchange import Answer, CloseConnectionError, Pending
from broker.requests.services import Parts, Services, coordinator_of
from broker.server import STOP_SECONDS, Broker
from broker.transaction_coordinator.parts import TransactionParts, transaction_parts
from broker.transaction_coordinator.state_topic import TRANSACTION_STATE
from broker.wire.frames import Request
from cluster.admin.cluster_users import ClusterUsers
from cluster.admin.documents import documents_of
from cluster.admin.settings_sync import SettingsSync
from cluster.admin.supported_features import brokers_lacking, is_new_cluster
from cluster.admin.topic_changes import TopicChanges
from cluster.errors import BadRequestError
from cluster.run.hosted_replica import HostedReplica
from cluster.run.member import ClusterMember, MemberSettings
from cluster.serve.cluster_gauges import gauges_of
from cluster.serve.cluster_group_logs import ClusterGroupLogs
from cluster.serve.cluster_leadership import ClusterLeadership
from cluster.serve.cluster_topics import ClusterTopics
from cluster.serve.coordinator_peers import ClusterRoutes, Peers
from cluster.serve.coordinator_questions import ClusterVerifier
from cluster.serve.deleted_topics import DeletedTopics
from cluster.serve.eligible_replicas import elr_of
from cluster.serve.producer_blocks import ProducerBlocks
from cluster.serve.replica_appends import ReplicaAppends
from cluster.sessions.lasting_session import LastingSession
from cluster.throttle.replication_throttle import Side
from cluster.wire import isr_changes, metadata_updates, roles, shutdowns, stops
from logstore import LogStore

LOG = logging.getLogger("cluster")
HEARD_SECONDS = 10.0  # at a start, the longest wait for the first metadata
SIDES = {side.rate_key: side for side in Side}
PEER_APIS = (roles.API, stops.API, metadata_updates.API, isr_changes.API, shutdowns.API)


class ClusterBroker:
    """One broker of a cluster. The caller must give it an open store and a live session.

    The caller must close the broker before the store and the session. A `with` block closes the
    broker.

    Attributes:
        broker: the sockets and the handlers of clients' requests.
        member: the registration and the replicas of this broker.
        leadership: reports the leaders of partitions to clients.
    """

    def __init__(
        self,
        store: LogStore,
        session: LastingSession,
        settings: MemberSettings,
        config: BrokerConfig | Mapping[str, Any] | None = None,
    ) -> None:
        """Register the broker, and accept clients.

        Raises:
            NodeExistsError: another session has registered this broker's id.
            OSError: the address of a listener is in use.
            CoordinationError: the coordination store does not answer.
        """
        self.config = BrokerConfig.of(config)
        cluster_id = found_cluster(session, store.cluster_id).cluster_id
        self._settings = SettingsSync(session, store, self.config.log_config)
        self.member = ClusterMember(settings, store, session, self._settings.config_of)
        self._settings.on_texts = self.member.throttle.set_topic
        self._settings.on_all_read = self.member.throttle.settings_are_known
        self._documents = documents_of(session)
        self._features = Features(
            self._documents, self.config.transaction_version,
            partial(is_new_cluster, session), partial(brokers_lacking, session),
        )  # fmt: skip
        self._admin = TopicChanges(session, self.member.metadata, self.config)
        self.leadership = ClusterLeadership(
            self.member, cluster_id, is_rack_aware=bool(self.config.replica_selector_class)
        )
        self._groups = coordinator_of(self._logs_of(OFFSETS), self.config)
        self._peers = Peers(self.member.connect), Peers(self.member.connect)
        parts = self._parts(store, session)
        services = Services(store, self.config, parts=parts)
        try:
            self.broker = Broker(store, self.config, owns_store=False, services=services)
        except BaseException:
            self.member.abandon()
            raise
        self.leadership.on_role = self._on_role
        self.member.on_lease = self._on_lease
        self.member.metadata.on_change(DeletedTopics(services.upkeep.forget_soon).heard)
        try:
            endpoints = self.broker.endpoints
            protocols = {one.name: self.config.protocol_of(one.name) for one in endpoints}
            self.member.start(endpoints, protocols)
            self._settings.start()
            session.on_renewal(self._settings.watch_again)
            session.on_renewal(lambda _: self._documents.refresh())
            self._finish_deletions()
            self._wait_for_metadata()
        except BaseException:
            self.abandon()
            raise

    def _logs_of(self, internal: InternalTopic) -> ClusterGroupLogs:
        config, is_offsets = self.config, internal is OFFSETS
        return ClusterGroupLogs(
            self.leadership, self.member.metadata, self._admin, internal,
            lambda: self.member.lease.is_held,
            partitions=(
                config.offsets_topic_num_partitions
                if is_offsets else config.transaction_state_log_num_partitions
            ),
            factor=(
                config.offsets_topic_replication_factor
                if is_offsets else config.transaction_state_log_replication_factor
            ),
        )  # fmt: skip

    def _transaction_parts(self, appends: Appends, producer_ids: ProducerIds) -> TransactionParts:
        leadership, member = self.leadership, self.member
        routes_peers, verifier_peers = self._peers
        return transaction_parts(
            self._logs_of(TRANSACTION_STATE),
            self._groups,
            appends,
            ClusterRoutes(leadership, member.metadata, routes_peers),
            producer_ids,
            self.config,
            lambda: self._features.transaction_version,
            verifier_of=lambda one: ClusterVerifier(one, leadership, verifier_peers),
        )

    def _parts(self, store: LogStore, session: Session) -> Parts:
        leadership = self.leadership
        topics = ClusterTopics(store, self.member.metadata, leadership)
        blocks = ProducerBlocks(session, self.member.settings.broker)
        appends, producer_ids = ReplicaAppends(leadership), ProducerIds(store, blocks.claim)
        self._transactions = self._transaction_parts(appends, producer_ids)
        return Parts(
            topics,
            self.member.operator_requests,
            self._admin,
            leadership,
            appends,
            producer_ids,
            self._groups,
            self._transactions,
            self._documents,
            self._features,
            ClusterUsers(session),
            self._answer_follower,
            dict.fromkeys(PEER_APIS, self._answer_peer),
            partial(gauges_of, self.member),
            self.member.settings.security.rule(self.config),
            lambda key, rate: self.member.throttle.set_rate(SIDES[key], rate),
            partial(elr_of, self.member),
        )

    def __repr__(self) -> str:
        return f"<ClusterBroker {self.member.settings.broker} {self.bootstrap_servers}>"

    @property
    def bootstrap_servers(self) -> str:
        """The advertised address of each listener, separated by commas."""
        return self.broker.bootstrap_servers

    def close(self, timeout: float = STOP_SECONDS) -> None:
        """Leave the cluster, then close all connections. The store and the session stay open."""
        self._settings.close()
        try:
            self.member.close()
        finally:
            self._close_peers()
            self.broker.close(timeout)

    def abandon(self) -> None:
        """Stop all threads, as if the process were killed. Write nothing."""
        self._close_peers()
        self.broker.close(0.0)
        self._settings.close()
        self.member.abandon()

    def _close_peers(self) -> None:
        for peers in self._peers:
            peers.close()

    def _on_role(self, replica: HostedReplica) -> None:
        if replica.name == OFFSETS.name:
            self._groups.role_changed(replica.number)
        elif replica.name == TRANSACTION_STATE.name:
            self._transactions.coordinator.role_changed(replica.number)

    def _on_lease(self) -> None:
        self._groups.roles_changed()
        self._transactions.coordinator.roles_changed()

    # --- the start --------------------------------------------------------------------------------

    def _finish_deletions(self) -> None:
        try:
            self._admin.resume()
        except (TopicRefusedError, CoordinationError) as error:
            LOG.warning("deletions that a crash interrupted will be completed later: %s", error)

    def _wait_for_metadata(self) -> None:
        """Wait until the metadata that clients get from this broker contains the broker."""
        heard = threading.Event()
        end = self.member.metadata.on_change(lambda _: heard.set())
        try:
            if self.member.settings.broker not in self.member.metadata.view.brokers:
                heard.wait(HEARD_SECONDS)
        finally:
            end()

    # --- requests of other brokers ----------------------------------------------------------------

    def _answer_peer(self, request: Request) -> Answer | Pending:
        try:
            return self.member.answer(request)
        except BadRequestError as error:
            raise CloseConnectionError(str(error)) from error

    def _answer_follower(self, request: Request, message: Any) -> Answer | Pending:
        try:
            return self.member.answer_follower(request, message)
        except BadRequestError as error:
            raise CloseConnectionError(str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
