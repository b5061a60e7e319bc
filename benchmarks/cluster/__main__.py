"""Run the demo of the cluster: `python -m benchmarks.cluster [--scale small]`."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from benchmarks.broker.demo.load import Load
from benchmarks.broker.server import usage_of
from benchmarks.cluster import faults
from benchmarks.cluster.faults import Loaded, Replica, Survived
from benchmarks.cluster.processes import SESSION_MS, Brokers, FaultyClusterError, running
from benchmarks.cluster.zookeeper import zookeeper
from logstore.cli.demo.flights import AIRPORTS, Flights, FlightsMissingError, load_flights
from logstore.cli.demo.summary import Page, rate
from logstore.cli.output import rate_text

SHARES = {"full": 1, "small": 20}  # "small" uses one flight of 20
# A client waits this long for a broker that does not answer. The default is a minute.
SOCKET_TIMEOUT_MS = 2000
MEMORY = "/dev/shm"  # brokers record failures of disks on tmpfs


def run(directory: Path, records: Path, parts: Sequence[Flights]) -> bool:
    """Run all steps and print their results; return True if nothing was lost.

    Args:
        directory: where the log dirs are made.
        records: a directory on tmpfs.
    """
    started = time.perf_counter()
    page = Page()
    count = sum(len(flights.values) for flights in parts)
    page.say(f"demo of a cluster: {count:,} flights that left New York in 2013", "bold")
    page.say("three brokers, each with two log dirs; a replica of each airport on every broker")
    with ExitStack() as stack:
        page.head("The cluster: ZooKeeper and three brokers, a process each")
        server = stack.enter_context(zookeeper())
        page.fact("ZooKeeper", f"answers after {time.perf_counter() - started:.1f} s")
        brokers = stack.enter_context(running(directory, records, f"{server.hosts}/demo"))
        page.fact("brokers", f"know each other after {time.perf_counter() - started:.1f} s")
        is_good, log_dirs = produce_through_faults(page, brokers, parts)
        cpu, memory = used_by(brokers)
        is_good &= brokers.stop()
    is_good &= show_check(page, faults.check(log_dirs, parts), count)
    seconds = time.perf_counter() - started
    page.head("What it took")
    page.fact("processor", f"{cpu:.1f} s for the three brokers, as they were at the end")
    page.fact("memory", f"{memory:.0f} MiB at most for a broker")
    page.say()
    verdict = f"{count:,} flights: 0 lost, 0 doubled. Every replica has each of them once, in order"
    page.say(
        f"{verdict if is_good else 'something is wrong'}  ({seconds:.1f} s in all)",
        "bold green" if is_good else "bold red",
    )
    return is_good


def produce_through_faults(
    page: Page, brokers: Brokers, parts: Sequence[Flights]
) -> tuple[bool, dict[int, list[Path]]]:
    """Produce all flights while the brokers have faults; return whether all is well so far."""
    faults.create(brokers.servers, parts)
    producing = Load(brokers.servers, parts, socket_timeout_ms=SOCKET_TIMEOUT_MS)
    try:
        show_load(page, faults.load(producing))
        page.head("A broker is killed under load (SIGKILL), and started again")
        is_good = show(page, faults.kill(brokers, producing))
        page.head("A disk is taken away under load, and an empty one is put in its place")
        is_good &= show(page, faults.fail_disk(brokers, producing))
        times = f"{faults.FROZEN_SECONDS:.2g} s; its session lasts {SESSION_MS / 1000:.2g} s"
        page.head(f"A broker is frozen under load, as if it were cut off (SIGSTOP for {times})")
        is_good &= show(page, faults.freeze(brokers, producing))
        faults.finish(producing)
        faults.wait_in_sync(brokers)
    finally:
        producing.stop()
    ledger = producing.ledger
    is_good &= not (ledger.misplaced or ledger.errors)
    total = sum(len(flights.values) for flights in parts)
    page.head("Produced to the end")
    text = f"{ledger.total:,} of {total:,} flights, {ledger.misplaced} at a wrong offset"
    page.fact("acknowledged", text, is_good=is_good and ledger.total == total)
    log_dirs = {one.id: one.log_dirs for one in brokers.all.values()}
    return is_good and ledger.total == total, log_dirs


def used_by(brokers: Brokers) -> tuple[float, float]:
    """Give the processor time of all brokers, and the peak memory of the largest one."""
    usages = [usage_of(one.pid) for one in brokers.all.values()]
    return sum(one.cpu_seconds for one in usages), max(one.peak_mib for one in usages)


def show_load(page: Page, loaded: Loaded) -> None:
    """Print the figures of the load without a fault."""
    page.head("Produced with confluent-kafka (idempotent, lz4), acks=all, three replicas")
    page.fact("records", f"{loaded.records:,} acknowledged in {loaded.seconds:.2f} s")
    throughput = rate_text(loaded.value_bytes / loaded.seconds)
    page.fact("produced", f"{rate(loaded.records, loaded.seconds)}, {throughput} of values")


def show(page: Page, survived: Survived) -> bool:
    """Print the figures of a fault; return whether it was survived."""
    led = f"{survived.leaders} of 3 airports got another leader"
    page.fact("the fault", f"broker {survived.broker}; {led}")
    page.fact("replaced", f"the next record was acknowledged after {survived.gap_seconds:.2f} s")
    line, seconds = survived.pulse.drawn()
    page.fact("flights", f"{line}  acknowledged in each {seconds:.1f} s")
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
    records = tempfile.mkdtemp(prefix="logstore-demo-cluster-", dir=MEMORY)
    try:
        return 0 if run(Path(directory), Path(records), parts) else 1
    except FaultyClusterError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted: the brokers are ended, their files are removed", file=sys.stderr)
        return 128 + signal.SIGINT
    finally:
        for path in (directory, records):
            shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
