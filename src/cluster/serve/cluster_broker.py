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

from broker.catalog.admin.topic_admin import TopicRefusedError
from broker.catalog.producer_ids import ProducerIds
from broker.config import BrokerConfig
from broker.coordination.continuity import found_cluster
from broker.coordination.errors import CoordinationError
from broker.coordination.verbs import Session
from broker.coordinator.offsets_topic import NAME as OFFSETS_TOPIC
from broker.machines.exchange import Answer, CloseConnectionError, Pending
from broker.requests.services import Parts, Services, coordinator_of
from broker.server import STOP_SECONDS, Broker
from broker.wire.frames import Request
from cluster.admin.cluster_users import ClusterUsers
from cluster.admin.documents import documents_of
from cluster.admin.settings_sync import SettingsSync
from cluster.admin.topic_changes import TopicChanges
from cluster.errors import BadRequestError
from cluster.run.hosted_replica import HostedReplica
from cluster.run.member import ClusterMember, MemberSettings
from cluster.serve.cluster_gauges import gauges_of
from cluster.serve.cluster_group_logs import ClusterGroupLogs
from cluster.serve.cluster_leadership import ClusterLeadership
from cluster.serve.cluster_topics import ClusterTopics
from cluster.serve.deleted_topics import DeletedTopics
from cluster.serve.eligible_replicas import elr_of
from cluster.serve.producer_blocks import ProducerBlocks
from cluster.serve.replica_appends import ReplicaAppends
from cluster.sessions.lasting_session import LastingSession
from cluster.throttle.replication_throttle import Side
from cluster.wire import isr_changes, metadata_updates, roles, shutdowns, stops
from logstore import LogStore

LOG = logging.getLogger("cluster")
HEARD_SECONDS = 10.0  # how long a start waits for the first metadata
SIDES = {side.rate_key: side for side in Side}
PEER_APIS = (roles.API, stops.API, metadata_updates.API, isr_changes.API, shutdowns.API)


class ClusterBroker:
    """One broker of a cluster, over a store that is open and a session that lives.

    Close the broker before the store and the session, or use it in a `with` block.

    Attributes:
        broker: the sockets, and what clients ask for.
        member: the replicas, and this broker's part in the cluster.
        leadership: what this broker says about leaders to clients.
    """

    def __init__(
        self,
        store: LogStore,
        session: LastingSession,
        settings: MemberSettings,
        config: BrokerConfig | Mapping[str, Any] | None = None,
    ) -> None:
        """Register the broker, and serve.

        Raises:
            NodeExistsError: another session has registered this broker's id.
            OSError: a listener's address is taken.
            CoordinationError: the coordination store does not answer.
        """
        self.config = BrokerConfig.of(config)
        cluster_id = found_cluster(session, store.cluster_id).cluster_id
        self._settings = SettingsSync(session, store, self.config.log_config)
        self.member = ClusterMember(settings, store, session, self._settings.config_of)
        self._settings.on_texts = self.member.throttle.set_topic
        self._settings.on_all_read = self.member.throttle.settings_are_known
        self._documents = documents_of(session)
        self._admin = TopicChanges(session, self.member.metadata, self.config)
        self.leadership = ClusterLeadership(
            self.member, cluster_id, is_rack_aware=bool(self.config.replica_selector_class)
        )
        logs = ClusterGroupLogs(
            self.leadership, self.member.metadata, self._admin, self.config,
            lambda: self.member.lease.is_held,
        )  # fmt: skip
        self._groups = coordinator_of(logs, self.config)
        parts = self._parts(store, session)
        services = Services(store, self.config, parts=parts)
        try:
            self.broker = Broker(store, self.config, owns_store=False, services=services)
        except BaseException:
            self.member.abandon()
            raise
        self.leadership.on_role = self._on_role
        self.member.on_lease = self._groups.roles_changed
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

    def _parts(self, store: LogStore, session: Session) -> Parts:
        leadership = self.leadership
        topics = ClusterTopics(store, self.member.metadata, leadership)
        blocks = ProducerBlocks(session, self.member.settings.broker)
        return Parts(
            topics,
            self.member.operator_requests,
            self._admin,
            leadership,
            ReplicaAppends(leadership),
            ProducerIds(store, blocks.claim),
            self._groups,
            self._documents,
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
        """Leave the cluster, then stop serving; the store and the session stay open."""
        self._settings.close()
        try:
            self.member.close()
        finally:
            self.broker.close(timeout)

    def abandon(self) -> None:
        """Stop all threads as a death of the process would; nothing is written."""
        self.broker.close(0.0)
        self._settings.close()
        self.member.abandon()

    def _on_role(self, replica: HostedReplica) -> None:
        if replica.name == OFFSETS_TOPIC:
            self._groups.role_changed(replica.number)

    # --- the start --------------------------------------------------------------------------------

    def _finish_deletions(self) -> None:
        try:
            self._admin.resume()
        except (TopicRefusedError, CoordinationError) as error:
            LOG.warning("deletions that a crash interrupted are finished later: %s", error)

    def _wait_for_metadata(self) -> None:
        """Wait until the controller has told this broker about itself; a client may ask then."""
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
