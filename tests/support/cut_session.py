"""Give a session of a ZooKeeper whose connection can be cut."""

from __future__ import annotations

from broker.coordination.verbs import Session, SessionState
from cluster.zookeeper import ZooKeeperStore
from support.heard import Heard
from support.tcp_link import TcpLink


class Cut:
    """A session whose connection can be cut, and one of the same store that keeps its own."""

    def __init__(self, link: TcpLink, store: ZooKeeperStore, other: Session) -> None:
        self.link, self.store, self.other = link, store, other
        self.session = store.connect()
        self.states = Heard[SessionState]()
        self.session.on_session(self.states)

    def cut(self) -> None:
        """Cut the connection, and wait until the session knows."""
        self.link.cut()
        self.states.until(SessionState.SUSPENDED)

    def heal(self) -> None:
        """Let the session connect again, and wait until it has."""
        self.link.heal()
        self.states.until(SessionState.CONNECTED)
