"""Measure every layout and make the page: `python -m benchmarks.layouts --out DIR`."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.layouts import interrupts
from benchmarks.layouts.catalogue import BY_NAME, LAYOUTS, Spec
from benchmarks.layouts.disks import IMAGE_BYTES, Device, mounted, sweep, what_is_missing
from benchmarks.layouts.processes import AppendByProcesses
from logstore.bench.bed import Bed
from logstore.bench.cases import PLANS, Case, Plan, moves, troubles
from logstore.bench.phases import Beside, Phase
from logstore.bench.report import check_extra
from logstore.bench.runner import Layout, run_cases, write_document
from logstore.bench.samples import Trace
from mover.bench import MovePhase

BYTES_PER_SECOND = 50_000_000
SLOW_FACTOR = 10
FILLER_BYTES_MIN = 4096
IDLE_LOAD_MAX = 0.5


def caveats(plan: str, load: float) -> list[str]:
    """Return the facts that a reader must know to judge the figures.

    Args:
        load: the average number of processes that needed a processor in the minute before the run.
    """
    found = [
        "Each disk is a loop device over memory, limited to "
        f"{BYTES_PER_SECOND / 1e6:.0f} MB/s in each direction. It has no seek time and no cache, "
        "so only the number of bytes counts. On mechanical disks, small and random accesses are "
        "slower than here.",
        "The speed limit is applied per tenth of a second, and an idle disk saves up one such "
        "share. So a round of one second may be up to a tenth faster than the set speed, and a "
        "shorter round even more.",
        "All disks here share the processor and the memory bus; real disks do not. With eight "
        "disks, and with durable appends, the processor and the memory bus are the limit, not the "
        "disks.",
        "RAID is the RAID of btrfs. A hardware controller or md may be faster. Btrfs copies parity "
        "on write, so small writes need no read-modify-write. Its RAID-1 writes each block to two "
        "of the four disks.",
        f"The disks are small ({IMAGE_BYTES >> 20} MiB), so the space that a file system needs for "
        "itself is a larger part than on real disks.",
        f"This is the {plan} plan. It has few rounds, so small differences have no meaning.",
    ]
    if load > IDLE_LOAD_MAX:
        found.insert(
            0,
            "Other work ran on this machine during the measurement: the load was "
            f"{load:.1f} at the beginning. This changes ratios, and latencies even more.",
        )
    return found


class Troubles:
    """Make the first disk of a layout slow, full or dead, and healthy again."""

    def __init__(self, devices: list[Device], places: list[Path]) -> None:
        self._device, self._place = devices[0], places[0]

    def of(self, what: str) -> Callable[[], Callable[[], None]]:
        """Return a function that changes the disk; its result is a function to undo the change."""
        return {
            "healthy": lambda: lambda: None,
            "slow": self._slow,
            "full": self._full,
            "failed": self._failed,
        }[what]

    def _slow(self) -> Callable[[], None]:
        self._device.throttle(BYTES_PER_SECOND // SLOW_FACTOR)
        return lambda: self._device.throttle(BYTES_PER_SECOND)

    def _full(self) -> Callable[[], None]:
        filler = self._place / "filler"
        facts = os.statvfs(self._place)
        with filler.open("wb") as file:
            size = facts.f_bavail * facts.f_frsize
            while size >= FILLER_BYTES_MIN:  # a file system may have less space than it reports
                try:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)
                except OSError:
                    size //= 2
        return filler.unlink

    def _failed(self) -> Callable[[], None]:
        self._device.cut()
        return lambda: None


def measure_layout(spec: Spec, plan: Plan, out: str, show: Callable[..., None]) -> None:
    """Create the disks of one layout, run its cases, and write its document."""
    with mounted(spec.fs, spec.disks, BYTES_PER_SECOND, spec.profile) as (devices, places):
        facts = [os.statvfs(place) for place in places]
        usable = sum(fact.f_bavail * fact.f_frsize for fact in facts)
        raw = spec.disks * IMAGE_BYTES
        layout = Layout(
            spec.name, spec.fs, spec.disks, len(places), raw, usable, spec.note, BYTES_PER_SECOND
        )
        trouble = Troubles(devices, places)

        def make(bed: Bed, case: Case) -> Phase:
            if case.phase == "append":
                return AppendByProcesses(bed, case)
            if case.phase == "beside":
                return Beside(bed, case, trouble.of(case.detail))
            return MovePhase(bed, case)

        with Bed([str(place) for place in places]) as bed, Trace(f"{out}/trace") as trace:
            own = {"append"} if spec.is_process_per_disk else set()
            outcomes = run_cases(
                layout, bed, cases_of(spec, plan), trace, make=make, own=own, progress=show
            )
        write_document(out, layout, bed, outcomes)


def cases_of(spec: Spec, plan: Plan) -> list[Case]:
    """Return the cases that make sense for a layout; the case with a dead disk is the last."""
    if spec.is_process_per_disk:
        return [
            case for case in plan.cases if case.phase == "append" and case.writers % spec.disks == 0
        ]
    with_move = [] if spec.profile or spec.disks == 1 else list(moves(plan))
    return [*plan.cases, *with_move, *troubles(plan)]


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="bench-layouts", help="where the page goes; replaced")
    parser.add_argument("--plan", choices=sorted(PLANS), default="short")
    parser.add_argument("--only", nargs="*", choices=sorted(BY_NAME), help="these layouts only")
    parser.add_argument("--no-page", action="store_true", help="measure only")
    return parser.parse_args()


def make_place(out: str) -> bool:
    """Create or empty the directory of the results; return False if it has other files."""
    if os.path.exists(out):
        if os.listdir(out) and not os.path.isdir(os.path.join(out, "trace")):
            return False
        shutil.rmtree(out)
    os.makedirs(out)
    return True


def tell(head: str, began: float, what: str, at: int, count: int) -> None:
    """Print the case that is measured next; raise an interrupt that Python has ignored."""
    interrupts.check()
    print(f"{time.monotonic() - began:6.0f} s  {head}: {at + 1}/{count} {what}", flush=True)


def main() -> int:
    """Measure the layouts and make the page; return the exit code."""
    chosen = options()
    missing = what_is_missing()
    if missing:
        print("cannot make disks here: " + "; ".join(missing), file=sys.stderr)
        print("`logstore bench --log-dirs ...` measures directories without root", file=sys.stderr)
        return 2
    if not chosen.no_page:
        check_extra()
    interrupts.obey()
    logging.getLogger("logstore").setLevel(logging.CRITICAL)  # the bad disks cause errors
    for name in sweep():
        print(f"removed the disks of a killed run: {name}", file=sys.stderr)
    out = os.path.abspath(chosen.out)
    if not make_place(out):
        print(f"{out} has other files than results: name another --out", file=sys.stderr)
        return 2
    load = os.getloadavg()[0]
    began = time.monotonic()
    specs = [spec for spec in LAYOUTS if not chosen.only or spec.name in chosen.only]
    for number, spec in enumerate(specs, 1):
        show = partial(tell, f"{number}/{len(specs)} {spec.name}", began)
        measure_layout(spec, PLANS[chosen.plan], out, show)
    if not chosen.no_page:
        from logstore.bench.report.page import make_page
        from logstore.spark import session

        page = make_page(
            session(),
            out,
            f"{out}/trace",
            "Kafka-style logs on JBOD and RAID",
            caveats(chosen.plan, load),
        )
        print(f"{time.monotonic() - began:6.0f} s  page: {page}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt as interrupt:
        print("interrupted; the disks are removed", file=sys.stderr)
        sys.exit(128 + (interrupt.args[0] if interrupt.args else signal.SIGINT))
