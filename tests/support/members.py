"""Members of a cluster in this process: one embedded coordination store, real sockets and logs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

from broker.config import BrokerConfig
from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import NoNodeError
from broker.coordination.verbs import Store
from broker.machines.exchange import Answer, Client, Pending
from broker.net.server import Server
from broker.wire.frames import parse_request
from broker.wire.versions import ApiVersions
from cluster import znodes
from cluster.admin.settings_sync import SettingsSync
from cluster.admin.topic_changes import TopicChanges
from cluster.pure import exchange as x
from cluster.pure.replica import Role
from cluster.run.hosted_replica import HostedReplica
from cluster.run.member import ClusterMember, MemberSettings
from cluster.sessions.lasting_session import LastingSession
from cluster.wire.topic_ids import text_of
from logstore import AppendInfo, Log, LogConfig, LogStore, LogStoreError
from support.inside import abandon
from support.replica_nodes import WaitingProduce, wait_until

APIS = ApiVersions(("base", "cluster"))
KAFKA = LogConfig(record_format="kafka")


class Member:
    """One broker: store, session, member and server."""

    def __init__(self, cluster: Members, broker: int, dirs: int) -> None:
        self.broker, self.cluster = broker, cluster
        self.paths = [cluster.root / f"{broker}-{number}" for number in range(dirs)]
        self.store = LogStore.open(self.paths, admin_socket=False)
        self.session = LastingSession(cluster.store_of(broker).connect, 0.05)
        settings = MemberSettings(
            broker, str(cluster.root / f"records-{broker}"), lag_seconds_max=3.0, look_seconds=0.3,
            session_seconds=cluster.session_seconds, unknown_seconds=cluster.unknown_seconds,
        )  # fmt: skip
        self.sync = SettingsSync(self.session, self.store, KAFKA)
        self.member = ClusterMember(settings, self.store, self.session, self.sync.config_of)
        self.changes = TopicChanges(self.session, self.member.metadata, BrokerConfig.of(None))
        self.server = Server(BrokerConfig.of(None), self.handle)
        self.server.start()
        self.member.start([self.server.listeners[0].endpoint])
        self.sync.start()
        self.is_up = True

    def handle(self, frame: memoryview, client: Client) -> Answer | Pending:
        return self.member.answer(parse_request(frame, APIS))

    def replica(self, name: str, number: int = 0) -> HostedReplica | None:
        return self.member.replicas.at(name, number)

    def kill(self) -> None:
        """Die: sockets, threads and session end; the page cache keeps what was written."""
        self.is_up = False
        self.server.stop(0.0)
        self.sync.close()
        self.member.abandon()
        self.session.close()
        abandon(self.store)

    def stop(self) -> None:
        """Leave in order."""
        if self.is_up:
            self.is_up = False
            self.sync.close()
            self.member.close()
            self.server.stop(1.0)
            self.session.close()
            self.store.close()


class Members:
    """A cluster of members."""

    def __init__(
        self,
        root: Path,
        brokers: Iterable[int] = (1, 2, 3),
        dirs: int = 1,
        store_of: Callable[[int], Store] | None = None,
        session_seconds: float | None = None,
        unknown_seconds: float = 30.0,
    ) -> None:
        """Start the brokers.

        Args:
            store_of: gives the way of a broker to the coordination store, and of the administrator,
                who is broker 0. By default, there is an embedded store.
        """
        self.root, self.dirs, self.session_seconds = root, dirs, session_seconds
        self.unknown_seconds = unknown_seconds
        self.embedded: EmbeddedStore | None = None
        if store_of is None:
            (root / "coordination").mkdir(parents=True)
            embedded = self.embedded = EmbeddedStore([str(root / "coordination")])
            store_of = lambda _: embedded  # noqa: E731 - one line says it
        self.store_of = store_of
        self.admin = store_of(0).connect()
        self.members: dict[int, Member] = {}
        for broker in brokers:
            self.start(broker)

    def start(self, broker: int) -> Member:
        self.members[broker] = Member(self, broker, self.dirs)
        return self.members[broker]

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as left:
            if self.embedded is not None:
                left.callback(self.embedded.close)
            left.callback(self.admin.close)
            for member in self.members.values():
                left.callback(member.stop)

    def create(self, name: str, partitions: dict[int, list[int]], **settings: str) -> None:
        """Create a topic in the store, as an administrator's request does."""
        keys = {key.replace("_", "."): value for key, value in settings.items()}
        self.admin.create(znodes.config_path(name), znodes.encode_config(keys))
        topic_id = text_of(f"{name}-{self.admin.zxid()}".encode().ljust(16, b".")[:16])
        self.admin.create(znodes.topic_path(name), znodes.encode_topic(topic_id, partitions))

    def delete(self, name: str) -> None:
        """Delete a topic from the store, as an administrator's request does."""
        parent = f"{znodes.topic_path(name)}/partitions"
        for number in self.admin.children(parent):
            self.admin.delete(f"{parent}/{number}/state")
            self.admin.delete(f"{parent}/{number}")
        for path in (parent, znodes.topic_path(name), znodes.config_path(name)):
            self.admin.delete(path)

    def controller(self) -> int:
        """Find the broker that is the controller; -1 if there is none now."""
        try:
            found = znodes.parse_controller(self.admin.get(znodes.CONTROLLER).data)
        except NoNodeError:
            return -1
        return -1 if found is None else found

    def leader(self, name: str, number: int = 0, other_than: int = -1) -> Member | None:
        """Find the member that leads a partition now, as far as it knows itself."""
        for member in self.members.values():
            replica = member.replica(name, number) if member.is_up else None
            is_leader = replica is not None and replica.role is Role.LEADER
            if is_leader and member.broker != other_than:
                return member
        return None

    def wait_for_leader(self, name: str, number: int = 0, other_than: int = -1) -> Member:
        found: list[Member] = []

        def look() -> bool:
            member = self.leader(name, number, other_than)
            found[:] = [] if member is None else [member]
            return bool(found)

        wait_until(look)
        return found[0]

    def produce(self, name: str, *values: bytes, number: int = 0, acks: int = -1) -> None:
        """Append with acks=all, and try again until it is acknowledged."""
        self._produce(lambda: self.leader(name, number), name, number, values, acks)

    def produce_to(self, member: Member, name: str, *values: bytes, number: int = 0) -> None:
        """Append with acks=all to one member, and try again until it is acknowledged."""
        self._produce(lambda: member, name, number, values, -1)

    def _produce(
        self,
        find: Callable[[], Member | None],
        name: str,
        number: int,
        values: Iterable[bytes],
        acks: int,
    ) -> None:
        pause = threading.Event()
        for _ in range(400):
            member = find()
            replica = None if member is None else member.replica(name, number)
            if replica is not None:
                produce = produce_of(values)
                with suppress(LogStoreError):  # a thread hangs with the replica: try again
                    replica.tell(x.Produced(produce, acks))
                    produce.wait()
                if produce.acknowledged is not None:
                    return
            pause.wait(0.05)
        raise AssertionError("no produce was acknowledged")


def produce_of(values: Iterable[bytes]) -> WaitingProduce:
    """Make a produce of some values."""

    def append(log: Log, leader_epoch: int) -> AppendInfo:
        log.leader_epoch = max(log.leader_epoch, leader_epoch)
        offsets = log.extend(list(values))
        return AppendInfo(offsets.start, offsets.stop - 1, -1, log.log_start_offset, -1)

    return WaitingProduce(append)
