"""Run a plan on directories that the user names, and put the figures into rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any

from logstore.bench.bed import Bed
from logstore.bench.cases import PLANS, Case, moves
from logstore.bench.runner import Layout, Outcome, run_cases, write_document
from logstore.bench.samples import Trace
from logstore.disk import files

Row = dict[str, Any]


def measure(
    paths: list[str], plan: str, out: str | None, show: Callable[[int, int], object]
) -> tuple[list[Row], dict[str, str]]:
    """Measure, and give the rows and what could not be removed again."""
    if out is None:
        with TemporaryDirectory(prefix="logstore-bench-") as kept:
            return _measure(paths, plan, kept, show)
    if not files.exists(out):
        files.make_dir(os.path.abspath(out))
    return _measure(paths, plan, out, show)


def _measure(
    paths: list[str], plan: str, out: str, show: Callable[[int, int], object]
) -> tuple[list[Row], dict[str, str]]:
    cases = list(PLANS[plan].cases)
    if len(paths) > 1:
        cases += moves(PLANS[plan])
    layout = layout_of(paths)

    def tell(_case: str, number: int, count: int) -> None:
        show(number, count)

    with Bed(paths) as bed, Trace(os.path.join(out, "trace")) as trace:
        outcomes = run_cases(layout, bed, cases, trace, make=moving, progress=tell)
    write_document(out, layout, bed, outcomes)
    return [row_of(outcome) for outcome in outcomes], bed.left_behind


def moving(bed: Bed, case: Case) -> Any:
    """Make the phase with a move; the mover knows the engine, and not the other way round."""
    return import_module("mover.bench").MovePhase(bed, case)


def layout_of(paths: list[str]) -> Layout:
    """Describe directories of which no more is known than what statvfs says."""
    usage = {files.stat(path).st_dev: files.statvfs(path) for path in paths}
    total = sum(facts.f_blocks * facts.f_frsize for facts in usage.values())
    usable = sum(facts.f_bavail * facts.f_frsize for facts in usage.values())
    note = "" if len(usage) == len(paths) else "several of the directories are on one file system"
    return Layout("directories", "as found", len(usage), len(paths), total, usable, note)


def row_of(outcome: Outcome) -> Row:
    """Give what a person wants to know of one case."""
    return {
        "phase": outcome.case.phase,
        "case": outcome.case.name,
        "bytes_per_second": outcome.bytes_per_second,
        "records_per_second": outcome.records_per_second,
        "ms_p50": outcome.latency_ms(50),
        "ms_p99": outcome.latency_ms(99),
        "rounds": len(outcome.seconds),
    }
