"""Hold what was measured as rows, and print them as one table that hides no shortfall."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from typing import Any

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass(frozen=True, slots=True)
class Goal:
    """Say what a ratio, or a figure where there is no peer, must be."""

    bound: float
    is_at_most: bool = False

    def shortfall(self, value: float) -> float:
        """Tell by what part of the bound `value` misses it; 0 when it does not."""
        miss = value / self.bound - 1 if self.is_at_most else 1 - value / self.bound
        return max(miss, 0.0)

    def __str__(self) -> str:
        """Print the bound as a reader says it."""
        return f"{'<=' if self.is_at_most else '>='} {self.bound:g}"


def at_least(bound: float) -> Goal:
    """Ask for a value of `bound` or more."""
    return Goal(bound)


def at_most(bound: float) -> Goal:
    """Ask for a value of `bound` or less."""
    return Goal(bound, is_at_most=True)


@dataclass(frozen=True, slots=True)
class Row:
    """Carry one line of the table.

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
        """Tell by what part the goal is missed; 0 when it is met or there is none."""
        if self.goal is None:
            return 0.0
        return self.goal.shortfall(self.figure if self.ratio is None else self.ratio)

    @property
    def verdict(self) -> str:
        """Say `ok`, `short by N %`, or nothing where there is no goal."""
        if self.goal is None:
            return ""
        return f"short by {self.shortfall:.0%}" if self.shortfall else "ok"

    def to_dict(self) -> dict[str, Any]:
        """Give plain values for JSON."""
        fields = asdict(self)
        fields["goal"] = None if self.goal is None else str(self.goal)
        fields["verdict"] = self.verdict
        return fields


def number(value: float | None) -> str:
    """Print a figure with three digits that matter."""
    if value is None:
        return ""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


HEADINGS = ("question", "engine", "peer", "", "ratio", "goal", "verdict")


def cells_of(row: Row) -> tuple[str, ...]:
    """Print the fields of a row."""
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
    """Lay rows out in columns; those with a goal come first, those without under a heading."""
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
    """Name the file system that a path is on."""
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
    """Name the commit under test, with a plus sign when files differ from it."""

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
    """Say in one line what was measured on."""
    return (
        f"{processor()}, {os.cpu_count()} cores, {file_system(bench_dir)}, "
        f"Linux {platform.release()}, Python {platform.python_version()}, commit {commit()}"
    )
