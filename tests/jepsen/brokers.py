"""Run the brokers of a cluster as processes, each in a network namespace of its own."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from jepsen.clocks import Clock, own_clock
from jepsen.ensemble import Ensemble
from support.network import Network
from support.places import environment

PORT = 9092
SECONDS = 90.0
LOOK_SECONDS = 0.02
FILE = """
zookeeper.connect={hosts}/jepsen
zookeeper.session.timeout.ms={session_ms}
replica.lag.time.max.ms={lag_ms}
broker.id={broker}
broker.rack=r{broker}
listeners=PLAINTEXT://{address}:{port}
log.dirs={dirs}
default.replication.factor=3
offsets.topic.num.partitions=1
"""


def node_of(broker: int) -> str:
    """Name the node that a broker runs on."""
    return f"b{broker}"


class Process:
    """One broker, which may be started, stopped and killed many times.

    Threads: any thread may call any method; the changes are made one after another.

    Attributes:
        log_dirs: its log dirs.
        ends: how often the process ended by itself, with an error.
        is_away: whether the broker is no part of the cluster; then nothing starts it.
    """

    def __init__(
        self,
        network: Network,
        base: Path,
        broker: int,
        log_dirs: Sequence[Path],
        clock: Clock | None = None,
    ) -> None:
        self.broker, self.log_dirs = broker, list(log_dirs)
        self.ends, self.is_away = 0, False
        self._network, self._base = network, base
        self._environment = {**environment(), **(clock.environment if clock else {})}
        self._running: subprocess.Popen[bytes] | None = None
        self._said_before = 0
        self._is_stopped = False
        self._changing = threading.RLock()

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return f"{self._network.address(node_of(self.broker))}:{PORT}"

    @property
    def output(self) -> Path:
        """Everything that the broker has printed, in all its lives."""
        return self._base / f"{self.broker}.out"

    def configure(self, hosts: str, session_ms: int, lag_ms: int, settings: str) -> None:
        """Write its file."""
        address = self._network.address(node_of(self.broker))
        text = FILE.format(
            hosts=hosts, session_ms=session_ms, lag_ms=lag_ms, broker=self.broker, address=address,
            port=PORT, dirs=",".join(map(str, self.log_dirs)),
        )  # fmt: skip
        self._file.write_text(text + settings)

    @property
    def _file(self) -> Path:
        return self._base / f"{self.broker}.properties"

    def launch(self) -> None:
        """Start the process, and wait for nothing; one that runs, or is away, is left alone."""
        with self._changing:
            if not self.is_alive and not self.is_away:
                self._start()

    def leave(self, *, in_order: bool) -> None:
        """End the process, and let the broker be away."""
        with self._changing:
            self.resume()
            self.is_away = True
            if in_order:
                self.stop()
            else:
                self.kill()

    def come(self, *, with_empty_disks: bool = False) -> None:
        """Start a broker that is away, and wait for nothing."""
        with self._changing:
            if with_empty_disks:
                for log_dir in self.log_dirs:
                    shutil.rmtree(log_dir, ignore_errors=True)
            self.is_away = False
            self.launch()

    def _start(self) -> None:
        with self.output.open("ab") as out:
            out.write(f"--- {time.monotonic():.2f} start ---\n".encode())
            out.flush()
            self._said_before = self.output.stat().st_size
            self._running = subprocess.Popen(
                [
                    *self._network.prefix(node_of(self.broker)), sys.executable, "-m",
                    "logstore.cli", "broker", "--config", str(self._file),
                    "--records", str(self._base / "records"),
                ],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self._environment,
            )  # fmt: skip

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._running is not None and self._running.poll() is None

    @property
    def waits_for_disk(self) -> bool:
        """Whether a thread of the process is in a call of the kernel that nothing interrupts."""
        running = self._running
        if running is None:
            return False
        for path in Path(f"/proc/{running.pid}/task").glob("*/stat"):
            with suppress(OSError):  # the thread has ended
                if path.read_text().rpartition(")")[2].split()[0] == "D":
                    return True
        return False

    @property
    def is_serving(self) -> bool:
        """Whether this life of the process has begun to serve."""
        if not self.is_alive:
            return False
        with self.output.open("rb") as file:
            file.seek(self._said_before)
            return b"serving " in file.read()

    def keep_up(self) -> None:
        """Start the process again if it ended by itself, as a service manager does."""
        with self._changing:
            if self._running is not None and self._running.poll() is not None:
                self.ends += 1
                self.launch()

    def wait(self, seconds: float = SECONDS) -> None:
        """Wait until the broker serves; start it again if it ends before."""
        deadline, pause = time.monotonic() + seconds, threading.Event()
        while not self.is_serving:
            if time.monotonic() > deadline:
                raise AssertionError(f"broker {self.broker} does not serve: {self.said()[-2000:]}")
            self.keep_up()
            pause.wait(LOOK_SECONDS)

    def said(self) -> str:
        """Everything that the broker has printed."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def kill(self) -> None:
        """End the process by SIGKILL."""
        with self._changing:
            if self._running is not None:
                self._running.kill()
                self._running.wait()
                self._running = None
            self._is_stopped = False

    def stop(self) -> None:
        """End the process in order; raises AssertionError if it does not end well."""
        with self._changing:
            if self._running is None:
                return
            self._running.send_signal(signal.SIGTERM)
            try:
                code = self._running.wait(SECONDS)
            except subprocess.TimeoutExpired:
                self._running.send_signal(signal.SIGABRT)
                self._running.wait()
                raise AssertionError(f"broker {self.broker} did not stop in {SECONDS} s") from None
            self._running = None
            if code:
                raise AssertionError(
                    f"broker {self.broker} ended with {code}: {self.said()[-2000:]}"
                )

    def pause(self) -> None:
        """Stop the process in its tracks."""
        with self._changing:
            if self._running is not None:
                self._running.send_signal(signal.SIGSTOP)
                self._is_stopped = True

    def resume(self) -> None:
        """Continue after `pause`."""
        with self._changing:
            if self._running is not None and self._is_stopped:
                self._running.send_signal(signal.SIGCONT)
            self._is_stopped = False

    def reopen(self, log_dir: Path) -> bool:
        """Bring a log dir back that has failed, as an operator does; return whether it works."""
        done = subprocess.run(
            [
                *self._network.prefix(node_of(self.broker)), sys.executable, "-m", "logstore.cli",
                "reopen", str(log_dir), "--log-dirs", ",".join(map(str, self.log_dirs)),
            ],
            stdin=subprocess.DEVNULL, capture_output=True, env=self._environment, check=False,
        )  # fmt: skip
        with self.output.open("ab") as out:
            out.write(b"--- reopen: " + done.stdout + done.stderr + b" ---\n")
        return done.returncode == 0 or b"it is not offline" in done.stdout + done.stderr


