"""Hold the characterisation of disks to what it says of itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from logstore import LogStore
from logstore.bench.bed import Bed
from logstore.bench.cases import PLANS, QUICK, Case
from logstore.bench.phases import PHASES, Append
from logstore.bench.runner import Layout, document, measure, run_cases, stats_of, write_document
from logstore.bench.samples import SAMPLE, TOPIC, Sampler, Trace, joined

SPEED = 20e6
LAYOUT = Layout("two-dirs", "as found", 2, 2, 1000, 500)


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    """Give two directories that are not calibrated."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    return Bed([str(tmp_path / "a"), str(tmp_path / "b")], SPEED)


def test_every_phase_of_the_plans_is_known() -> None:
    """A plan holds only phases that this package can measure by itself."""
    for plan in PLANS.values():
        assert {case.phase for case in plan.cases} <= set(PHASES)


def test_names_of_cases_are_unique() -> None:
    """No two cases of a plan would share a key in the trace."""
    for plan in PLANS.values():
        names = [(case.phase, case.name) for case in plan.cases]
        assert len(set(names)) == len(names)


def test_a_quick_plan_measures_everything_and_leaves_nothing(bed: Bed, tmp_path: Path) -> None:
    """Every case gives bytes and samples, and the directories are as they were found."""
    (tmp_path / "a" / "mine.txt").write_text("stays")
    told: list[str] = []
    with bed, Trace(str(tmp_path / "trace")) as trace:
        outcomes = run_cases(
            LAYOUT, bed, list(QUICK.cases), trace, progress=lambda what, _at, _of: told.append(what)
        )
    assert len(told) == len(QUICK.cases)
    for outcome in outcomes:
        assert min(outcome.size_bytes) > 0
        assert len(outcome.latency_ns) > 0
        assert outcome.latency_ms(50) <= outcome.latency_ms(100)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["mine.txt"]
    assert list((tmp_path / "b").iterdir()) == []
    assert bed.left_behind == {}
    text = Path(write_document(str(tmp_path), LAYOUT, bed, outcomes)).read_text()
    names = {entry["name"] for entry in json.loads(text)["benchmarks"]}
    with LogStore.open([tmp_path / "trace"], read_only=True) as store:
        keys = {record.key for record in store.log(TOPIC, 0)}
    assert {key.decode() for key in keys if key} == names


def test_an_append_counts_what_the_log_took(bed: Bed, tmp_path: Path) -> None:
    """The bytes of a round are those of the records that were appended in it."""
    with bed:
        phase = Append(bed, Case("append", 100, 50, "durable", 3, seconds=0.02, rounds=1))
        phase.prepare()
        phase.run()
        records = sum(len(log) for log in phase.logs)
        phase.finish()
    assert phase.records == records
    assert phase.size_bytes == records * 100
    assert {sampler.worker for sampler in phase.samplers} == {0, 1, 2}


def test_an_error_leaves_no_directory_behind(bed: Bed, tmp_path: Path) -> None:
    """A phase that fails half way is cleaned up by the bed."""

    class Failing(Append):
        def run(self) -> None:
            raise RuntimeError("as planned")

    trace = Trace(str(tmp_path / "trace"))
    with trace, pytest.raises(RuntimeError, match="as planned"), bed:
        measure(Failing(bed, QUICK.cases[0]), trace, "x")
    assert not list((tmp_path / "a").iterdir())


def test_the_trace_gives_back_what_went_in(tmp_path: Path) -> None:
    """A sample's 32 bytes are its five numbers, in order of start."""
    samplers = [Sampler(1), Sampler(2)]
    samplers[1].rows.append((50, 5, 100, 1, 2))
    samplers[0].rows.append((60, 7, 200, 2, 1))
    rows = joined(samplers)
    with Trace(str(tmp_path)) as trace:
        trace.write("layout/append/case", rows)
    with LogStore.open([tmp_path], read_only=True) as store:
        records = list(store.log(TOPIC, 0))
    read = np.frombuffer(b"".join(record.value or b"" for record in records), SAMPLE)
    assert read["latency_ns"].tolist() == [5, 7]
    assert read["worker"].tolist() == [2, 1]
    assert [record.key for record in records] == [b"layout/append/case"] * 2
    assert [record.timestamp for record in records] == (rows["start_ns"] // 1_000_000).tolist()


def test_statistics_are_those_of_the_rounds() -> None:
    """The document's figures can be computed again from its data."""
    stats = stats_of([1.0, 2.0, 4.0])
    assert (stats["min"], stats["median"], stats["max"]) == (1.0, 2.0, 4.0)
    assert stats["data"] == [1.0, 2.0, 4.0]
    assert stats["rounds"] == 3
    assert stats["total"] == pytest.approx(7.0)


def test_the_document_says_what_was_measured_on(bed: Bed) -> None:
    """The facts of the layout stand in every entry."""
    assert document(LAYOUT, bed, [])["benchmarks"] == []
    assert document(LAYOUT, bed, [])["machine_info"]["cpu"]["brand_raw"]
