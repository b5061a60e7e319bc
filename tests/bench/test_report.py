"""Hold the page to its figures: claims, tables and plots from rows that are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logstore.bench.cases import BASE
from logstore.bench.report.claims import claims
from logstore.bench.report.page import page
from logstore.bench.report.plots import Plot
from logstore.bench.report.sheets import SHEETS, draw_all

CASE = next(case.name for case in BASE if case.phase == "append")


def row(layout: str, phase: str, mb_s: float, **facts: Any) -> dict[str, Any]:
    """Make a row of measurements."""
    made = {
        "layout": layout, "phase": phase, "fs": "ext4",
        "sync": "none", "detail": "", "note": "", "disks": 4, "log_dirs": 4, "writers": 1,
        "record_bytes": 100, "raw_bytes": 400, "usable_bytes": 400, "rounds": 2, "mb_s": mb_s,
        "mb_s_p05": mb_s - 1, "mb_s_p95": mb_s + 1, "operations": 10, "ms_p50": 1.0, "ms_p95": 2.0,
        "ms_p99": 3.0, "ms_max": 4.0, "bytes": 1000, "set_bytes_per_second": 50_000_000,
    }  # fmt: skip
    return made | {"measurement": f"{layout}/{phase}/{CASE}"} | facts


def worker(
    layout: str, number: int, operations: int, log_dirs: int, detail: str = "failed"
) -> dict[str, Any]:
    """Make a row of a worker beside a disk in trouble."""
    facts = row(layout, "beside", 1.0, detail=detail, log_dirs=log_dirs)
    return facts | {"worker": number, "operations": operations, "share": 0.25}


def mover(number: int, detail: str) -> dict[str, Any]:
    """Make a row of a worker beside a move, or of the move itself."""
    facts = row("jbod4-ext4", "move", 1.0, detail=detail)
    return facts | {"worker": number, "operations": 9, "share": 0.25, "size_bytes": 25_000_000}


MEASUREMENTS = [
    row("jbod4-ext4", "append", 200.0),
    row("raid10-btrfs", "append", 100.0, usable_bytes=200, log_dirs=1),
    row("raid0-btrfs", "append", 200.0, log_dirs=1),
    row("raid5-btrfs", "append", 140.0, usable_bytes=300, log_dirs=1),
    row("raid0-btrfs", "read", 200.0, log_dirs=1),
    row("raid5-btrfs", "read", 150.0, log_dirs=1),
    row("jbod4-ext4-processes", "append", 190.0),
    row("jbod4-ext4", "point-read", 1.0),
    row("jbod4-ext4", "recover", 180.0),
    row("jbod4-ext4", "beside", 1.0, detail="healthy"),
    row("jbod4-ext4", "beside", 1.0, detail="failed", bytes=750),
    row("single-ext4", "beside", 1.0, detail="healthy"),
    row("single-ext4", "beside", 0.0, detail="failed", bytes=0, ms_p50=None, ms_p99=None),
    *[
        row("jbod4-ext4", "append", 20.0 * writers, writers=writers, record_bytes=size,
            measurement=f"jbod4-ext4/append/{size}B-batch{batch}-none-{writers}w")
        for size, batch in ((100, 1000), (10_240, 50)) for writers in (2, 4, 8)
    ],
]  # fmt: skip
WORKERS = [
    *[worker("jbod4-ext4", number, 100, 4, "healthy") for number in range(4)],
    *[worker("jbod4-ext4", number, 90, 4) for number in range(1, 4)],
    worker("raid0-btrfs", 0, 90, 1, "healthy"),
    worker("raid0-btrfs", 0, 3, 1),
    *[mover(number, detail) for detail in ("throttled", "auto") for number in range(3)],
]


def test_claims_are_ratios_of_what_was_measured() -> None:
    """Each claim's sentence holds the figures of its layouts."""
    texts = [claim.measured for claim in claims(MEASUREMENTS, WORKERS)]
    assert len(texts) == 4
    assert "2.00 times the usable bytes" in texts[0]
    assert "2.00 times its append rate" in texts[0]
    assert "-30% against RAID-0 in appends, -25% in reads" in texts[1]
    assert "3 of 4 log dirs continued" in texts[2]
    assert "RAID-0 over four disks: 0 of 1" in texts[2]
    assert "-5%" in texts[3] and "median of 1 case," in texts[3]


def test_a_claim_without_figures_is_not_made() -> None:
    """Where a layout was not measured nothing is said of it."""
    assert claims(MEASUREMENTS[:1], []) == []
    assert claims([], []) == []


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Plot]]:
    """Draw every plot once, and give where they are."""
    place = tmp_path_factory.mktemp("plots")
    return place, draw_all(str(place), MEASUREMENTS, WORKERS)


def test_every_plot_has_a_question_and_two_files(drawn: tuple[Path, list[Plot]]) -> None:
    """What is drawn is there in both formats, and asks something."""
    place, plots = drawn
    assert [plot.name for plot in plots] == [sheet.plot.name for sheet in SHEETS]
    for plot in plots:
        assert plot.question.endswith("?")
        assert (place / f"{plot.name}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (place / f"{plot.name}.svg").read_bytes()


def test_what_was_not_measured_is_not_drawn(tmp_path: Path) -> None:
    """Without rows there is no plot, and the question is not asked."""
    plots = draw_all(str(tmp_path), [row("raid0-btrfs", "read", 1.0, raw_bytes=0)], [])
    assert [plot.name for plot in plots] == ["read"]


def test_the_figures_of_a_plot_are_those_of_its_rows() -> None:
    """Shares are of the healthy disks, rates of a move are its own, limits know copies."""
    chosen = {sheet.plot.name: sheet.rows(MEASUREMENTS, WORKERS) for sheet in SHEETS}
    kept = {entry["layout"]: entry["kept"] for entry in chosen["kept"]}
    assert kept == {"jbod4-ext4": 0.75, "single-ext4": 0.0}
    assert {entry["moved_mb_s"] for entry in chosen["move-rate"]} == {25_000.0}
    limits = {entry["layout"]: entry["limit_mb_s"] for entry in chosen["append"]}
    assert limits["jbod4-ext4"] == 200.0
    assert limits["raid10-btrfs"] == 100.0
    assert limits["raid5-btrfs"] == 150.0
    paid = {entry["layout"]: entry["paid"] for entry in chosen["cost"]}
    assert paid["raid10-btrfs"] == 2.0


def test_the_page_stands_alone(drawn: tuple[Path, list[Plot]]) -> None:
    """It has machine, caveats, each plot's question, the claims and every figure, and no links."""
    place, plots = drawn
    found = claims(MEASUREMENTS, WORKERS)
    text = page(str(place), "A & B", ["a machine", "a caveat"], plots, MEASUREMENTS, found)
    assert "A &amp; B" in text and "a machine" in text and "a caveat" in text
    assert all(plot.question in text for plot in plots)
    assert text.count("<img") == len(plots)
    assert "http://" not in text and "src='data:" in text
    assert all(f"<td>{entry['layout']}</td>" in text for entry in MEASUREMENTS)
