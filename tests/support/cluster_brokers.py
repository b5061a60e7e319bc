"""Brokers of a cluster, in this process and with real sockets, that serve Kafka's clients."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from broker.config import BrokerConfig
from broker.coordination.embedded import EmbeddedStore
from cluster.pure.replica import Role
from cluster.run.member import MemberSettings
from cluster.serve.cluster_broker import ClusterBroker
from cluster.sessions.lasting_session import LastingSession
from logstore import LogStore
from support.inside import abandon
from support.kafka_client import KafkaClient
from support.replica_nodes import wait_until

SECONDS = 60.0  # also a crowded machine is faster


class Running:
    """One broker, with its store and session."""

    def __init__(self, cluster: ClusterBrokers, broker: int) -> None:
        self.id = broker
        self.paths = [cluster.root / f"{broker}-{name}" for name in cluster.dir_names(broker)]
        self.store = LogStore.open(self.paths, admin_socket=False)
        self.session = LastingSession(cluster.coordination.connect)
        settings = MemberSettings(
            broker,
            str(cluster.root / f"records-{broker}"),
            lag_seconds_max=cluster.lag_seconds_max,
            look_seconds=0.3,
        )
        config = BrokerConfig(
            listeners=f"PLAINTEXT://127.0.0.1:{cluster.ports.get(broker, 0)}", **cluster.config
        )
        self.broker = ClusterBroker(self.store, self.session, settings, config)
        cluster.ports[broker] = self.broker.broker.endpoints[0].port
        self.is_up = True

    @property
    def servers(self) -> str:
        """The address for clients."""
        return self.broker.bootstrap_servers

    def kill(self) -> None:
        """Die: sockets, threads and session end; the page cache keeps what was written."""
        self.is_up = False
        self.broker.abandon()
        self.session.close()
        abandon(self.store)

    def stop(self) -> None:
        """Leave in order."""
        if self.is_up:
            self.is_up = False
            self.broker.close(1.0)
            self.session.close()
            self.store.close()


class ClusterBrokers:
    """A cluster; each broker keeps its port when it is started again."""

    def __init__(
        self,
        root: Path,
        brokers: Iterable[int] = (1, 2, 3),
        dirs: int = 1,
        lag_seconds_max: float = 3.0,
        **config: Any,
    ) -> None:
        self.root, self.dirs, self.config = root, dirs, config
        self.lag_seconds_max = lag_seconds_max
        (root / "coordination").mkdir(parents=True)
        self.coordination = EmbeddedStore([str(root / "coordination")])
        self.admin = self.coordination.connect()
        self.ports: dict[int, int] = {}
        self.configured: dict[int, list[str]] = {}
        self.running: dict[int, Running] = {}
        for broker in brokers:
            self.start(broker)
        wait_until(self.know_each_other, SECONDS)

    def dir_names(self, broker: int) -> list[str]:
        """Name the log dirs in the configuration of a broker; a test may change them."""
        return self.configured.setdefault(broker, [str(number) for number in range(self.dirs)])

    def know_each_other(self) -> bool:
        """Check that each broker that runs knows all others, and the controller."""
        up = self.up()
        ids = {one.id for one in up}
        views = [one.broker.member.metadata.view for one in up]
        return all(view.brokers.keys() == ids and view.controller_id in ids for view in views)

    def start(self, broker: int) -> Running:
        self.running[broker] = Running(self, broker)
        return self.running[broker]

    def up(self) -> list[Running]:
        """List the brokers that run."""
        return [one for one in self.running.values() if one.is_up]

    def __getitem__(self, broker: int) -> Running:
        return self.running[broker]

    def __enter__(self) -> ClusterBrokers:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.running.values():
            one.stop()
        self.coordination.close()

    @property
    def servers(self) -> str:
        """The addresses of the brokers that run."""
        return ",".join(one.servers for one in self.up())

    def leader(self, name: str, partition: int = 0, other_than: int = -1) -> Running:
        """Wait until all brokers name the same leader of a partition, and it leads; give it."""
        found: list[int] = []

        def look() -> bool:
            views = [one.broker.member.metadata.view.topics.get(name) for one in self.up()]
            known = {-1 if one is None else one.partitions[partition].leader for one in views}
            found[:] = known
            if len(known) > 1 or known & {-1, other_than}:
                return False
            # The metadata may be faster than the leader's request.
            replica = self.running[found[0]].broker.member.replicas.at(name, partition)
            return replica is not None and replica.role is Role.LEADER and replica.log is not None

        wait_until(look, SECONDS)
        return self.running[found[0]]

    def wait_in_sync(self, name: str, *brokers: int) -> None:
        """Wait until the in-sync replicas of all partitions are these, as all brokers know it."""
        wanted = set(brokers)
        wait_until(
            lambda: all(
                set(partition.isr) == wanted
                for one in self.up()
                for partition in one.broker.member.metadata.view.topics[name].partitions.values()
            ),
            SECONDS,
        )

    def client(self, broker: int) -> KafkaClient:
        """Connect to one broker."""
        return KafkaClient(self.running[broker].servers)
