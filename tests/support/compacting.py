"""Build batches of both layouts, clean them, and say by a plain dictionary what has to be left."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from logstore.format import layouts, prefix, producers
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar import payload as columnar_payload
from logstore.format.columnar import record_batch as columnar
from logstore.format.columnar.columns import encode_cells
from logstore.format.kafka import record_batch as kafka
from logstore.format.steps import run
from logstore.log.compaction.cleaner import Cleaner, note
from logstore.log.compaction.latest_offsets import LatestOffsets
from logstore.log.compaction.rules import Rules
from logstore.log.compaction.window import Window

TRANSACTIONAL, CONTROL = 0x10, 0x20
NOW = 1_700_000_000_000
DAY = 86_400_000
ROOM = 1 << 28

Row = tuple["bytes | None", "bytes | None", int]  # key, value, timestamp


class Kept(NamedTuple):
    """One record as it is read."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def batch_of(
    layout: str,
    base_offset: int,
    rows: Sequence[Row],
    *,
    codec: int = 0,
    epoch: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
) -> bytes:
    """Encode one batch; `attributes` and `producer` as in Kafka's header."""
    keys, values = [row[0] for row in rows], [row[1] for row in rows]
    times = np.array([row[2] for row in rows], np.int64)
    if layout == "kafka":
        facts = BatchHeader(0, 0, 0, 2, attributes, 0, 0, 0, 0, 0, *producer, 0)
        payload = kafka.build_payload(values, keys, times, None, codec_id=codec, header=facts)
        return b"".join(kafka.frame(payload, base_offset, epoch))
    built = columnar_payload.build_payload(
        encode_cells(values),
        len(rows),
        keys=None if not any(key is not None for key in keys) else encode_cells(keys),
        timestamps=times,
        codec_id=codec,
    )
    data = b"".join(columnar.frame(built, base_offset, epoch))
    return data if producer[0] < 0 else producers.stamp(data, producer[0], producer[2], producer[1])


def marker(base_offset: int, producer_id: int, *, commit: bool) -> bytes:
    """Encode the end of a transaction."""
    row = (struct.pack(">hh", 0, int(commit)), b"\0" * 6, NOW)
    return batch_of(
        "kafka",
        base_offset,
        [row],
        producer=(producer_id, 0, -1),
        attributes=TRANSACTIONAL | CONTROL,
    )


def headers_of(batches: Iterable[bytes]) -> list[BatchHeader]:
    """Read the header of each batch."""
    return [layouts.read_header(data, 0) for data in batches]


def split(data: bytes) -> list[bytes]:
    """Cut a buffer into its batches."""
    return [data[at : at + size] for at, size, *_ in prefix.walk(data)]


def rows_of(batches: Iterable[bytes]) -> list[Kept]:
    """Decode all records, those of control batches not."""
    found = []
    for data in batches:
        assert layouts.fault(data, 0, None) is None
        header = layouts.read_header(data, 0)
        layouts.check_run(data, [(0, header)], ROOM, checks_claims=True)
        batch = layouts.decoder_of(data, 0, "")(data, 0, header)
        found += [Kept(r.offset, r.timestamp, r.key, r.value) for r in batch]
    return found


def windows(batches: Sequence[bytes], count: int = 3, position: int = 0) -> list[Window]:
    """Put every `count` batches into a window."""
    found = []
    for first in range(0, len(batches), count):
        part = batches[first : first + count]
        data, offset = b"".join(part), layouts.read_header(part[0], 0).base_offset
        found.append(Window("orders-0/0.log", position, data, offset, ROOM))
        position += len(data)
    return found


class Cleaned(NamedTuple):
    """What a pass gave."""

    batches: list[bytes]
    cleaner: Cleaner
    end_offset: int


def clean(
    batches: Sequence[bytes],
    *,
    first_dirty: int = 0,
    now_ms: int = NOW,
    delete_retention_ms: int = DAY,
    is_aborted: Callable[[BatchHeader], bool] = lambda _: False,
    kept_empty: frozenset[int] = frozenset(),
    key_count_max: int = 1 << 20,
    window: int = 3,
    table_bytes: int = 1 << 16,
) -> Cleaned:
    """Clean a whole log, as one segment."""
    latest = LatestOffsets(first_dirty, table_bytes)
    latest.key_count_max = min(latest.key_count_max, key_count_max)
    for each in windows(batches, window):
        if not run(note(latest, each, is_aborted)):
            break
    latest.seal()
    cleaner = Cleaner(
        Rules(
            latest,
            now_ms=now_ms,
            delete_retention_ms=delete_retention_ms,
            is_aborted=is_aborted,
            kept_empty=kept_empty,
        )
    )
    parts = [part for each in windows(batches, window) for part in run(cleaner.clean(each))]
    data = b"".join([*parts, *cleaner.finish()])
    assert cleaner.bytes_written == len(data)
    return Cleaned(split(data), cleaner, latest.end_offset)


def aborted_by(batches: Sequence[bytes]) -> Callable[[BatchHeader], bool]:
    """Find aborted transactions by stepping through the batches, latest first."""
    ending: dict[int, bool] = {}
    offsets: set[int] = set()
    for data in reversed(batches):
        header = layouts.read_header(data, 0)
        if header.magic != layouts.KAFKA_MAGIC:
            continue
        if header.attributes & CONTROL:
            if header.record_count:
                key = kafka.decode_all(data, 0, header).keys[0] or b""
                ending[header.producer_id] = key[3] == 0
        elif header.attributes & TRANSACTIONAL and ending.get(header.producer_id, False):
            offsets.add(header.base_offset)
    return lambda header: header.base_offset in offsets


def state_of(batches: Sequence[bytes]) -> dict[bytes, bytes]:
    """Give what a consumer of committed records knows at the end: the value of each key."""
    is_aborted, state = aborted_by(batches), {}
    for data in batches:
        if is_aborted(layouts.read_header(data, 0)):
            continue
        for row in rows_of([data]):
            if row.key is not None and row.value is not None:
                state[row.key] = row.value
            elif row.key is not None:
                state.pop(row.key, None)
    return state
