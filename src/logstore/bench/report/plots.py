"""Draw one plot a question, as PNG and SVG: dots with intervals, units on every axis."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]
COLOURS = ("#2f5d8a", "#c8643c", "#3f8f6b", "#8a5a9e", "#b59a2a", "#5f6b76", "#b04a6a", "#2a9aa8")


class Plot(NamedTuple):
    """One plot that was drawn: what it asks, how to read it, and its file without extension."""

    question: str
    reading: str
    name: str


def layouts_of(rows: Sequence[Row]) -> list[str]:
    """Give the layouts in the order in which they were measured."""
    return list(dict.fromkeys(row["layout"] for row in rows))


def _label(row: Row) -> str:
    words: list[str] = [f"{row['record_bytes']} B", f"{row['writers']} writer(s)"]
    sync: dict[str, str] = {
        "none": "one flush at the end",
        "interval": "flush every 100 ms",
        "durable": "durable",
    }
    words.append(sync.get(row["sync"], str(row["sync"])))
    return ", ".join(words)


def _series(rows: Sequence[Row], label: Callable[[Row], str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(label(row), []).append(row)
    return found


def dots(
    axes: Axes,
    rows: Sequence[Row],
    label: Callable[[Row], str],
    middle: str,
    low: str,
    high: str,
) -> None:
    """Draw a dot with its interval for each layout (downwards) and series (by colour)."""
    names = layouts_of(rows)
    series = _series(rows, label)
    for number, (name, members) in enumerate(series.items()):
        shift = (number - (len(series) - 1) / 2) * 0.6 / max(len(series), 1)
        places = [names.index(row["layout"]) + shift for row in members]
        values = [row[middle] for row in members]
        spans = [
            [max(row[middle] - row[low], 0.0) for row in members],
            [max(row[high] - row[middle], 0.0) for row in members],
        ]
        axes.errorbar(
            values, places, xerr=spans, fmt="o", capsize=2, markersize=5, label=name,
            color=COLOURS[number % len(COLOURS)], linewidth=1,
        )  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="x", linewidth=0.4, alpha=0.5)
    axes.spines[["top", "right"]].set_visible(False)


class Album:
    """Draw plots into a directory."""

    def __init__(self, directory: str) -> None:
        import matplotlib as mpl

        mpl.use("Agg")
        self._directory = directory
        self.plots: list[Plot] = []

    def draw(
        self,
        plot: Plot,
        rows: Sequence[Row],
        unit: str,
        *,
        columns: tuple[str, str, str],
        label: Callable[[Row], str],
        is_log: bool,
    ) -> None:
        """Draw rows as dots with intervals; nothing where there is nothing to draw."""
        if not rows:
            return
        from matplotlib import pyplot

        series = len({label(row) for row in rows})
        height = 1.4 + 0.34 * len(layouts_of(rows)) * max(1.0, series / 2.5)
        figure, axes = pyplot.subplots(figsize=(8.5, height), layout="constrained")
        dots(axes, rows, label, *columns)
        axes.set_xlabel(unit)
        if is_log:
            axes.set_xscale("log")
        else:
            axes.set_xlim(left=0)
        if series > 1:
            figure.legend(loc="outside upper left", ncols=min(series, 2), frameon=False, fontsize=8)
        for kind in ("png", "svg"):
            path = os.path.join(self._directory, f"{plot.name}.{kind}")
            figure.savefig(path, dpi=120, metadata={"Date": None} if kind == "svg" else None)
        pyplot.close(figure)
        self.plots.append(plot)


RATE = ("mb_s", "mb_s_p05", "mb_s_p95")
LATENCY = ("ms_p50", "ms_p50", "ms_p99")
MB_S = "MB/s of record values, all disks together (median; bar: 5th to 95th percentile)"
MS = "milliseconds, logarithmic (dot: median; bar: to the 99th percentile)"


class Sheet(NamedTuple):
    """Say which rows make a plot, and how they are drawn."""

    plot: Plot
    phase: str
    columns: tuple[str, str, str]
    label: Callable[[Row], str] = _label
    is_by_worker: bool = False
    keep: Callable[[Row], bool] = lambda _row: True

    def rows(self, measurements: Sequence[Row], workers: Sequence[Row]) -> list[Row]:
        """Choose the rows that were measured."""
        rows = workers if self.is_by_worker else measurements
        return [
            row
            for row in rows
            if row["phase"] == self.phase
            and row.get(self.columns[0]) is not None
            and self.keep(row)
        ]


SHEETS = (
    Sheet(
        Plot(
            "How many MB/s does each layout append, until everything is on its disks?",
            "Further right is better. What the page cache took is counted only once it is flushed.",
            "append",
        ),
        "append",
        RATE,
    ),
    Sheet(
        Plot(
            "How long does one append wait?",
            "Further left is better. Without a flush an append ends in the page cache.",
            "append-latency",
        ),
        "append",
        LATENCY,
    ),
    Sheet(
        Plot(
            "How many MB/s does each layout give back, read in order and checked?",
            "The cache was emptied first; one reading thread a log dir.",
            "read",
        ),
        "read",
        RATE,
    ),
    Sheet(
        Plot(
            "How long does it take to read one record at random?",
            "The cache was emptied first and fills while it runs.",
            "point-read",
        ),
        "point-read",
        LATENCY,
    ),
    Sheet(
        Plot(
            "How fast is a store open again after its process died with nothing flushed?",
            "Bytes of log checked per second, from the disks; opening included.",
            "recover",
        ),
        "recover",
        RATE,
    ),
    Sheet(
        Plot(
            "What do appends notice of a move in the background?",
            "One append every 5 ms, flushed every 100 ms, on the disk that is moved from.",
            "move",
        ),
        "move",
        LATENCY,
        lambda row: f"beside a move, {row['detail']}" if row["worker"] else "alone",
        is_by_worker=True,
    ),
    Sheet(
        Plot(
            "What do the other disks notice while one is slow, full or dead?",
            "Durable appends, a thread a disk. A layout with one log dir has no other disks.",
            "beside",
        ),
        "beside",
        LATENCY,
        lambda row: f"one disk {row['detail']}",
        is_by_worker=True,
        keep=lambda row: row["log_dirs"] > 1 and row["worker"] > 0,
    ),
    Sheet(
        Plot(
            "What part of the bytes that were paid for can be used?",
            "1.0: every byte of every disk holds records. Mirrors give 0.5.",
            "cost",
        ),
        "append",
        ("usable_share", "usable_share", "usable_share"),
        lambda _row: "usable",
        keep=lambda row: row["sync"] == "none",
    ),
)


def draw_all(directory: str, measurements: Sequence[Row], workers: Sequence[Row]) -> list[Plot]:
    """Draw every plot for which something was measured."""
    album = Album(directory)
    shared = [
        row | {"usable_share": row["usable_bytes"] / row["raw_bytes"] if row["raw_bytes"] else None}
        for row in measurements
    ]
    for sheet in SHEETS:
        unit = {RATE: MB_S, LATENCY: MS}.get(sheet.columns, "usable bytes per byte of disk")
        rows = sheet.rows(shared, workers)
        album.draw(
            sheet.plot,
            rows,
            unit,
            columns=sheet.columns,
            label=sheet.label,
            is_log=sheet.columns == LATENCY,
        )
    return album.plots
