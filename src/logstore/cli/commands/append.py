"""Implement the command `append`: append lines, JSON lines or files to a partition.

The command needs a limited amount of memory for an input of any size.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import IO

import click

from logstore import Log, LogStore, TopicPartition
from logstore.cli.intake import (
    Intake,
    Lines,
    json_parser,
    lines_as_they_come,
    text_parser,
    whole_input,
)
from logstore.cli.interrupts import held
from logstore.cli.options import (
    format_option,
    log_dirs_option,
    note,
    one_partition,
    store_as_owner,
    wrong_usage,
)
from logstore.cli.output import Show, print_facts, progress_bar
from logstore.disk import files as disk_files
from logstore.errors import UnknownPartitionError


def split_arguments(rest: Sequence[str]) -> tuple[int | None, list[str]]:
    """Split `[PARTITION] [FILE]...`; a first argument `0` is a partition, and `./0` is a file."""
    if rest and rest[0].isdigit():
        return int(rest[0]), list(rest[1:]) or ["-"]
    return None, list(rest) or ["-"]


def input_bytes(paths: Sequence[str]) -> int | None:
    """Add up the sizes of the inputs; return None if an input, such as a pipe, has no known size.

    Raises:
        click.UsageError: an input cannot be read.

    """
    total = 0
    is_known = True
    for path in paths:
        if path == "-":
            is_known = False
            continue
        try:
            click.open_file(path, "rb").close()
            facts = disk_files.stat(path)
        except OSError as error:
            raise click.UsageError(
                f"cannot read {path}: {error.strerror}", click.get_current_context()
            ) from error
        is_known = is_known and stat.S_ISREG(facts.st_mode)
        total += facts.st_size
    return total if is_known else None


def log_to_append(store: LogStore, topic: str, partition: int | None, create: bool) -> Log:
    """Return the log that TOPIC [PARTITION] names; if `create` is True, create a missing log."""
    try:
        name = one_partition(store, topic, partition)
        return store.log(*name)
    except UnknownPartitionError as error:
        if not create:
            raise click.ClickException(
                f"{error}; create it with `logstore create`, or append with --create"
            ) from error
        name = TopicPartition(topic, partition or 0)
        with wrong_usage():
            return store.create(*name, exist_ok=True)


def take_all(
    intake: Intake,
    paths: Sequence[str],
    read_lines: Callable[[IO[bytes], str, int], Iterator[tuple[Lines, int]]],
    show: Show,
) -> None:
    """Append all inputs, one after the other, and show how many bytes are done."""
    line_bytes_max = intake.log.config.max_message_bytes
    bytes_before = 0
    for path in paths:
        source = "standard input" if path == "-" else path
        bytes_read = 0
        with click.open_file(path, "rb") as stream:
            for lines, bytes_read in read_lines(stream, source, line_bytes_max):
                intake.take(lines)
                show(bytes_before + bytes_read)
        bytes_before += bytes_read


@click.command(short_help="Append lines, JSON lines or files.")
@click.argument("topic")
@click.argument("rest", metavar="[PARTITION] [FILE]...", nargs=-1)
@log_dirs_option
@format_option()
@click.option(
    "--input",
    "input_format",
    type=click.Choice(["text", "jsonl", "whole"]),
    default="text",
    show_default=True,
    help="text: a line is a value; jsonl: a line is a JSON record; whole: a FILE is a value.",
)
@click.option(
    "--key-separator",
    metavar="TEXT",
    help="With --input text: the key of a line is the part before TEXT.",
)
@click.option("--create", is_flag=True, help="Create the partition if it does not exist.")
@click.option("--durable", is_flag=True, help="Flush each batch (default: once, at the end).")
def append(
    topic: str,
    rest: tuple[str, ...],
    log_dirs: tuple[str, ...],
    output_format: str,
    input_format: str,
    key_separator: str | None,
    create: bool,
    durable: bool,
) -> None:
    """Append records to a partition, from FILEs or from standard input (-).

    With `--input jsonl` a line is {"key": ..., "value": ..., "timestamp": ..., "headers": ...}.
    Only "value" is required. A key or value is a string, null, or {"base64": "..."}. A timestamp is
    a number of milliseconds since 1970, or a date and time. Headers are [[name, value], ...] or an
    object.

    At the first bad line, the command reports the line's number and ends with exit code 1. The
    lines before the bad line are appended.

    \b
    Examples:
      seq 1000 | logstore append orders 0
      logstore append orders 0 monday.csv tuesday.csv
      tail -F access.log | logstore append access 0 --create
      echo '{"key": "k", "value": "v"}' | logstore append orders 0 --input jsonl
      logstore cat orders 0 --format jsonl | logstore append copy --create --input jsonl
    """
    if key_separator is not None and (input_format != "text" or not key_separator):
        raise click.UsageError(
            "--key-separator needs --input text, and must not be empty", click.get_current_context()
        )
    partition, paths = split_arguments(rest)
    total_bytes = input_bytes(paths)
    parse = json_parser if input_format == "jsonl" else text_parser(key_separator)
    read_lines = whole_input if input_format == "whole" else lines_as_they_come
    with (
        held() as interrupts,
        store_as_owner(log_dirs, must_exist=not create, interrupts=interrupts) as store,
    ):
        intake = Intake(log_to_append(store, topic, partition, create), parse, is_durable=durable)
        try:
            with progress_bar("appending", total_bytes, is_bytes=True) as show:
                take_all(intake, paths, partial(read_lines, interrupts=interrupts), show)
            intake.log.flush()
        except BaseException:
            note(intake.sentence())
            raise
    print_facts(intake.facts(), output_format, intake.sentence())


COMMANDS: list[click.Command] = [append]
