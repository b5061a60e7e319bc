"""Run one Kafka broker on loopback, with two log dirs, and move a partition between them."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.kafka import java
from benchmarks.moving import wait_purged
from benchmarks.peers import segment_files

READY_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 60.0
MOVE_SECONDS_MAX = 1800.0
LOOK_SECONDS = 0.005
NO_THROTTLE = 10**12
TOOLS = "org.apache.kafka.tools"
TOPIC = "moved"


def free_port() -> int:
    """Find an unused port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Member(NamedTuple):
    """Hold what one node of a cluster needs to know, beside its log dirs.

    Attributes:
        control: the port of its controller.
        voters: all controllers, as in `controller.quorum.voters`.
        heap: the size of the heap of its Java process.
    """

    node: int
    control: int
    voters: str
    cluster_id: str
    heap: str


def new_cluster_id(home: Path) -> str:
    """Let Kafka make an id for a cluster."""
    said = java.do(java.command(home, "kafka.tools.StorageTool", "random-uuid"), home)
    return said.strip().split("\n")[-1]


class Broker:
    """Run a broker in a child process; `stop` ends the child process."""

    def __init__(
        self,
        home: Path,
        log_dirs: list[str],
        is_started: bool = True,
        member: Member | None = None,
    ) -> None:
        """Format the log dirs.

        Args:
            member: the place of the broker in a cluster; by default, it is a cluster of its own.
        """
        self.home = home
        self.log_dirs = log_dirs
        self.work = Path(tempfile.mkdtemp(prefix="kafka-", dir=Path(log_dirs[0]).parent))
        if member is None:
            control = free_port()
            member = Member(1, control, f"1@localhost:{control}", new_cluster_id(home), "1g")
        port, control = free_port(), member.control
        self.address = f"localhost:{port}"
        self._heap = member.heap
        properties = {
            "process.roles": "broker,controller",
            "node.id": member.node,
            "controller.quorum.voters": member.voters,
            "listeners": f"PLAINTEXT://localhost:{port},CONTROLLER://localhost:{control}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": ",".join(log_dirs),
            "metadata.log.dir": str(self.work / "metadata"),
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "message.max.bytes": 4 << 20,
            "log.segment.delete.delay.ms": 100,
        }
        self.file = self.work / "server.properties"
        self.file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        words = "format", "-t", member.cluster_id, "-c", str(self.file)
        self.run("kafka.tools.StorageTool", *words)
        self._child: subprocess.Popen[bytes] | None = None
        if is_started:
            self.start()

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._child is not None
        return self._child.pid

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._child is not None and self._child.poll() is None

    def spawn(self) -> float:
        """Start the process, and return the time of its start; the broker does not serve yet."""
        with (self.work / "output").open("ab") as output:
            started = time.perf_counter()
            self._child = subprocess.Popen(
                java.command(self.home, "kafka.Kafka", str(self.file), heap=self._heap),
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        return started

    def start(self) -> None:
        """Start the process, and wait until clients can connect."""
        self.spawn()
        try:
            self._wait_ready(int(self.address.rpartition(":")[2]))
        except BaseException:
            self.stop()
            raise

    def _wait_ready(self, port: int) -> None:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline:
            if not self.is_alive():
                break
            try:
                socket.create_connection(("localhost", port), 1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        output = (self.work / "output").read_text(errors="replace")
        raise RuntimeError(f"the broker did not start:\n{output[-3000:]}")

    def run(self, name: str, *words: str) -> str:
        """Run one of Kafka's tools."""
        return java.do(java.command(self.home, name, *words), self.work)

    def stop(self) -> None:
        """End the broker; kill it if it does not end soon."""
        if self._child is None:
            return
        self._child.terminate()
        try:
            self._child.wait(STOP_SECONDS_MAX)
        except BaseException as error:
            self._child.kill()
            self._child.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
        finally:
            self._child = None

    # --- topics ---------------------------------------------------------------------------------

    def create(self, topic: str) -> None:
        """Create a topic with one partition."""
        self.run(
            f"{TOOLS}.TopicCommand", "--bootstrap-server", self.address, "--create", "--topic",
            topic, "--partitions", "1", "--replication-factor", "1",
        )  # fmt: skip

    def produce(
        self, topic: str, records: int, record_bytes: int, rate: int, batch_bytes: int
    ) -> dict[str, float]:
        """Produce records; return the percentiles of the time to an acknowledgement, in ms."""
        linger = 5 if rate < 0 else 0
        words = java.command(
            self.home, f"{TOOLS}.ProducerPerformance", "--topic", topic, "--num-records",
            str(records), "--record-size", str(record_bytes), "--throughput", str(rate),
            "--producer-props", f"bootstrap.servers={self.address}", "acks=1",
            f"batch.size={batch_bytes}", f"linger.ms={linger}", "max.request.size=4000000",
            heap="512m",
        )  # fmt: skip
        last = java.do(words, self.work).strip().split("\n")[-1]
        return {name: float(ms) for ms, name in re.findall(r"([\d.]+) ms ([\d.]+)th", last)}

    def home_of(self, topic: str) -> int:
        """Return the number of the log dir that has a topic's partition."""
        return next(n for n, path in enumerate(self.log_dirs) if os.path.isdir(f"{path}/{topic}-0"))

    # --- moves ----------------------------------------------------------------------------------

    def move(self, topic: str) -> float:
        """Move a partition without a throttle; return the seconds after the first copied byte."""
        source = self.home_of(topic)
        watch = Watch(self, topic, 1 - source)
        child = self._ask(topic, NO_THROTTLE)
        try:
            watch.wait_begun()
            started = time.perf_counter()
            watch.wait_over()
            return time.perf_counter() - started
        finally:
            child.wait()

    def sync(self, topic: str) -> float:
        """Sync a partition's segments, because Kafka's moves do not; return the seconds."""
        started = time.perf_counter()
        home = os.path.join(self.log_dirs[self.home_of(topic)], f"{topic}-0")
        for path in segment_files(home):
            fd = os.open(path, os.O_RDWR)
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)
        return time.perf_counter() - started

    def wait_purged(self) -> None:
        """Wait until the old copy is removed: the next move needs its space and an idle disk."""
        wait_purged(self.log_dirs, "-delete")

    def _ask(self, topic: str, throttle: int) -> subprocess.Popen[bytes]:
        """Start a move to the other log dir in a process, and do not wait for the process.

        When the JVM of the process ends, a large part is already copied.
        """
        target = self.log_dirs[1 - self.home_of(topic)]
        entry = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [target]}
        file = self.work / "reassign.json"
        file.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        return self._reassign(file, throttle)

    def _reassign(self, file: Path, throttle: int) -> subprocess.Popen[bytes]:
        words = java.command(
            self.home, f"{TOOLS}.reassign.ReassignPartitionsCommand", "--bootstrap-server",
            self.address, "--execute", "--additional", "--reassignment-json-file", str(file),
            "--replica-alter-log-dirs-throttle", str(throttle),
        )  # fmt: skip
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def throttled_rate(self, topic: str, rate: int, seconds: float) -> float:
        """Move with a throttle; return the bytes per second, measured after the first byte."""
        watch = Watch(self, topic, 1 - self.home_of(topic))
        child = self._ask(topic, rate)
        watch.wait_begun()
        started, before = time.perf_counter(), watch.copied_bytes()
        while time.perf_counter() - started < seconds and not watch.is_over:
            time.sleep(LOOK_SECONDS)
        measured = (watch.copied_bytes() - before) / (time.perf_counter() - started)
        child.wait()
        if not watch.is_over:
            self._reassign(self.work / "reassign.json", NO_THROTTLE).wait()
        watch.wait_over()
        return measured


