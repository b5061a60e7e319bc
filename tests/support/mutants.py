"""Mutate record batches by their structure, of both layouts; checksums hold again afterwards."""

from __future__ import annotations

import random
import struct

import numpy as np

from logstore.errors import UnsupportedFormatError
from logstore.format import compression
from logstore.format.columnar import record_batch as columnar
from logstore.format.columnar.payload import HAS_DELTAS, HAS_HEADERS, HAS_KEYS, HAS_TIMESTAMPS
from logstore.format.kafka import codecs as kafka_codecs
from logstore.format.kafka import record_batch as kafka
from logstore.format.kafka.header import CONTROL
from support.hostile import (
    BOMBS,
    FIELDS,
    LIES,
    UNREADABLE,
    column,
    columnar_batch,
    kafka_stored,
    mended,
    numbers,
    zigzag,
)

INTERESTING = (
    0, 1, 2, 3, 7, 8, 9, 64, 65, 127, 128, 255, 256, 1000, 4096, 10**5, 10**6, 10**8,
    2**15 - 1, 2**15, 2**16 - 1, 2**16, 2**31 - 2, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1,
    2**62, 2**63 - 1,
)  # fmt: skip
ROW_NUMBERS = (*INTERESTING, -1, -2, -3, -64, -65, -(2**31), -(2**62), -(2**63))
KAFKA_FIELDS = (
    ("h", 21),
    ("i", 23),
    ("q", 27),
    ("q", 35),
    ("q", 43),
    ("h", 51),
    ("i", 53),
    ("i", 57),
)
CELLS: list[list[bytes | None]] = [
    [b""], [b"x"], [None], [b"a", b"bc", b"", b"def"], [b"same"] * 9, [None, b"q"] * 5,
    [b"%d" % number * (number % 7) for number in range(40)], [b"x" * 300, b"y"],
]  # fmt: skip


def seeds() -> list[bytes]:
    """Make batches of both layouts that are sound, and those that are known not to be."""
    made: list[bytes] = []
    for cells in CELLS:
        count = len(cells)
        names: list[bytes | None] = ["ä".encode(), b"", b"name"] * count
        starts = [3 * number for number in range(count + 1)]
        times = [5 + number for number in range(count)]
        parts = {
            HAS_DELTAS: numbers([2 * number for number in range(count)], np.uint32),
            HAS_TIMESTAMPS: numbers(times, np.int64),
            0: column(cells),
            HAS_KEYS: column(cells[::-1]),
            HAS_HEADERS: numbers(starts, np.uint32)
            + column(names)
            + column([b"v", None, b""] * count),
        }
        for bits in (0, 0x10, 0x20, 0x40, 0x80, 0xF0):
            payload = b"".join(part for bit, part in parts.items() if not bit or bits & bit)
            fields = {
                "last_offset_delta": 2 * (count - 1) if bits & HAS_DELTAS else count - 1,
                "max_timestamp": times[-1] if bits & HAS_TIMESTAMPS else 5,
            }
            codec_id = (0, 0, 3, 4)[len(made) % 4]
            made.append(columnar_batch(payload, count, codec_id, bits=bits, **fields))
        for codec_id in range(5):
            rich: list[tuple[tuple[str, bytes | None], ...]]
            rich = [(("ä", b"v"), ("name", None), ("", b""))[: at % 4] for at in range(count)]
            payload_of = kafka.build_payload(
                cells,
                cells[::-1] if codec_id % 2 else None,
                np.array(times),
                rich,
                codec_id=codec_id,
            )
            plain = kafka.build_payload(cells, None, 5, None, codec_id=codec_id)
            made += [b"".join(kafka.frame(each, 0, 0)) for each in (payload_of, plain)]
    made.append(kafka_stored(b"\x16\0\0\0\x08\0\0\0\1\6" + b"end" + b"\0", 1, CONTROL))
    known = [make() for group in (UNREADABLE, LIES) for make in group.values()]
    return made + known + [each for each in (make() for make in BOMBS.values()) if len(each) < 4000]


def mutant(rng: random.Random, batches: list[bytes]) -> bytes:
    """Mutate one of some batches in one to three places."""
    data = rng.choice(batches)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = _kafka(rng, data) if data[16] == kafka.MAGIC else _columnar(rng, data)
    return data


