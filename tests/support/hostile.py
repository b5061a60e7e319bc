"""Make record batches that lie, with checksums that hold: what a peer or a disk may give us."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
from crc32c import crc32c
from xxhash import xxh3_64_digest

from logstore import Log
from logstore.format import compression, layouts
from logstore.format.columnar import record_batch as columnar
from logstore.format.columnar.columns import VARIABLE, append_padded, encode_cells, raw
from logstore.format.columnar.payload import HAS_DELTAS, HAS_HEADERS, HAS_KEYS, HAS_TIMESTAMPS
from logstore.format.compression import CODEC_IDS
from logstore.format.kafka import record_batch as kafka
from logstore.format.kafka.codecs import compress
from logstore.log.encoded import raw_batches
from logstore.log.host import append_staged
from logstore.log.producers.producer_state import Producers

HEADER_BYTES = columnar.HEADER_BYTES
FIELDS = (
    "base_offset", "batch_length", "leader_epoch", "magic", "version", "attributes",
    "record_count", "last_offset_delta", "stored_bytes", "base_timestamp", "max_timestamp",
    "producer_id", "producer_epoch", "reserved_58", "base_sequence", "payload_bytes",
    "delete_horizon",
)  # fmt: skip


def mended(data: bytes | bytearray) -> bytes:
    """Give a batch a checksum that holds, and a length that is its own."""
    body = bytearray(data)
    struct.pack_into(">i", body, 8, len(body) - 12)
    if body[16] == kafka.MAGIC:
        struct.pack_into(">I", body, 17, crc32c(bytes(body[21:])))
        return bytes(body)
    return bytes(body[:-8]) + xxh3_64_digest(bytes(body[:-8]))


def columnar_batch(payload: bytes, count: int, codec_id: int = 0, **fields: int) -> bytes:
    """Make a columnar batch around a payload, whatever that says; `fields` of the header win."""
    stored = compression.compress(codec_id, payload) if codec_id else payload
    header = {
        "base_offset": 0, "batch_length": 0, "leader_epoch": 0, "magic": columnar.MAGIC,
        "version": 1, "attributes": codec_id, "record_count": count,
        "last_offset_delta": max(count - 1, 0), "stored_bytes": len(stored), "base_timestamp": 5,
        "max_timestamp": 5, "producer_id": -1, "producer_epoch": -1, "reserved_58": 0,
        "base_sequence": -1, "payload_bytes": len(payload), "delete_horizon": 0,
    }  # fmt: skip
    header["attributes"] |= fields.pop("bits", 0)
    header.update(fields)
    head = columnar.HEADER.pack(*(header[name] for name in FIELDS))
    return mended(head + stored + bytes(-len(stored) % 8) + bytes(8))


def column(cells: list[bytes | None]) -> bytes:
    """Lay cells out as a column."""
    return b"".join(encode_cells(cells))


def varying(starts: list[int], data: bytes) -> bytes:
    """Lay out a column whose cells begin where `starts` says."""
    parts: list[bytes | memoryview] = [struct.pack("<II", len(data), VARIABLE)]
    append_padded(parts, np.array(starts, np.uint32).tobytes())
    append_padded(parts, data)
    return b"".join(parts)


def numbers(values: list[int], kind: type[np.generic]) -> bytes:
    """Lay out a column of numbers."""
    parts: list[bytes | memoryview] = []
    append_padded(parts, raw(np.array(values, kind)))
    return b"".join(parts)


def kafka_batch(rows: bytes, count: int, codec: str = "none", **fields: int) -> bytes:
    """Make a batch of Kafka's around rows, whatever they say."""
    stored = rows if codec == "none" else compress(CODEC_IDS[codec], rows)
    return kafka_stored(stored, count, CODEC_IDS[codec], **fields)


def kafka_stored(
    stored: bytes,
    count: int,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = 5,
    max_timestamp: int = 5,
) -> bytes:
    """Make a batch of Kafka's around what is stored in it."""
    last_delta = count - 1 if last_offset_delta is None else last_offset_delta
    head = struct.pack(
        ">qiiBIHiqqqhii", 0, 0, 0, 2, 0, attributes, last_delta, base_timestamp, max_timestamp,
        -1, -1, -1, count,
    )  # fmt: skip
    return mended(head + stored)


def zigzag(number: int) -> bytes:
    """Write a number as Kafka does."""
    number = (number << 1) ^ (number >> 63) & (2**64 - 1) if number < 0 else number << 1
    number &= 2**64 - 1
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*octets, number])


