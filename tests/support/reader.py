"""Read a partition directory by docs/FORMAT.md alone: the oracle of the fault tests.

It shares no line with the engine, so that no mistake of its reading hides the same in its writing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

HEADER = struct.Struct(">qiiBBHIIIqqqhHiII")  # sections 3 and 4: 72 bytes
VARIABLE, WITH_NULLS = 0xFFFFFFFF, 0xFFFFFFFE


class Damage(Exception):
    """Says that the bytes at a position are no record batch."""


class Record(NamedTuple):
    """One record as the file has it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Batch(NamedTuple):
    """One record batch and where it stands."""

    position: int
    size_bytes: int
    base_offset: int
    end_offset: int
    leader_epoch: int
    records: list[Record]


class Payload:
    """A cursor over the little-endian parts of a payload, each padded to 8."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size_bytes: int) -> bytes:
        if self.at + size_bytes > len(self.data):
            raise Damage("a column ends behind the payload")
        part = self.data[self.at : self.at + size_bytes]
        self.at += (size_bytes + 7) // 8 * 8
        return part

    def numbers(self, code: str, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}{code}", self.take(count * struct.calcsize(f"<{code}")))

    def cells(self, count: int) -> list[bytes | None]:
        data_bytes, cell_bytes = self.numbers("I", 2)
        valid = b"\xff" * (count // 8 + 1)
        starts = tuple(cell_bytes * i for i in range(count + 1))
        if cell_bytes >= WITH_NULLS:
            starts = self.numbers("I", count + 1)
        if cell_bytes == WITH_NULLS:
            valid = self.take((count + 7) // 8)
        data = self.take(data_bytes)
        if starts[0] != 0 or starts[-1] != data_bytes or list(starts) != sorted(starts):
            raise Damage("cells do not follow one another")
        rows = enumerate(pairwise(starts))
        return [data[a:b] if valid[i >> 3] >> (i & 7) & 1 else None for i, (a, b) in rows]


def decompress(codec: int, data: bytes) -> bytes:
    """Undo the codec of a payload by Kafka's number for it."""
    if codec == 3:
        import lz4.frame

        return bytes(lz4.frame.decompress(data))
    if codec == 4:
        from backports import zstd

        return bytes(zstd.decompress(data))
    raise Damage(f"codec {codec}")


def read_batch(data: bytes, position: int, expected: int | None) -> Batch:
    """Read the batch at a position; raises Damage when there is none."""
    if len(data) - position < HEADER.size + 8:
        raise Damage("fewer bytes than a header")
    (
        base,
        length,
        epoch,
        magic,
        version,
        attributes,
        count,
        last_delta,
        stored,
        first_time,
        max_time,
        _,
        _,
        zero,
        _,
        payload_bytes,
        _,
    ) = HEADER.unpack_from(data, position)
    size = length + 12
    if magic != 0x4C or version != 1 or zero or attributes >> 8:
        raise Damage("no header")
    if size != HEADER.size + (stored + 7) // 8 * 8 + 8 or position + size > len(data):
        raise Damage("sizes do not agree")
    body, end = data[position : position + size], size - 8
    if xxhash.xxh3_64_digest(body[:end]) != body[end:]:
        raise Damage("checksum")
    if base < 0 or (expected is not None and base != expected):
        raise Damage(f"base offset {base}, expected {expected}")
    raw = body[HEADER.size : HEADER.size + stored]
    raw = decompress(attributes & 7, raw) if attributes & 7 else raw
    if len(raw) != payload_bytes:
        raise Damage("payload size")
    payload = Payload(raw)
    deltas = payload.numbers("I", count) if attributes & 0x80 else tuple(range(count))
    times = payload.numbers("q", count) if attributes & 0x10 else (first_time,) * count
    values = payload.cells(count) if count or stored else []
    keys = payload.cells(count) if attributes & 0x20 else [None] * count
    headers: list[tuple[Any, ...]] = [()] * count
    if attributes & 0x40:
        starts = payload.numbers("I", count + 1)
        names, cells = payload.cells(starts[-1]), payload.cells(starts[-1])
        pairs = [(str(n or b"", "utf-8"), c) for n, c in zip(names, cells, strict=True)]
        headers = [tuple(pairs[a:b]) for a, b in pairwise(starts)]
    if count and (max(times) != max_time or deltas[-1] > last_delta):
        raise Damage("header and columns disagree")
    rows = zip(deltas, times, keys, values, headers, strict=True)
    records = [Record(base + delta, *rest) for delta, *rest in rows]
    return Batch(position, size, base, base + last_delta + 1, epoch, records)


def batches(data: bytes, expected: int | None = None) -> Iterator[Batch]:
    """Step through a segment's batches; stop at its end, raise Damage at anything else."""
    position = 0
    while position < len(data):
        batch = read_batch(data, position, expected)
        yield batch
        position, expected = position + batch.size_bytes, batch.end_offset


def read_partition(partition_dir: Path) -> list[Batch]:
    """Read every batch of a partition; contiguous from its first segment to its last."""
    found: list[Batch] = []
    expected: int | None = None
    for path in sorted(partition_dir.glob("[0-9]*.log")):
        if expected is not None and int(path.stem) != expected:
            raise Damage(f"{path.name} does not begin at {expected}")
        expected = int(path.stem)
        for batch in batches(path.read_bytes(), expected):
            found.append(batch)
            expected = batch.end_offset
    return found
