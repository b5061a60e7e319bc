"""Run clients that are programs of their own against a broker: this one, or a real Kafka 4.1."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.kafka import java
from broker import Broker
from support import kafka_peer
from support.layers import demand

# Which broker the clients meet: "logstore", "kafka", or none at all.
WHICH = os.environ.get("LOGSTORE_CLIENTS", "")
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = 4  # of a topic that a client creates by writing to it
SECONDS_MAX = 240


class Served:
    """A broker that keeps its address and its log dirs when it is restarted."""

    def __init__(self, place: Path) -> None:
        self._dirs = [place / "a", place / "b"]
        self.kafka: kafka_peer.Broker | None = None
        self.own: Broker | None = None
        if WHICH == "kafka":
            self.kafka = kafka_peer.Broker(place, self._dirs, num_partitions=PARTITIONS)
            self.kafka.format()
            self.kafka.start()
            self.address = self.kafka.bootstrap
        else:
            self.own = Broker.start(self._dirs, config={"num_partitions": PARTITIONS})
            self.address = self.own.bootstrap_servers

    def stop(self) -> None:
        """End the broker in order."""
        if self.kafka is not None:
            self.kafka.stop()
        if self.own is not None:
            self.own.close()

    def restart(self) -> None:
        """End the broker, and start it at the same address."""
        self.stop()
        if self.kafka is not None:
            self.kafka.start()
        else:
            listeners = f"PLAINTEXT://{self.address}"
            config: dict[str, Any] = {"num_partitions": PARTITIONS, "listeners": listeners}
            self.own = Broker.start(self._dirs, config=config)


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
    """Give the directory of a client's jars, fetched once."""
    return java.fetch(name, artifacts) / "libs"