class Cluster:
    """Brokers and ZooKeepers in a network.

    Attributes:
        processes: the brokers, by id; also those that are away.
        clocks: the clocks that can be shifted, by node; the clients have one only if this process
            was started with one.
    """

    def __init__(
        self,
        network: Network,
        base: Path,
        log_dirs: Mapping[int, Sequence[Path]],
        keepers: Sequence[str],
        library: Path | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            keepers: the nodes of the ZooKeepers.
            library: what shifts the clocks; None if they stay as they are.
        """
        self.network, self.base = network, base
        self.clocks: dict[str, Clock] = {}
        if library is not None:
            nodes = (*map(node_of, log_dirs), *keepers)
            self.clocks = {node: Clock(base / f"{node}.clock", library) for node in nodes}
            own = own_clock()
            self.clocks.update({"clients": own} if own else {})
        environments = {node: clock.environment for node, clock in self.clocks.items()}
        self.zookeeper = Ensemble(network, base, keepers, environments)
        self.processes = {
            broker: Process(network, base, broker, dirs, self.clocks.get(node_of(broker)))
            for broker, dirs in log_dirs.items()
        }

    @property
    def servers(self) -> str:
        """The addresses of all brokers, for `bootstrap.servers`."""
        return ",".join(process.address for process in self.processes.values())

    @property
    def present(self) -> list[Process]:
        """The brokers that are part of the cluster now."""
        return [process for process in self.processes.values() if not process.is_away]

    def start(self, session_ms: int, lag_ms: int, settings: str = "") -> None:
        """Start everything but the brokers that are away, and wait until it serves."""
        self.zookeeper.start()
        for process in self.processes.values():
            process.configure(self.zookeeper.hosts, session_ms, lag_ms, settings)
            process.launch()
        for process in self.present:
            process.wait()

    def close(self) -> None:
        """Kill everything."""
        for process in self.processes.values():
            process.kill()
        self.zookeeper.kill()
