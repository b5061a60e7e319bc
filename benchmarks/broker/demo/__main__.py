"""Run the demo of the broker: `python -m benchmarks.broker.demo [--scale small]`."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from types import FrameType

from benchmarks.broker import raw
from benchmarks.broker.demo import steps, summary
from benchmarks.broker.demo.group import Group
from benchmarks.broker.demo.load import TOPIC, Load
from benchmarks.broker.server import BrokerProcess
from logstore.cli.demo.flights import Flights, FlightsMissingError, load_flights
from logstore.cli.demo.summary import Page

DIR_NAMES = ("disk1", "disk2", "disk3")
SHARES = {"full": 1, "small": 20}  # "small" uses one flight of 20


def run(directory: str, parts: Sequence[Flights]) -> bool:
    """Run all steps in `directory` and print their results; return True if nothing was lost."""
    started = time.perf_counter()
    page = Page()
    count = sum(len(flights.values) for flights in parts)
    page.say(f"demo of logstore broker: {count:,} flights that left New York in 2013", "bold")
    page.say(f"one partition per airport, three log dirs in {directory}")
    log_dirs = [os.path.join(directory, name) for name in DIR_NAMES]
    server = BrokerProcess(log_dirs, os.path.join(directory, "broker.out"))
    group, producing = Group(server.address, parts), Load(server.address, parts)
    try:
        summary.show_start(page, server.start(), server.usage)
        with raw.RawClient(server.address) as client:
            # The records have timestamps of 2013. With the default retention of a week, the broker
            # would delete them.
            raw.create_topic(client, TOPIC, len(parts), retention_ms="-1")
        loaded = steps.load(server, producing, group)
        summary.show_load(page, loaded)
        page.head("A move to another disk by AlterReplicaLogDirs, under load")
        moved = steps.move(
            server, producing, lambda *progress: summary.show_move_line(page, *progress)
        )
        is_good = summary.show_move(page, moved)
        killed = steps.kill(server, producing, group)
        is_good &= summary.show_kill(page, killed)
        before = producing.ledger.total
        last = steps.go_on(producing, group)
        is_good &= summary.show_group(page, group, last, producing.ledger.total - before)
        checked, used = steps.check(server, producing)
        is_good &= summary.show_check(page, producing.ledger, checked)
    finally:
        server.stop()
        producing.stop()
        group.abandon()
    is_good &= producing.ledger.total == count and all(loaded.shares)
    seconds = time.perf_counter() - started
    value_bytes = sum(len(value) for flights in parts for value in flights.values)
    summary.show_costs(page, value_bytes, [killed.used, used], seconds)
    page.say()
    verdict = "0 lost, 0 doubled: every acknowledged record is there, once"
    page.say(
        f"{verdict if is_good else 'something is wrong'}  ({seconds:.1f} s in all)",
        "bold green" if is_good else "bold red",
    )
    return is_good


def thinned(parts: Sequence[Flights], step: int) -> list[Flights]:
    """Take one flight in `step` of each airport."""
    return [
        Flights(flights.values[::step], flights.keys[::step], flights.timestamps[::step])
        for flights in parts
    ]


def stop(number: int, frame: FrameType | None) -> None:
    """End this process in order, as after Ctrl-C: the broker ends, and its files are removed."""
    raise KeyboardInterrupt


def main() -> int:
    """Run the demo in a directory of its own; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker.demo", description=__doc__)
    parser.add_argument("--scale", choices=sorted(SHARES), default="full")
    chosen = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        parts = thinned(load_flights(), SHARES[chosen.scale])
    except FlightsMissingError as error:
        print(error, file=sys.stderr)
        return 2
    directory = tempfile.mkdtemp(prefix="logstore-demo-broker-")
    try:
        return 0 if run(directory, parts) else 1
    except KeyboardInterrupt:
        print("\ninterrupted: the broker is ended, its files are removed", file=sys.stderr)
        return 128 + signal.SIGINT
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
