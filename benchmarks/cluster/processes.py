"""Run three processes `logstore broker` over a ZooKeeper, and let them have faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.cluster.zookeeper import free_port
from cluster.errors import PeerError
from cluster.tools.asking import Asked

BROKERS, LOG_DIRS = (1, 2, 3), ("disk-a", "disk-b")
SESSION_MS = 1500
ASK_SECONDS = 3.0  # a frozen broker does not answer
LOOK_SECONDS = 0.03
WAIT_SECONDS = 60.0
PROPERTIES = """
zookeeper.connect={hosts}
zookeeper.session.timeout.ms={session_ms}
replica.lag.time.max.ms=3000
broker.id={broker}
listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={dirs}
default.replication.factor=3
min.insync.replicas=2
"""


class FaultyClusterError(RuntimeError):
    """A broker ended by itself, or the cluster did not reach a state in time."""


class Broker:
    """A process `logstore broker`; it keeps its port when it is started again.

    Attributes:
        log_dirs: its two log dirs.
    """

    def __init__(self, base: Path, records: Path, hosts: str, broker: int) -> None:
        """Start no process; write the file of its configuration."""
        self.id, self.port = broker, free_port()
        self.log_dirs = [base / f"broker-{broker}" / name for name in LOG_DIRS]
        self._records, self._output = records, base / f"broker-{broker}.out"
        self._process: subprocess.Popen[bytes] | None = None
        self.log_dirs[0].parent.mkdir()
        text = PROPERTIES.format(
            hosts=hosts, session_ms=SESSION_MS, broker=broker, port=self.port,
            dirs=",".join(map(str, self.log_dirs)),
        )  # fmt: skip
        self._properties = base / f"broker-{broker}.properties"
        self._properties.write_text(text)

    def start(self) -> None:
        """Start the process; it does not serve yet."""
        self._output.write_bytes(b"")
        command = ["broker", "--config", str(self._properties)]
        self._process = self._run([*command, "--records", str(self._records)])

    def _run(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        """Run `logstore`; Ctrl-C reaches only the demo, which ends the brokers."""
        environment = dict(os.environ)
        # Installed packages have bytecode. So the broker may write bytecode, too.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with self._output.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "logstore.cli", *arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment,
                start_new_session=True,
            )  # fmt: skip

    @property
    def said(self) -> str:
        """What the process has printed."""
        return self._output.read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None
        return self._process.pid

    def is_serving(self) -> bool:
        """Tell whether clients can connect.

        Raises:
            FaultyClusterError: the process has ended.
        """
        if self._process is None or self._process.poll() is not None:
            raise FaultyClusterError(f"broker {self.id} ended by itself: {self.said}")
        return "serving " in self.said

    def kill(self) -> None:
        """End the process by SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop the process in its tracks by SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the process continue."""
        os.kill(self.pid, signal.SIGCONT)

    def ask_to_stop(self) -> None:
        """Ask the process to stop in order."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def wait_stopped(self) -> bool:
        """Wait until the process has stopped; return False if it failed, or was killed."""
        if self._process is None:
            return False
        try:
            return self._process.wait(WAIT_SECONDS) == 0
        finally:
            self.kill()

    def take_disk(self, number: int) -> None:
        """Take a disk away: the log dir becomes an empty directory, as after an unmount."""
        path = self.log_dirs[number]
        path.rename(path.with_suffix(".taken"))
        path.mkdir()

    def accept_empty_disk(self, number: int) -> None:
        """Tell the broker that the empty directory is a new disk, as an operator does."""
        command = ["reopen", str(self.log_dirs[number]), "--format-new", "--yes"]
        command += ["--log-dirs", ",".join(map(str, self.log_dirs))]
        child = self._run(command)
        if child.wait(WAIT_SECONDS):
            raise FaultyClusterError(f"the new disk was refused: {self.said}")


class Brokers:
    """All brokers, and what they say about the cluster when they are asked by Kafka's requests."""

    def __init__(self, base: Path, records: Path, hosts: str) -> None:
        """Start nothing.

        Args:
            base: where the log dirs are made.
            records: a directory on tmpfs, for the records of failed log dirs.
        """
        self.all = {broker: Broker(base, records, hosts, broker) for broker in BROKERS}

    def __getitem__(self, broker: int) -> Broker:
        return self.all[broker]

    @property
    def servers(self) -> str:
        """The addresses of all brokers, for `bootstrap.servers`."""
        return ",".join(f"127.0.0.1:{one.port}" for one in self.all.values())

    def start(self) -> None:
        """Start all brokers, and wait until they serve, and know each other."""
        for one in self.all.values():
            one.start()
        for one in self.all.values():
            wait_until(one.is_serving, f"broker {one.id} does not serve")
        wait_until(lambda: self._count() == len(BROKERS), "the brokers do not know each other")

    def _count(self) -> int:
        return min(len(metadata.brokers) for metadata in self._told())

    def _told(self, without: int | None = None) -> Iterator[Any]:
        """Ask each broker for what it knows of the cluster.

        Args:
            without: a broker that cannot answer now.

        Raises:
            PeerError: a broker does not answer.
        """
        for one in self.all.values():
            if one.id != without:
                with Asked([("127.0.0.1", one.port)], ASK_SECONDS) as asking:
                    yield asking.metadata()

    def partitions(self, topic: str, without: int | None = None) -> dict[int, Any]:
        """Give leader, replicas and ISR of each partition; nothing if the brokers do not agree.

        A broker that was frozen is outdated for a moment.
        """
        try:
            found = [_partitions_in(metadata, topic) for metadata in self._told(without)]
        except PeerError:
            return {}
        return found[0] if all(one == found[0] for one in found) else {}

    def close(self) -> None:
        """End all brokers at once, also frozen ones."""
        for one in self.all.values():
            one.kill()

    def stop(self) -> bool:
        """Let all brokers stop in order; return False if one could not."""
        for one in self.all.values():
            one.ask_to_stop()
        stopped = [one.wait_stopped() for one in self.all.values()]
        return all(stopped)


def _partitions_in(metadata: Any, topic: str) -> dict[int, Any]:
    return {
        row.partition_index: row
        for one in metadata.topics
        for row in one.partitions
        if one.name == topic
    }


@contextmanager
def running(base: Path, records: Path, hosts: str) -> Iterator[Brokers]:
    """Run the brokers, and end them whatever happens."""
    brokers = Brokers(base, records, hosts)
    try:
        brokers.start()
        yield brokers
    finally:
        brokers.close()


def wait_until(is_done: Callable[[], bool], what: str) -> None:
    """Wait for something that happens soon.

    Raises:
        FaultyClusterError: it did not happen.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_done():
        if time.monotonic() > deadline:
            raise FaultyClusterError(f"after {WAIT_SECONDS:.0f} s, {what}")
        time.sleep(LOOK_SECONDS)
