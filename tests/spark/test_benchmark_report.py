"""Hold the benchmarks' pipeline to its steps: samples to a topic, Spark, parquet, plots, page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from logstore import LogStore
from logstore.bench.bed import Bed
from logstore.bench.cases import Case
from logstore.bench.report.page import make_page
from logstore.bench.runner import Layout, Outcome, measurement_of, run_cases, write_document
from logstore.bench.samples import TOPIC, Sampler, Trace, joined

SPEED = 20e6
APPEND = Case("append", 1024, 100, "interval", 4, seconds=0.01, rounds=2)  # as the plots show
READ = Case("read", seconds=0.01, rounds=1)
LAYOUT = Layout("jbod2", "as found", 2, 2, 1000, 500, set_bytes_per_second=10_000_000)


@pytest.fixture
def results(tmp_path: Path) -> tuple[Path, list[Outcome]]:
    """Measure two cases on two directories, add a move's sample, and give where the results are."""
    out = tmp_path / "out"
    for name in ("a", "b", "out"):
        (tmp_path / name).mkdir()
    bed = Bed([str(tmp_path / "a"), str(tmp_path / "b")], SPEED)
    moved = Sampler(9)
    moved.rows.append((0, 10**9, 1 << 20, 0, 9))
    with bed, Trace(str(out / "trace")) as trace:
        outcomes = run_cases(LAYOUT, bed, [APPEND, READ], trace)
        trace.write(measurement_of(LAYOUT, APPEND), joined([moved]))
    write_document(str(out), LAYOUT, bed, outcomes)
    return out, outcomes


def test_every_sample_comes_through_to_the_page(
    spark: Any, results: tuple[Path, list[Outcome]]
) -> None:
    """The parquet's figures are those of the samples and rounds, and the page shows them."""
    out, outcomes = results
    with LogStore.open([out / "trace"], read_only=True) as store:
        samples = len(store.log(TOPIC, 0))
    page = make_page(spark, str(out), str(out / "trace"), "Two disks", ["a caveat"])

    rows = {row["measurement"]: row for row in read_parquet(out / "measurements.parquet")}
    document = json.loads((out / "jbod2.json").read_text())
    assert sorted(rows) == sorted(entry["name"] for entry in document["benchmarks"])
    for outcome in outcomes:
        row = rows[f"jbod2/{outcome.case.phase}/{outcome.case.name}"]
        assert row["operations"] == len(outcome.latency_ns)
        assert row["ms_p50"] == pytest.approx(outcome.latency_ms(50))
        assert row["ms_p99"] == pytest.approx(outcome.latency_ms(99))
        assert row["mb_s"] == pytest.approx(outcome.bytes_per_second / 1e6)
        assert row["mb_s_p05"] <= row["mb_s"] <= row["mb_s_p95"]
        assert (row["rounds"], row["set_bytes_per_second"]) == (len(outcome.seconds), 10_000_000)

    workers = read_parquet(out / "workers.parquet")
    assert sum(row["operations"] for row in workers) == samples
    appended = [row for row in workers if row["phase"] == "append"]
    assert sorted(row["worker"] for row in appended) == [0, 1, 2, 3, 9]
    assert sum(row["share"] for row in appended) == pytest.approx(1.0)

    text = Path(page).read_text()
    assert "a caveat" in text and "Two disks" in text
    drawn = {path.stem for path in out.glob("*.png")}
    assert drawn == {path.stem for path in out.glob("*.svg")}
    assert drawn == {"append", "append-latency", "cost", "read"}
    assert text.count("<img") == len(drawn)


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """Read a table that Spark wrote."""
    found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return found
