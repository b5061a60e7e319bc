"""The comparison of the broker with Kafka is run by hand; all its cases run here without Java."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.broker.__main__ import make_ours
from benchmarks.broker.bench import SCALES, Bench
from benchmarks.broker.cases import measure_all
from benchmarks.broker.server import usage_of
from benchmarks.report import at_most, table
from support.broker_process import processes_in

REPOSITORY = Path(__file__).resolve().parents[2]
QUESTIONS = (
    "produce, batches of 16 KiB",
    "produce, batches of 16 KiB: CPU",
    "produce, batches of 1 MB",
    "produce, batches of 1 MB: CPU",
    "produce, 20 partitions, small batches",
    "fetch",
    "fetch: CPU",
    "2,000 records/s, acks=all: p99",
    "20 producing connections",
    "ceiling: produce, raw, batches of 100 bytes",
    "ceiling: produce, raw, batches of 16 KiB",
    "ceiling: produce, raw, batches of 1 MB",
    "ceiling: fetch, raw",
    "resident memory after the load",
    "50 waiting consumers: more memory",
    "start to first record",
    "start to first record, 20 partitions",
)


def test_without_java_it_says_what_to_install(tmp_path: Path) -> None:
    """Exit code 2 and one line; nothing is left behind."""
    paths = [str(REPOSITORY / "src"), *(path for path in sys.path if path)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.broker", "--bench-dir", str(tmp_path)],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "java is not installed" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_every_case_has_its_figures(tmp_path: Path) -> None:
    """Two brokers of our own are compared, in tiny; nothing is left behind."""
    bench = Bench(str(tmp_path), SCALES["tiny"], make_ours, make_ours, "itself")
    measure_all(bench)
    assert {row.question for row in bench.rows} >= set(QUESTIONS)
    for row in bench.rows:
        assert math.isfinite(row.figure), row
        assert row.figure >= 0, row
        is_rate = row.unit.endswith("/s")
        assert row.figure > 0 or not is_rate, row
    assert any("itself" in line for line in table(bench.rows))
    assert list(tmp_path.iterdir()) == []
    assert processes_in(tmp_path) == []


def test_a_row_has_the_median_of_the_ratios_of_the_rounds() -> None:
    """A goal is for this ratio, or for our own figure where it is absolute."""
    bench = Bench("", SCALES["tiny"], make_ours, make_ours, "peer")
    rounds = [({"s": 1.0}, {"s": 4.0}), ({"s": 3.0}, {"s": 3.0}), ({"s": 2.0}, {"s": 1.0})]
    bench.compare("relative", "s", rounds, "s", at_most(0.5))
    bench.compare("absolute", "s", rounds, "s", at_most(5), is_absolute=True)
    relative, absolute = bench.rows
    assert (relative.figure, relative.peer_figure, relative.ratio) == (2.0, 3.0, 1.0)
    assert relative.verdict == "short by 100%"
    assert (absolute.figure, absolute.peer_figure, absolute.ratio) == (2.0, 3.0, None)
    assert absolute.verdict == "ok"


def test_the_processor_time_and_memory_of_a_process_are_read_from_proc() -> None:
    """They agree with what the process itself is told."""
    before = usage_of(os.getpid())
    own = sum(os.times()[:2])
    sum(number * number for number in range(2_000_000))
    after = usage_of(os.getpid())
    assert after.cpu_seconds - before.cpu_seconds == pytest.approx(
        sum(os.times()[:2]) - own, abs=0.05
    )
    assert 1 < after.resident_mib <= after.peak_mib
