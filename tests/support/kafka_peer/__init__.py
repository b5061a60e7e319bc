"""Run Apache Kafka as a peer of the tests: one broker on loopback and a client of it.

Needs Java 17 and Maven; the jars are those of `benchmarks/kafka`, fetched once (54 MB).
"""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.kafka import java
from benchmarks.kafka.broker import free_port

HERE = Path(__file__).resolve().parent
FLAGS = (
    "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.showDateTime=false"
)  # fmt: skip
READY = "Kafka Server started"
START_SECONDS_MAX = 90


def missing_tools() -> str:
    """Say what is not there that Kafka needs; empty when all is."""
    try:
        java.check_tools()
    except java.MissingError as error:
        return str(error)
    return ""


def call_of(*words: str | Path, heap: str = "512m", more_flags: Sequence[str] = ()) -> list[str]:
    """Make the command line of a class of Kafka's."""
    name, *rest = map(str, words)
    return java.command(java.fetch(), name, *rest, heap=heap, flags=[*FLAGS, *more_flags])


def new_cluster_id() -> str:
    """Make an id for a cluster."""
    # The first byte is 0: an identity that begins with "-" is taken for an option.
    name = bytes(1) + uuid.uuid4().bytes[1:]
    return base64.urlsafe_b64encode(name).decode().rstrip("=")


class Seat(NamedTuple):
    """What a broker of a cluster needs to know, beside its log dirs.

    Attributes:
        node: the id of the broker. Broker 1 is also the controller.
        control: the port of the controller; 0 means any free port.
        heap: the size of the heap of the Java process.
    """

    node: int = 1
    control: int = 0
    heap: str = "768m"


ALONE = Seat()


class Broker:
    """One broker in KRaft mode over some log dirs; `stop` ends it in order, `kill` by SIGKILL."""

    def __init__(
        self, place: Path, log_dirs: list[Path], seat: Seat = ALONE, /, **settings: object
    ) -> None:
        """Write the configuration.

        Args:
            seat: the place of the broker in a cluster; by default, it is a cluster of its own.
            settings: settings that differ; None leaves a setting out.
        """
        self.place = place
        self.log_dirs = log_dirs
        node, control, self._heap = seat
        self.port, control = free_port(), control or free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[str] | None = None
        self._log = place / "broker.out"
        self.properties = place / "server.properties"
        values: dict[str, object] = {
            "process.roles": "broker,controller" if node == 1 else "broker",
            "node.id": node,
            "controller.quorum.voters": f"1@127.0.0.1:{control}",
            "listeners": f"PLAINTEXT://{self.bootstrap}"
            + f",CONTROLLER://127.0.0.1:{control}" * (node == 1),
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": ",".join(map(str, log_dirs)),
            "metadata.log.dir": place / "metadata",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.dedupe.buffer.size": 10_000_000,
            "log.cleaner.backoff.ms": 200,
            "log.segment.delete.delay.ms": 3_600_000,
            "log.initial.task.delay.ms": 1000,
        }
        values |= {name.replace("_", "."): value for name, value in settings.items()}
        given = {name: value for name, value in values.items() if value is not None}
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in given.items()))

    def format(self, cluster: str | None = None) -> None:
        """Give the log dirs an identity; once.

        Args:
            cluster: the id of the cluster; by default, a new one.
        """
        name = cluster or new_cluster_id()
        command = call_of("kafka.tools.StorageTool", "format", "-t", name, "-c", self.properties)
        subprocess.run(command, check=True, capture_output=True)

    def start(self) -> None:
        """Start the broker and wait until it says that it has."""
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                call_of("kafka.Kafka", self.properties, heap=self._heap), stdout=log, stderr=log,
                text=True, start_new_session=True,
            )  # fmt: skip
        tail = subprocess.Popen(
            ["tail", f"--pid={self._process.pid}", "-n", "+1", "-F", "-s", "0.1", self._log],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        try:
            assert tail.stdout is not None
            for line in tail.stdout:
                if READY in line:
                    return
        finally:
            tail.kill()
            tail.communicate()  # which closes the pipe, too
        raise AssertionError(f"the broker did not start: {self._log.read_text()[-4000:]}")

    def stop(self) -> None:
        """End the broker in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the broker as a power switch ends its process."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None


class Client:
    """Talk to a `KafkaPeer.java`, a command a line."""

    def __init__(self, bootstrap: str) -> None:
        self._process = subprocess.Popen(
            call_of(HERE / "KafkaPeer.java", bootstrap),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        )  # fmt: skip

    def ask(self, *words: object) -> list[dict[str, Any]]:
        """Give one command and take its answer; raises RuntimeError with what went wrong."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        rows: list[dict[str, Any]] = []
        for line in self._process.stdout:
            if line == "ok\n":
                return rows
            if line.startswith("error "):
                raise RuntimeError(line[6:])
            rows.append(json.loads(line))
        raise RuntimeError("the client of Kafka ended")

    def send(
        self,
        producer: str,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *headers: bytes | None,
        timestamp: int | str = "-",
        partition: int = 0,
    ) -> None:
        """Hand one record to a producer."""
        words = map(word, (key, value, *headers))
        self.ask("send", producer, topic, partition, timestamp, *words)

    def close(self) -> None:
        """End the client."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def client_of(broker: Broker) -> Iterator[Client]:
    """Run a client for the length of a block."""
    client = Client(broker.bootstrap)
    try:
        yield client
    finally:
        client.close()


def word(data: bytes | None) -> str:
    """Write bytes as one word of a command."""
    if data is None:
        return "-"
    return base64.b64encode(data).decode() or "="


def dump_log_segments(path: Path) -> str:
    """Give what Kafka's own dump tool prints of a segment, records and all."""
    command = call_of(
        "kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", path
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
