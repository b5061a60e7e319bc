"""Commands that look for damage and mend it: `verify`, `repair`."""

from __future__ import annotations

from typing import Any

import click

from logstore import LogStore, TopicPartition
from logstore.cli.options import (
    format_option,
    log_dirs_option,
    note,
    one_partition,
    partition_arguments,
    partitions_of,
    store_as_owner,
    store_for_reading,
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

PROBLEM_COLUMNS = [
    Column("topic", "topic"),
    Column("partition", "partition", optional_text, is_number=True),
    Column("path", "where", optional_text),
    Column("position", "position", count_text, is_number=True),
    Column("record_count_lost", "records lost", count_text, is_number=True),
    Column("reason", "reason"),
]


def problem_row(name: TopicPartition, path: str, problem: Any) -> Row:
    """Make the row of one damage; what has no place in a file has an error only."""
    return {
        "topic": name.topic,
        "partition": name.partition,
        "path": getattr(problem, "path", path),
        "position": getattr(problem, "position", None),
        "record_count_lost": getattr(problem, "record_count_lost", None),
        "reason": getattr(problem, "reason", None) or str(problem),
    }


def verify_rows(store: LogStore, names: list[TopicPartition]) -> list[Row]:
    """Verify partitions one after the other, with progress by partition."""
    rows: list[Row] = []
    with progress_bar("verifying", len(names), is_bytes=False) as show:
        for done, name in enumerate(names, 1):
            for verified in store.verify(*name).logs:
                rows += [
                    problem_row(name, verified.log_dir, problem) for problem in verified.problems
                ]
                if verified.error is not None:
                    rows.append(problem_row(name, verified.log_dir, verified.error))
            show(done)
    return rows


@click.command(short_help="Check every batch; table of problems.")
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
    """Read every batch and compute its checksum: of all partitions, of TOPIC, of one PARTITION.

    Prints a table of the problems. The exit code is 1 when there is any; nothing is changed.

    \b
    Examples:
      logstore verify
      logstore verify orders 0 --format json
    """
    with store_for_reading(log_dirs) as store:
        names = partitions_of(store, topic, partition)
        rows = verify_rows(store, names)
        for directory in store.recovery_report.offline_dirs:
            rows.append(
                {
                    "topic": "-",
                    "partition": None,
                    "path": directory.path,
                    "position": None,
                    "record_count_lost": None,
                    "reason": f"the log dir is offline: {directory.reason}",
                }
            )
    if rows or output_format != "table":
        print_rows(rows, PROBLEM_COLUMNS, output_format)
    partitions = "1 partition" if len(names) == 1 else f"{len(names)} partitions"
    problems = "1 problem" if len(rows) == 1 else f"{len(rows) or 'no'} problems"
    note(f"{partitions} verified, {problems}")
    ctx.exit(1 if rows else 0)


@click.command(short_help="Take damaged bytes out of a partition.")
@partition_arguments
@log_dirs_option
@format_option()
def repair(
    topic: str, partition: int | None, log_dirs: tuple[str, ...], output_format: str
) -> None:
    """Take the damaged bytes out of a partition, so that it is whole again around them.

    What is taken out is kept beside the log as *.quarantine; the offsets of lost records stay
    unused. A partition without damage is left as it is.

    \b
    Example:
      logstore verify || logstore repair orders 0
    """
    with store_as_owner(log_dirs) as store:
        name = one_partition(store, topic, partition)
        report = store.repair(*name)
    facts: Row = {"topic": name.topic, "partition": name.partition}
    facts |= {key: getattr(report, key) for key in getattr(report, "_fields", ())}
    print_facts(facts, output_format, str(report))


COMMANDS: list[click.Command] = [verify, repair]
