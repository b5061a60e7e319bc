"""Encode and decode Kafka's snapshots of producers: `.snapshot` files (docs/FORMAT.md, section 10).

    u16 version 1 | u32 crc-32c of the rest | u32 count | entries of 46 bytes           big-endian

A snapshot holds only the newest batch of each producer. After a log has loaded a snapshot, it
recognizes a repeated batch only if the batch is the newest batch of its producer.
"""

from __future__ import annotations

import numpy as np

from logstore.errors import CorruptCheckpointError
from logstore.format.kafka.crc import crc32c
from logstore.format.kafka.files import (
    CRC_END,
    SNAPSHOT_ENTRY_BYTES,
    SNAPSHOT_HEAD,
    SNAPSHOT_VERSION,
    snapshot_fault,
)
from logstore.format.producer_file import Rows, Snapshot, empty_rows, in_order, rows_fault

ENTRY = np.dtype(
    [
        ("producer_id", ">i8"),
        ("epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("open_offset", ">i8"),
    ]
)
assert ENTRY.itemsize == SNAPSHOT_ENTRY_BYTES
_SHARED = ("producer_id", "epoch", "coordinator_epoch", "open_offset")
_OF_BATCH = ("last_sequence", "last_offset", "offset_delta")
_DELTA_MAX = 2**31 - 1  # the limit of Kafka's format; the columnar layout allows more


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Encode the newest batch of each producer, in the order of the producers' ids."""
    rows = in_order(snapshot.rows)
    newest = rows["batches"][:, 0]
    entries = np.zeros(len(rows), ENTRY)
    for name in _SHARED:
        entries[name] = rows[name]
    for name in _OF_BATCH:
        entries[name] = newest[name]
    entries["offset_delta"] = np.minimum(newest["offset_delta"], _DELTA_MAX)
    is_marker = rows["marker_offset"] > newest["last_offset"]
    is_marker |= newest["last_offset"] < 0
    entries["timestamp"] = np.where(is_marker, rows["marker_timestamp"], newest["timestamp"])
    rest = len(entries).to_bytes(4, "big") + entries.tobytes()
    return SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, crc32c(rest), len(entries))[:CRC_END] + rest


def decode_snapshot(data: bytes, path: str, offset: int, now_ms: int) -> Snapshot:
    """Read a snapshot that a broker or `encode_snapshot` wrote.

    Args:
        path: the path of the file, for errors.
        offset: the offset in the file's name.
        now_ms: becomes each producer's time of last use, because the file does not contain this
            time.

    Raises:
        CorruptCheckpointError: the file is damaged, or a producer's offset is not below `offset`.
            The caller rebuilds the state of the producers.
    """
    fault = snapshot_fault(data, offset)
    if fault is not None:
        raise CorruptCheckpointError(path=path, position=fault.position, reason=fault.reason)
    entries = np.frombuffer(data, ENTRY, -1, SNAPSHOT_HEAD.size)
    rows = _rows_of(entries[np.argsort(entries["producer_id"])], now_ms)
    reason = rows_fault(rows, offset)
    if reason:
        raise CorruptCheckpointError(path=path, position=SNAPSHOT_HEAD.size, reason=reason)
    return Snapshot(offset, rows, [])


def _rows_of(entries: Rows, now_ms: int) -> Rows:
    rows = empty_rows(len(entries))
    for name in _SHARED:
        rows[name] = entries[name]
    newest = rows["batches"][:, 0]
    for name in _OF_BATCH:
        newest[name] = entries[name]
    has_batch = entries["last_offset"] >= 0
    newest["timestamp"] = np.where(has_batch, entries["timestamp"], -1)
    rows["marker_timestamp"] = np.where(has_batch, -1, entries["timestamp"])
    rows["used_ms"] = now_ms
    return rows
