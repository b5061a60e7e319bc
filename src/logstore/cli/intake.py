"""Feed inputs into a log for `append`: cut inputs into lines, parse records, form batches.

At most one chunk of input, one line and one batch are in memory.
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
"""How many bytes to read at a time; all whole lines in these bytes are appended together."""

BATCH_BYTES_MAX = 1 << 20
RECORD_OVERHEAD_BYTES = 64
"""Bytes that are counted for each record in addition to its value.

So a batch of many tiny records does not grow without limit.
"""

Parser = Callable[[bytes], InputRecord | None]
Headers = tuple[tuple[str, bytes | None], ...]


class BadInputError(click.ClickException):
    """Report a line that cannot be appended; all lines before this line are appended."""


class Lines(NamedTuple):
    """Hold consecutive lines of one input, without their line ends."""

    source: str
    first_number: int
    data: list[bytes]


class Batch(NamedTuple):
    """Hold records that are appended together, as columns, with the line number of each record."""

    source: str
    numbers: Sequence[int]
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    timestamps: Sequence[int] | None = None
    headers: Sequence[Headers] | None = None

    def part(self, start: int, stop: int) -> Batch:
        """Return the records from index `start` to before `stop` as a batch."""
        return Batch(
            self.source,
            self.numbers[start:stop],
            self.values[start:stop],
            None if self.keys is None else self.keys[start:stop],
            None if self.timestamps is None else self.timestamps[start:stop],
            None if self.headers is None else self.headers[start:stop],
        )


def lines_as_they_come(
    stream: IO[bytes], source: str, line_bytes_max: int, interrupts: Interrupts
) -> Iterator[tuple[Lines, int]]:
    """Yield the lines of a stream as they arrive, with the number of bytes read so far.

    If the writer of a pipe pauses, the lines that have arrived are yielded without waiting for a
    full chunk.
    """
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    number, bytes_read = 1, 0
    pieces: list[bytes] = []  # the pieces of a line whose end has not been read yet
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
        yield Lines(source, number, whole), bytes_read
        number += len(whole)
        if pieces_bytes > line_bytes_max:
            raise BadInputError(
                f"{source}, line {number}: longer than max_message_bytes ({line_bytes_max})"
            )
    if pieces_bytes:
        yield Lines(source, number, [b"".join(pieces)]), bytes_read


def whole_input(
    stream: IO[bytes], source: str, line_bytes_max: int, interrupts: Interrupts
) -> Iterator[tuple[Lines, int]]:
    """Yield a whole stream as if it were one line."""
    with interrupts.allowed():
        data = stream.read(line_bytes_max + 1)
    if len(data) > line_bytes_max:
        raise BadInputError(f"{source}: longer than max_message_bytes ({line_bytes_max})")
    yield Lines(source, 1, [data]), len(data)


def text_parser(key_separator: str | None) -> Parser | None:
    """Create the parser of lines that begin with a key; return None if lines have no key."""
    if key_separator is None:
        return None
    separator = key_separator.encode()

    def parse(line: bytes) -> InputRecord:
        key, found, value = line.partition(separator)
        if not found:
            raise ValueError(f"the key separator {key_separator!r} is missing")
        return InputRecord(value, key)

    return parse


def json_parser(line: bytes) -> InputRecord | None:
    """Parse a JSON line; return None for a blank line, which is not a record."""
    return parse_json_record(line) if line.strip() else None


class Intake:
    """Append records to one log, batch by batch, and count the acknowledged records."""

    def __init__(self, log: Log, parse: Parser | None, *, is_durable: bool) -> None:
        """Prepare to append to `log`; if there is no parser, each line is a value."""
        self.log = log
        self.parse = parse
        self.is_durable = is_durable
        self.batch_bytes_max = min(BATCH_BYTES_MAX, log.config.max_message_bytes // 2)
        self.record_count = 0
        self.first_offset: int | None = None
        self.last_offset: int | None = None

    def take(self, lines: Lines) -> None:
        """Append lines in batches.

        Raises:
            BadInputError: a line is bad. The lines before the first bad line are appended.
        """
        batch, error = self.parsed(lines)
        start = size_bytes = 0
        for stop, value in enumerate(batch.values, 1):
            size_bytes += len(value or b"") + RECORD_OVERHEAD_BYTES
            if size_bytes >= self.batch_bytes_max:
                self.write(batch.part(start, stop))
                start, size_bytes = stop, 0
        self.write(batch.part(start, len(batch.values)))
        if error is not None:
            raise error

    def parsed(self, lines: Lines) -> tuple[Batch, BadInputError | None]:
        """Parse lines up to the first bad line; return the records and the error of that line."""
        if self.parse is None:
            numbers = range(lines.first_number, lines.first_number + len(lines.data))
            return Batch(lines.source, numbers, lines.data), None
        found: list[tuple[int, InputRecord]] = []
        failure = None
        for number, data in enumerate(lines.data, lines.first_number):
            try:
                record = self.parse(data)
            except ValueError as error:
                failure = BadInputError(f"{lines.source}, line {number}: {error}")
                break
            if record is not None:
                found.append((number, record))
        return batch_of(lines.source, found), failure

    def write(self, batch: Batch) -> None:
        """Append a batch.

        If the batch is refused, append its records one by one to find the bad record.
        """
        count = len(batch.values)
        if not count:
            return
        try:
            offsets = self.log.extend(
                batch.values,
                keys=batch.keys,
                timestamps=batch.timestamps,
                headers=batch.headers,
                durable=self.is_durable,
            )
        except (ValueError, TypeError) as error:
            if count == 1:
                where = f"{batch.source}, line {batch.numbers[0]}"
                raise BadInputError(f"{where}: {error}") from None
            for at in range(count):
                self.write(batch.part(at, at + 1))
            return
        self.record_count += len(offsets)
        if self.first_offset is None:
            self.first_offset = offsets.start
        self.last_offset = offsets.stop - 1

    def sentence(self) -> str:
        """Describe in a sentence which records were appended."""
        name = f"{self.log.topic}-{self.log.partition}"
        if not self.record_count:
            return f"appended no records to {name}"
        records = "record" if self.record_count == 1 else "records"
        return (
            f"appended {self.record_count:,} {records} to {name}, "
            f"offsets {self.first_offset} to {self.last_offset}"
        )

    def facts(self) -> dict[str, object]:
        """Return how many records were appended, and where, as a dict for JSON output."""
        return {
            "topic": self.log.topic,
            "partition": self.log.partition,
            "records": self.record_count,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
        }


def batch_of(source: str, found: Sequence[tuple[int, InputRecord]]) -> Batch:
    """Build a batch, with columns, from numbered records.

    If only some of the records have a timestamp, all others get the present time.
    """
    keys = [record.key for _, record in found]
    headers = [record.headers for _, record in found]
    timestamps: list[int] | None = None
    if any(record.timestamp is not None for _, record in found):
        now_ms = time.time_ns() // 1_000_000
        timestamps = [
            now_ms if record.timestamp is None else record.timestamp for _, record in found
        ]
    return Batch(
        source,
        numbers=[number for number, _ in found],
        values=[record.value for _, record in found],
        keys=keys if any(key is not None for key in keys) else None,
        timestamps=timestamps,
        headers=headers if any(headers) else None,
    )
