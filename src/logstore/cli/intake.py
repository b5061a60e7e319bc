"""What `append` puts into a log: inputs cut into lines, lines read as records, records in batches.

Memory is bounded by a chunk of input, a line, and a batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, NamedTuple

import click

from logstore import Log
from logstore.cli.interrupts import Interrupts
from logstore.cli.record_text import InputRecord, parse_json_record

CHUNK_BYTES = 1 << 18
"""Read at a time; the lines that are whole in it are appended together."""

BATCH_BYTES_MAX = 1 << 20
RECORD_OVERHEAD_BYTES = 64
"""Counted for a record beside its key and value, so that tiny ones make no endless batch."""


class BadInputError(click.ClickException):
    """A line cannot be appended; everything before it has been."""


class Line(NamedTuple):
    """One line of an input without its end, and its number there."""

    source: str
    number: int
    data: bytes

    def refuse(self, error: Exception) -> BadInputError:
        """Make the error that names this line."""
        return BadInputError(f"{self.source}, line {self.number}: {error}")


def lines_as_they_come(
    stream: IO[bytes], source: str, line_bytes_max: int, interrupts: Interrupts
) -> Iterator[tuple[list[Line], int]]:
    """Yield the lines of a stream as they arrive, each time with the bytes read so far.

    A pipe whose writer pauses gives what it has; nothing waits for a chunk to fill.
    """
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    number, bytes_read = 0, 0
    pieces: list[bytes] = []  # of the line whose end has not come yet
    pieces_bytes = 0
    while True:
        with interrupts.allowed():
            chunk = read(CHUNK_BYTES)
        if not chunk:
            break
        bytes_read += len(chunk)
        *whole, tail = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join([*pieces, whole[0]])
            pieces, pieces_bytes = [], 0
        pieces.append(tail)
        pieces_bytes += len(tail)
        lines = [Line(source, number + at, data) for at, data in enumerate(whole, 1)]
        number += len(lines)
        yield lines, bytes_read
        if pieces_bytes > line_bytes_max:
            raise BadInputError(
                f"{source}, line {number + 1}: longer than max_message_bytes ({line_bytes_max})"
            )
    if pieces_bytes:
        yield [Line(source, number + 1, b"".join(pieces))], bytes_read


def whole_input(
    stream: IO[bytes], source: str, line_bytes_max: int, interrupts: Interrupts
) -> Iterator[tuple[list[Line], int]]:
    """Yield the whole of a stream as if it were one line."""
    with interrupts.allowed():
        data = stream.read(line_bytes_max + 1)
    if len(data) > line_bytes_max:
        raise BadInputError(f"{source}: longer than max_message_bytes ({line_bytes_max})")
    yield [Line(source, 1, data)], len(data)


def text_parser(key_separator: str | None) -> Callable[[bytes], InputRecord | None]:
    """Make the parser of plain lines: the line is the value, or key, separator and value."""
    if key_separator is None:
        return InputRecord
    separator = key_separator.encode()

    def parse(line: bytes) -> InputRecord:
        key, found, value = line.partition(separator)
        if not found:
            raise ValueError(f"no key separator {key_separator!r} in it")
        return InputRecord(value, key)

    return parse


def json_parser(line: bytes) -> InputRecord | None:
    """Read a JSON line; a blank one is no record."""
    return parse_json_record(line) if line.strip() else None


class Intake:
    """What goes into one log, batch by batch, and what has been acknowledged so far."""

    def __init__(
        self, log: Log, parse: Callable[[bytes], InputRecord | None], *, is_durable: bool
    ) -> None:
        """Take records for `log`."""
        self.log = log
        self.parse = parse
        self.is_durable = is_durable
        self.batch_bytes_max = min(BATCH_BYTES_MAX, log.config.max_message_bytes // 2)
        self.record_count = 0
        self.first_offset: int | None = None
        self.last_offset: int | None = None

    def take(self, lines: Sequence[Line]) -> None:
        """Append lines in batches.

        Raises:
            BadInputError: for the first bad line; those before it are appended.

        """
        batch: list[tuple[Line, InputRecord]] = []
        size_bytes = 0
        for line in lines:
            try:
                record = self.parse(line.data)
            except ValueError as error:
                self.write(batch)
                raise line.refuse(error) from None
            if record is None:
                continue
            batch.append((line, record))
            size_bytes += len(line.data) + RECORD_OVERHEAD_BYTES
            if size_bytes >= self.batch_bytes_max:
                self.write(batch)
                batch, size_bytes = [], 0
        self.write(batch)

    def write(self, batch: Sequence[tuple[Line, InputRecord]]) -> None:
        """Append a batch whole; one that is refused goes record by record, to name the bad one."""
        if not batch:
            return
        try:
            offsets = self.extend([record for _, record in batch])
        except (ValueError, TypeError) as error:
            if len(batch) == 1:
                raise batch[0][0].refuse(error) from None
            for each in batch:
                self.write([each])
            return
        self.record_count += len(offsets)
        if self.first_offset is None:
            self.first_offset = offsets.start
        self.last_offset = offsets.stop - 1

    def extend(self, records: Sequence[InputRecord]) -> range:
        """Append records as one batch; those without a timestamp get the time of now."""
        values = [record.value for record in records]
        keys = [record.key for record in records]
        headers = [record.headers for record in records]
        timestamps: list[int] | None = None
        if any(record.timestamp is not None for record in records):
            now_ms = time.time_ns() // 1_000_000
            timestamps = [
                now_ms if record.timestamp is None else record.timestamp for record in records
            ]
        return self.log.extend(
            values,
            keys=keys if any(key is not None for key in keys) else None,
            timestamps=timestamps,
            headers=headers if any(headers) else None,
            durable=self.is_durable,
        )

    def sentence(self) -> str:
        """Word what has been appended."""
        name = f"{self.log.topic}-{self.log.partition}"
        if not self.record_count:
            return f"appended no records to {name}"
        records = "record" if self.record_count == 1 else "records"
        return (
            f"appended {self.record_count:,} {records} to {name}, "
            f"offsets {self.first_offset} to {self.last_offset}"
        )

    def facts(self) -> dict[str, object]:
        """Return what has been appended, for programs."""
        return {
            "topic": self.log.topic,
            "partition": self.log.partition,
            "records": self.record_count,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
        }