class Watch:
    """Watch the target of a move: it has a `-future` directory first, and then the partition."""

    def __init__(self, broker: Broker, topic: str, target: int) -> None:
        self._dir = broker.log_dirs[target]
        self._done = os.path.join(self._dir, f"{topic}-0")
        self._source = os.path.join(broker.log_dirs[1 - target], f"{topic}-0")
        self._topic = topic
        self._deadline = time.monotonic() + MOVE_SECONDS_MAX

    def _future(self) -> str | None:
        for name in os.listdir(self._dir):
            if name.startswith(f"{self._topic}-0.") and name.endswith("-future"):
                return os.path.join(self._dir, name)
        return None

    def copied_bytes(self) -> int:
        """Sum up the sizes of the copy's segments, before or after its renaming."""
        path = self._future() or self._done
        return sum(
            os.path.getsize(os.path.join(path, name))
            for name in os.listdir(path)
            if name.endswith(".log")
        )

    @property
    def is_over(self) -> bool:
        """Whether the copy has replaced the source; during a sync, both still exist."""
        return os.path.isdir(self._done) and not os.path.isdir(self._source)

    def wait_begun(self) -> None:
        """Wait for the first byte of the copy."""
        while not self.is_over:
            future = self._future()
            if future is not None and self.copied_bytes():
                return
            self._tick()

    def wait_over(self) -> None:
        """Wait until the copy has replaced the source."""
        while not self.is_over:
            self._tick()

    def _tick(self) -> None:
        if time.monotonic() > self._deadline:
            raise RuntimeError("the move did not end in time")
        time.sleep(LOOK_SECONDS)
