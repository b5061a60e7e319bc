"""The plots fit their values, and leave out the time without samples."""

from __future__ import annotations

import re

import pytest

from broker.page.history import Curves, Rates
from broker.page.views.plots import HEIGHT, WIDTH, plots, round_up, runs_of


@pytest.mark.parametrize(
    ("value", "thousand", "top"),
    [
        (0, 1000, 1), (0.3, 1000, 1), (1, 1000, 1), (1.5, 1000, 2), (2.1, 1000, 5), (5, 1000, 5),
        (50, 1000, 50), (501, 1000, 1000), (1500, 1000, 2000), (999_999, 1000, 1e6),
        (1024, 1024, 1024), (1500, 1024, 2048), (600 * 1024, 1024, 1000 * 1024),
        (3 << 20, 1024, 5 << 20),
    ],
)  # fmt: skip
def test_scales_are_round(value: float, thousand: int, top: float) -> None:
    """1, 2 or 5 times a power of ten, of the unit in which the value is shown."""
    assert round_up(value, thousand) == top


def test_a_gap_splits_a_curve() -> None:
    """A process that did not run for a while has no samples of that time."""
    points = [(0.0, 1.0), (10.0, 1.0), (20.0, 1.0), (120.0, 1.0)]
    assert [len(run) for run in runs_of(points)] == [3, 1]
    assert runs_of([]) == []


def test_all_points_are_inside_the_plot() -> None:
    """The time goes from left to right, and 0 is at the bottom."""
    times = [1000.0 + 10 * step for step in range(361)]
    rates = [Rates(step, step / 3, 0, 2) for step in range(361)]
    drawn = plots(Curves(times, rates), rates[-1], times[-1])
    lines = re.findall(r'd="(M[^"Z]*)" class="line"', drawn)
    assert len(lines) == 4
    for line in lines:
        places = [tuple(map(float, one.split())) for one in line[1:].split("L")]
        assert len(places) == 361
        assert [x for x, _ in places] == sorted(x for x, _ in places)
        assert (places[0][0], places[-1][0]) == (0.0, WIDTH)
        assert all(0 <= y <= HEIGHT for _, y in places)
    assert "now 360 B/s, at most 360 B/s" in drawn
    assert ">500 B/s<" in drawn


def test_a_broker_that_has_just_started_has_empty_plots() -> None:
    """There are four of them, with a label each."""
    drawn = plots(Curves([], []), Rates(), 0.0)
    assert drawn.count('role="img"') == 4 and "<path" not in drawn
    assert "Bytes in per second over the last hour: now 0 B/s, at most 0 B/s" in drawn