def _columnar(rng: random.Random, data: bytes) -> bytes:
    fields = dict(zip(FIELDS, columnar.HEADER.unpack_from(data), strict=True))
    stored = data[columnar.HEADER_BYTES : columnar.HEADER_BYTES + fields["stored_bytes"]]
    codec_id, payload = fields["attributes"] & 7, stored
    if codec_id in (3, 4) and fields["payload_bytes"] < 1 << 20:
        try:
            payload = compression.decompress(codec_id, stored, fields["payload_bytes"])
        except (ValueError, UnsupportedFormatError):
            codec_id = 0
    before = payload
    what = rng.randrange(10)
    if what < 3:
        name = rng.choice(
            ("record_count", "last_offset_delta", "base_timestamp", "max_timestamp", "attributes",
             "payload_bytes", "stored_bytes", "base_sequence", "producer_id")
        )  # fmt: skip
        fields[name] = _fitting(name, rng.choice(INTERESTING) + rng.choice((0, 0, 1, -1)))
    elif what == 3:
        fields["attributes"] ^= 1 << rng.randrange(8)
    elif what < 8 and len(payload) >= 4:
        at = rng.randrange(len(payload) // 4) * 4
        word = int.from_bytes(payload[at : at + 4], "little")
        near = rng.choice(
            (word + 1, word - 1, word ^ 1 << rng.randrange(32), rng.choice(INTERESTING))
        )
        payload = payload[:at] + (near % 2**32).to_bytes(4, "little") + payload[at + 4 :]
    else:
        payload = _bytes(rng, payload, 8)
    if payload is not before or codec_id:
        is_packed = codec_id in (3, 4) and rng.random() < 0.9
        stored = compression.compress(codec_id, payload) if is_packed else payload
        if rng.random() < 0.05:
            stored += rng.choice((b"\0", b"junk", stored))
        if rng.random() < 0.95:
            fields["stored_bytes"] = len(stored)
        if rng.random() < 0.95:
            fields["payload_bytes"] = len(payload)
    head = columnar.HEADER.pack(*(fields[name] for name in FIELDS))
    return mended(head + stored + bytes(-len(stored) % 8) + bytes(8))


def _fitting(name: str, number: int) -> int:
    if name in ("base_timestamp", "max_timestamp", "producer_id"):
        return min(number, 2**63 - 1)
    if name == "base_sequence":
        return number % 2**31
    return number % 2**16 if name == "attributes" else number % 2**32


def _kafka(rng: random.Random, data: bytes) -> bytes:
    head, stored = bytearray(data[: kafka.HEADER_BYTES]), data[kafka.HEADER_BYTES :]
    what, codec_id = rng.randrange(10), head[22] & 7
    if what < 3:
        kind, at = rng.choice(KAFKA_FIELDS)
        bits = struct.calcsize(kind) * 8
        number = (rng.choice(ROW_NUMBERS) + rng.choice((0, 0, 1, -1))) % 2**bits
        head[at : at + bits // 8] = number.to_bytes(bits // 8, "big")
        return mended(bytes(head) + stored)
    if what == 3:
        head[22] ^= 1 << rng.randrange(8)
        return mended(bytes(head) + stored)
    rows = stored
    if codec_id in kafka.CODECS and codec_id and rng.random() < 0.9:
        try:
            rows = kafka_codecs.decompress(codec_id, stored, 1 << 20)
        except ValueError:
            codec_id = 0
    else:
        codec_id = 0
    if what < 7 and rows:
        at = rng.randrange(len(rows))
        rows = (
            rows[:at] + zigzag(rng.choice(ROW_NUMBERS)) + rows[at + rng.choice((0, 1, 1, 1, 2)) :]
        )
    else:
        rows = _bytes(rng, rows, 1)
    stored = kafka_codecs.compress(codec_id, rows) if codec_id else rows
    if codec_id and rng.random() < 0.1:
        stored += rng.choice((b"\0", b"junk", stored, stored[:20]))
    return mended(bytes(head) + stored)


def _bytes(rng: random.Random, data: bytes, step: int) -> bytes:
    """Flip a bit, cut, lengthen or repeat a part."""
    what = rng.randrange(4)
    at = rng.randrange(len(data) + 1) // step * step
    if what == 0 and data:
        at = rng.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if what == 1:
        return data[:at]
    if what == 2:
        return data[:at] + rng.randbytes(step * rng.randrange(1, 9)) + data[at:]
    return data[:at] + data[at : at + step * rng.randrange(1, 30)] * 2 + data[at:]
