"""Run clients that are programs of their own against a broker: this one, or a real Kafka 4.1."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.kafka import java
from benchmarks.kafka.broker import free_port
from support import kafka_peer
from support.layers import demand
from support.places import environment

# Which broker the clients meet: "logstore", "kafka", or none at all.
WHICH = os.environ.get("LOGSTORE_CLIENTS", "")
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = 4  # of a topic that a client creates by writing to it
SESSION_MS_MIN = 500  # shorter than Kafka's, so that tests need not wait
SECONDS_MAX = 240


# In a process of its own, as users have it. It ends with this one, whose end closes its input.
# It deletes nothing by its age, because the tests write records of 2023.
SERVE = """
import json, sys
from broker import Broker
from broker.config import KAFKA_LOG_CONFIG
config = json.loads(sys.argv[1]) | {"log_config": KAFKA_LOG_CONFIG.replace(retention_ms=None)}
with Broker.start(sys.argv[2:], config=config) as broker:
    print(broker.bootstrap_servers, flush=True)
    sys.stdin.read()
"""


class Served:
    """A broker that keeps its address and its log dirs when it is restarted."""

    def __init__(self, place: Path) -> None:
        self._dirs = [place / "a", place / "b"]
        self._kafka: kafka_peer.Broker | None = None
        self._own: subprocess.Popen[str] | None = None
        config = {"num_partitions": PARTITIONS, "group_min_session_timeout_ms": SESSION_MS_MIN}
        if WHICH == "kafka":
            self._kafka = kafka_peer.Broker(place, self._dirs, log_retention_ms=-1, **config)
            self._kafka.format()
            self.address = self._kafka.bootstrap
        else:
            self.address = f"127.0.0.1:{free_port()}"
        self._config = {"listeners": f"PLAINTEXT://{self.address}", **config}
        self.start()

    def start(self) -> None:
        """Start the broker; it serves when this returns."""
        if self._kafka is not None:
            self._kafka.start()
            return
        self._own = subprocess.Popen(
            [sys.executable, "-c", SERVE, json.dumps(self._config), *map(str, self._dirs)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True,
        )  # fmt: skip
        assert self._own.stdout is not None
        assert self._own.stdout.readline().strip() == self.address

    def close(self) -> None:
        """End the broker in order."""
        if self._kafka is not None:
            self._kafka.stop()
        elif self._own is not None:
            self._own.communicate()
            assert self._own.returncode == 0

    def restart(self) -> None:
        """End the broker, and start it at the same address."""
        self.close()
        self.start()


def demand_tool(name: str, advice: str) -> None:
    """Leave a client out, loudly, if its program is not on this machine."""
    found = shutil.which(name)
    demand(f"client {name}", None if found else f"there is no {name}; {advice}")


def demand_java() -> None:
    """Leave a client out, loudly, if Java or Maven is missing."""
    demand("clients in Java", kafka_peer.missing_tools() or None)


def lines_of(words: Sequence[str | Path], stdin: str | None = None, **where: Any) -> list[str]:
    """Run a client to its end, and give the lines that it printed."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        list(map(str, words)), input=stdin, capture_output=True, text=True, check=False,
        timeout=SECONDS_MAX, **where,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout.splitlines()


def jars(name: str, *artifacts: tuple[str, str, str]) -> Path:
    """Give the directory of a client's jars, fetched once, with a logger that is silent."""
    return java.fetch(name, [*artifacts, ("org.slf4j", "slf4j-simple", "1.7.36")]) / "libs"


def compiled(sources: Sequence[Path], libs: Path, place: Path) -> str:
    """Compile a client in Java; returns its class path."""
    lines_of(["javac", "-nowarn", "-cp", f"{libs}/*", "-d", place, *sources])
    return f"{place}:{libs}/*"


def small_java(path: str, name: str, *flags: str) -> list[str]:
    """Word the call of a class that shares the machine with other programs."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    return ["java", "-Xmx160m", *kafka_peer.FLAGS, quiet, *flags, "-cp", path, name]
