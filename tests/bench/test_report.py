"""Hold the page to its figures: claims, tables and plots from rows that are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logstore.bench.report.claims import claims
from logstore.bench.report.page import page
from logstore.bench.report.plots import draw_all


def row(layout: str, phase: str, mb_s: float, **facts: Any) -> dict[str, Any]:
    """Make a row of measurements."""
    made = {
        "measurement": f"{layout}/{phase}/case", "layout": layout, "phase": phase, "fs": "ext4",
        "sync": "none", "detail": "", "note": "", "disks": 4, "log_dirs": 4, "writers": 1,
        "record_bytes": 100, "raw_bytes": 400, "usable_bytes": 400, "rounds": 2, "mb_s": mb_s,
        "mb_s_p05": mb_s - 1, "mb_s_p95": mb_s + 1, "operations": 10, "ms_p50": 1.0, "ms_p95": 2.0,
        "ms_p99": 3.0, "ms_max": 4.0,
    }  # fmt: skip
    return made | facts


def worker(layout: str, number: int, operations: int, log_dirs: int) -> dict[str, Any]:
    """Make a row of a worker beside a failed disk."""
    facts = row(layout, "beside", 1.0, detail="failed", log_dirs=log_dirs)
    return facts | {"worker": number, "operations": operations, "share": 0.25}


MEASUREMENTS = [
    row("jbod4-ext4", "append", 200.0),
    row("raid10-btrfs", "append", 100.0, usable_bytes=200, log_dirs=1),
    row("raid0-btrfs", "append", 200.0, log_dirs=1),
    row("raid5-btrfs", "append", 140.0, usable_bytes=300, log_dirs=1),
    row("raid0-btrfs", "read", 200.0, log_dirs=1),
    row("raid5-btrfs", "read", 150.0, log_dirs=1),
    row("jbod4-ext4-processes", "append", 190.0),
]
WORKERS = [
    *[worker("jbod4-ext4", number, 0 if number == 0 else 100, 4) for number in range(4)],
    worker("raid0-btrfs", 0, 3, 1),
]


def test_claims_are_ratios_of_what_was_measured() -> None:
    """Each claim's sentence holds the figures of its layouts."""
    texts = [claim.measured for claim in claims(MEASUREMENTS, WORKERS)]
    assert len(texts) == 4
    assert "2.00 times the usable bytes" in texts[0]
    assert "2.00 times its append rate" in texts[0]
    assert "30% less than RAID-0 in appends, 25% less" in texts[1]
    assert "3 of 4 log dirs went on" in texts[2]
    assert "-5%" in texts[3]


def test_a_claim_without_figures_is_not_made() -> None:
    """Where a layout was not measured nothing is said of it."""
    assert claims(MEASUREMENTS[:1], []) == []
    assert claims([], []) == []


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_every_plot_has_a_question_and_a_file(tmp_path: Path, kind: str) -> None:
    """What is drawn is there in both formats, and asks something."""
    plots = draw_all(str(tmp_path), MEASUREMENTS, WORKERS)
    assert {plot.name for plot in plots} == {"append", "append-latency", "read", "beside", "cost"}
    for plot in plots:
        assert plot.question.endswith("?")
        assert (tmp_path / f"{plot.name}.{kind}").stat().st_size > 1000


def test_the_page_stands_alone(tmp_path: Path) -> None:
    """It has machine, caveats, each plot's question, the claims and every figure, and no links."""
    plots = draw_all(str(tmp_path), MEASUREMENTS, WORKERS)
    found = claims(MEASUREMENTS, WORKERS)
    text = page(str(tmp_path), "A & B", ["a machine", "a caveat"], plots, MEASUREMENTS, found)
    assert "A &amp; B" in text and "a machine" in text and "a caveat" in text
    assert all(plot.question in text for plot in plots)
    assert text.count("<img") == len(plots)
    assert "http://" not in text and "src='data:" in text
    assert all(f"<td>{entry['layout']}</td>" in text for entry in MEASUREMENTS)
