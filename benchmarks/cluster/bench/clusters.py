"""Run a cluster of three brokers: those of this project with a ZooKeeper, or Apache Kafka's."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.broker.bench import Server
from benchmarks.broker.clients import settings
from benchmarks.broker.server import BrokerProcess, Usage, usage_of
from benchmarks.kafka.broker import TOOLS, Member, free_port, new_cluster_id
from benchmarks.kafka.broker import Broker as KafkaBroker
from support.zookeeper_process import zookeeper

BROKERS = (1, 2, 3)
MIN_ISR = 2
HEAP = "512m"
WAIT_SECONDS_MAX = 400.0  # busy cores and a slow disk make 3,000 replicas in some minutes
LOOK_SECONDS = 0.05
LOOK_SHARE = 0.1  # to look takes no more than this share of the time: answers may be large
IN_MEMORY = "/dev/shm"  # a tmpfs, which a broker of a cluster needs


class Cluster:
    """Three brokers, and the processes that they need beside them.

    Attributes:
        address: the addresses of all brokers, for `bootstrap.servers`.
        place: a directory on the file system of the log dirs.
    """

    def __init__(
        self,
        place: Path,
        servers: Mapping[int, Server],
        others: Mapping[str, int],
        controller: Callable[[], int] | None = None,
    ) -> None:
        """Start no broker.

        Args:
            others: the ids of the further processes that count for the cluster, by name.
            controller: finds the controller; by default, the metadata of clients name it.
        """
        self.place, self.servers, self.others = place, servers, others
        self.address = ",".join(server.address for server in servers.values())
        self._controller = controller
        self._admin: AdminClient | None = None

    def start(self) -> None:
        """Start all brokers, and wait until each of them knows the others."""
        for server in self.servers.values():
            server.spawn()
        self.wait_for(lambda: len(self.metadata().brokers) == len(self.servers))

    def check(self) -> None:
        """Raise an error if no broker runs; the error shows what they have printed."""
        if not any(server.is_alive() for server in self.servers.values()):
            outputs = sorted(self.place.glob("*/output")) + sorted(self.place.glob("*/*/output"))
            said = [path.read_text("utf-8", "replace")[-1000:] for path in outputs]
            raise RuntimeError("all brokers have ended:\n" + "\n".join(said))

    def close(self) -> None:
        """End all brokers; they are killed, because nothing that they wrote is needed any more."""
        for broker, server in self.servers.items():
            if server.is_alive():
                self.kill(broker)

    def usage(self) -> Usage:
        """Sum up what all processes of the cluster have used."""
        pids = [server.pid for server in self.servers.values()] + [*self.others.values()]
        found = [usage_of(pid) for pid in pids]
        return Usage(*(sum(column) for column in zip(*found, strict=True)))

    def resident(self) -> dict[str, float]:
        """Read the resident memory of each process, in MiB."""
        pids = {f"broker {broker}": server.pid for broker, server in self.servers.items()}
        return {name: usage_of(pid).resident_mib for name, pid in (pids | {**self.others}).items()}

    # --- faults -----------------------------------------------------------------------------------

    def kill(self, broker: int) -> None:
        """End a broker with SIGKILL."""
        server = self.servers[broker]
        os.kill(server.pid, signal.SIGKILL)
        server.stop()  # it waits for the end

    def freeze(self, broker: int) -> None:
        """Stop the process of a broker with SIGSTOP; only a kill ends that."""
        os.kill(self.servers[broker].pid, signal.SIGSTOP)

    def restart(self, broker: int, topic: str) -> None:
        """Start a broker again after its death, and wait until its replicas are in sync."""
        self.servers[broker].spawn()
        self.wait_in_sync(topic)

    # --- what clients see -------------------------------------------------------------------------

    def metadata(self) -> Any:
        """Ask any broker for the metadata of all topics."""
        if self._admin is None:
            self._admin = AdminClient(settings(self.address))
        return self._admin.list_topics(timeout=5.0)

    def controller(self) -> int:
        """Find the controller."""
        found: int = (
            self.metadata().controller_id if self._controller is None else self._controller()
        )
        return found

    def leaders(self, topic: str) -> dict[int, int]:
        """Give the leader of each partition."""
        rows = self.metadata().topics[topic].partitions
        return {number: row.leader for number, row in rows.items()}

    def wait_in_sync(self, topic: str) -> None:
        """Wait until each partition of a topic has a leader, and all replicas are in sync."""

        def is_in_sync() -> bool:
            found = self.metadata().topics.get(topic)
            rows = [] if found is None else found.partitions.values()
            return bool(rows) and all(
                row.leader >= 0 and len(row.isrs) == len(self.servers) for row in rows
            )

        self.wait_for(is_in_sync)

    def wait_for(self, is_done: Callable[[], bool]) -> None:
        """Wait for what clients shall see; a broker may not answer yet."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while (began := time.monotonic()) < deadline:
            try:
                if is_done():
                    return
            except KafkaException:
                self.check()
            time.sleep(max(LOOK_SECONDS, (time.monotonic() - began) / LOOK_SHARE))
        raise RuntimeError(f"not within {WAIT_SECONDS_MAX:g} s: {is_done.__qualname__}")

    @contextmanager
    def topic(self, name: str, partitions: int = 1) -> Iterator[None]:
        """Create a topic with a replica on each broker; delete it, but not after an error."""
        self.create(name, partitions)
        yield
        assert self._admin is not None
        self._admin.delete_topics([name])[name].result(WAIT_SECONDS_MAX)

    def create(self, name: str, partitions: int) -> None:
        """Create a topic, and wait until all replicas are in sync."""
        self.metadata()
        assert self._admin is not None
        wish = NewTopic(
            name, partitions, len(self.servers), config={"min.insync.replicas": str(MIN_ISR)}
        )
        seconds = WAIT_SECONDS_MAX
        made = self._admin.create_topics([wish], request_timeout=seconds, operation_timeout=seconds)
        made[name].result(seconds)
        self.wait_in_sync(name)


