"""Draw rates of the last hour as SVG. The shapes have no text, so they fit any width."""

from __future__ import annotations

import math
from collections.abc import Callable

from broker.page.history import INTERVAL_SECONDS, Curves, Rates
from broker.page.text import bytes_text, rate_text
from broker.page.views.markup import Html, element, joined

WIDTH, HEIGHT = 720, 120
SPAN_SECONDS = 3600.0
GAP_SECONDS = 3 * INTERVAL_SECONDS  # if two samples are further apart, the plot has a gap
STEPS = (1, 2, 5, 10)
KINDS: dict[str, tuple[str, Callable[[float], str], int]] = {
    "bytes_in": ("Bytes in", lambda value: f"{bytes_text(value)}/s", 1024),
    "bytes_out": ("Bytes out", lambda value: f"{bytes_text(value)}/s", 1024),
    "records_in": ("Records in", lambda value: f"{rate_text(value)}/s", 1000),
    "requests": ("Requests", lambda value: f"{rate_text(value)}/s", 1000),
}


def round_up(value: float, thousand: int) -> float:
    """Round up to 1, 2 or 5 times a power of 10, in the unit of the value; return at least 1."""
    if value <= 1:
        return 1.0
    unit = float(thousand) ** int(math.log(value, thousand))
    left = value / unit
    power = 10.0 ** math.floor(math.log10(left))
    return next(step for step in STEPS if step * power >= left * (1 - 1e-9)) * power * unit


def runs_of(points: list[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Split a curve where samples are missing."""
    runs: list[list[tuple[float, float]]] = []
    for point in points:
        if not runs or point[0] - runs[-1][-1][0] > GAP_SECONDS:
            runs.append([])
        runs[-1].append(point)
    return runs


def plots(curves: Curves, latest: Rates, until: float) -> Html:
    """Draw a plot for each kind of rate.

    Args:
        until: the time at the right border, in seconds since the epoch.
    """
    return element("div", *[_plot(kind, curves, latest, until) for kind in KINDS], class_="plots")


def _plot(kind: str, curves: Curves, latest: Rates, until: float) -> Html:
    title, text_of, thousand = KINDS[kind]
    points = [(at, getattr(one, kind)) for at, one in zip(curves.times, curves.rates, strict=True)]
    largest = max((value for _, value in points), default=0.0)
    top = round_up(largest, thousand)
    now = text_of(getattr(latest, kind))
    said = f"{title} per second over the last hour: now {now}, at most {text_of(largest)}"
    return element(
        "figure",
        element("figcaption", element("span", title), element("b", now)),
        element("div", text_of(top), class_="scale", aria_hidden="true"),
        _svg(points, until, top, kind, said),
        element(
            "div", element("span", "60 min ago"), element("span", "30"), element("span", "now"),
            class_="axis", aria_hidden="true",
        ),
    )  # fmt: skip


def _svg(points: list[tuple[float, float]], until: float, top: float, kind: str, said: str) -> Html:
    def place(point: tuple[float, float]) -> str:
        x = WIDTH * (1 - (until - point[0]) / SPAN_SECONDS)
        return f"{x:.1f} {HEIGHT * (1 - point[1] / top):.1f}"

    lines = [
        element("line", x1=0, x2=WIDTH, y1=y, y2=y, class_="grid") for y in (0, HEIGHT // 2, HEIGHT)
    ]
    shapes = [_shape(run, place) for run in runs_of([p for p in points if p[0] <= until])]
    return element(
        "svg", *lines, element("g", joined(shapes), class_=kind.replace("_", "-")),
        viewBox=f"0 0 {WIDTH} {HEIGHT}", preserveAspectRatio="none", role="img", aria_label=said,
    )  # fmt: skip


def _shape(run: list[tuple[float, float]], place: Callable[[tuple[float, float]], str]) -> Html:
    line = "M" + "L".join(map(place, run))
    if len(run) == 1:  # one sample is shown as a short line
        line += f"h-{WIDTH * INTERVAL_SECONDS / SPAN_SECONDS:.1f}"
        return element("path", d=line, class_="line")
    first, last = place((run[0][0], 0.0)), place((run[-1][0], 0.0))
    return joined(
        [
            element("path", d=f"{line}L{last}L{first}Z", class_="area"),
            element("path", d=line, class_="line"),
        ]
    )