def row(value: bytes = b"v", time_delta: int = 0, offset_delta: int = 0) -> bytes:
    """Lay out a record of Kafka's without a key."""
    body = b"\0" + zigzag(time_delta) + zigzag(offset_delta) + b"\1"
    body += zigzag(len(value)) + value + b"\0"
    return zigzag(len(body)) + body


def two_rows() -> bytes:
    """Lay out two records."""
    return row(b"one") + row(b"two", offset_delta=1)


def batch_of_two_frames() -> bytes:
    """Make a batch whose payload is followed by another frame."""
    payload = column([b"a" * 100])
    frames = compression.compress(4, payload) + compression.compress(4, payload)
    head = bytearray(columnar_batch(payload, 1, codec_id=4)[:HEADER_BYTES])
    struct.pack_into(">I", head, 28, len(frames))
    return mended(bytes(head) + frames + bytes(-len(frames) % 8) + bytes(8))


def headers_row(headers: bytes, count: int) -> bytes:
    """Lay out a record of Kafka's with these record headers."""
    body = b"\0\0\0\1\1" + zigzag(count) + headers
    return zigzag(len(body)) + body


# Each is whole by its frame and its checksum, and cannot be read.
UNREADABLE: dict[str, Callable[[], bytes]] = {
    "starts that wrap": lambda: columnar_batch(
        varying([0, 0x7FFFFFFF, 0xFFFFFFFE, 4], b"abcd"), 3
    ),
    "starts that fall": lambda: columnar_batch(varying([0, 3, 1, 4], b"abcd"), 3),
    "many starts that fall": lambda: columnar_batch(
        varying([0, *range(2, 100), 1, 100], bytes(100)), 100
    ),
    "starts behind the data": lambda: columnar_batch(varying([0, 1, 2, 5], b"abcd"), 3),
    "junk behind the columns": lambda: columnar_batch(column([b"a"]) + bytes(8), 1),
    "compressed junk": lambda: columnar_batch(column([b"a"]) + bytes(8), 1, codec_id=4),
    "a column cut short": lambda: columnar_batch(column([b"abcdefgh"])[:-8], 1),
    "more payload than stored": lambda: columnar_batch(column([b"a"]), 1, payload_bytes=24),
    "a largest timestamp that is too low": lambda: columnar_batch(
        numbers([5, 9], np.int64) + column([b"a", b"b"]), 2, bits=HAS_TIMESTAMPS
    ),
    "a largest timestamp that is too high": lambda: columnar_batch(
        column([b"a"]), 1, max_timestamp=2**63 - 1
    ),
    "deltas that fall": lambda: columnar_batch(
        numbers([4, 3], np.uint32) + column([b"a", b"b"]), 2, bits=HAS_DELTAS, last_offset_delta=4
    ),
    "a delta past the last": lambda: columnar_batch(
        numbers([3, 5], np.uint32) + column([b"a", b"b"]), 2, bits=HAS_DELTAS, last_offset_delta=4
    ),
    "a gap without deltas": lambda: columnar_batch(column([b"a"]), 1, last_offset_delta=4),
    "a header's name that is no text": lambda: columnar_batch(
        column([b"a"]) + numbers([0, 1], np.uint32) + column([b"\xff"]) + column([b"v"]),
        1,
        bits=HAS_HEADERS,
    ),
    "names that part a character": lambda: columnar_batch(
        column([b"a"]) + numbers([0, 2], np.uint32) + column([b"a\xc3", b"\xa4"])
        + column([b"v", b"w"]),
        1,
        bits=HAS_HEADERS,
    ),
    "a header without a name": lambda: columnar_batch(
        column([b"a"]) + numbers([0, 2], np.uint32) + column([None, b"x"]) + column([b"v", b"w"]),
        1,
        bits=HAS_HEADERS,
    ),
    "headers that fall": lambda: columnar_batch(
        column([b"a", b"b"]) + numbers([0, 2, 1], np.uint32) + column([b"x"]) + column([b"v"]),
        2,
        bits=HAS_HEADERS,
    ),
    "keys that are not there": lambda: columnar_batch(column([b"a"]), 1, bits=HAS_KEYS),
    "trailing frames": batch_of_two_frames,
    "Kafka: junk behind the records": lambda: kafka_batch(two_rows() + b"\0", 2),
    "Kafka: a negative length": lambda: kafka_batch(zigzag(-8) + row()[1:], 1),
    "Kafka: a cell of -2 bytes": lambda: kafka_batch(row().replace(b"\2v", b"\3v"), 1),
    "Kafka: a delta past the last": lambda: kafka_batch(row() + row(offset_delta=9), 2),
    "Kafka: deltas that fall": lambda: kafka_batch(row(offset_delta=1) + row(), 2),
    "Kafka: fewer records than said": lambda: kafka_batch(row(b"long enough for two"), 2),
    "Kafka: a timestamp past 64 bits": lambda: kafka_batch(
        row(time_delta=2**62), 1, base_timestamp=2**63 - 5
    ),
    "Kafka: gzip and a second member": lambda: kafka_stored(
        gzip.compress(two_rows()) + gzip.compress(b"more"), 2, 1
    ),
    "Kafka: gzip and garbage": lambda: kafka_stored(gzip.compress(two_rows()) + b"\1\2\3", 2, 1),
    "Kafka: gzip cut short": lambda: kafka_stored(zlib.compress(two_rows(), wbits=31)[:-4], 2, 1),
    "Kafka: zstd and garbage": lambda: kafka_stored(compress(4, two_rows()) + b"!", 2, 4),
    "Kafka: lz4 and garbage": lambda: kafka_stored(compress(3, two_rows()) + b"!", 2, 3),
}  # fmt: skip


