"""Implement the command `dump`: print batches and records of segments as kafka-dump-log does."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import click

from logstore import LogStore, TopicPartition
from logstore.cli.batch_walk import Found, walk_file
from logstore.cli.options import format_option, log_dirs_option, one_partition, store_for_reading
from logstore.cli.output import print_array, print_json_lines
from logstore.cli.record_text import bytes_to_json, printable
from logstore.disk import files
from logstore.format import layouts
from logstore.format.batch import Record
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar import payload as payloads
from logstore.format.compression import CODEC_NAMES
from logstore.log.read.transactions import CONTROL, MARKER_KEY, MARKER_TYPES, TRANSACTIONAL
from logstore.log.removal.lost_records import LOST_SUFFIX

SEGMENT_SUFFIX = ".log"
FILE_SUFFIXES = (SEGMENT_SUFFIX, LOST_SUFFIX)

Row = dict[str, Any]


def segments_of(store: LogStore, name: TopicPartition) -> tuple[list[str], int]:
    """Return a partition's `.log` files in order, and its present log end offset."""
    log = store.log(*name)
    end_offset = log.log_end_offset
    directory = log.directory
    found = [
        os.path.join(directory, entry.name)
        for entry in files.entries(directory)
        if entry.is_file and entry.name.endswith(SEGMENT_SUFFIX)
    ]
    return sorted(found), end_offset


def dump_file(path: str, end_offset: int | None, *, with_records: bool) -> Iterator[Row]:
    """Yield a row for each batch of a `.log` file, and for each record if `with_records` is True.

    Args:
        path: the file. If retention has removed the file meanwhile, no row is yielded.
        end_offset: the log end offset. Batches from this offset on are left out, because an owner
            may be writing them.
        with_records: whether the row of a batch is followed by the rows of its records.

    """
    try:
        fd = files.open_regular(path, files.READ)
    except FileNotFoundError:
        return
    try:
        yield {"kind": "file", "path": path}
        for found in walk_file(fd):
            row = batch_row(found)
            if end_offset is not None and row.get("baseOffset", -1) >= end_offset:
                return
            yield row
            if with_records and found.fault is None:
                yield from record_rows(found)
    finally:
        files.close(fd)


def batch_row(found: Found) -> Row:
    """Describe a batch by its header; if the header is unreadable, return only the position."""
    row: Row = {"kind": "batch"}
    if layouts.has_header(found.data):
        header = layouts.read_header(found.data, 0)
        row |= header_words(header, found.position)
        if found.fault is None:
            row["crc"] = layouts.checksum(found.data, found.data[-8:])
    else:
        row |= {"position": found.position, "size": found.size_bytes}
    row["isvalid"] = found.fault is None
    if found.fault is not None:
        row["reason"] = found.fault
        row["skipped"] = found.size_bytes
    return row


def header_words(header: BatchHeader, position: int) -> Row:
    """Return the fields of a header with the names and in the order of kafka-dump-log."""
    has_sequence = header.base_sequence >= 0
    last_delta = header.last_offset - header.base_offset
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.base_sequence + last_delta if has_sequence else -1,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        **kafka_words(header),
        "position": position,
        time_word(header): header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": CODEC_NAMES.get(header.attributes & payloads.CODEC_MASK, "unknown"),
    }


def kafka_words(header: BatchHeader) -> Row:
    """Return the fields that only Kafka's batches have."""
    if header.magic != layouts.KAFKA_MAGIC:
        return {}
    has_horizon = bool(header.attributes & 0x40)
    horizon = f"OptionalLong[{header.base_timestamp}]" if has_horizon else "OptionalLong.empty"
    return {
        "isTransactional": bool(header.attributes & TRANSACTIONAL),
        "isControl": bool(header.attributes & CONTROL),
        "deleteHorizonMs": horizon,
    }


def time_word(header: BatchHeader) -> str:
    """Return the name of the type of a batch's timestamps."""
    return "LogAppendTime" if header.attributes & payloads.LOG_APPEND_TIME else "CreateTime"


def record_rows(found: Found) -> Iterator[Row]:
    """Yield a row for each record of a whole batch, or a row with the error if decoding fails."""
    try:
        batch = layouts.decode_all(found.data)
        records: Iterable[Record] = batch.records()
    except ValueError as error:
        yield {"kind": "undecodable", "position": found.position, "reason": str(error)}
        return
    word, sequence = time_word(batch.header), batch.header.base_sequence
    base_offset = batch.header.base_offset
    is_control = batch.header.magic == layouts.KAFKA_MAGIC and batch.header.attributes & CONTROL
    for record in records:
        yield {
            "kind": "record",
            "offset": record.offset,
            word: record.timestamp,
            "keySize": -1 if record.key is None else len(record.key),
            "valueSize": -1 if record.value is None else len(record.value),
            "sequence": sequence + record.offset - base_offset if sequence >= 0 else -1,
            "headerKeys": [name for name, _ in record.headers],
            **(marker_words(record) if is_control else {}),
            **({} if is_control else {"key": record.key, "payload": record.value}),
        }


