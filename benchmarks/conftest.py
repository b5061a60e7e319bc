"""Provide a directory, sizes and a ledger to the benchmarks; print the ledger at the end."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.compare import Side, Unit, alternate, rows_of
from benchmarks.report import REPOSITORY, Row, file_system, machine, table
from benchmarks.workload import SCALES, Sizes, touch_memory

LEDGER: pytest.StashKey[list[Row]] = pytest.StashKey()
BENCH_DIR: pytest.StashKey[str] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the suite's own options."""
    group = parser.getgroup("logstore benchmarks")
    group.addoption(
        "--bench-dir", help="where the data goes; default: a directory beside the repository"
    )
    group.addoption("--scale", choices=sorted(SCALES), default="full", help="how much to do")
    group.addoption("--strict-goals", action="store_true", help="exit with 1 if a goal is missed")


def pytest_configure(config: pytest.Config) -> None:
    """Start an empty ledger."""
    config.stash[LEDGER] = []


@pytest.fixture(scope="session")
def sizes(pytestconfig: pytest.Config) -> Sizes:
    """Provide the sizes of this run; before the first measurement, touch memory once."""
    chosen = SCALES[pytestconfig.getoption("--scale")]
    touch_memory(chosen.touch_bytes)
    return chosen


@pytest.fixture(scope="session")
def bench_dir(pytestconfig: pytest.Config) -> Iterator[str]:
    """Create one directory for the whole run; remove the directory at the end."""
    parent = pytestconfig.getoption("--bench-dir")
    if parent is None:
        beside = os.path.dirname(REPOSITORY)
        parent = beside if os.access(beside, os.W_OK) else REPOSITORY
    os.makedirs(parent, exist_ok=True)
    path = tempfile.mkdtemp(prefix="logstore-bench-", dir=parent)
    pytestconfig.stash[BENCH_DIR] = path
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def new_dir(bench_dir: str) -> Callable[[], str]:
    """Provide a function that creates a new empty directory at each call."""
    names = itertools.count()

    def make() -> str:
        path = os.path.join(bench_dir, f"{next(names):06d}")
        os.mkdir(path)
        return path

    return make


class Ledger:
    """Collect rows for the table, and put them into pytest-benchmark's JSON."""

    def __init__(self, benchmark: BenchmarkFixture, rows: list[Row], bench_dir: str) -> None:
        self._benchmark = benchmark
        self._rows = rows
        self._bench_dir = bench_dir

    def compare(
        self, question: str, unit: Unit, engine: Side, peers: Sequence[Side], rounds: int,
        **facts: Any,
    ) -> None:  # fmt: skip
        """Run a comparison, and add its rows to the ledger."""
        alternate(self._benchmark, engine, peers, rounds)
        self.note(rows_of(question, unit, engine, peers), **facts)

    def note(self, rows: list[Row], **facts: Any) -> None:
        """Add rows to the ledger; `facts` are written into the JSON."""
        self._rows += rows
        first = rows[0]
        noted = self._benchmark.extra_info.get("rows", [])
        info = {
            "layout": "directory",
            "disks": 1,
            "fs": file_system(self._bench_dir),
            "sync": "none",
            "bytes": None,
            "records": None,
            "question": first.question,
            "ratio": first.ratio,
            "goal": None if first.goal is None else str(first.goal),
            "rows": noted + [row.to_dict() for row in rows],
        }
        if noted:  # keep the facts of the first comparison
            info = {"rows": info["rows"]}
        self._benchmark.extra_info.update(info | facts)


@pytest.fixture
def ledger(
    benchmark: BenchmarkFixture, pytestconfig: pytest.Config, bench_dir: str, sizes: Sizes
) -> Ledger:
    """Provide a ledger for the benchmark that requests it."""
    return Ledger(benchmark, pytestconfig.stash[LEDGER], bench_dir)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the table."""
    rows = config.stash[LEDGER]
    if not rows:
        return
    terminalreporter.section("engine against peers")
    terminalreporter.write_line(machine(config.stash[BENCH_DIR]))
    terminalreporter.write_line("")
    for line in table(rows):
        terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a missed goal fail the run, if `--strict-goals` is set."""
    missed = any(row.shortfall for row in session.config.stash[LEDGER])
    if missed and session.config.getoption("--strict-goals") and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