# Each needs more memory than BOMB_BYTES_MAX, and says so in a few bytes.
BOMB_BYTES_MAX = 1 << 20
BOMBS: dict[str, Callable[[], bytes]] = {
    "2^32 - 1 cells": lambda: columnar_batch(
        column([b""]), 1, record_count=2**32 - 1, last_offset_delta=2**32 - 2
    ),
    "10^8 cells": lambda: columnar_batch(
        column([b""]), 1, record_count=10**8, last_offset_delta=10**8 - 1
    ),
    "record headers": lambda: columnar_batch(
        column([b"a"]) + numbers([0, 10**8], np.uint32) + column([b""]) + column([b""]),
        1,
        bits=HAS_HEADERS,
    ),
    "zstd": lambda: columnar_batch(column([bytes(8 << 20)]), 1, codec_id=4),
    "lz4": lambda: columnar_batch(column([bytes(8 << 20)]), 1, codec_id=3),
    "a payload of 4 GiB": lambda: columnar_batch(
        column([bytes(100)]), 1, codec_id=4, payload_bytes=2**32 - 8
    ),
    "Kafka: gzip": lambda: kafka_batch(row(bytes(8 << 20)), 1, "gzip"),
    "Kafka: snappy": lambda: kafka_batch(row(bytes(8 << 20)), 1, "snappy"),
    "Kafka: lz4": lambda: kafka_batch(row(bytes(8 << 20)), 1, "lz4"),
    "Kafka: zstd": lambda: kafka_batch(row(bytes(8 << 20)), 1, "zstd"),
    "Kafka: records": lambda: kafka_batch(
        b"".join(row(b"", offset_delta=at) for at in range(10_000)), 10_000
    ),
    "Kafka: record headers": lambda: kafka_batch(
        headers_row(b"\0\1" * 10_000, 10_000), 1
    ),
}  # fmt: skip


# Each can be read, and says of itself what is not so, or what no log should take.
LIES: dict[str, Callable[[], bytes]] = {
    "a hole with a timestamp": lambda: columnar_batch(b"", 0, max_timestamp=2**63 - 1),
    "a span of 2^32 offsets": lambda: columnar_batch(
        b"", 0, last_offset_delta=2**32 - 1, max_timestamp=-1
    ),
    "Kafka: a largest timestamp that is too low": lambda: kafka_batch(
        row(time_delta=100), 1, max_timestamp=5
    ),
    "Kafka: a largest timestamp that is too high": lambda: kafka_batch(
        row(), 1, max_timestamp=2**63 - 1
    ),
}  # fmt: skip


@contextmanager
def unguarded() -> Iterator[None]:
    """Let appends take what stands in batches unseen, as a disk does."""
    with (
        patch.object(layouts, "check_run", lambda *_, **__: None),
        patch.object(raw_batches, "CODEC_NAMES", range(8)),
        patch.object(Producers, "check", lambda *_: ()),
    ):
        yield


def plant(log: Log, data: bytes) -> range:
    """Put a batch on the disk that no append would take."""
    with unguarded():
        end = log.log_end_offset
        append_staged(log, data)
        return range(end, log.log_end_offset)
