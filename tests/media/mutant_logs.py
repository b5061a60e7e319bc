"""Append mutated batches, to lead and to follow, and read the logs in every way."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
from xxhash import xxh3_64_digest

from logstore import (
    InvalidTransactionStateError,
    Log,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    Record,
    UnsupportedFormatError,
)
from logstore.format import layouts
from logstore.log.producers import rules

REFUSALS = (ValueError, UnsupportedFormatError)
# A leader refuses a sound batch, too, if its producer did not send it in this turn or epoch.
OUT_OF_TURN = (OutOfOrderSequenceError, ProducerFencedError, InvalidTransactionStateError)
Rows = list[tuple[Any, ...]]


def rows_of(records: list[Record]) -> Rows:
    """Give what a record is, but for where it was read from."""
    return [tuple(record[:5]) for record in records]


def arrow_rows(batch: pa.RecordBatch) -> Rows:
    """Give the rows of an Arrow batch in the form of records; all of it is validated."""
    batch.validate(full=True)
    names = ("offset", "timestamp", "key", "value", "headers")
    rows = zip(
        *(batch.column(batch.schema.names.index(name)).to_pylist() for name in names), strict=True
    )
    return [
        (*row[:4], tuple((pair["key"], pair["value"]) for pair in row[4] or ())) for row in rows
    ]


def is_watched(data: bytes) -> bool:
    """Tell whether a log compares a batch with what its producer sent before."""
    return rules.is_watched(layouts.read_header(data, 0))


def moved(batches: list[tuple[bytes, Rows]]) -> Rows:
    """Give the rows of batches that are appended one after the other to an empty log."""
    expected: Rows = []
    end = 0
    for data, rows in batches:
        header = layouts.read_header(data, 0)
        expected += [(row[0] - header.base_offset + end, *row[1:]) for row in rows]
        end += header.last_offset - header.base_offset + 1
    return expected


def check_log(log: Log, expected: Rows, rng: random.Random) -> None:
    """Read a log in every way."""
    assert rows_of(list(iter(log))) == expected and log.verify() == []
    offset, found = log.log_start_offset, []
    while offset < log.log_end_offset and (records := log.read(offset)):
        found += rows_of(records)
        offset = records[-1].offset + 1
    assert found == expected
    for row in rng.sample(expected, min(len(expected), 50)):
        assert tuple(log[row[0]][:5]) == row
        first = log.offset_for_timestamp(row[1])
        assert first is not None and first <= row[0]
    assert log.offset_for_timestamp(2**63 - 1) in (None, *(row[0] for row in expected))
    table = pa.table(log[:]).combine_chunks()
    assert [row for batch in table.to_batches() for row in arrow_rows(batch)] == expected


def one_by_one(log: Log, mutants: list[tuple[str, bytes, Rows]], rng: random.Random) -> None:
    """Append each alone: it is taken if the check takes it, else the log stays as it was."""
    taken = []
    for kind, data, rows in mutants:
        end, size = log.log_end_offset, log.size_bytes
        try:
            info = log.append_encoded(rng.choice((data, memoryview(data))))
        except (*REFUSALS, *OUT_OF_TURN) as error:
            is_out_of_turn = isinstance(error, OUT_OF_TURN) and is_watched(data)
            assert kind != "accepted" or is_out_of_turn, error
            assert vars(error)["is_written"] is False
            assert (log.log_end_offset, log.size_bytes) == (end, size)
            continue
        assert kind == "accepted", kind
        if is_watched(data) and info.last_offset < end:  # its producer sent it before
            assert (log.log_end_offset, log.size_bytes) == (end, size)
            continue
        assert info == range(end, log.log_end_offset) and info.last_offset >= end
        assert info.max_timestamp == layouts.read_header(data, 0).max_timestamp
        taken.append((data, rows))
    check_log(log, moved(taken), rng)


def followed_one_by_one(
    log: Log, mutants: list[tuple[str, bytes, Rows]], rng: random.Random
) -> None:
    """Append each where its prefix says, which may be anywhere: only what comes next is taken."""
    expected: Rows = []
    for kind, data, rows in mutants:
        if not layouts.has_header(data):
            continue
        header, end, epoch = layouts.read_header(data, 0), log.log_end_offset, log.leader_epoch
        span = header.last_offset - header.base_offset
        far = (2**63 - 1 - span, 2**63 - 1, 2**62 - span, -1, -(2**63), end - 1)
        offset = end if rng.random() < 0.7 else rng.choice((*far, end + 1) if end else far)
        offset = max(-(2**63), min(offset, 2**63 - 1))
        batch_epoch = epoch if rng.random() < 0.8 else rng.choice((-1, -(2**31), epoch - 1))
        placed = at_place(data, offset, batch_epoch)
        is_next = kind == "accepted" and offset == end and batch_epoch == epoch
        if not end and kind == "accepted" and offset > end and batch_epoch == epoch:
            is_next = offset + span < 2**62  # an empty log begins where its leader does
        try:
            offsets = log.append_as_follower(placed, leader_epoch=rng.choice((None, epoch)))
        except (*REFUSALS, OffsetOutOfRangeError) as error:
            assert not is_next, error
            assert log.log_end_offset == end and vars(error)["is_written"] is False
            continue
        assert is_next and offsets == range(offset, offset + span + 1)
        expected += [(row[0] - header.base_offset + offset, *row[1:]) for row in rows]
    check_log(log, expected, rng)


def at_place(data: bytes, offset: int, leader_epoch: int) -> bytes:
    """Give a batch another offset and epoch, with a checksum that holds as before."""
    body = bytearray(data)
    body[:8], body[12:16] = struct.pack(">q", offset), struct.pack(">i", leader_epoch)
    if body[layouts.MAGIC_AT] == layouts.KAFKA_MAGIC or layouts.fault(data, 0, None) is not None:
        return bytes(body)
    return bytes(body[:-8]) + xxh3_64_digest(bytes(body[:-8]))
