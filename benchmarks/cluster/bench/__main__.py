"""Compare three brokers of this project with three of Apache Kafka 4.1: `make bench-cluster`.

Run as `python -m benchmarks.cluster.bench [--scale small|full] [--only STEP] [--side ours|peer]`.
Only one of the two clusters runs at a time. The clients are the same, and so is the file system.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmarks.broker.__main__ import raise_limit, stop
from benchmarks.cluster.bench import elections
from benchmarks.cluster.bench.clusters import Cluster, kafka, ours
from benchmarks.cluster.bench.plan import OURS, PEER, SCALES, Scale, questions, rows_of, turns
from benchmarks.cluster.bench.session import STEPS, Measured, measure
from benchmarks.kafka import java
from benchmarks.report import REPOSITORY, Row, at_most, machine, table

ELECTION_CPU_SECONDS_MAX = 5.0
ELECTIONS = "elections"


class Run:
    """A whole run; the figures of the sessions that have ended are kept if one fails."""

    def __init__(self, base: str, home: Path | None, scale: Scale, steps: list[str]) -> None:
        self._base, self._home, self.scale, self.steps = base, home, scale, steps
        self._began = time.monotonic()
        self.sessions: dict[str, list[dict[str, list[float]]]] = {OURS: [], PEER: []}
        self.elected: elections.Elected | None = None

    def show(self, words: str) -> None:
        """Print what is done now, with the time since the start."""
        seconds = time.monotonic() - self._began
        print(f"{seconds:6.0f} s  {words}", file=sys.stderr, flush=True)

    def measure(self, sides: list[str]) -> None:
        """Measure all sessions of some sides in their order, then the elections."""
        for turn in turns(self.scale.sessions):
            if turn.side in sides and set(self.steps) & STEPS.keys():
                self.show(f"{turn.side} {turn.number + 1}: start")
                with self._cluster(turn.side) as cluster:
                    session = Measured(cluster, self.scale, turn.number)
                    self.sessions[turn.side].append(session.figures)
                    measure(session, self.steps, self.show)
        if ELECTIONS in self.steps and OURS in sides:
            self.show(ELECTIONS)
            controller = elections.controller_of(self.scale.elected_partitions)
            self.elected = elections.elect(controller)

    def _cluster(self, side: str) -> AbstractContextManager[Cluster]:
        if side == OURS:
            return ours(self._base)
        assert self._home is not None
        return kafka(self._home, self._base)

    def rows(self) -> list[Row]:
        """Make the rows of the table."""
        mine, peers = self.sessions[OURS], self.sessions[PEER]
        rows = rows_of(questions(self.scale), mine, peers, f"Kafka {java.VERSION}")
        if (found := self.elected) is not None:
            words = (
                f"rules of the controller, {self.scale.elected_partitions:,} partitions: "
                f"{found.elected:,} elected, {found.written:,} states written"
            )
            goal = at_most(ELECTION_CPU_SECONDS_MAX)
            rows.append(Row(words, "CPU s", found.cpu_seconds, goal=goal))
        return rows


def report(run: Run, heading: list[str], json_path: str | None) -> None:
    """Print the table, and write the JSON with the figures of all rounds."""
    rows = run.rows()
    print("\n".join(heading) + "\n")
    print("\n".join(table(rows)))
    if json_path:
        document: dict[str, Any] = {
            "heading": heading, "rows": [row.to_dict() for row in rows], "sessions": run.sessions,
        }  # fmt: skip
        Path(json_path).write_text(json.dumps(document, indent=1) + "\n")


def main() -> int:
    """Compare and print the table; return exit code 2 if Java or Maven is missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster.bench", description=__doc__)
    parser.add_argument("--scale", choices=sorted(SCALES), default="full")
    parser.add_argument("--bench-dir", default=os.path.dirname(REPOSITORY))
    parser.add_argument("--only", choices=[*STEPS, ELECTIONS], action="append")
    parser.add_argument("--side", choices=[OURS, PEER], action="append")
    parser.add_argument("--json", help="write the rows and all figures there")
    chosen = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    sides, steps = chosen.side or [OURS, PEER], chosen.only or [*STEPS, ELECTIONS]
    home = None
    try:
        if PEER in sides:
            home = java.fetch()
    except java.MissingError as error:
        print(f"cannot compare with Kafka: {error}", file=sys.stderr)
        return 2
    raise_limit()
    base = tempfile.mkdtemp(prefix="logstore-bench-cluster-", dir=chosen.bench_dir)
    run, load = Run(base, home, SCALES[chosen.scale], steps), os.getloadavg()[0]
    try:
        run.measure(sides)
    except KeyboardInterrupt:
        print("interrupted: the brokers are ended, their files are removed", file=sys.stderr)
        return 128 + signal.SIGINT
    finally:  # if a session fails, print the figures of the other sessions
        words = (
            f"{time.strftime('%Y-%m-%d')}, load {load:.1f} before, {run.scale.sessions} sessions"
        )
        report(run, [machine(base), f"{words} of each cluster"], chosen.json)
        shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
