"""Encode the batches of transactions, and their markers: control batches with one record (KIP-98).

    key      i16 version 0 | i16 type: 0 abort, 1 commit
    value    i16 version 0 | i32 coordinator epoch

The batch belongs to the producer whose transaction it ends, and has no sequence number.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from logstore.errors import UnsupportedFormatError
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar.columns import Buffer
from logstore.format.kafka import record_batch
from logstore.format.kafka.header import CONTROL, MAGIC, TRANSACTIONAL

KEY = struct.Struct(">hh")
VALUE = struct.Struct(">hi")
VERSION, ABORT, COMMIT = 0, 0, 1


class Marker(NamedTuple):
    """Hold the contents of a marker: how its transaction ends, and the coordinator's epoch."""

    is_commit: bool
    coordinator_epoch: int


def build_batch(
    producer_id: int,
    epoch: int,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None],
    timestamp: int,
) -> bytes:
    """Encode records as one batch of a transaction, without a sequence number, at offset 0."""
    return _build(producer_id, epoch, TRANSACTIONAL, values, keys, timestamp)


def _build(
    producer_id: int,
    epoch: int,
    attributes: int,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None],
    timestamp: int,
) -> bytes:
    last = len(values) - 1
    header = BatchHeader(
        0, 0, -1, MAGIC, attributes, len(values), last, 0, timestamp, timestamp, producer_id, epoch,
        -1, 0,
    )  # fmt: skip
    payload = record_batch.build_payload(values, keys, timestamp, None, header=header)
    return b"".join(record_batch.frame(payload, 0, -1))


def build_marker(producer_id: int, epoch: int, timestamp: int, marker: Marker) -> bytes:
    """Encode a marker as a whole batch at offset 0; an append gives the batch its real offset."""
    value = VALUE.pack(VERSION, marker.coordinator_epoch)
    key = KEY.pack(VERSION, COMMIT if marker.is_commit else ABORT)
    return _build(producer_id, epoch, TRANSACTIONAL | CONTROL, [value], [key], timestamp)


def read_marker(data: Buffer, position: int, header: BatchHeader) -> Marker | None:
    """Read a control batch; return None if it is not a marker, or if its record cannot be read.

    Whether the batch is a marker depends only on the key of its record. If the record's value is
    too short for a marker, the epoch of the coordinator is -1.
    """
    try:
        columns = record_batch.decode_all(data, position, header)
        key, value = columns.keys.to_list()[0] or b"", columns.values.to_list()[0] or b""
        kind = KEY.unpack_from(key)[1]
        coordinator_epoch = VALUE.unpack_from(value)[1] if len(value) >= VALUE.size else -1
    except (ValueError, IndexError, UnsupportedFormatError, struct.error):
        return None
    return Marker(kind == COMMIT, coordinator_epoch) if kind in (ABORT, COMMIT) else None
