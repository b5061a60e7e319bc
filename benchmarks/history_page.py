"""Show ratios over time as a single HTML page, which needs no other file.

The page has a small chart for each question and peer. Each run is a dot, and a bar shows the middle
half of the run's rounds. A dashed line shows the goal. A thin line is at the ratio 1, at which both
are equally fast.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from benchmarks.history import RUNS_COMPARED, Run, by_key

WIDTH, HEIGHT, MARGIN = 260, 56, 6
STYLE = (
    "body{font:15px system-ui;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "td,th{padding:.3rem .6rem;text-align:left;border-bottom:1px solid #ddd;vertical-align:middle}"
    "table{border-collapse:collapse}td.n{text-align:right;white-space:nowrap}"
    ".miss{color:#b3261e}small{color:#666}"
)
EXPLAINED = (
    "<p>Each ratio is this engine's figure divided by the peer's figure: the median of the rounds "
    "of one run, in which both took turns. If <b>more</b> is better, the figures are rates, and 2 "
    "means that this engine is twice as fast. If <b>less</b> is better, the figures are times, and "
    "0.5 means that this engine is twice as fast. In a chart, the newest run is on the right. The "
    "axis begins at 0 and ends at the number above it. A dot is a run, and its bar is the middle "
    "half of the run's rounds. The dashed line is the goal. At the grey line, at 1, both are "
    "equally fast.</p>"
    "<p><small>The machine of each run is listed below. If other work ran on the machine, many "
    "ratios differ by more than their bars.</small></p>"
)


def page(history: Sequence[Run]) -> str:
    """Build the page: a row for each question and peer; rows with a goal come first."""
    newest = {key: row for run in history for key, row in by_key(run).items()}
    keys = list(dict.fromkeys(key for run in history for key in by_key(run)))
    tables = []
    for title, wanted in (("Questions with a goal", True), ("For information", False)):
        chosen = [key for key in keys if bool(newest[key]["goal"]) is wanted]
        if not chosen:
            continue
        lines = [_line(key, [by_key(run).get(key) for run in history], history) for key in chosen]
        tables.append(
            f"<h2>{title}</h2><table><tr><th>question</th><th>peer</th><th>better</th>"
            "<th>goal</th><th>newest ratio</th><th>median before</th><th>ratio by run</th></tr>"
            f"{''.join(lines)}</table>"
        )
    runs = "".join(
        f"<li>{_text(run['at'][:16].replace('T', ' '))} UTC, commit {_text(run['commit'])}, "
        f"{_text(run['machine'])}</li>"
        for run in history
    )
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Peers over time</title>"
        f"<style>{STYLE}</style><h1>This engine's ratios to its peers, over time</h1>{EXPLAINED}"
        f"{''.join(tables)}<h2>Runs, oldest first</h2><ol>{runs}</ol></html>\n"
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _line(
    key: tuple[str, str], rows: Sequence[dict[str, Any] | None], history: Sequence[Run]
) -> str:
    """Build one row of a table."""
    known = [row for row in rows if row is not None]
    last, before = known[-1], [row["ratio"] for row in known[:-1]][-RUNS_COMPARED:]
    goal = _bound(last["goal"])
    misses = goal is not None and (
        last["ratio"] > goal if last["is_less_better"] else last["ratio"] < goal
    )
    newest = f"{last['ratio']:.2f} <small>({last['low']:.2f} to {last['high']:.2f})</small>"
    cells = [
        _text(key[0]),
        _text(key[1]),
        "less" if last["is_less_better"] else "more",
        _text(last["goal"] or "").replace(" ", "&nbsp;"),
    ]
    texts = "".join(f"<td>{cell}</td>" for cell in cells)
    kind = "n miss" if misses else "n"
    past = f"{median(before):.2f}" if before else ""
    chart = _chart(rows, [run["at"] for run in history], goal)
    return (
        f"<tr>{texts}<td class='{kind}'>{newest}</td><td class='n'>{past}</td><td>{chart}</td></tr>"
    )


def _bound(goal: str | None) -> float | None:
    return float(goal.split()[-1]) if goal else None


def _chart(rows: Sequence[dict[str, Any] | None], times: Sequence[str], goal: float | None) -> str:
    """Draw the runs as a chart; a run without the question leaves a gap."""
    top = max([row["high"] for row in rows if row is not None] + ([goal] if goal else []))
    step = (WIDTH - 2 * MARGIN) / max(len(rows) - 1, 1)

    def y(value: float) -> float:
        return HEIGHT - MARGIN - (HEIGHT - 3 * MARGIN) * value / (top or 1.0)

    marks = [_level(y(0), "#bbb")]
    if top >= 1:
        marks.append(_level(y(1), "#ddd"))
    if goal is not None:
        marks.append(_level(y(goal), "#b3261e", "stroke-dasharray='4 3'"))
    dots = []
    for number, row in enumerate(rows):
        if row is None:
            continue
        x = WIDTH - MARGIN - step * (len(rows) - 1 - number)
        dots.append((x, y(row["ratio"])))
        marks.append(
            f"<g><title>{_text(times[number][:10])}: {row['ratio']:.2f}</title>"
            f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{y(row['low']):.1f}' y2='{y(row['high']):.1f}' "
            f"stroke='#2f5d8a'/><circle cx='{x:.1f}' cy='{y(row['ratio']):.1f}' r='3' "
            "fill='#2f5d8a'/></g>"
        )
    return (
        f"<svg width='{WIDTH}' height='{HEIGHT}' viewBox='0 0 {WIDTH} {HEIGHT}'>"
        f"{''.join(marks)}{_path(dots)}"
        f"<text x='0' y='9' font-size='9' fill='#666'>{top:.3g}</text></svg>"
    )


def _level(y: float, colour: str, more: str = "") -> str:
    return f"<line x1='0' x2='{WIDTH}' y1='{y:.1f}' y2='{y:.1f}' stroke='{colour}' {more}/>"


def _path(dots: Iterable[tuple[float, float]]) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
    return f"<polyline fill='none' stroke='#2f5d8a' opacity='.4' points='{points}'/>"


__all__ = ["page"]
