"""Show the bytes, rate, time left, lag and throttle of each running move, and of all moves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from logstore.cli.output import Column, Row, optional_text, print_rows, rate_text, size_text

MOVES_SHOWN_MAX = 12
RUNNING = {"copying", "catching_up", "swapping"}


def seconds_text(seconds: float | None) -> str:
    """Format the time left."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def name_of(row: Row) -> str:
    """Format the partition of a row."""
    return f"{row['topic']}-{row['partition']}"


MOVE_COLUMNS = [
    Column("name", "partition"),
    Column("source", "from", optional_text),
    Column("target", "to", optional_text),
    Column("state", "state"),
    Column("bytes_done", "copied", size_text, is_number=True),
    Column("bytes_total", "of", size_text, is_number=True),
    Column("lag_bytes", "lag", size_text, is_number=True),
    Column("bytes_per_second", "rate", rate_text, is_number=True),
    Column("eta_seconds", "ETA", seconds_text, is_number=True),
    Column("throttled_rate", "throttle", rate_text, is_number=True),
]
ERROR_COLUMN = Column("error", "error", optional_text)


def print_moves(moves: Sequence[Row]) -> None:
    """Print a table of moves."""
    rows = [{**row, "name": name_of(row)} for row in moves]
    has_error = any(row["error"] for row in rows)
    print_rows(rows, [*MOVE_COLUMNS, ERROR_COLUMN] if has_error else MOVE_COLUMNS, "table")


def totals(facts: Row) -> Row:
    """Sum up moves: bytes, rate, lag, and the time left at this rate."""
    moves = facts["moves"]
    summed = {
        key: sum(row[key] for row in moves)
        for key in ("bytes_done", "bytes_total", "lag_bytes", "bytes_per_second")
    }
    rate = summed["bytes_per_second"]
    summed["eta_seconds"] = summed["lag_bytes"] / rate if rate else None
    summed["throttled_rate"] = facts["throttled_rate"]
    return summed


def line_of(row: Row) -> str:
    """Format the text that follows the progress bar of a move."""
    return (
        f"{size_text(row['bytes_done'])} of {size_text(row['bytes_total'])}  "
        f"{rate_text(row['bytes_per_second'])}  ETA {seconds_text(row['eta_seconds'])}  "
        f"lag {size_text(row['lag_bytes'])}  throttle {rate_text(row['throttled_rate'])}"
    )


@contextmanager
def live_view() -> Iterator[Callable[[Any], None]]:
    """Draw progress bars if stderr is a terminal; yield a function that shows a progress report."""
    if not sys.stderr.isatty():
        yield lambda facts: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
    except ImportError:
        yield lambda facts: None
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[line]}"),
        console=Console(stderr=True),
        transient=True,
    ) as display:
        tasks: dict[str, Any] = {}

        def draw(label: str, row: Row) -> None:
            if label not in tasks:
                tasks[label] = display.add_task(label, line="")
            display.update(
                tasks[label],
                total=max(row["bytes_total"], 1),
                completed=row["bytes_done"],
                line=line_of(row),
            )

        def show(facts: Row) -> None:
            draw("all", totals(facts))
            shown = [row for row in facts["moves"] if row["state"] in RUNNING]
            labels = {f"{name_of(row)} {row['state']}": row for row in shown[:MOVES_SHOWN_MAX]}
            for label in set(tasks) - set(labels) - {"all"}:
                display.remove_task(tasks.pop(label))
            for label, row in labels.items():
                draw(label, row)

        yield show
