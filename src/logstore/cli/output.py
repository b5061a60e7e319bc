"""Print rows as a table, as one JSON document or as JSON lines; draw bars and progress.

On a terminal, rich draws the table, if rich is installed. Without rich or without a terminal, the
table has plain columns, and no cell is cut, so that `grep` and `awk` work.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click

from logstore.config import format_size

if TYPE_CHECKING:
    from rich.console import JustifyMethod

BAR_CELLS = 20
WIDTH_MAX = 10_000

Row = dict[str, Any]

to_json = json.JSONEncoder(ensure_ascii=False).encode
"""Encode one line of JSON; all calls share this encoder, because making an encoder is slow."""


class Column(NamedTuple):
    """Describe a column of a table: the key of its values, its heading, and its format."""

    key: str
    heading: str
    word: Callable[[Any], str] = str
    is_number: bool = False


def size_text(size_bytes: int | None) -> str:
    """Format a size; an unknown size is shown as a dash."""
    return "-" if size_bytes is None else format_size(size_bytes)


def rate_text(bytes_per_second: float | None) -> str:
    """Format a rate in MB/s, the unit of throttles; an unknown rate, or 0, is shown as a dash."""
    if not bytes_per_second:
        return "-"
    rate = bytes_per_second / 1e6
    digits = 0 if rate >= 100 else 1 if rate >= 1 else 3
    return f"{rate:,.{digits}f} MB/s"


def count_text(count: int | None) -> str:
    """Format a count with thousands separators; an unknown count is shown as a dash."""
    return "-" if count is None else f"{count:,}"


def optional_text(value: object) -> str:
    """Format a value that may be missing."""
    return "-" if value is None or value == "" else str(value)


def time_text(timestamp: int) -> str:
    """Format milliseconds since the epoch in UTC; show a time outside the calendar as a number."""
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def bar(*parts: float, cells: int = BAR_CELLS) -> str:
    """Draw fractions of a whole as a bar: the first part is solid, the second part is hatched."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    marks = "█▒░" if encoding.lower().replace("-", "") == "utf8" else "#=."
    drawn = ""
    total = 0.0
    for mark, part in zip(marks, parts, strict=False):
        total += part
        filled = round(min(total, 1.0) * cells)
        if part > 0 and filled == len(drawn) < cells:
            filled += 1  # draw at least one cell for a part above 0
        drawn += mark * (filled - len(drawn))
    return drawn + marks[2] * (cells - len(drawn))


def print_rows(rows: Sequence[Row], columns: Sequence[Column], output_format: str) -> None:
    """Print rows in the chosen format; JSON has every key of a row, a table has only `columns`."""
    if output_format == "json":
        click.echo(json.dumps(list(rows), indent=2, ensure_ascii=False))
    elif output_format == "jsonl":
        print_json_lines(rows)
    else:
        print_table(rows, columns)


def print_table(rows: Sequence[Row], columns: Sequence[Column]) -> None:
    """Print a table: on a terminal, rich draws the table; otherwise it has plain columns."""
    cells = [[column.word(row.get(column.key)) for column in columns] for row in rows]
    if sys.stdout.isatty():
        try:
            draw_table(cells, columns)
            return
        except ImportError:
            pass
    headings = [column.heading.upper() for column in columns]
    widths = [max(map(len, texts)) for texts in zip(headings, *cells, strict=True)]
    for texts in [headings, *cells]:
        parts = [
            text.rjust(width) if column.is_number else text.ljust(width)
            for text, width, column in zip(texts, widths, columns, strict=True)
        ]
        click.echo("  ".join(parts).rstrip())


def draw_table(cells: Sequence[Sequence[str]], columns: Sequence[Column]) -> None:
    """Draw a table with rich, which obeys NO_COLOR and the width of the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    for column in columns:
        justify: JustifyMethod = "right" if column.is_number else "left"
        table.add_column(column.heading, justify=justify, no_wrap=True)
    for texts in cells:
        table.add_row(*(Text(text) for text in texts))
    console = Console()
    wanted = console.measure(table, options=console.options.update(width=WIDTH_MAX)).maximum
    if wanted > console.width:
        # A narrow terminal wraps the lines, so no path or number is cut off.
        console = Console(width=wanted)
    console.print(table)


def print_facts(facts: Row, output_format: str, sentence: str) -> None:
    """Print the result of an operation, as a sentence for people or as JSON for programs."""
    if output_format == "table":
        click.echo(sentence)
    else:
        click.echo(to_json(facts))


def print_array(objects: Iterable[Any]) -> None:
    """Print one JSON array of any length without holding the array in memory."""
    separator = "[\n"
    for each in objects:
        click.echo(separator + to_json(each), nl=False)
        separator = ",\n"
    click.echo("[]" if separator == "[\n" else "\n]")


def print_json_lines(objects: Iterable[Any]) -> None:
    """Print one JSON object per line."""
    for each in objects:
        click.echo(to_json(each))


class Show(Protocol):
    """Show the progress of some work."""

    def __call__(self, done: int, total: int | None = None, /) -> None:
        """Show how much is done so far, and the total if it is known."""


@contextmanager
def progress_bar(label: str, total: int | None, *, is_bytes: bool) -> Iterator[Show]:
    """Yield a function that shows progress on stderr.

    If stderr is not a terminal, or rich is not installed, the function does nothing.
    """
    if not sys.stderr.isatty():
        yield lambda done, total=None: None
        return
    try:
        from rich import progress as rich_progress
        from rich.console import Console
    except ImportError:
        yield lambda done, total=None: None
        return
    amount: list[rich_progress.ProgressColumn] = (
        [rich_progress.DownloadColumn(binary_units=True), rich_progress.TransferSpeedColumn()]
        if is_bytes
        else [rich_progress.MofNCompleteColumn()]
    )
    with rich_progress.Progress(
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        *amount,
        rich_progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as display:
        task = display.add_task(label, total=total)
        yield lambda done, total=None: display.update(task, completed=done, total=total)
