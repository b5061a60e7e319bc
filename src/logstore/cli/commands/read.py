"""Implement the commands that print records: `cat`, `tail`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, TypedDict, Unpack

import click
import numpy as np

from logstore import Log, Record
from logstore.cli.options import (
    Function,
    format_option,
    log_dirs_option,
    one_partition,
    partition_arguments,
    store_for_reading,
    wrong_usage,
)
from logstore.cli.output import print_array, to_json
from logstore.cli.record_text import parse_moment, record_to_json, record_to_line
from logstore.config import parse_duration
from logstore.errors import OffsetOutOfRangeError

RECORD_FORMATS = ("text", "table", "json", "jsonl", "raw")
PRINT_RECORDS = 1000
TABLE_HEADING = "OFFSET\tTIME\tKEY\tVALUE"


if TYPE_CHECKING:
    IntType = click.ParamType[int]
    OffsetType = click.ParamType[int | str]
else:  # only newer releases of click have a generic ParamType at run time
    IntType = OffsetType = click.ParamType


class Moment(IntType):
    """Parse a point in time: date and time, milliseconds since 1970, or `2h` for two hours ago."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Read the text as milliseconds since the epoch."""
        if isinstance(value, int):
            return value
        text = str(value).strip()
        with suppress(ValueError):
            return time.time_ns() // 1_000_000 - parse_duration(text)
        try:
            return parse_moment(text)
        except (ValueError, OverflowError):
            reason = f"{text!r} is not a date and time, milliseconds, or an age such as 90m"
            self.fail(reason, param, ctx)


class OffsetText(OffsetType):
    """Parse an offset, `start`, `end`, or a negative number counted from the end."""

    name = "offset"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        """Convert the text of an offset to a number, or to `start` or `end`."""
        text = str(value).strip().lower()
        if text in ("start", "end"):
            return text
        try:
            return int(text)
        except ValueError:
            self.fail(f"{text!r} is not an offset, start or end", param, ctx)


class Range(TypedDict):
    """Hold the values of `range_options`: the records to print, and the separator for `raw`."""

    offset: int | str | None
    end_offset: int | str | None
    since: int | None
    until: int | None
    max_records: int | None
    separator: str


RANGE_OPTIONS = [
    click.option(
        "--offset", "-o", type=OffsetText(), help="First offset: a number, start, -N."
    ),
    click.option(
        "--end-offset", "-e", type=OffsetText(), help="End, exclusive: a number, end, -N."
    ),
    click.option(
        "--since", type=Moment(), help="Only records from this time on: 2013-07-04, 2h, ms."
    ),
    click.option("--until", type=Moment(), help="Only records before this time."),
    click.option("--max-records", "-n", type=click.IntRange(min=0), help="Stop after N records."),
    click.option(
        "--separator", default="\\n", help=r"With raw: text after each value.  [default: \n]"
    ),
]  # fmt: skip


def range_options(function: Function) -> Function:
    """Add the options whose values `Range` holds."""
    for option in reversed(RANGE_OPTIONS):
        function = option(function)
    return function


def resolve_offset(log: Log, offset: int | str) -> int:
    """Convert the value of an `OffsetText` to an offset of this log."""
    if offset == "start":
        return log.log_start_offset
    if offset == "end":
        return log.log_end_offset
    number = int(offset)
    if number < 0:
        return max(log.log_end_offset + number, log.log_start_offset)
    return number


def chosen_records(
    log: Log,
    offset: int | str | None,
    end_offset: int | str | None,
    since: int | None,
    until: int | None,
    isolation_level: str = "read_uncommitted",
) -> Iterator[Record]:
    """Read, in a range of offsets, the records with timestamps in `since..until`.

    The timestamps of a log can be in any order. The time index gives an offset: all records before
    this offset are older than the range. Any record from this offset on may be in the range. So
    each batch from this offset on is checked.
    """
    start = log.log_start_offset if offset is None else resolve_offset(log, offset)
    end = log.log_end_offset
    if end_offset is not None:
        end = min(resolve_offset(log, end_offset), end)
    if since is not None:
        first = log.offset_for_timestamp(since)
        if first is None:
            return
        start = max(start, first)
    if start >= end:
        check_range(log, start)
        return
    for batch in log.read_batches(start, end_offset=end, isolation_level=isolation_level):
        if since is None and until is None:
            yield from batch.records(log.topic, log.partition)
            continue
        times = batch.timestamps
        wanted = np.ones(batch.count, np.bool_)
        if since is not None:
            wanted &= times >= since
        if until is not None:
            wanted &= times < until
        if wanted.any():
            records = batch.records(log.topic, log.partition)
            yield from (records[at] for at in np.flatnonzero(wanted).tolist())


def check_range(log: Log, offset: int) -> None:
    """Check that an offset is in the log, or equals the log end offset.

    Raises:
        OffsetOutOfRangeError: the offset is not in the log, and it is not the log end offset.

    """
    if not log.log_start_offset <= offset <= log.log_end_offset:
        raise OffsetOutOfRangeError(
            offset=offset,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            topic=log.topic,
            partition=log.partition,
        )


