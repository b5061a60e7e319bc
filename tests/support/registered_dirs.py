"""A broker's registration, and two log dirs that it attests, without anything else."""

from __future__ import annotations

from pathlib import Path

from broker.coordination.verbs import Session
from broker.listener_config import Endpoint
from cluster.presence.dir_facts import FailureRecords, directory_ids
from cluster.presence.registering import Registering
from cluster.pure.attest import Host
from logstore import LogStore
from support.inside import abandon

ENDPOINTS = [Endpoint("PLAINTEXT", "b1", 9092)]


class Broker:
    """A broker's log dirs, and its registration."""

    def __init__(self, root: Path, session: Session, *, has_own_ids: bool = True) -> None:
        """Open the store; `has_own_ids` gives the log dirs short ids in place of theirs."""
        self.store = LogStore.open([root / "a", root / "b"], admin_socket=False)
        self.session = session
        self.host = Host(1, tuple(self.store.log_dirs))
        self.ended: list[str] = []
        self.ids = directory_ids(self.store)
        if has_own_ids:
            self.ids = {path: f"id-{Path(path).name}" for path in self.store.log_dirs}
        self.records = FailureRecords(str(root / "records"))
        self.registering = Registering(
            self.host, self.store, session, self.records, self.ids, self.ended.append
        )

    def start(self) -> Broker:
        self.registering.register(ENDPOINTS)
        return self

    def kill(self) -> None:
        self.session.close()
        abandon(self.store)

    @property
    def since(self) -> list[int]:
        return [self.host.dirs[path].whole_since for path in self.store.log_dirs]
