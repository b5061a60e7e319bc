"""Producers do not feel it when the page of their broker is attacked.

`make browser` runs this; `make test` does not, because of its time. Three kinds of rounds
alternate: nobody is attacked; the page of an idle broker is attacked, which costs the same
processor time; the page of the measured broker is attacked.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.kafka_client import KafkaClient, batch_of
from support.places import environment, fast_directory

ROUNDS, SECONDS = 5, 3.0
PARTITIONS = 2000
SERVE = """
import sys
from broker import Broker
with Broker.start(sys.argv[1], {"http_listener": "127.0.0.1:0"}) as broker:
    broker.store.create_topic("many", int(sys.argv[2]))
    print(broker.bootstrap_servers, broker.http_url, flush=True)
    sys.stdin.read()
"""


class Serving:
    """A broker in a process of its own."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(path), str(PARTITIONS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.servers, self.url = self.process.stdout.readline().split()

    @property
    def port(self) -> int:
        """The port of the page."""
        return int(self.url.strip("/").rpartition(":")[2])

    def close(self) -> None:
        """Stop it."""
        self.process.communicate("", 60)


@pytest.fixture
def brokers() -> Iterator[tuple[Serving, Serving]]:
    with fast_directory() as root:
        both = Serving(Path(root) / "measured"), Serving(Path(root) / "idle")
        try:
            yield both
        finally:
            for one in both:
                one.close()


def latencies(client: KafkaClient, seconds: float) -> list[float]:
    """Produce one batch after another; returns the seconds of each."""
    found, until = [], time.monotonic() + seconds
    batch = batch_of(b"x" * 500)
    while (began := time.monotonic()) < until:
        assert client.produce("many", batch).error_code == 0
        found.append(time.monotonic() - began)
    return found


def attacked(port: int) -> subprocess.Popen[str]:
    """Begin an attack."""
    return subprocess.Popen(
        [sys.executable, "-m", "support.page_hammer", str(port), str(SECONDS)],
        stdout=subprocess.PIPE, env=environment(), text=True,
    )  # fmt: skip


def summary(values: list[float]) -> dict[str, float]:
    """Give the percentiles in ms."""
    ordered = sorted(values)
    at = {name: ordered[int(len(ordered) * part)] for name, part in (("p50", 0.5), ("p99", 0.99))}
    at["max"] = ordered[-1]
    return {name: round(value * 1000, 2) for name, value in at.items()} | {"count": len(values)}


def test_produce_beside_an_attack(
    brokers: tuple[Serving, Serving], capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's own part: little more latency than if another process is attacked."""
    measured, idle = brokers
    found: dict[str, list[float]] = {"quiet": [], "other page": [], "own page": []}
    made = []
    with KafkaClient(measured.servers) as client:
        latencies(client, 1.0)
        for number in range(ROUNDS * 3):
            kind = [*found][number % 3]
            port = {"other page": idle.port, "own page": measured.port}.get(kind)
            process = None if port is None else attacked(port)
            found[kind] += latencies(client, SECONDS)
            if process is not None:
                made.append(json.loads(process.communicate(timeout=60)[0]))
    results = {kind: summary(values) for kind, values in found.items()}
    with capsys.disabled():
        print(f"\nProduce in ms: {json.dumps(results)}\nconnections of an attack: {made[-1]}")
    assert results["own page"]["p50"] <= 1.5 * results["other page"]["p50"] + 1.0
    assert results["own page"]["p99"] <= 1.5 * results["other page"]["p99"] + 10.0
