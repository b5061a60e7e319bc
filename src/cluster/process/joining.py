"""Join a cluster: begin a session, find the broker's id, and serve as that broker.

    join -> the session, the id          start -> is this the store that the log dirs remember?
                |                                  does another broker have the id?
                v                                             |
    the caller opens the store with the id                    v
    (meta.properties)                          /brokers/hosts, then `ClusterBroker`

`broker.cli` finds this module by its name. The command shows the errors of this module to its user:
LogStoreError, OSError, ImportError and CoordinationError.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from broker.catalog.dir_facts import remember_cluster
from broker.config import BrokerConfig
from broker.coordination.continuity import found_cluster
from broker.coordination.errors import CoordinationError, NotConnectedError, SessionExpiredError
from broker.coordination.verbs import Session, SessionKey
from broker.server import Broker
from cluster.errors import ClusterGrowthError, ClusterStartError
from cluster.peers.peer_security import PeerSecurity
from cluster.presence import broker_ids
from cluster.presence.records_place import records_dir
from cluster.process.cluster_store import ANSWER_MS, zookeeper_of
from cluster.process.store_memory import StoreMemory
from cluster.run.member import MemberSettings
from cluster.serve.cluster_broker import ClusterBroker
from cluster.sessions.lasting_session import LastingSession
from cluster.wire.follower_fetches import FetchLimits
from logstore import LogStore
from logstore.store.start.identity import resolve
from logstore.store.start.open_dirs import foresee

LOG = logging.getLogger("cluster")
# kazoo logs each failed try to connect, several times a second, and does not name ZooKeeper. The
# session of a broker logs once that ZooKeeper does not answer.
logging.getLogger("kazoo").setLevel(logging.ERROR)
Pause = Callable[[float], object]


@contextmanager
def join(
    log_dirs: Sequence[str], config: BrokerConfig, records: str, pause: Pause
) -> Iterator[Joined]:
    """Begin a session, and find the id of this broker.

    Args:
        records: the directory on tmpfs for the records of failed log dirs.
        pause: waits for some seconds; it may raise KeyboardInterrupt.

    Raises:
        ClusterStartError: ZooKeeper does not answer, or the credentials cannot be used.
        BrokerIdError: this broker cannot get an id.
        CoordinationError: ZooKeeper refuses a request.
    """
    zookeeper = zookeeper_of(config)
    # the imported module needs kazoo, so it is imported late
    from cluster.zookeeper_timeout import granted_timeout_ms

    where, wished_ms = config.zookeeper_connect, config.zookeeper_session_timeout_ms
    try:
        granted_ms = granted_timeout_ms(zookeeper.servers, wished_ms, ANSWER_MS / 1000)
        if granted_ms != wished_ms:
            LOG.warning(
                "ZooKeeper grants a session timeout of %d ms, not %d ms", granted_ms, wished_ms
            )
        session = LastingSession(zookeeper.connect)
    except (OSError, NotConnectedError) as error:
        raise ClusterStartError(reason=f"ZooKeeper at {where} does not answer: {error}") from error
    with _closing(session):
        host, dir_ids = socket.gethostname(), _ids_in(log_dirs)
        known = config.store_config.broker_id
        configured = known if known is not None and known >= 0 else None
        reserved = config.reserved_broker_max_id
        broker = broker_ids.find_id(session, configured, dir_ids, host, reserved)
        yield Joined(
            session, broker, host, config, records, granted_ms / 1000, pause, zookeeper.connect
        )


@contextmanager
def _closing(session: LastingSession) -> Iterator[None]:
    """End the session. If ZooKeeper does not answer, the session ends after its timeout."""
    try:
        yield
    finally:
        with suppress(CoordinationError):
            session.close()


def _ids_in(log_dirs: Sequence[str]) -> dict[str, int | None]:
    """Read the broker id in the meta.properties of each log dir; None for a new log dir.

    If every meta.properties is lost, opening the store would give the log dirs the id 0. So in this
    case, the ids in the log dirs are ignored, and the coordination store gives the id of this host.
    """
    facts, roll = foresee(resolve(log_dirs), broker_id=None)
    is_known = any(one.meta is not None for one in facts)
    return {
        one.path: one.meta.broker_id if is_known and not one.is_new else None
        for one in roll.members
    }


def check_store(log_dirs: Sequence[str]) -> None:
    """Check that there is a store in the log dirs.

    Raises:
        ClusterGrowthError: all log dirs are new, so there is nothing that could grow.
    """
    if all(one is None for one in _ids_in(log_dirs).values()):
        named = ", ".join(log_dirs)
        raise ClusterGrowthError(
            reason=f"there is no store in {named}: check the paths of the log dirs. A new broker "
            "needs no `grow`: start it with --zookeeper"
        )


class Grown(NamedTuple):
    """The result of `Joined.grow`.

    Attributes:
        new_topics: the names of the topics that are new in the cluster.
        document_count: how many documents were copied: users, quotas, and patterns with ACLs.
    """

    broker: int
    new_topics: list[str]
    partition_count: int
    document_count: int


class Joined:
    """A broker that has an id and a session; `start` registers it.

    Attributes:
        broker: the id.
    """

    def __init__(
        self,
        session: LastingSession,
        broker: int,
        host: str,
        config: BrokerConfig,
        records: str,
        session_seconds: float,
        pause: Pause,
        connect: Callable[[SessionKey], Session],
    ) -> None:
        """Use `join` instead.

        Args:
            connect: takes over the session of an earlier process.
        """
        self.broker = broker
        self._session, self._host, self._config = session, host, config
        self._records, self._session_seconds = records, session_seconds
        self._pause, self._connect = pause, connect

    @contextmanager
    def start(self, store: LogStore) -> Iterator[Broker]:
        """Serve an open store as this broker, until the end of the `with` block.

        Raises:
            ContinuityError: ZooKeeper was wiped, or restored from a copy. Nothing has been changed.
            BrokerIdError: another broker is registered with this id.
            ClusterStartError: there is no directory for the records of failed log dirs.
        """
        with self._serving(store) as serving:
            remember_cluster(store, self._config.zookeeper_connect)
            yield serving.broker

    @contextmanager
    def _serving(self, store: LogStore) -> Iterator[ClusterBroker]:
        session, memory = self._session, StoreMemory(store, self.broker)
        records = records_dir(self._records, store.cluster_id)
        memory.check(session)
        self._claim(memory)
        found_cluster(session, store.cluster_id)
        memory.remember(session)
        memory.keep_session(session.key)

        def renewed(made: Session) -> None:
            """If the store is still the same store, continue in a new session."""
            memory.check(made)
            memory.keep_session(made.key)

        session.on_renewal(renewed)
        broker_ids.write_host(session, self._host, self.broker)
        settings = MemberSettings(
            self.broker, records, self._config.broker_rack,
            lag_seconds_max=self._config.replica_lag_time_max_ms / 1000,
            limits=FetchLimits(
                bytes_max=self._config.replica_fetch_response_max_bytes,
                partition_bytes_max=self._config.replica_fetch_max_bytes,
            ),
            session_seconds=self._session_seconds,
            security=PeerSecurity.of(self._config),
        )  # fmt: skip
        serving = ClusterBroker(store, session, settings, self._config)
        try:
            memory.start(session)
            yield serving
        finally:
            memory.close()
            self._leave(serving, memory)

    def grow(self, store: LogStore) -> Grown:
        """Bring the topics of a store into this cluster, and stop the broker again.

        The ACLs, quotas and users are copied, too.

        Raises:
            ClusterGrowthError: another broker is registered, a topic cannot join the cluster, a
                topic gets no leader, or the cluster has ACLs, quotas or users of its own.
            ContinuityError, BrokerIdError, ClusterStartError: see `start`.
        """
        from cluster.process import growing, grown_documents

        topics, documents = growing.topics_of(store), grown_documents.documents_of(store)
        growing.check_alone(self._session, self.broker)
        growing.check_names(self._session, topics)
        grown_documents.check_documents(self._session, documents)
        with self._serving(store) as serving:
            # The ACLs are written before the topics, so each topic has its ACLs from the start.
            count = grown_documents.take_documents(self._session, documents)
            made = growing.adopt(self._session, self.broker, topics)
            growing.wait_until_led(serving.member.metadata, topics)
            remember_cluster(store, self._config.zookeeper_connect)
        return Grown(self.broker, made, sum(len(one.record.ids) for one in topics), count)

    def _leave(self, serving: ClusterBroker, memory: StoreMemory) -> None:
        """Stop cleanly, even if ZooKeeper does not answer."""
        try:
            serving.close()
            memory.remember(self._session)
        except CoordinationError as error:
            LOG.warning("ZooKeeper ends the session of this broker later: %s", error)

    def _claim(self, memory: StoreMemory) -> None:
        """Wait until this broker's id is free; end the session of a process that has ended."""
        broker_ids.claim(
            self._session, self.broker, memory.kept_sessions(), self._end,
            self._session_seconds, self._pause,
        )  # fmt: skip

    def _end(self, key: SessionKey) -> None:
        """End the session of a process that has ended."""
        LOG.warning("the session of this broker's last process was ended")
        with suppress(SessionExpiredError):
            self._connect(key).close()
