"""Implement the commands that check and mend logs: `verify`, `repair`, `compact`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import click

from logstore import LogStore, LogStoreError, TopicPartition
from logstore.cli.options import (
    format_option,
    log_dirs_option,
    note,
    one_partition,
    partition_arguments,
    partitions_of,
    store_for_reading,
    wrong_usage,
)
from logstore.cli.output import (
    Column,
    Row,
    count_text,
    optional_text,
    print_facts,
    print_rows,
    progress_bar,
)
from logstore.cli.owner import administered
from logstore.log.compaction.compaction import CompactionReport
from logstore.log.recovery.repair import RepairReport
from logstore.log.recovery.report import Problem
from logstore.units import format_count

PROBLEM_COLUMNS = [
    Column("topic", "topic"),
    Column("partition", "partition", optional_text, is_number=True),
    Column("path", "where", optional_text),
    Column("position", "position", count_text, is_number=True),
    Column("offset_count_lost", "offsets lost", count_text, is_number=True),
    Column("damage", "damage", optional_text),
    Column("reason", "reason"),
]


def problem_row(name: TopicPartition, problem: Problem, *, is_repairable: bool) -> Row:
    """Build the row of one damaged place."""
    return {
        "topic": name.topic,
        "partition": name.partition,
        "path": problem.path,
        "position": problem.position,
        "end_position": problem.end_position,
        "offset": problem.offset,
        "end_offset": problem.end_offset,
        "offset_count_lost": problem.end_offset - problem.offset,
        "damage": str(problem.name),
        "reason": problem.reason,
        "remedy": problem.remedy(*name) if is_repairable else None,
    }


def failure_row(topic: str, partition: int | None, path: str | None, reason: str) -> Row:
    """Build the row of a log dir or a partition that could not be read at all."""
    row: Row = dict.fromkeys(("position", "end_position", "offset", "end_offset"))
    names = {"topic": topic, "partition": partition, "path": path}
    unknown = {"offset_count_lost": None, "damage": None}
    return {**names, **row, **unknown, "reason": reason, "remedy": None}


def verify_rows(store: LogStore, names: list[TopicPartition]) -> list[Row]:
    """Verify partitions one after the other, and show how many bytes are done."""
    rows: list[Row] = []
    for name in names:
        log_dir = None
        try:
            log = store.log(*name)
            log_dir = log.log_dir
            with progress_bar(f"verifying {name}", log.size_bytes, is_bytes=True) as show:
                problems = log.verify(Total(show))
            mends = log.is_repairable
            rows += [problem_row(name, each, is_repairable=mends) for each in problems]
        except LogStoreError as error:
            rows.append(failure_row(*name, log_dir, str(error)))
    return rows


def print_problems(
    ctx: click.Context,
    store: LogStore,
    names: list[TopicPartition],
    rows: list[Row],
    output_format: str,
) -> NoReturn:
    """Print the problems and the offline log dirs; exit with code 1 if there are any."""
    for directory in store.recovery_report.offline_dirs:
        reason = f"the log dir is offline: {directory.reason}"
        rows.append(failure_row("-", None, directory.path, reason))
    if rows or output_format != "table":
        print_rows(rows, PROBLEM_COLUMNS, output_format)
    remedies = (str(row["remedy"]) for row in rows if row["remedy"] is not None)
    for remedy in dict.fromkeys(remedies) if output_format == "table" else ():
        note(remedy)
    partitions = format_count(len(names), "partition")
    problems = format_count(len(rows), "problem") if rows else "no problems"
    note(f"{partitions} verified, {problems}")
    ctx.exit(1 if rows else 0)


class Total:
    """Add up the steps of some work, because a progress bar needs their sum."""

    def __init__(self, show: Callable[[int], None]) -> None:
        """Store the function that is called with each new sum."""
        self.show = show
        self.done = 0

    def __call__(self, step: int) -> None:
        """Add a step, and pass the new sum to `show`."""
        self.done += step
        self.show(self.done)


@click.command(short_help="Check every batch and list the problems.")
@click.argument("topic", required=False)
@click.argument("partition", required=False, type=click.IntRange(min=0))
@log_dirs_option
@format_option()
@click.pass_context
def verify(
    ctx: click.Context,
    topic: str | None,
    partition: int | None,
    log_dirs: tuple[str, ...],
    output_format: str,
) -> None:
    """Read every batch and check its checksum: in all partitions, in TOPIC, or in one PARTITION.

    The command prints a table of the problems, and changes nothing. The exit code is 1 if there is
    a problem.

    \b
    Examples:
      logstore verify
      logstore verify orders 0 --format json
    """
    with store_for_reading(log_dirs, is_overview=True) as store:
        names = partitions_of(store, topic, partition)
        rows = verify_rows(store, names)
    print_problems(ctx, store, names, rows, output_format)


@click.command(short_help="Remove damaged bytes from a partition.")
@partition_arguments
@log_dirs_option
@format_option()
def repair(
    topic: str, partition: int | None, log_dirs: tuple[str, ...], output_format: str
) -> None:
    """Remove a partition's damaged bytes, so that the partition can be read and written again.

    The removed bytes are written to *.quarantine files beside the log. The offsets of lost records
    stay unused. A partition without damage is not changed.

    \b
    Example:
      logstore verify || logstore repair orders 0
    """
    with store_for_reading(log_dirs) as view:
        name = one_partition(view, topic, partition)
    with administered(log_dirs) as operator:
        facts = operator.call("repair", {"topic": name.topic, "partition": name.partition})
    lost = [range(*offsets) for offsets in facts["lost"]]
    mended = facts["mended"]
    lines = [str(RepairReport(name.topic, name.partition, facts["quarantined"], lost, mended))]
    lines += [f"  kept: {path}" for path in facts["quarantined"]]
    lines += [f"  lost: offsets {offsets.start} to {offsets.stop - 1}" for offsets in lost]
    print_facts(facts, output_format, "\n".join(lines))


@click.command(short_help="Keep only the latest record of each key.")
@partition_arguments
@log_dirs_option
@format_option()
def compact(
    topic: str, partition: int | None, log_dirs: tuple[str, ...], output_format: str
) -> None:
    """Compact a partition now, even while a process has the store open.

    Only sealed segments are compacted. The partition's cleanup_policy must be 'compact' or
    'compact,delete'. A process that has the store open also compacts such partitions in the
    background.

    \b
    Example:
      logstore alter users 0 cleanup_policy=compact && logstore compact users 0
    """
    with store_for_reading(log_dirs) as view:
        name = one_partition(view, topic, partition)
    arguments = {"topic": name.topic, "partition": name.partition}
    with administered(log_dirs) as operator, wrong_usage():
        facts = operator.call("compact", arguments)
    print_facts(facts, output_format, str(CompactionReport(**facts)))


COMMANDS: list[click.Command] = [verify, repair, compact]