def first_records(records: Iterable[Record], count: int | None) -> Iterator[Record]:
    """Yield at most `count` records, and read no further record."""
    if count is None:
        yield from records
        return
    if count == 0:
        return
    for number, record in enumerate(records, 1):
        yield record
        if number >= count:
            return


def print_range(
    log: Log,
    output_format: str,
    isolation_level: str = "read_uncommitted",
    **wanted: Unpack[Range],
) -> None:
    """Print the records that the options select."""
    limits = (wanted["offset"], wanted["end_offset"], wanted["since"], wanted["until"])
    records = chosen_records(log, *limits, isolation_level)
    separator = unescape(wanted["separator"])
    print_records(first_records(records, wanted["max_records"]), output_format, separator)


def record_writer(output_format: str, separator: bytes) -> Callable[[Record], bytes]:
    """Create the function that formats a record for printing."""
    if output_format == "raw":
        return lambda record: (record.value or b"") + separator
    if output_format in ("json", "jsonl"):
        return lambda record: to_json(record_to_json(record)).encode() + b"\n"
    return lambda record: record_to_line(record).encode() + b"\n"


def print_records(records: Iterable[Record], output_format: str, separator: bytes) -> None:
    """Print records; if a read fails, print the records before the fault, then raise the error."""
    if output_format == "json":
        print_array(record_to_json(record) for record in records)
        return
    stdout = sys.stdout.buffer
    write = record_writer(output_format, separator)
    if output_format == "table":
        stdout.write(TABLE_HEADING.encode() + b"\n")
    lines: list[bytes] = []
    try:
        for record in records:
            lines.append(write(record))
            if len(lines) >= PRINT_RECORDS:
                stdout.write(b"".join(lines))
                lines = []
    finally:
        stdout.write(b"".join(lines))
        stdout.flush()


@click.command(short_help="Print the records of a partition.")
@partition_arguments
@log_dirs_option
@format_option(RECORD_FORMATS, "text")
@range_options
def cat(
    topic: str,
    partition: int | None,
    log_dirs: tuple[str, ...],
    output_format: str,
    **wanted: Unpack[Range],
) -> None:
    """Print the records of a partition.

    The format `text` prints offset, time, key, value and headers, separated by tabs. The format
    `text` prints no characters that control the terminal. `raw` prints the values unchanged.
    `append --input jsonl` can read what `jsonl` prints.

    \b
    Examples:
      logstore cat orders 0 --offset 100 --end-offset 200
      logstore cat orders 0 --offset -5
      logstore cat orders 0 --since 2013-07-04 --until 2013-07-05 --format jsonl | jq .value
      logstore cat images 0 --offset 7 --max-records 1 --format raw --separator '' > 7.png
    """
    with store_for_reading(log_dirs) as store:
        print_range(store.log(*one_partition(store, topic, partition)), output_format, **wanted)


def unescape(separator: str) -> bytes:
    r"""Convert `\n`, `\t` and `\0` in the text of an option to the bytes that they represent."""
    for written, meant in ((r"\n", "\n"), (r"\t", "\t"), (r"\0", "\0")):
        separator = separator.replace(written, meant)
    return separator.encode()


@click.command(short_help="Print new records when they are appended.")
@partition_arguments
@log_dirs_option
@format_option(("text", "table", "jsonl", "raw"), "text")
@click.option("--max-records", "-n", type=click.IntRange(min=0), help="Stop after N records.")
@click.option(
    "--offset",
    "-o",
    type=OffsetText(),
    default="-10",
    show_default=True,
    help="Where to start: a number, start, end, -N.",
)
@click.option(
    "--timeout", type=click.FloatRange(min=0), help="Stop after N seconds without a record."
)
def tail(
    topic: str,
    partition: int | None,
    log_dirs: tuple[str, ...],
    output_format: str,
    max_records: int | None,
    offset: int | str,
    timeout: float | None,
) -> None:
    """Print the last records of a partition, then each new record when it is appended.

    Ctrl-C ends the command. The command works while another process appends.

    \b
    Examples:
      logstore tail orders 0
      logstore tail orders 0 --offset end --format jsonl | jq .value
      logstore tail orders 0 --offset start --timeout 5
    """
    stdout = sys.stdout.buffer
    write = record_writer(output_format, b"\n")
    with store_for_reading(log_dirs) as store:
        log = store.log(*one_partition(store, topic, partition))
        with wrong_usage():  # `--timeout nan` is wrong usage
            records = log.tail(resolve_offset(log, offset), timeout=timeout)
        if output_format == "table":
            stdout.write(TABLE_HEADING.encode() + b"\n")
        for record in first_records(records, max_records):
            stdout.write(write(record))
            stdout.flush()


COMMANDS: list[click.Command] = [cat, tail]
