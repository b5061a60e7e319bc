"""Implement the commands for the log dirs of a Kafka broker: `kafka ls|cat|verify|adopt|export`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Unpack

import click

from logstore import LogStore, LogStoreError, TopicPartition
from logstore.cli.commands.check import failure_row, print_problems, verify_rows
from logstore.cli.commands.read import RECORD_FORMATS, Range, print_range, range_options
from logstore.cli.commands.topics import PARTITION_COLUMNS, partition_row
from logstore.cli.options import (
    format_option,
    log_dirs_option,
    named_log_dirs,
    note,
    one_partition,
    partition_arguments,
    partitions_of,
    store_as_owner,
)
from logstore.cli.output import (
    Column,
    Row,
    print_facts,
    print_rows,
    progress_bar,
    time_text,
)
from logstore.config import format_size
from logstore.errors import UnsupportedFormatError
from logstore.format import layouts
from logstore.format.compression import CODEC_NAMES
from logstore.log.log import Log
from logstore.store.kafka.broker_listing import read_meta
from logstore.units import format_count

LS_COLUMNS = [
    *PARTITION_COLUMNS[:-2],
    Column("first_timestamp", "from", lambda at: "-" if at is None else time_text(at)),
    Column("last_timestamp", "to", lambda at: "-" if at is None else time_text(at)),
    Column("codecs", "codec", lambda names: ",".join(names) or "-"),
    *PARTITION_COLUMNS[-2:],
]


@contextmanager
def kafka_store(log_dirs: tuple[str, ...]) -> Iterator[LogStore]:
    """Open the log dirs of a broker, and print warnings about these log dirs on stderr."""
    with LogStore.open_kafka(named_log_dirs(log_dirs)) as store:
        for warning in store.recovery_report.warnings:
            note(f"warning: {warning}")
        for bad in store.recovery_report.offline_dirs:
            note(f"warning: log dir {bad.path} is offline: {bad.reason}")
        yield store


def last_batches(log: Log) -> tuple[int | None, int | None, list[str]]:
    """Return the range of timestamps in a log's first and last batch, and the codecs of both.

    The base timestamp in a header is not enough. So the function reads the records of the first and
    the last batch. In a compacted batch, the base timestamp may be the timestamp of a removed
    record, or the delete horizon (the time after which compaction may remove tombstones). If a
    codec's library is missing, only the largest timestamp is known.
    """
    times: list[int] = []
    codecs: dict[str, None] = {}
    for offset in (log.log_start_offset, max(log.log_end_offset - 1, log.log_start_offset)):
        raw = log.read_raw(offset, 1)
        if not raw:
            continue
        header = layouts.read_header(raw, 0)
        codecs[CODEC_NAMES.get(header.attributes & 7, "unknown")] = None
        times.append(header.max_timestamp)
        with suppress(UnsupportedFormatError):
            for batch in log.read_batches(offset, end_offset=header.last_offset + 1):
                times += [int(batch.timestamps.min()), int(batch.timestamps.max())]
    known = [time for time in times if time >= 0]  # -1: the record has no timestamp
    return (min(known), max(known), list(codecs)) if known else (None, None, list(codecs))


def ls_row(store: LogStore, name: TopicPartition) -> Row:
    """Describe one partition; the field `state` says which part of the log is not read, and why."""
    row = partition_row(store, name) | {"first_timestamp": None, "last_timestamp": None}
    row["codecs"] = []
    if row["state"] == "online":
        log = store.log(*name)
        try:
            row["first_timestamp"], row["last_timestamp"], row["codecs"] = last_batches(log)
        except LogStoreError as error:
            row["state"] = f"damaged: {error}"
        if log.recovery.cut_bytes:
            row["state"] = (
                f"not read after the log end: {format_count(log.recovery.cut_bytes, 'byte')}"
            )
    return row


@click.group(short_help="Read, adopt and export a Kafka broker's disks.")
def kafka() -> None:
    """Work on the log dirs of a Kafka broker (0.11 to 4.x), without the broker.

    The log dirs are read in place: nothing is written or locked there. Name the broker's log dirs
    with --log-dirs or LOGSTORE_LOG_DIRS. For adopt and export, --log-dirs names the log dirs of the
    store, and --from or --to names the broker's directory.

    \b
    Examples:
      logstore kafka ls --log-dirs /mnt/disk1/kafka,/mnt/disk2/kafka
      logstore kafka cat orders 0 --log-dirs /mnt/disk1/kafka --format jsonl | jq .value
      logstore kafka verify --log-dirs /mnt/disk1/kafka,/mnt/disk2/kafka
    """


@kafka.command(short_help="List topics and partitions.")
@click.argument("dirs", nargs=-1)
@log_dirs_option
@format_option()
@click.pass_context
def ls(
    ctx: click.Context, dirs: tuple[str, ...], log_dirs: tuple[str, ...], output_format: str
) -> None:
    """List topics, partitions, offsets, sizes, times, codecs and log dirs.

    The log dirs can also be arguments: `logstore kafka ls DIR DIR`.
    """
    with kafka_store((*log_dirs, *dirs)) as store:
        rows = [ls_row(store, name) for name in sorted(store)]
    print_rows(rows, LS_COLUMNS, output_format)
    ctx.exit(1 if any(row["state"].startswith(("offline", "damaged")) for row in rows) else 0)


@kafka.command(short_help="Print the records of a partition.")
@partition_arguments
@log_dirs_option
@format_option(RECORD_FORMATS, "text")
@range_options
@click.option(
    "--isolation-level",
    type=click.Choice(("read_uncommitted", "read_committed")),
    default="read_uncommitted",
    show_default=True,
    help="read_committed: leave out the records of aborted transactions.",
)
def cat(
    topic: str,
    partition: int | None,
    log_dirs: tuple[str, ...],
    output_format: str,
    isolation_level: str,
    **wanted: Unpack[Range],
) -> None:
    """Print the records of a partition of a broker, as `logstore cat` does."""
    with kafka_store(log_dirs) as store:
        log = store.log(*one_partition(store, topic, partition))
        print_range(log, output_format, isolation_level, **wanted)


@kafka.command(short_help="Check every batch and list the problems.")
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
    """Check every checksum, and check that batches follow one another.

    The other files of a log are compared with its segments: indexes, lists of aborted transactions,
    snapshots of producers, and checkpoints.

    Nothing is changed. The exit code is 1 if anything is wrong.
    """
    with kafka_store(log_dirs) as store:
        names = partitions_of(store, topic, partition)
        rows = verify_rows(store, names)
        rows += [failure_row("-", None, *damage) for damage in store.recovery_report.damaged_files]
    print_problems(ctx, store, names, rows, output_format)


@kafka.command(short_help="Copy or link a stopped broker's partition into a store.")
@partition_arguments
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
    """Copy or link partitions of a stopped broker into the store; offsets stay the same.

    If the source and the store are on one mount and have one owner, sealed segments are
    hard-linked. If the mount or the owner differs, but the file system is the same and can share
    blocks (XFS, btrfs), sealed segments are cloned. All other sealed segments are copied. The last
    segment is always copied. The source is never written or truncated.

    \b
    Example:
      logstore kafka adopt orders --from /mnt/disk1/kafka --log-dirs /disk1/logs
    """
    from logstore.store.kafka.adoption import adopt as adopt_one

    with kafka_store(sources) as source, store_as_owner(log_dirs) as store:
        for name in partitions_of(source, topic, partition):
            total = source.log(*name).size_bytes
            with progress_bar(f"adopting {name}", total, is_bytes=True) as show:
                adopted = adopt_one(store, source, name, show)
            facts = name._asdict() | adopted._asdict()
            sentence = (
                f"{name}: offsets {adopted.log_start_offset} to {adopted.log_end_offset}, "
                f"{format_size(adopted.linked_bytes)} linked, "
                f"{format_size(adopted.cloned_bytes)} cloned, "
                f"{format_size(adopted.copied_bytes)} copied"
            )
            print_facts(facts, output_format, sentence)


@kafka.command(short_help="Write a directory that a broker loads.")
@partition_arguments
@log_dirs_option
@click.option("--to", "target", required=True, metavar="DIR", help="Directory to write to.")
@format_option()
def export(
    topic: str, partition: int | None, log_dirs: tuple[str, ...], target: str, output_format: str
) -> None:
    """Write partitions of the store, in Kafka's layout, as directories that a broker can load.

    Copy these directories into the log dir of a stopped broker whose topic has the same partitions.
    Segments in the columnar layout are converted to Kafka's batches.
    """
    from logstore.store.kafka.export import export as export_one

    with suppress(FileNotFoundError):
        read_meta(os.path.abspath(target))  # the target must not be a log dir of this library
    with LogStore.open(named_log_dirs(log_dirs), read_only=True) as store:
        for name in partitions_of(store, topic, partition):
            path = os.path.join(os.path.abspath(target), str(name))
            size_bytes = export_one(store.log(*name), path)
            facts = {**name._asdict(), "path": path, "size_bytes": size_bytes}
            print_facts(facts, output_format, f"{name}: {format_size(size_bytes)} in {path}")
