"""Run brokers of a cluster as processes of their own, and a producer that outlives their deaths."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from support.places import environment
from support.replica_nodes import wait_until
from support.zookeeper_process import free_port

# How often a test kills; `make kill-cluster` sets it.
KILLS = int(os.environ.get("LOGSTORE_CLUSTER_KILLS", "3"))
SECONDS = 60.0
IN_FLIGHT_MAX = 300
# What a broker answers until it, and enough others, are registered in a new session.
NOT_YET = (
    confluent_kafka.KafkaError.NOT_CONTROLLER,
    confluent_kafka.KafkaError.INVALID_REPLICATION_FACTOR,
)
FILE = """
zookeeper.connect={hosts}
zookeeper.session.timeout.ms={session_ms}
replica.lag.time.max.ms=5000
broker.id={broker}
broker.rack=r{broker}
listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={dirs}
default.replication.factor=3
min.insync.replicas=2
"""


class BrokerProcesses:
    """Processes `logstore broker`; each has two log dirs."""

    def __init__(
        self, base: Path, hosts: str, brokers: Sequence[int], session_ms: int, extra: str = ""
    ) -> None:
        self.base, self.brokers = base, tuple(brokers)
        self._ports = {broker: free_port() for broker in brokers}
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        for broker in brokers:
            dirs = ",".join(map(str, self.dirs(broker)))
            text = (FILE + extra).format(
                hosts=hosts, session_ms=session_ms, broker=broker, dirs=dirs,
                port=self._ports[broker],
            )  # fmt: skip
            (base / f"{broker}.properties").write_text(text)

    @property
    def servers(self) -> str:
        """The addresses of all brokers, for `bootstrap.servers`."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def dirs(self, broker: int) -> list[Path]:
        """The log dirs of a broker."""
        return [self.base / f"{broker}-{name}" for name in "ab"]

    def start(self, *brokers: int) -> None:
        """Start brokers, and wait until they serve."""
        for broker in brokers:
            with self._output(broker).open("ab") as out:
                self._running[broker] = subprocess.Popen(
                    [
                        sys.executable, "-m", "logstore.cli", "broker",
                        "--config", str(self.base / f"{broker}.properties"),
                        "--records", str(self.base / "records"),
                    ],
                    stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment(),
                )  # fmt: skip
        for broker in brokers:
            wait_until(partial(self._is_serving, broker), SECONDS)

    def _output(self, broker: int) -> Path:
        return self.base / f"{broker}.out"

    def said(self, broker: int) -> str:
        """Everything that a broker has printed."""
        return self._output(broker).read_text(errors="replace")

    def _is_serving(self, broker: int) -> bool:
        assert self._running[broker].poll() is None, self.said(broker)
        return "serving " in self.said(broker)

    def kill(self, broker: int) -> None:
        """End a broker by SIGKILL."""
        process = self._running.pop(broker)
        process.kill()
        process.wait()
        self._output(broker).write_bytes(b"")

    def stop(self, broker: int) -> str:
        """End a broker in order; return what it has printed."""
        process = self._running.pop(broker)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0, self.said(broker)
        return self.said(broker)

    def close(self) -> None:
        """Kill what is left."""
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()
        self._running.clear()


@contextmanager
def broker_processes(
    base: Path, hosts: str, brokers: Sequence[int], session_ms: int, extra: str = ""
) -> Iterator[BrokerProcesses]:
    """Start brokers, and kill them at the end, whatever happens."""
    made = BrokerProcesses(base, hosts, brokers, session_ms, extra)
    try:
        made.start(*brokers)
        yield made
    finally:
        made.close()


class Client:
    """An administrator and an idempotent producer of numbers, with `acks=all`."""

    def __init__(
        self,
        servers: str,
        topic: str,
        partitions: int,
        security: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.topic, self.partitions = topic, partitions
        self.sent = [0] * partitions
        self.acknowledged = [0] * partitions
        self.errors: list[str] = []
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0, **security})
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers, "log_level": 0, "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5, "message.timeout.ms": 300_000, "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 1_000,
                **security,
            }
        )  # fmt: skip
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def create(self, name: str, partitions: int) -> None:
        """Create a topic; the brokers say how many replicas it has."""
        self._admin.create_topics([NewTopic(name, partitions)])[name].result(SECONDS)

    def creates(self, name: str) -> bool:
        """Create a topic if the brokers can; they cannot without a session of ZooKeeper."""
        try:
            self.create(name, 1)
        except confluent_kafka.KafkaException as error:
            assert error.args[0].retriable() or error.args[0].code() in NOT_YET, error
            return False
        return True

    def start(self) -> None:
        """Produce in a thread, to all partitions in turn."""
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            for partition in range(self.partitions):
                if self.sent[partition] - self.acknowledged[partition] < IN_FLIGHT_MAX:
                    self._send(partition)
            self._producer.poll(0.001)

    def _send(self, partition: int) -> None:
        number = self.sent[partition]

        def told(error: Any, message: Any) -> None:
            if error is not None:
                self.errors.append(f"{partition}: {number}: {error}")
            elif number != self.acknowledged[partition]:
                self.errors.append(f"{partition}: {number} after {self.acknowledged[partition]}")
            self.acknowledged[partition] = number + 1

        self._producer.produce(self.topic, b"%d" % number, partition=partition, on_delivery=told)
        self.sent[partition] += 1

    def wait_for_progress(self, seconds: float = SECONDS) -> None:
        """Wait until a record that is sent from now on is acknowledged, in each partition."""
        wanted = [number + 1 for number in self.sent]
        wait_until(
            lambda: all(map(int.__ge__, self.acknowledged, wanted)) or bool(self.errors), seconds
        )
        assert not self.errors

    def isr_sizes(self, topic: str) -> list[int]:
        """Ask for the size of each ISR."""
        try:
            found = self._admin.list_topics(topic, timeout=5.0).topics[topic]
        except confluent_kafka.KafkaException:
            return []
        return [len(one.isrs) if one.leader >= 0 else 0 for one in found.partitions.values()]

    def wait_in_sync(self, replicas: int) -> None:
        """Wait until all replicas of the topic are in sync."""
        deadline, pause = time.monotonic() + SECONDS, threading.Event()
        while self.isr_sizes(self.topic) != [replicas] * self.partitions:
            assert time.monotonic() < deadline, self.isr_sizes(self.topic)
            pause.wait(0.05)

    def stop(self) -> None:
        """Send no more."""
        self._ended.set()
        self._thread.join()

    def finish(self) -> list[int]:
        """Send no more, wait for the rest, and return how many records each partition has."""
        self.stop()
        assert self._producer.flush(SECONDS) == 0 and not self.errors, self.errors
        assert self.acknowledged == self.sent
        return self.sent
