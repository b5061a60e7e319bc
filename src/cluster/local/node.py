"""Run one broker of a cluster in this process; it can be killed, cut off and restarted."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from broker.config import BrokerConfig
from broker.coordination.errors import NotConnectedError
from broker.coordination.verbs import Session
from cluster.local.gated_session import GatedSession
from cluster.peers.peer_security import PeerSecurity
from cluster.run.member import MemberSettings
from cluster.serve.cluster_broker import ClusterBroker
from cluster.sessions.lasting_session import LastingSession
from logstore import LogStore

LAG_SECONDS_MAX, LOOK_SECONDS = 3.0, 0.3
RETRY_SECONDS = 0.05


class NodeSettings(NamedTuple):
    """The settings that all brokers of a local cluster share.

    Attributes:
        connect: begins a session of the embedded store.
        session_seconds: if a session is cut off for this time, it ends.
        racks: the rack of each broker; the key is the broker id. A broker without an entry has no
            rack.
    """

    root: str
    log_dirs: int
    connect: Callable[[], Session]
    session_seconds: float
    config: Mapping[str, Any]
    racks: Mapping[int, str]


class Node:
    """A broker that can be killed, started again or cut off, and can lose a log dir.

    Attributes:
        id: the broker's id.
        paths: the log dirs of the broker.
        serving: the running broker; None while the broker is down.
        is_cut: whether the broker reaches neither the other brokers nor the coordination store.
    """

    def __init__(self, settings: NodeSettings, broker: int) -> None:
        """Prepare the broker; `start` starts it."""
        self.id = broker
        self.paths = [
            os.path.join(settings.root, f"broker-{broker}-disk-{number}")
            for number in range(settings.log_dirs)
        ]
        self.serving: ClusterBroker | None = None
        self.is_cut = False
        self._settings = settings
        self._ports: dict[str, int] = {}  # the ports of the listeners, by name
        self._store: LogStore | None = None
        self._session: LastingSession | None = None
        self._gated: GatedSession | None = None
        self._lock = threading.Lock()  # guards `is_cut` and `_gated`

    def start(self, may_reach: Callable[[int, int], bool]) -> None:
        """Start the broker, at the same port as before.

        Args:
            may_reach: returns whether a broker can reach another broker now.
        """
        shared = self._settings
        config = BrokerConfig.of(shared.config)
        listeners = ",".join(
            str(one._replace(port=self._ports.get(one.name, one.port))) for one in config.endpoints
        )
        config = replace(config, listeners=listeners)
        self._store = LogStore.open(
            self.paths,
            config=config.store_config.replace(log_config=config.log_config),
            admin_socket=False,
        )
        try:
            self._session = LastingSession(self._connect, RETRY_SECONDS)
            settings = MemberSettings(
                self.id, os.path.join(shared.root, f"records-{self.id}"),
                shared.racks.get(self.id, ""),
                lag_seconds_max=LAG_SECONDS_MAX, look_seconds=LOOK_SECONDS,
                session_seconds=shared.session_seconds,
                security=PeerSecurity.of(config),
            )  # fmt: skip
            self.serving = ClusterBroker(self._store, self._session, settings, config)
        except BaseException:
            self._release()
            raise
        self.serving.member.reaches = lambda other: may_reach(self.id, other)
        self._ports = {one.name: one.port for one in self.serving.broker.endpoints}

    def stop(self, timeout: float) -> None:
        """Stop the broker cleanly. If the broker is down, do nothing."""
        serving, self.serving = self.serving, None
        if serving is not None:
            serving.close(timeout)
            self._release()

    def kill(self) -> None:
        """End the broker like a SIGKILL: it neither leaves the cluster nor marks its log dirs.

        Written data stays in the page cache, so the broker finds it when it starts again.
        """
        serving, self.serving = self.serving, None
        if serving is not None:
            serving.abandon()
            self._release()

    def cut(self) -> None:
        """Cut the broker off from the coordination store, and break its connections."""
        with self._lock:
            self.is_cut = True
            gated = self._gated
        if gated is not None:
            gated.cut()
        self.break_connections()

    def heal(self) -> None:
        """Let the broker reach the coordination store again."""
        with self._lock:
            self.is_cut = False
            gated = self._gated
        if gated is not None:
            gated.heal()

    def break_connections(self) -> None:
        """Break the connections to other brokers. The broker makes allowed connections again."""
        if self.serving is not None:
            self.serving.member.break_connections()

    @property
    def store(self) -> LogStore:
        """The open store. Raises RuntimeError while the broker is down."""
        if self.serving is None or self._store is None:
            raise RuntimeError(f"broker {self.id} is down")
        return self._store

    def _connect(self) -> Session:
        with self._lock:
            if self.is_cut:
                raise NotConnectedError(0)
            self._gated = GatedSession(self._settings.connect(), self._settings.session_seconds)
            return self._gated

    def _release(self) -> None:
        if self._session is not None:
            self._session.close()
        if self._store is not None:
            self._store.close()
        self._session = self._store = None
