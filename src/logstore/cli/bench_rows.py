"""Run a bench plan on directories that the user names, and return the results as rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any

import click

from logstore.bench.bed import Bed
from logstore.bench.cases import PLANS, Case, moves
from logstore.bench.runner import Layout, Outcome, run_cases, write_document
from logstore.bench.samples import Trace
from logstore.cli.interrupts import held
from logstore.cli.options import note
from logstore.cli.output import Show
from logstore.disk import files
from logstore.disk.dir_lock import DirLock

Row = dict[str, Any]


def measure(paths: list[str], plan: str, out: str | None, show: Show) -> list[Row]:
    """Measure directories, return the results, and remove everything that was written there.

    Raises:
        click.UsageError: a directory is named twice, or the directory for the results is not empty.
        LogDirLockedError: a directory has a store that is in use.
    """
    if len({files.real_path(path) for path in paths}) < len(paths):
        raise click.UsageError("a directory is named twice: name one directory per disk")
    if out is None:
        with TemporaryDirectory(prefix="logstore-bench-") as kept:
            return _measure(paths, plan, kept, show)
    out = os.path.abspath(out)
    if not files.exists(out):
        files.make_dir(out)
    elif files.entries(out):
        raise click.UsageError(f"{out} is not empty: name a new directory for the results")
    return _measure(paths, plan, out, show)


def _measure(paths: list[str], plan: str, out: str, show: Show) -> list[Row]:
    cases = list(PLANS[plan].cases)
    if len(paths) > 1:
        cases += moves(PLANS[plan])

    with held() as interrupts, kept_from_owners(paths):

        def tell(_case: str, number: int, count: int) -> None:
            show(number, count)
            # Raise the interrupt here: Python may ignore an exception that a signal handler raises.
            if interrupts.asked:
                raise KeyboardInterrupt(interrupts.number)

        layout = layout_of(paths)
        bed = Bed(paths)
        try:
            with bed, Trace(os.path.join(out, "trace")) as trace:
                bed.check_room_for(cases)
                try:
                    with interrupts.allowed():
                        outcomes = run_cases(layout, bed, cases, trace, make=moving, progress=tell)
                except KeyboardInterrupt:
                    interrupts.asked = 0  # a second Ctrl-C must not interrupt the removal
                    raise
            write_document(out, layout, bed, outcomes)
        finally:
            for path, reason in bed.left_behind.items():
                note(f"warning: {path} could not be removed: {reason}")
    return [row_of(outcome) for outcome in outcomes]


@contextmanager
def kept_from_owners(paths: list[str]) -> Iterator[None]:
    """Lock the stores in these directories, so that no store is used during the bench.

    A directory without a lock file is not locked.
    """
    with ExitStack() as stack:
        for path in paths:
            lock = DirLock(path)
            if files.exists(lock.path):
                lock.acquire()
                stack.callback(lock.release)
        yield


def moving(bed: Bed, case: Case) -> Any:
    """Create the phase `move`, which measures appends during a move.

    `logstore.bench` cannot create this phase, because `logstore.bench` must not import the mover.
    """
    return import_module("mover.bench").MovePhase(bed, case)


def layout_of(paths: list[str]) -> Layout:
    """Describe the directories of a bench; their file systems may also have other files.

    If a file system has other files, its free bytes do not show how much space a layout needs. So
    the sizes of the layout are given as 0 (unknown).
    """
    disks = {files.stat(path).st_dev for path in paths}
    note = "" if len(disks) == len(paths) else "several of the directories are on one file system"
    return Layout("directories", "as found", len(disks), len(paths), 0, 0, note)


def row_of(outcome: Outcome) -> Row:
    """Return the row of one case for the table."""
    return {
        "phase": outcome.case.phase,
        "case": outcome.case.name,
        "bytes_per_second": outcome.bytes_per_second,
        "records_per_second": outcome.records_per_second,
        "ms_p50": outcome.latency_ms(50),
        "ms_p99": outcome.latency_ms(99),
        "rounds": len(outcome.seconds),
    }