def marker_words(record: Record) -> Row:
    """Describe the record that ends a transaction."""
    try:
        kind = MARKER_TYPES[MARKER_KEY.unpack_from(record.key or b"")[1]]
        epoch = int.from_bytes((record.value or b"")[2:6], "big", signed=True)
    except (KeyError, struct.error):
        return {"controlRecord": True}
    return {"endTxnMarker": kind.upper(), "coordinatorEpoch": epoch}


def row_text(row: Row) -> str:
    """Format a row as kafka-dump-log prints it."""
    kind = row["kind"]
    if kind == "file":
        return f"Dumping {row['path']}"
    words = []
    for key, value in row.items():
        if key == "kind" or (key in ("key", "payload") and value is None):
            continue
        words.append(f"{key}: {value_text(value)}")
    return ("| " if kind == "record" else "") + " ".join(words)


def value_text(value: Any) -> str:
    """Format one value of a row."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return printable(value)
    if isinstance(value, list):
        return f"[{','.join(printable(name.encode()) for name in value)}]"
    return str(value)


def row_json(row: Row) -> Row:
    """Convert a row for JSON; bytes become text or base64, as in the other commands."""
    return {
        key: bytes_to_json(value) if isinstance(value, bytes) else value
        for key, value in row.items()
    }


@click.command(short_help="Print batches as kafka-dump-log does.")
@click.argument("target", metavar="TOPIC [PARTITION] | FILE...", nargs=-1, required=True)
@log_dirs_option
@format_option(("text", "table", "json", "jsonl"), "text")
@click.option(
    "--records", "--print-data-log", "with_records", is_flag=True, help="Show each record as well."
)
def dump(
    target: tuple[str, ...], log_dirs: tuple[str, ...], output_format: str, with_records: bool
) -> None:
    """Print the record batches of a partition, or of segment files, as kafka-dump-log does.

    A file of records that a truncation dropped (`.lost`) can be printed as well.

    Every checksum is computed. For a damaged batch, the command prints `isvalid: false` and the
    reason, and continues after the damaged bytes. The exit code is 1 if a batch is damaged.

    \b
    Examples:
      logstore dump orders 0
      logstore dump orders 0 --records --format jsonl | jq 'select(.kind == "record")'
      logstore dump /disk1/logs/orders-0/00000000000000000000.log --records
    """
    damage: list[Row] = []

    def rows() -> Iterator[Row]:
        for path in paths:
            for row in dump_file(path, end_offset, with_records=with_records):
                if row.get("isvalid") is False or row["kind"] == "undecodable":
                    damage.append(row)
                yield row

    end_offset: int | None = None
    if any(os.sep in text or text.endswith(FILE_SUFFIXES) for text in target):
        paths = [readable_file(path) for path in target]
    else:
        paths, end_offset = partition_segments(target, log_dirs)
    if output_format == "json":
        print_array(map(row_json, rows()))
    elif output_format == "jsonl":
        print_json_lines(map(row_json, rows()))
    else:
        for row in rows():
            click.echo(row_text(row))
    if damage:
        click.get_current_context().exit(1)


def partition_segments(target: tuple[str, ...], log_dirs: tuple[str, ...]) -> tuple[list[str], int]:
    """Find the segment files of `TOPIC [PARTITION]`, and the log end offset."""
    if len(target) > 2 or (len(target) == 2 and not target[1].isdigit()):
        raise click.UsageError(
            "name one partition (TOPIC PARTITION) or files (FILE.log, FILE.lost)",
            click.get_current_context(),
        )
    partition = int(target[1]) if len(target) == 2 else None
    with store_for_reading(log_dirs) as store:
        return segments_of(store, one_partition(store, target[0], partition))


def readable_file(path: str) -> str:
    """Return the path of a segment file, after a check that the file can be read."""
    try:
        files.close(files.open_regular(path, files.READ))
    except OSError as error:
        raise click.UsageError(
            f"cannot read {path}: {error.strerror}", click.get_current_context()
        ) from error
    return path


COMMANDS: list[click.Command] = [dump]