@contextmanager
def _place(base: str) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="cluster-", dir=base))
    try:
        for broker in BROKERS:
            (place / str(broker) / "logs").mkdir(parents=True)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def running(cluster: Cluster) -> Iterator[Cluster]:
    """Run all brokers during a block."""
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@contextmanager
def ours(base: str) -> Iterator[Cluster]:
    """Run three `logstore broker` with a ZooKeeper that syncs each change, as Kafka's quorum."""
    with (
        _place(base) as place,
        zookeeper(syncs=True) as keeper,
        tempfile.TemporaryDirectory(prefix="logstore-bench-", dir=IN_MEMORY) as records,
    ):
        servers = {}
        for broker in BROKERS:
            words = "--zookeeper", keeper.hosts, "--broker-id", str(broker)
            more = (*words, "--records", f"{records}/{broker}")
            output = str(place / str(broker) / "output")
            servers[broker] = BrokerProcess([str(place / str(broker) / "logs")], output, more)
        with running(Cluster(place, servers, {"ZooKeeper": keeper.pid})) as cluster:
            yield cluster


@contextmanager
def kafka(home: Path, base: str) -> Iterator[Cluster]:
    """Run three brokers of Kafka, each of which is also a controller of the quorum."""
    with _place(base) as place:
        ports = {broker: free_port() for broker in BROKERS}
        voters = ",".join(f"{broker}@localhost:{port}" for broker, port in ports.items())
        servers: dict[int, KafkaBroker] = {}
        cluster_id = new_cluster_id(home)
        for broker, port in ports.items():
            log_dirs = [str(place / str(broker) / "logs")]
            member = Member(broker, port, voters, cluster_id, HEAP)
            servers[broker] = KafkaBroker(home, log_dirs, is_started=False, member=member)

        def controller() -> int:
            first = servers[BROKERS[0]]
            said = first.run(
                f"{TOOLS}.MetadataQuorumCommand", "--bootstrap-server", cluster.address,
                "describe", "--status",
            )  # fmt: skip
            return leader_of(said)

        with running(Cluster(place, servers, {}, controller)) as cluster:
            yield cluster


def leader_of(status: str) -> int:
    """Read the active controller from what Kafka's tool prints of its quorum."""
    found = re.search(r"^LeaderId:\s+(\d+)", status, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"the quorum has no leader:\n{status}")
    return int(found[1])
