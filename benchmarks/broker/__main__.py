"""Compare `logstore broker` with Apache Kafka 4.1 on this machine: `make bench-broker`.

Run as `python -m benchmarks.broker [--scale small|full] [--bench-dir DIR] [--only CASE]`. The two
brokers take turns. They have the same clients, and use the same file system.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

from benchmarks.broker.bench import SCALES, Bench, Server
from benchmarks.broker.cases import NAMES, measure_all
from benchmarks.broker.server import BrokerProcess
from benchmarks.kafka import java
from benchmarks.kafka.broker import Broker as KafkaBroker
from benchmarks.report import REPOSITORY, machine, table


def raise_limit() -> None:
    """Let this process and its children open as many files as the system permits."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def make_ours(log_dirs: list[str]) -> Server:
    """Make a `logstore broker`; its output goes to a file beside its log dir."""
    return BrokerProcess(log_dirs, os.path.join(os.path.dirname(log_dirs[0]), "output"))


def kafka_of(home: Path) -> Callable[[list[str]], Server]:
    """Return a function that formats log dirs for Kafka, and makes a broker that is not started."""
    return partial(KafkaBroker, home, is_started=False)


def stop(number: int, frame: FrameType | None) -> None:
    """End this process in order, so that the brokers end, too."""
    raise KeyboardInterrupt


def main() -> int:
    """Compare and print the table; return exit code 2 if Java or Maven is missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker", description=__doc__)
    parser.add_argument("--scale", choices=sorted(SCALES), default="full")
    parser.add_argument("--bench-dir", default=os.path.dirname(REPOSITORY))
    parser.add_argument("--only", choices=NAMES, action="append")
    parser.add_argument("--json", help="write the rows there")
    chosen = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        home = java.fetch()
    except java.MissingError as error:
        print(f"cannot compare with Kafka: {error}", file=sys.stderr)
        return 2
    raise_limit()
    base = tempfile.mkdtemp(prefix="logstore-bench-broker-", dir=chosen.bench_dir)
    try:
        load, began = os.getloadavg()[0], time.monotonic()
        peer_name = f"Kafka {java.VERSION}"
        bench = Bench(base, SCALES[chosen.scale], make_ours, kafka_of(home), peer_name)

        def show(name: str) -> None:
            print(f"{time.monotonic() - began:6.0f} s  {name}", file=sys.stderr, flush=True)

        try:
            measure_all(bench, chosen.only or NAMES, show)
        finally:  # if a case fails, print the figures of the other cases
            print(machine(base))
            print(f"{time.strftime('%Y-%m-%d')}, load {load:.1f} before, medians of", end=" ")
            print(f"{bench.scale.rounds} rounds, records of 100 bytes\n")
            print("\n".join(table(bench.rows)))
            if chosen.json:
                Path(chosen.json).write_text(json.dumps([row.to_dict() for row in bench.rows]))
    except KeyboardInterrupt:
        print("interrupted: the brokers are ended, their files are removed", file=sys.stderr)
        return 128 + signal.SIGINT
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
