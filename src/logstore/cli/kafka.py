"""Commands for the log dirs of a Kafka broker: `kafka ls|cat|verify|adopt|export`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import click

from logstore import LogStore, LogStoreError, TopicPartition
from logstore.cli.checking import PROBLEM_COLUMNS, failure_row, verify_rows
from logstore.cli.options import (
    format_option,
    log_dirs_option,
    named_log_dirs,
    note,
    one_partition,
    partitions_of,
    store_as_owner,
)
from logstore.cli.output import (
    Column,
    Row,
    count_text,
    optional_text,
    print_facts,
    print_rows,
    progress_bar,
    size_text,
    time_text,
)
from logstore.cli.reading import (
    RECORD_FORMATS,
    Moment,
    OffsetText,
    chosen_records,
    first_records,
    print_records,
    unescape,
)
from logstore.config import format_size
from logstore.format import layouts
from logstore.format.compression import CODEC_NAMES
from logstore.log.log import Log

LS_COLUMNS = [
    Column("topic", "topic"),
    Column("partition", "partition", str, is_number=True),
    Column("log_start_offset", "start", count_text, is_number=True),
    Column("log_end_offset", "end", count_text, is_number=True),
    Column("size_bytes", "size", size_text, is_number=True),
    Column("first_timestamp", "from", lambda at: "-" if at is None else time_text(at)),
    Column("last_timestamp", "to", lambda at: "-" if at is None else time_text(at)),
    Column("codecs", "codec", lambda names: ",".join(names) or "-"),
    Column("log_dir", "log dir"),
    Column("reason", "", optional_text),
]


@contextmanager
def kafka_store(log_dirs: tuple[str, ...]) -> Iterator[LogStore]:
    """Open the log dirs of a broker, and say on stderr what is odd about them."""
    with LogStore.open_kafka(named_log_dirs(log_dirs)) as store:
        for warning in store.recovery_report.warnings:
            note(f"warning: {warning}")
        yield store


def last_batches(log: Log) -> tuple[int | None, int | None, list[str]]:
    """Give the first and the last timestamp of a log and the codecs of those batches."""
    times: list[int] = []
    codecs: dict[str, None] = {}
    for offset in (log.log_start_offset, max(log.log_end_offset - 1, log.log_start_offset)):
        raw = log.read_raw(offset, 1)
        if raw:
            header = layouts.read_header(raw, 0)
            times.append(header.base_timestamp if not times else header.max_timestamp)
            codecs[CODEC_NAMES.get(header.attributes & 7, "unknown")] = None
    return (times[0], times[-1], list(codecs)) if times else (None, None, [])


def ls_row(store: LogStore, name: TopicPartition) -> Row:
    """Describe one partition; of one that cannot be read, why."""
    row: Row = {column.key: None for column in LS_COLUMNS} | name._asdict()
    row |= {"codecs": [], "log_dir": "-"}
    try:
        log = store.log(*name)
        first, last, codecs = last_batches(log)
        torn = log.recovery.cut_bytes
        row |= {
            "log_start_offset": log.log_start_offset,
            "log_end_offset": log.log_end_offset,
            "size_bytes": log.size_bytes,
            "first_timestamp": first,
            "last_timestamp": last,
            "codecs": codecs,
            "log_dir": log.log_dir,
            "reason": f"{torn} bytes behind its end are not read" if torn else None,
        }
    except LogStoreError as error:
        row["reason"] = str(error)
    return row


@click.group(short_help="Read, adopt and hand back a Kafka broker's disks.")
def kafka() -> None:
    """Work on the log dirs of a Kafka broker (0.11 to 4.x), without the broker.

    They are read in place: nothing is written there, nothing locked.

    \b
    Examples:
      logstore kafka ls /mnt/disk1/kafka /mnt/disk2/kafka
      logstore kafka cat orders 0 --log-dirs /mnt/disk1/kafka --format jsonl | jq .value
      logstore kafka verify --log-dirs /mnt/disk1/kafka,/mnt/disk2/kafka
    """


@kafka.command(short_help="Table of what is there.")
@click.argument("dirs", nargs=-1)
@log_dirs_option
@format_option()
@click.pass_context
def ls(
    ctx: click.Context, dirs: tuple[str, ...], log_dirs: tuple[str, ...], output_format: str
) -> None:
    """List topics, partitions, offsets, sizes, times, codecs and where they are."""
    with kafka_store(dirs or log_dirs) as store:
        rows = [ls_row(store, name) for name in sorted(store)]
    print_rows(rows, LS_COLUMNS, output_format)
    ctx.exit(1 if any(row["size_bytes"] is None for row in rows) else 0)


@kafka.command(short_help="Print the records of a partition.")
@click.argument("topic")
@click.argument("partition", required=False, type=click.IntRange(min=0))
@log_dirs_option
@format_option(RECORD_FORMATS, "text")
@click.option("--offset", "-o", type=OffsetText(), help="First offset: a number, start, -N.")
@click.option("--end-offset", "-e", type=OffsetText(), help="Offset to stop before.")
@click.option("--since", type=Moment(), help="Only records at or after: 2013-07-04, 2h, ms.")
@click.option("--until", type=Moment(), help="Only records before that time.")
@click.option("--max-records", "-n", type=click.IntRange(min=0), help="Stop after so many.")
@click.option("--separator", default="\\n", help=r"With raw: what follows a value.  [default: \n]")
@click.option(
    "--isolation-level",
    type=click.Choice(("read_uncommitted", "read_committed")),
    default="read_uncommitted",
    show_default=True,
    help="read_committed leaves out what transactions aborted.",
)
def cat(
    topic: str,
    partition: int | None,
    log_dirs: tuple[str, ...],
    output_format: str,
    offset: int | str | None,
    end_offset: int | str | None,
    since: int | None,
    until: int | None,
    max_records: int | None,
    separator: str,
    isolation_level: str,
) -> None:
    """Print the records of a partition of a broker, as `logstore cat` does."""
    with kafka_store(log_dirs) as store:
        log = store.log(*one_partition(store, topic, partition))
        records = chosen_records(log, offset, end_offset, since, until, isolation_level)
        print_records(first_records(records, max_records), output_format, unescape(separator))


@kafka.command(short_help="Check every batch; table of problems.")
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
    """Compute every checksum, and check that batches follow one another.

    The exit code is 1 when anything is wrong; nothing is changed.
    """
    with kafka_store(log_dirs) as store:
        names = partitions_of(store, topic, partition)
        rows = verify_rows(store, names)
        for directory in store.recovery_report.offline_dirs:
            reason = f"the log dir cannot be read: {directory.reason}"
            rows.append(failure_row("-", None, directory.path, reason))
    if rows or output_format != "table":
        print_rows(rows, PROBLEM_COLUMNS, output_format)
    note(f"{len(names)} partitions verified, {len(rows) or 'no'} problems")
    ctx.exit(1 if rows else 0)


@kafka.command(short_help="Take a broker's partition into a store.")
@click.argument("topic")
@click.argument("partition", required=False, type=click.IntRange(min=0))
@log_dirs_option
@click.option("--from", "sources", multiple=True, required=True, metavar="DIR[,DIR...]")
@format_option()
def adopt(
    topic: str,
    partition: int | None,
    log_dirs: tuple[str, ...],
    sources: tuple[str, ...],
    output_format: str,
) -> None:
    """Take partitions of a stopped broker into the store of --log-dirs, offsets as they are.

    Sealed segments come by hard link where source and store are on one file system, else by copy;
    the last one is always copied. The source is never written or cut.

    \b
    Example:
      logstore kafka adopt orders --from /mnt/disk1/kafka --log-dirs /disk1/logs
    """
    from logstore.store.kafka_adopting import adopt as adopt_one

    with kafka_store(sources) as source, store_as_owner(log_dirs) as store:
        for name in partitions_of(source, topic, partition):
            total = source.log(*name).size_bytes
            with progress_bar(f"adopting {name}", total, is_bytes=True) as show:
                adopted = adopt_one(store, source, name, show)
            facts = name._asdict() | adopted._asdict()
            sentence = (
                f"{name}: offsets {adopted.log_start_offset} to {adopted.log_end_offset}, "
                f"{format_size(adopted.linked_bytes)} linked, "
                f"{format_size(adopted.copied_bytes)} copied"
            )
            print_facts(facts, output_format, sentence)


@kafka.command(short_help="Write a directory that a broker loads.")
@click.argument("topic")
@click.argument("partition", required=False, type=click.IntRange(min=0))
@log_dirs_option
@click.option("--to", "target", required=True, metavar="DIR", help="A broker's log dir, or any.")
@format_option()
def export(
    topic: str, partition: int | None, log_dirs: tuple[str, ...], target: str, output_format: str
) -> None:
    """Write partitions of the store, in Kafka's layout, as directories that a broker loads.

    Copy them into the log dir of a stopped broker whose topic has the same partitions. Segments in
    the columnar layout are written anew as Kafka's batches.
    """
    from logstore.store.kafka_exporting import export as export_one

    with LogStore.open(named_log_dirs(log_dirs), read_only=True) as store:
        for name in partitions_of(store, topic, partition):
            path = os.path.join(os.path.abspath(target), str(name))
            size_bytes = export_one(store.log(*name), path)
            facts = {**name._asdict(), "path": path, "size_bytes": size_bytes}
            print_facts(facts, output_format, f"{name}: {format_size(size_bytes)} in {path}")


COMMANDS: list[click.Command] = [kafka]
