"""Give Kafka's tools three brokers with two log dirs each: of this cluster, or of a real Kafka."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from benchmarks.kafka.broker import free_port
from support import kafka_peer
from support.cluster_processes import BrokerProcesses
from support.kafka_tools import NamedServer
from support.zookeeper_process import zookeeper

BROKERS = (1, 2, 3)
DIRS = "ab"
SESSION_MS = 6000
# What both kinds of brokers are told, beside what `BrokerProcesses` tells ours.
SETTINGS: dict[str, object] = {
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.replication.factor": 3,
    "group.initial.rebalance.delay.ms": 0,
    "super.users": "User:ANONYMOUS",  # the tools do not authenticate
    # Kafka lets a throttled fetch have one batch of each partition, so these are small.
    "replica.fetch.max.bytes": 20_000,
}
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
KAFKA_SETTINGS: dict[str, object] = {
    **SETTINGS,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 5000,
    "broker.session.timeout.ms": SESSION_MS,
    "broker.heartbeat.interval.ms": 500,
    # A broker notices that a log dir has failed when it writes this checkpoint.
    "replica.high.watermark.checkpoint.interval.ms": 500,
    "transaction.state.log.min.isr": 2,
    "auto.leader.rebalance.enable": "false",
    "authorizer.class.name": AUTHORIZER,
}
HEAP = "256m"


class ClusterServer(NamedServer):
    """Three brokers, each with the log dirs `<1 a>`, `<1 b>` and so on.

    A script changes a cluster by these words:

        kill 3       end a broker by SIGKILL
        start 3      start it again
        break 2 a    take a log dir away, as a disk that fails
        mend 2 a     put it back; the broker notices this at its next start
    """

    def __init__(self, place: Path, addresses: list[str]) -> None:
        super().__init__(place, ",".join(addresses))
        self._addresses = addresses

    def dir(self, broker: int | str, name: str) -> Path:
        """A log dir of a broker."""
        return self.place / f"{broker}-{name}"

    def change(self, words: str) -> None:
        """Do what a line of a script says."""
        verb, broker, *names = words.split()
        changes: dict[str, Callable[[int], None]] = {"kill": self.kill, "start": self.start}
        if verb in changes:
            changes[verb](int(broker))
            return
        path = self.dir(broker, *names)
        taken = path.with_suffix(".taken")
        if verb == "break":
            path.rename(taken)
            path.touch()  # nothing can be written into a file
        else:
            assert verb == "mend", words
            path.unlink()
            taken.rename(path)

    def kill(self, broker: int) -> None:
        """End a broker by SIGKILL."""
        raise NotImplementedError

    def start(self, broker: int) -> None:
        """Start a broker that was killed, and wait until it serves."""
        raise NotImplementedError

    def close(self) -> None:
        """End all brokers."""
        raise NotImplementedError

    def _names(self) -> dict[str, str]:
        dirs = {f"<{one} {name}>": str(self.dir(one, name)) for one in BROKERS for name in DIRS}
        brokers = {f"<broker {one}>": self._addresses[one - 1] for one in BROKERS}
        return dirs | super()._names() | brokers


class OwnCluster(ClusterServer):
    """Three processes `logstore broker`, and a ZooKeeper."""

    def __init__(self, place: Path) -> None:
        lines = [f"{name}={value}" for name, value in SETTINGS.items()]
        lines.append("authorizer.class.name=kafka.security.authorizer.AclAuthorizer\n")
        with ExitStack() as stack:
            hosts = stack.enter_context(zookeeper()).hosts
            self._brokers = BrokerProcesses(place, hosts, BROKERS, SESSION_MS, "\n".join(lines))
            stack.callback(self._brokers.close)
            super().__init__(place, self._brokers.servers.split(","))
            self._brokers.start(*BROKERS)
            self._stack = stack.pop_all()

    def kill(self, broker: int) -> None:
        self._brokers.kill(broker)

    def start(self, broker: int) -> None:
        self._brokers.start(broker)

    def close(self) -> None:
        self._stack.close()


class KafkaCluster(ClusterServer):
    """Three real brokers; broker 1 is also the controller, so it is never killed."""

    def __init__(self, place: Path) -> None:
        control = free_port()
        self._brokers = {}
        for broker in BROKERS:
            home = place / f"broker-{broker}"
            home.mkdir()
            settings = {name.replace(".", "_"): value for name, value in KAFKA_SETTINGS.items()}
            self._brokers[broker] = kafka_peer.Broker(
                home, [place / f"{broker}-{name}" for name in DIRS],
                kafka_peer.Seat(broker, control, HEAP),
                log_segment_delete_delay_ms=None, broker_rack=f"r{broker}", **settings,
            )  # fmt: skip
        super().__init__(place, [one.bootstrap for one in self._brokers.values()])
        cluster = kafka_peer.new_cluster_id()
        with ExitStack() as stack:
            stack.callback(self.close)
            with ThreadPoolExecutor(len(BROKERS)) as pool:
                list(pool.map(lambda one: one.format(cluster), self._brokers.values()))
                list(pool.map(kafka_peer.Broker.start, self._brokers.values()))
            stack.pop_all()

    def kill(self, broker: int) -> None:
        self._brokers[broker].kill()

    def start(self, broker: int) -> None:
        self._brokers[broker].start()

    def close(self) -> None:
        for one in self._brokers.values():
            one.kill()
