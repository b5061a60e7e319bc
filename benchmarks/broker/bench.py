"""Measure this broker and a peer in alternating rounds, and keep the figures as rows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from benchmarks.broker import raw
from benchmarks.broker.server import Usage, usage_of
from benchmarks.report import REPOSITORY, Goal, Row

MB = 1_000_000
CLIENT_SECONDS_MAX = 900
START_SECONDS_MAX = 180.0


class Server(Protocol):
    """Declare the members that this broker and Kafka's broker both have."""

    address: str
    log_dirs: list[str]

    @property
    def pid(self) -> int:
        """The id of the running process."""

    def spawn(self) -> float:
        """Start a process, and return the time of its start."""

    def is_alive(self) -> bool:
        """Report whether the process runs."""

    def stop(self) -> None:
        """End the process in order."""


@dataclass(frozen=True)
class Scale:
    """Define how much work is done; the figures of the warm rounds are dropped."""

    warm_rounds: int
    rounds: int
    small_records: int  # in a round with batches of 16 KiB
    large_records: int  # in a round with batches of 1 MB, and in a round of fetches
    spread_records: int
    spread_partitions: int
    paced_seconds: float
    flood_seconds: float
    producers: int
    waiting: int
    partitions: int  # how many partitions the store has when a start is measured


SCALES = {
    "tiny": Scale(0, 1, 2_000, 5_000, 2_000, 20, 0.2, 0.1, 20, 50, 20),
    "small": Scale(1, 3, 200_000, 400_000, 100_000, 1_000, 1.5, 1, 500, 10_000, 1_000),
    "full": Scale(1, 5, 3_000_000, 8_000_000, 2_000_000, 1_000, 15, 8, 500, 10_000, 10_000),
}


def first_record(server: Server, topic: str = "first") -> float:
    """Start a server; return the seconds until it acknowledged its first record."""
    started = server.spawn()
    return raw.acknowledge_first(server.address, topic, started, START_SECONDS_MAX, server.is_alive)


def words_of(command: str, facts: dict[str, Any]) -> list[str]:
    """Build the command line of a client process."""
    return [sys.executable, "-m", "benchmarks.broker.clients", command, json.dumps(facts)]


def client_environment() -> dict[str, str]:
    """Return the environment of a client process, with the import path of this process."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([REPOSITORY, *filter(None, sys.path)])}


def client(command: str, server: Server, **facts: Any) -> dict[str, float]:
    """Run a client process to its end, and return its answer."""
    return client_of(command, server.address, **facts)


def client_of(command: str, address: str, **facts: Any) -> dict[str, float]:
    """Run a client of one or more addresses to its end, and return its answer."""
    done = subprocess.run(
        words_of(command, {"address": address, **facts}), env=client_environment(),
        capture_output=True, text=True, check=False, timeout=CLIENT_SECONDS_MAX,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the client {command} failed:\n{done.stderr[-3000:]}")
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


@contextmanager
def topic_of(server: Server, name: str, partitions: int = 1) -> Iterator[None]:
    """Create a topic, and delete it after the block."""
    with raw.RawClient(server.address) as control:
        raw.create_topic(control, name, partitions)
        try:
            yield
        finally:
            raw.delete_topic(control, name)


class Bench:
    """Hold two running brokers, and the rows that were measured.

    Attributes:
        make_ours, make_peer: each makes a server over new log dirs; the server does not run yet.
    """

    def __init__(
        self,
        base: str,
        scale: Scale,
        make_ours: Callable[[list[str]], Server],
        make_peer: Callable[[list[str]], Server],
        peer_name: str,
    ) -> None:
        """Start no broker; `running` starts both."""
        self._base = base
        self.scale = scale
        self.make_ours, self.make_peer = make_ours, make_peer
        self.peer_name = peer_name
        self.rows: list[Row] = []

    @contextmanager
    def server(self, make: Callable[[list[str]], Server]) -> Iterator[Server]:
        """Make a server over a new log dir; after the block, stop it and remove its files."""
        directory = tempfile.mkdtemp(prefix="run-", dir=self._base)
        try:
            log_dir = os.path.join(directory, "logs")
            os.mkdir(log_dir)
            server = make([log_dir])
            try:
                yield server
            finally:
                server.stop()
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    @contextmanager
    def running(self) -> Iterator[tuple[Server, Server]]:
        """Run both servers during a block."""
        with self.server(self.make_ours) as ours, self.server(self.make_peer) as peer:
            for server in (ours, peer):
                first_record(server)
            yield ours, peer

    def alternate(
        self, servers: tuple[Server, Server], measure: Callable[[Server], dict[str, float]]
    ) -> list[tuple[dict[str, float], dict[str, float]]]:
        """Measure both servers round by round; the warm rounds come first."""
        found = []
        for number in range(self.scale.warm_rounds + self.scale.rounds):
            order = servers if number % 2 else servers[::-1]
            measured = {id(server): measure(server) for server in order}
            found.append((measured[id(servers[0])], measured[id(servers[1])]))
        return found[self.scale.warm_rounds :]

    def compare(
        self,
        question: str,
        unit: str,
        rounds: list[tuple[dict[str, float], dict[str, float]]],
        key: str,
        goal: Goal | None = None,
        *,
        is_absolute: bool = False,
    ) -> None:
        """Add a row: the medians of both brokers, and the median of the ratios of the rounds.

        Args:
            is_absolute: whether the goal is for our figure alone; if so, no ratio is shown.
        """
        ours, peers = [one[key] for one, _ in rounds], [other[key] for _, other in rounds]
        ratios = tuple(
            one / other if other else 0.0 for one, other in zip(ours, peers, strict=True)
        )
        self.rows.append(
            Row(
                question, unit, median(ours), self.peer_name, median(peers),
                None if is_absolute else median(ratios), goal, rounds=ratios,
            )
        )  # fmt: skip

    def note(self, question: str, unit: str, figure: float, goal: Goal | None = None) -> None:
        """Add a row with a figure of this broker alone."""
        self.rows.append(Row(question, unit, figure, goal=goal))


@contextmanager
def used_by(server: Server, found: dict[str, float], amount_bytes: float) -> Iterator[None]:
    """Record how many processor seconds a server uses in a block, per GB of `amount_bytes`."""
    before: Usage = usage_of(server.pid)
    yield
    seconds = usage_of(server.pid).cpu_seconds - before.cpu_seconds
    found["cpu"] = seconds / (amount_bytes / 1e9)
