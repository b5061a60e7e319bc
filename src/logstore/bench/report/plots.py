"""Draw one plot per question, as PNG and SVG: dots with intervals, units on every axis."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Row = dict[str, Any]
Word = Callable[[Row], str]
COLOURS = ("#2f5d8a", "#c8643c", "#3f8f6b", "#8a5a9e", "#b59a2a", "#5f6b76", "#b04a6a", "#2a9aa8")
LIMIT_LABEL = "the most that the speed limit of the disks allows"
PANEL_COLUMNS = 4


class Plot(NamedTuple):
    """Describe one plot: its question, how to read it, and its file name without extension."""

    question: str
    reading: str
    name: str


class Scale(NamedTuple):
    """Describe the axis of measured values: the columns for dot and interval, and the unit."""

    middle: str
    low: str
    high: str
    unit: str
    is_log: bool = False


def in_order(words: Iterable[str]) -> list[str]:
    """Return each word once, in the order in which the words first appear."""
    return list(dict.fromkeys(words))


def grouped(rows: Sequence[Row], word: Word) -> dict[str, list[Row]]:
    """Group rows by the text that `word` returns for each row, in the order of appearance."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(word(row), []).append(row)
    return found


def spans_of(rows: Sequence[Row], scale: Scale) -> list[list[float]]:
    """Compute how far each interval reaches below and above its dot."""
    return [
        [max(row[scale.middle] - row[scale.low], 0.0) for row in rows],
        [max(row[scale.high] - row[scale.middle], 0.0) for row in rows],
    ]


def dots(axes: Axes, rows: Sequence[Row], scale: Scale, label: Word, line: Word) -> None:
    """Draw a dot with its interval for each row.

    `line` chooses the height of a row's dot, and `label` chooses the dot's colour.
    """
    names = in_order(line(row) for row in rows)
    series = grouped(rows, label)
    for number, (name, members) in enumerate(series.items()):
        shift = (number - (len(series) - 1) / 2) * 0.6 / max(len(series), 1)
        axes.errorbar(
            [row[scale.middle] for row in members],
            [names.index(line(row)) + shift for row in members],
            xerr=spans_of(members, scale), fmt="o", capsize=2, markersize=5, label=name,
            color=COLOURS[number % len(COLOURS)], linewidth=1,
        )  # fmt: skip
    limits = {names.index(line(row)): row["limit_mb_s"] for row in rows if row.get("limit_mb_s")}
    if limits and scale.middle == "mb_s":
        axes.plot(
            list(limits.values()), list(limits), "|", color="#999", markersize=22,
            markeredgewidth=1.5, zorder=1,
        )  # fmt: skip
        # This empty plot adds the mark of the speed limit to the legend.
        axes.plot([], [], "|", color="#999", markersize=8, label=LIMIT_LABEL)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="x", linewidth=0.4, alpha=0.5)
    axes.spines[["top", "right"]].set_visible(False)


def label_log(axis: Axis) -> None:
    """Label a logarithmic axis at 1, 2, 5, 10 ..., in plain figures."""
    from matplotlib.ticker import LogLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")


class Album:
    """Draw plots into a directory."""

    def __init__(self, directory: str) -> None:
        import matplotlib as mpl

        mpl.use("Agg")
        self._directory = directory
        self.plots: list[Plot] = []

    def draw(
        self, plot: Plot, rows: Sequence[Row], scale: Scale, label: Word, line: Word
    ) -> None:  # fmt: skip
        """Draw rows as dots with intervals; without rows, draw nothing."""
        if not rows:
            return
        from matplotlib import pyplot

        series = len({label(row) for row in rows})
        lines = len({line(row) for row in rows})
        height = 1.5 + 0.34 * lines * max(1.0, series / 2.5)
        figure, axes = pyplot.subplots(figsize=(8.5, height), layout="constrained")
        dots(axes, rows, scale, label, line)
        axes.set_xlabel(scale.unit)
        if scale.is_log:
            axes.set_xscale("log", subs=[])
            label_log(axes.xaxis)
        else:
            axes.set_xlim(left=0)
        self._save(plot, figure, axes, columns=2)

    def draw_panels(self, plot: Plot, rows: Sequence[Row], scale: Scale, label: Word) -> None:
        """Draw one panel per layout: the values by number of writers, with one line per series."""
        if len({row["writers"] for row in rows}) < 3:
            return  # only the full plan has three or more numbers of writers
        from matplotlib import pyplot

        panels = grouped(rows, lambda row: str(row["layout"]))
        names = sorted({label(row) for row in rows})
        writers = sorted({row["writers"] for row in rows})
        depth = -(-len(panels) // PANEL_COLUMNS)
        figure, grid = pyplot.subplots(
            depth, PANEL_COLUMNS, figsize=(10.5, 1.0 + 2.1 * depth), sharex=True, sharey=True,
            layout="constrained", squeeze=False,
        )  # fmt: skip
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (layout, members) in zip(grid.flat, panels.items(), strict=False):
            for name, row_list in grouped(members, label).items():
                found = sorted(row_list, key=lambda row: int(row["writers"]))
                axes.errorbar(
                    [row["writers"] for row in found], [row[scale.middle] for row in found],
                    yerr=spans_of(found, scale), fmt="o-", markersize=3, linewidth=1, capsize=2,
                    label=name, color=COLOURS[names.index(name) % len(COLOURS)],
                )  # fmt: skip
            axes.set_title(layout, fontsize=9)
            axes.set_xscale("log", base=2)
            axes.set_xticks(writers, [str(count) for count in writers])
            axes.set_yscale("log", subs=[])
            label_log(axes.yaxis)
            axes.tick_params(labelbottom=True)
            axes.grid(linewidth=0.4, alpha=0.5)
            axes.spines[["top", "right"]].set_visible(False)
        figure.supxlabel("threads that append", fontsize=9)
        figure.supylabel(scale.unit, fontsize=9)
        self._save(plot, figure, grid.flat[0], columns=3)

    def _save(self, plot: Plot, figure: Figure, axes: Axes, columns: int) -> None:
        from matplotlib import pyplot

        handles, names = axes.get_legend_handles_labels()
        if len(names) > 1:
            figure.legend(
                handles, names, loc="outside upper left", ncols=columns, frameon=False, fontsize=8
            )
        for kind in ("png", "svg"):
            path = os.path.join(self._directory, f"{plot.name}.{kind}")
            figure.savefig(path, dpi=120, metadata={"Date": None} if kind == "svg" else None)
        pyplot.close(figure)
        self.plots.append(plot)
