"""Run the demo of the cluster: `python -m benchmarks.cluster [--scale small]`."""

from __future__ import annotations

import argparse
import logging
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from types import FrameType

from benchmarks.broker.demo.load import Load
from benchmarks.cluster import faults
from benchmarks.cluster.faults import Loaded, Replica, Survived
from cluster import Cluster
from logstore.cli.demo.flights import AIRPORTS, Flights, FlightsMissingError, load_flights
from logstore.cli.demo.summary import Page, rate
from logstore.cli.output import rate_text

SHARES = {"full": 1, "small": 20}  # "small" uses one flight of 20
SESSION_SECONDS = 1.0
# A client waits this long for a broker that does not answer. The default is half a minute.
REQUEST_TIMEOUT_MS = 2000


def run(directory: str, parts: Sequence[Flights]) -> bool:
    """Run all steps in `directory` and print their results; return True if nothing was lost."""
    started = time.perf_counter()
    page = Page()
    count = sum(len(flights.values) for flights in parts)
    page.say(f"demo of a cluster: {count:,} flights that left New York in 2013", "bold")
    page.say("three brokers with two log dirs each, a replica of each airport on every broker")
    with Cluster.start(
        faults.BROKERS, faults.LOG_DIRS, directory=directory, session_seconds=SESSION_SECONDS
    ) as cluster:
        page.head("The cluster, in this process")
        page.fact("started", f"in {time.perf_counter() - started:.2f} s")
        faults.create(cluster, len(parts))
        producing = Load(cluster.bootstrap_servers, parts, request_timeout_ms=REQUEST_TIMEOUT_MS)
        try:
            show_load(page, faults.load(producing))
            is_good = show(page, "A broker is killed under load", faults.kill(cluster, producing))
            failed = faults.fail_disks(cluster, producing)
            is_good &= show(page, "All disks of a broker fail under load", failed)
            title = "A broker is cut off from the other brokers under load"
            is_good &= show(page, title, faults.cut(cluster, producing))
            faults.finish(producing)
        finally:
            producing.stop()
        ledger = producing.ledger
        is_good &= ledger.total == count and not (ledger.misplaced or ledger.errors)
        cluster.close()
        is_good &= show_check(page, faults.check(cluster, parts), count)
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = time.perf_counter() - started
    page.head("What it took")
    page.fact("processor", f"{used.ru_utime + used.ru_stime:.1f} s for brokers and client together")
    page.fact("memory", f"{used.ru_maxrss / 1024:.0f} MiB at most, with the flights")
    page.say()
    verdict = "0 lost, 0 doubled: every acknowledged record is in every replica, once"
    page.say(
        f"{verdict if is_good else 'something is wrong'}  ({seconds:.1f} s in all)",
        "bold green" if is_good else "bold red",
    )
    return is_good


def show_load(page: Page, loaded: Loaded) -> None:
    """Print the figures of the load without a fault."""
    page.head("Produced with confluent-kafka (idempotent, lz4), acks=all, three replicas")
    page.fact("records", f"{loaded.records:,} acknowledged in {loaded.seconds:.2f} s")
    throughput = rate_text(loaded.value_bytes / loaded.seconds)
    page.fact("produced", f"{rate(loaded.records, loaded.seconds)}, {throughput} of values")


def show(page: Page, title: str, survived: Survived) -> bool:
    """Print the figures of a fault; return whether it was survived."""
    page.head(title)
    page.fact("the fault", f"broker {survived.broker}, the leader of {survived.leaders} airports")
    page.fact("replaced", f"the next record was acknowledged after {survived.gap_seconds:.2f} s")
    is_good = survived.acknowledged > 0
    page.fact("went on", f"{survived.acknowledged:,} flights acknowledged", is_good=is_good)
    page.fact("caught up", f"all replicas in sync {survived.caught_up_seconds:.2f} s after its end")
    return is_good


def show_check(page: Page, found: list[Replica], count: int) -> bool:
    """Print what is in the replicas; return whether all of them have all flights."""
    page.head("Every record of every replica, compared with its flight")
    is_good = True
    for broker in sorted({one.broker for one in found}):
        rows = [one for one in found if one.broker == broker]
        is_whole = sum(one.records for one in rows) == count and not any(one.wrong for one in rows)
        is_good &= is_whole
        airports = ", ".join(
            f"{AIRPORTS[one.partition]} {one.records:,} in {os.path.basename(one.log_dir)}"
            for one in rows
        )
        page.fact(f"broker {broker}", airports, is_good=is_whole)
    return is_good


def thinned(parts: Sequence[Flights], step: int) -> list[Flights]:
    """Take one flight in `step` of each airport."""
    return [
        Flights(flights.values[::step], flights.keys[::step], flights.timestamps[::step])
        for flights in parts
    ]


def stop(number: int, frame: FrameType | None) -> None:
    """End this process in order, as after Ctrl-C: the brokers end, and their files are removed."""
    raise KeyboardInterrupt


def main() -> int:
    """Run the demo in a directory of its own; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--scale", choices=sorted(SHARES), default="full")
    chosen = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        parts = thinned(load_flights(), SHARES[chosen.scale])
    except FlightsMissingError as error:
        print(error, file=sys.stderr)
        return 2
    directory = tempfile.mkdtemp(prefix="logstore-demo-cluster-")
    logging.getLogger().addHandler(logging.NullHandler())  # the faults are warned about
    try:
        return 0 if run(directory, parts) else 1
    except KeyboardInterrupt:
        print("\ninterrupted: the brokers are ended, their files are removed", file=sys.stderr)
        return 128 + signal.SIGINT
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
