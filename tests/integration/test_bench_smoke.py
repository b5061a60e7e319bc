"""Run every benchmark with tiny sizes, so that the suite cannot rot between measurements."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Give the JSON that a tiny run of the whole suite saves."""
    folder = tmp_path_factory.mktemp("bench")
    saved = folder / "report.json"
    paths = [str(REPOSITORY / "src"), *(path for path in sys.path if path)]
    # A worker of a parallel run: pytest-benchmark would switch itself off and skip its teardowns.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_XDIST")}
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "benchmarks", "--scale", "tiny",
            "--bench-dir", str(folder), "-o", "addopts=-q -p no:cacheprovider --benchmark-quiet",
            f"--benchmark-json={saved}",
        ],
        cwd=REPOSITORY, env=environment | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "goals met" in done.stdout
    assert [path.name for path in folder.iterdir()] == [saved.name]
    loaded: dict[str, Any] = json.loads(saved.read_text())
    return loaded


def test_every_question_is_answered(report: dict[str, Any]) -> None:
    """A run leaves no question of the suite without a figure."""
    questions = {
        row["question"] for bench in report["benchmarks"] for row in bench["extra_info"]["rows"]
    }
    for start in (
        "extend 1,000 from a list",
        "append one record",
        "append_encoded, batches of 1 MiB",
        "append_encoded, batches of 16 KiB",
        "Appender, values alone",
        "Appender, value + key + timestamp",
        "durable append, one thread",
        "scan as bytes, equal sizes",
        "scan as verified batches, equal sizes",
        "verified batches, zero_copy",
        "point read by offset",
        "point read, first touch",
        "point read, set larger than the cache",
        "verified ranges of 1024 KiB",
        "verified ranges of 64 KiB",
        "cold ranges of 1024 KiB",
        "recovery scan",
        "clean open",
        "memory of clean open",
        "import logstore",
        "move 0.0 GiB, every batch verified",
        "move 0.0 GiB, not verified",
        "throttle 1 MB/s, 1 threads",
        "throttle 1 MB/s, 4 threads",
        "swap pause",
        "longest append",
        "append p99 beside a move",
        'append p99 beside an "auto" move',
        '"auto" beside appends',
        "memory of a move",
    ):
        assert any(question.startswith(start) for question in questions), start


def test_extra_info_carries_what_a_pipeline_needs(report: dict[str, Any]) -> None:
    """Each benchmark names layout, file system, sync, bytes, records, ratio and goal."""
    for bench in report["benchmarks"]:
        missing = {"layout", "disks", "fs", "sync", "bytes", "records", "ratio", "goal"} - set(
            bench["extra_info"]
        )
        assert not missing, bench["name"]
