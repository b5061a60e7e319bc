"""Run a broker as a member of a cluster: registration, replicas, fetchers, and a candidate.

    coordination store <- registering, controller_host      other brokers <- fetchers, links
                                  |                                  |
                                  +--------> hosted_replicas <-------+

A `ClusterMember` does not serve clients. The method `answer` of a member answers the requests of
other brokers. `replicas.at` finds the replica to which a client appends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakSet

from broker.coordination.errors import CoordinationError, NoNodeError
from broker.coordination.verbs import Session, SessionState
from broker.listener_config import Endpoint
from broker.machines.exchange import Answer, Pending
from broker.wire import codec
from broker.wire.byte_cursor import Cursor
from broker.wire.error_codes import ErrorCode
from broker.wire.fetch import decode_fetch
from broker.wire.frames import Request, encode_response
from broker.wire.messages import AlterPartitionResponse
from cluster import znodes
from cluster.control.controller_host import ControllerHost
from cluster.control.controller_store import ControllerStore
from cluster.control.departures import SHUTDOWN_SECONDS, Departure, let_leave
from cluster.control.operator_requests import OperatorRequests
from cluster.disks.dir_workers import DirWorkers, Piece
from cluster.disks.flushes import Flushes
from cluster.errors import BadRequestError
from cluster.peers.peer_security import OPEN, PeerSecurity
from cluster.presence.dir_facts import FailureRecords, directory_ids
from cluster.presence.dir_news import LOG_DIR_CHANGES, DirNews
from cluster.presence.registering import Registering
from cluster.pure import exchange as x
from cluster.pure.attest import Host
from cluster.pure.replica import LAG_SECONDS_MAX, Role
from cluster.requests import AlterPartition, RoleAnswer
from cluster.run import follower_reads
from cluster.run.control_requests import answer_roles, answer_stops, answer_update
from cluster.run.controller_link import ControllerLink
from cluster.run.dir_choice import dir_choice
from cluster.run.fetchers import Fetchers
from cluster.run.hosted_replica import HostedReplica
from cluster.run.hosted_replicas import HostedReplicas
from cluster.run.metadata_cache import MetadataCache
from cluster.run.orphans import UNKNOWN_SECONDS, Orphans
from cluster.run.peer_connection import PeerConnection
from cluster.sessions.lasting_session import LastingSession
from cluster.sessions.lease import Lease
from cluster.throttle.replication_throttle import ReplicationThrottle
from cluster.wire import isr_changes, metadata_updates, roles, shutdowns, stops
from cluster.wire.follower_fetches import FetchLimits
from logstore import LogConfig, LogStore, StoreEvent, StoreEventKind

LOG = logging.getLogger("cluster")
TICK_SECONDS = 0.5
ANNOUNCE_TICKS = 10  # ticks between two events: each event makes the controller ask all replicas
TICKS_PER_SESSION = 20  # so the end of the lease is noticed long before the session ends
ALTER_SECONDS = 8.0
FOLLOWER_READS = 1


class MemberSettings(NamedTuple):
    """The settings of a member of a cluster.

    Attributes:
        records: a directory on tmpfs for the records of failed log dirs. This directory must still
            exist after the process of the broker has ended (P4).
        look_seconds: the time after which a controller asks again.
        session_seconds: if the coordination store hears nothing from a session for this time, it
            ends the session; None if the store never ends a session.
        unknown_seconds: if the cluster does not know the topic of a replica for this time, there is
            an alarm.
        security: the way to connect to other brokers.
    """

    broker: int
    records: str
    rack: str = ""
    lag_seconds_max: float = LAG_SECONDS_MAX
    limits: FetchLimits = FetchLimits()
    look_seconds: float = 1.0
    session_seconds: float | None = None
    unknown_seconds: float = UNKNOWN_SECONDS
    security: PeerSecurity = OPEN


class ClusterMember:
    """A member of a cluster. The caller must pass an open store and a live session.

    Threads: any thread may call any method.
    """

    def __init__(
        self,
        settings: MemberSettings,
        store: LogStore,
        session: LastingSession,
        config_of: Callable[[str], LogConfig | None],
    ) -> None:
        """Store the arguments; `start` registers the broker.

        Args:
            config_of: the configuration for the log of a new replica of a topic.
        """
        self.settings, self.store, self._session = settings, store, session
        self.lease = Lease(session, settings.session_seconds)
        self.host = Host(settings.broker, tuple(store.log_dirs))
        self.replicas = HostedReplicas(self.host, self._make_replica, dir_choice(self.host, store))
        self.metadata = MetadataCache()
        store.host.keep_deletions_if(self.metadata.lacks_replica)
        self.throttle = ReplicationThrottle(
            settings.broker, self.metadata.is_in_sync, time.monotonic
        )
        self._config_of = config_of
        self._fetchers = Fetchers(self.connect, settings.limits, time.monotonic, self.throttle)
        self._link = ControllerLink(self._find_controller, self.connect, self.replicas.refused)
        self._flushes, self._reporter = Flushes(), DirWorkers("log-dir-news")
        self._registering = Registering(
            self.host, store, session, FailureRecords(settings.records),
            directory_ids(store), self.replicas.reopen,
        )  # fmt: skip
        self._news = DirNews(self._registering, session, settings.broker)
        self._controller: ControllerHost | None = None
        self.operator_requests = OperatorRequests(lambda: self._controller)
        self._is_closed = threading.Event()
        self._connecting = threading.Lock()  # guards the next field
        self._connections: WeakSet[PeerConnection] = WeakSet()
        self.reaches: Callable[[int], bool] = lambda _: True  # tests use this to isolate a broker
        self._ticker = threading.Thread(target=self._tick, name="cluster-ticks", daemon=True)
        self._was_held, self._ticks_to_news = True, 0  # only the ticker uses these three fields
        self._news_due: Piece | None = None
        seconds = settings.session_seconds or TICK_SECONDS
        self._tick_seconds = min(TICK_SECONDS, seconds / TICKS_PER_SESSION)
        self.alarms: list[tuple[str, int, str]] = []
        self.orphans = Orphans(self.alarm, settings.unknown_seconds)
        # Called after each change of a role. This function must neither wait nor call the replica.
        self.on_role: Callable[[HostedReplica], object] = lambda replica: None
        # Called in each tick while this broker has no lease, and once after it has a lease again.
        self.on_lease: Callable[[], object] = lambda: None

    def start(self, endpoints: Sequence[Endpoint], protocols: Mapping[str, str] = {}) -> None:
        """Register the broker and its log dirs, read the replicas, and stand for election.

        Raises:
            NodeExistsError: another session has registered this broker's id.
        """
        controller_store = ControllerStore(self._session, self.settings.broker)
        controller_store.prepare()
        # The replicas must be read before the controller can ask for a replica.
        # All log dirs work, so a replica that is not found would be created again (P17).
        self.replicas.open(self.store)
        self.store.add_listener(self._on_event)  # from now on, each failure is noticed
        self.replicas.look_at_dirs()  # a move may have ended after its replica was read
        with self._news.lock:
            session = self._session.current
            self._registering.register(endpoints, self.settings.rack, protocols)
            self.lease.begin(session)
        self._session.on_renewal(self._register_again)
        self._session.on_session(self._on_state)
        self._controller = ControllerHost(
            controller_store, self.settings.broker, self.connect,
            look_seconds=self.settings.look_seconds,
        )  # fmt: skip
        self._ticker.start()

    def close(self, shutdown_seconds: float = SHUTDOWN_SECONDS) -> None:
        """Leave the cluster: let other brokers lead, mark a clean stop, and end the registration.

        The store and the session stay open. The replicas keep their logs, but have no roles.

        Args:
            shutdown_seconds: the longest time to wait until other brokers lead the partitions of
                this broker.
        """
        if self._controller is not None and not self._is_closed.is_set():
            leaving = Departure(self.host, self._controller, self._find_controller, self.connect)
            leaving.wait(shutdown_seconds)
        self._stop()
        with self._news.lock:
            self.store.flush()
            self._registering.withdraw()

    def abandon(self) -> None:
        """Stop all threads, as if the process were killed. Write nothing."""
        self._stop()

    def _stop(self) -> None:
        self._is_closed.set()
        self.store.remove_listener(self._on_event)
        if self._controller is not None:
            self._controller.close()
        self._link.close()
        self._fetchers.close()
        self.lease.close()
        self.replicas.end_roles()
        self.replicas.close()
        self._flushes.close()
        self._reporter.close()

    @property
    def controller(self) -> ControllerHost | None:
        """The candidate on this broker for the role of controller; None before the start."""
        return self._controller

    # --- requests of other brokers ----------------------------------------------------------------

    def answer(self, request: Request) -> Answer | Pending:
        """Answer a request between brokers: from or to the controller, or a follower's Fetch.

        Raises:
            WireError, BadRequestError: the request cannot be read; close the connection.
        """
        if request.key == FOLLOWER_READS:
            return self.answer_follower(request, decode_fetch(request.body, request.version))
        name = {
            roles.API: "LeaderAndIsrRequest",
            stops.API: "StopReplicaRequest",
            metadata_updates.API: "UpdateMetadataRequest",
            isr_changes.API: "AlterPartitionRequest",
            shutdowns.API: "ControlledShutdownRequest",
        }[request.key]
        message = codec.read(name, request.version, Cursor(request.body))
        if request.key == roles.API:
            answer = answer_roles(message, self.host, self.replicas)
        elif request.key == stops.API:
            answer = answer_stops(message, self.host, self.replicas)
        elif request.key == metadata_updates.API:
            answer = answer_update(message, self.host, self.metadata)
        elif request.key == shutdowns.API:
            asked = shutdowns.decode_shutdown(message)
            answer = shutdowns.encode_remaining(*let_leave(self._controller, asked, ALTER_SECONDS))
        else:
            answer = self._answer_changes(message)
        return [encode_response(request.key, request.version, request.correlation_id, answer)]

    def answer_follower(self, request: Request, message: Any) -> Answer | Pending:
        """Answer the Fetch of a follower, from its decoded message. Raises BadRequestError."""
        asked = follower_reads.Asked(message, request.version, request.correlation_id)
        find, bytes_max, now = self.replicas.find, self.settings.limits.bytes_max, time.monotonic()
        return follower_reads.answer(asked, find, now, bytes_max, self.throttle)

    def _answer_changes(self, message: Any) -> Any:
        controller = self._controller
        try:
            changes = isr_changes.decode_changes(message)
        except BadRequestError:
            return AlterPartitionResponse(error_code=ErrorCode.INVALID_REQUEST)
        refused = None if controller is None else controller.alter(changes, ALTER_SECONDS)
        if refused is None:
            return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
        return isr_changes.encode_refusals(changes, refused)

    # --- what a replica asks for (Outbox) ---------------------------------------------------------

    def to_controller(self, name: str, request: Any) -> None:
        """Send a proposal, or let the controller ask why a replica lost its role."""
        if isinstance(request, AlterPartition):
            self._link.send(request)
        elif isinstance(request, RoleAnswer) and request.is_offline:
            self._news.announce_soon()

    def flush_soon(self, replica: HostedReplica) -> None:
        """Flush a replica's log in another thread."""
        if not self._is_closed.is_set():
            self._flushes.submit(replica)

    def changed_role(self, replica: HostedReplica) -> None:
        """Fetch for a follower from its leader."""
        self.on_role(replica)
        self._look_at_role(replica, is_new_role=True)

    def may_fetch(self, replica: HostedReplica) -> None:
        """Fetch at once for a follower that has flushed."""
        self._look_at_role(replica, is_new_role=False)

    def _look_at_role(self, replica: HostedReplica, *, is_new_role: bool) -> None:
        if replica.role is Role.FOLLOWER and (log := replica.log) is not None:
            self._fetchers.follow(replica, replica.leader, log.log_dir, is_new_role=is_new_role)
        else:
            self._fetchers.leave(replica)

    def alarm(self, name: str, number: int, reason: str) -> None:
        """Store the reason why a replica stopped, or why it belongs to no topic."""
        self.alarms.append((name, number, reason))

    # --- the rest ---------------------------------------------------------------------------------

    def _make_replica(self, name: str, number: int) -> HostedReplica:
        return HostedReplica(
            name, number, self.host, self.store, self, time.monotonic, self._config_of,
            self.settings.lag_seconds_max, lambda: self.lease.is_held,
        )  # fmt: skip

    def connect(self, broker: int) -> PeerConnection:
        """Make a new connection to another broker."""
        made = PeerConnection(
            lambda: self._address_of(broker), f"broker-{self.settings.broker}",
            security=self.settings.security,
        )  # fmt: skip
        with self._connecting:
            self._connections.add(made)
        return made

    def break_connections(self) -> None:
        """Break the connections to other brokers. If a connection is needed, it is made again."""
        with self._connecting:
            connections = tuple(self._connections)
        for connection in connections:
            connection.interrupt()

    def _address_of(self, broker: int) -> tuple[str, int]:
        """Read the address of a broker. Raises OSError if the broker is not registered."""
        if not self.reaches(broker):
            raise OSError(f"broker {broker} is cut off")
        path = znodes.broker_path(broker)
        try:
            znode = self._session.get(path)
        except CoordinationError as error:
            raise OSError(f"broker {broker} is not registered") from error
        node = znodes.parse_registration(znode.data, path, znode.czxid, znode.mzxid)
        return node.address_at(self.settings.security.listener)

    def _find_controller(self) -> int | None:
        try:
            znode = self._session.get(znodes.CONTROLLER)
        except NoNodeError:
            return None
        except CoordinationError as error:
            LOG.info("the controller is not known: %s", error)
            return None
        return znodes.parse_controller(znode.data)

    def _on_event(self, event: StoreEvent) -> None:
        """Report a changed log dir to the cluster, and a move of a replica to the rules."""
        if event.kind in LOG_DIR_CHANGES and event.log_dir is not None:
            if event.kind in (StoreEventKind.LOG_DIR_RETURNED, StoreEventKind.LOG_DIR_ADDED):
                # Read the replicas of the log dir before the log dir counts as good.
                # If some log dir is not good, no missing replica is created (P17).
                self.replicas.open_new(self.store)
            self._news.heard(event.kind, event.log_dir)
        elif event.kind is StoreEventKind.LOG_DIR_SUSPECT:  # replicas that hang cannot answer
            self._news.announce_soon()
        elif event.kind is StoreEventKind.REPLICA_MOVED and event.topic is not None:
            self.replicas.look_at_dir(event.topic, event.partition or 0)

    # --- the session ------------------------------------------------------------------------------

    def _register_again(self, session: Session) -> None:
        """Register in a new session. If this broker was the controller, its reign has ended."""
        with self._news.lock:
            if self._is_closed.is_set():
                return
            self._registering.register_again()
            self.lease.begin(session)
        if self._controller is not None:
            self._controller.session_ended()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and self._news.is_unannounced:
            self._news.repeat()

    def _tick(self) -> None:
        steps = (self._look_at_lease, self._repeat_news, self._tell_the_time)
        while not self._is_closed.wait(self._tick_seconds):
            for step in steps:
                try:
                    step()
                except Exception:
                    if not self._is_closed.is_set():
                        LOG.exception("a tick of broker %d failed", self.settings.broker)

    def _look_at_lease(self) -> None:
        was_held, self._was_held = self._was_held, self.lease.is_held
        if not (self._was_held and was_held):
            self.on_lease()

    def _repeat_news(self) -> None:
        self._ticks_to_news -= 1
        is_free = self._news_due is None or self._news_due.is_over.is_set()  # a disk may hang
        if self._news.is_due and self._was_held and self._ticks_to_news <= 0 and is_free:
            self._ticks_to_news = ANNOUNCE_TICKS
            self._news_due = self._reporter.submit("news", self._news.repeat)

    def _tell_the_time(self) -> None:
        self.replicas.tell_all(x.Tick(), lambda one: one.needs_ticks)
        self.orphans.look(self.replicas, self.metadata.view, time.monotonic())
