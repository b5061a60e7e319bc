"""Hold the measured figures as rows, and print them as one table that shows every missed goal."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from typing import Any

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass(frozen=True, slots=True)
class Goal:
    """Define a goal for a ratio, or for a figure if there is no peer."""

    bound: float
    is_at_most: bool = False

    def shortfall(self, value: float) -> float:
        """Return by what part of the bound `value` misses the bound; 0 if the bound is met."""
        miss = value / self.bound - 1 if self.is_at_most else 1 - value / self.bound
        return max(miss, 0.0)

    def __str__(self) -> str:
        """Format the goal, for example as `>= 2.5`."""
        return f"{'<=' if self.is_at_most else '>='} {self.bound:g}"


def at_least(bound: float) -> Goal:
    """Create the goal of at least `bound`."""
    return Goal(bound)


def at_most(bound: float) -> Goal:
    """Create the goal of at most `bound`."""
    return Goal(bound, is_at_most=True)


@dataclass(frozen=True, slots=True)
class Row:
    """Hold one line of the table.

    Attributes:
        rounds: the ratio of each round; `ratio` is their median.
    """

    question: str
    unit: str
    figure: float
    peer: str = ""
    peer_figure: float | None = None
    ratio: float | None = None
    goal: Goal | None = None
    note: str = ""
    rounds: tuple[float, ...] = ()

    @property
    def shortfall(self) -> float:
        """By what part of its bound the goal is missed; 0 if no goal is missed."""
        if self.goal is None:
            return 0.0
        return self.goal.shortfall(self.figure if self.ratio is None else self.ratio)

    @property
    def verdict(self) -> str:
        """The text `ok` or `short by N %`, or an empty text if there is no goal."""
        if self.goal is None:
            return ""
        return f"short by {self.shortfall:.0%}" if self.shortfall else "ok"

    def to_dict(self) -> dict[str, Any]:
        """Convert the row to plain values for JSON."""
        fields = asdict(self)
        fields["goal"] = None if self.goal is None else str(self.goal)
        fields["verdict"] = self.verdict
        return fields


def number(value: float | None) -> str:
    """Format a figure with three significant digits, or as a whole number if it is 100 or more."""
    if value is None:
        return ""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


HEADINGS = ("question", "engine", "peer", "", "ratio", "goal", "verdict")


def cells_of(row: Row) -> tuple[str, ...]:
    """Format the fields of a row as the cells of the table."""
    return (
        row.question + (f" ({row.note})" if row.note else ""),
        f"{number(row.figure)} {row.unit}",
        number(row.peer_figure),
        row.peer,
        "" if row.ratio is None else f"{row.ratio:.2f}",
        "" if row.goal is None else str(row.goal),
        row.verdict,
    )


def table(rows: list[Row]) -> list[str]:
    """Format rows as a table: first the rows with a goal, then the other rows under a heading."""
    with_goal = [cells_of(row) for row in rows if row.goal is not None]
    without = [cells_of(row) for row in rows if row.goal is None]
    widths = [max(map(len, column)) for column in zip(HEADINGS, *with_goal, *without, strict=True)]

    def line(cells: tuple[str, ...]) -> str:
        placed = [
            cell.rjust(width) if place in (1, 2, 4) else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(placed).rstrip()

    lines = [line(HEADINGS), line(tuple("-" * width for width in widths))]
    lines += map(line, with_goal)
    if without:
        lines += ["", "for information", *map(line, without)]
    missed = sum(1 for row in rows if row.shortfall)
    if with_goal:
        lines += ["", f"{len(with_goal) - missed} of {len(with_goal)} goals met"]
    return lines


# --- the machine ----------------------------------------------------------------------------------


def file_system(path: str) -> str:
    """Name the kind of file system on which a path is."""
    best, name = "", "unknown"
    try:
        with open("/proc/mounts", encoding="utf-8") as mounts:
            for entry in mounts:
                _, point, kind, *_ = entry.split()
                if len(point) >= len(best) and os.path.join(path, "").startswith(
                    os.path.join(point, "")
                ):
                    best, name = point, kind
    except OSError:
        pass
    return name


def processor() -> str:
    """Name the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as facts:
            for fact in facts:
                if fact.startswith("model name"):
                    return fact.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def commit() -> str:
    """Name the commit under test; add a plus sign if files differ from the commit."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", REPOSITORY, *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine(bench_dir: str) -> str:
    """Describe the machine, the file system and the software in one line."""
    return (
        f"{processor()}, {os.cpu_count()} cores, {file_system(bench_dir)}, "
        f"Linux {platform.release()}, Python {platform.python_version()}, commit {commit()}"
    )
