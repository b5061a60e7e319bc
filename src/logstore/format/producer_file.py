"""Encode and decode the producers of a log: `.producers` files (docs/FORMAT.md, section 9).

    header, 48 bytes | 168 bytes per producer | pairs of offsets | xxh3-64 of all bytes before it

The rows are the same in memory and on disk, so encoding and decoding copy whole arrays. A file
contains the id of its log, and the offset of the file. So a file that was copied from another log
is recognized.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from logstore.errors import CorruptCheckpointError, UnsupportedFormatError

SUFFIX = ".producers"
MAGIC = b"LSPRODUC"
VERSION = 1
HEADER = struct.Struct(
    ">"
    "8s"  # magic
    "16s"  # topic_id
    "I"  # partition
    "I"  # version
    "q"  # offset
    "I"  # producer_count
    "I"  # undecided_count
)
HEADER_BYTES = 48
assert HEADER.size == HEADER_BYTES

BATCHES = 5  # a Kafka client has at most five requests to a broker at a time (KIP-98)
BATCH = np.dtype(
    [
        ("last_offset", "<i8"),  # -1 means that there is no batch
        ("timestamp", "<i8"),
        ("last_sequence", "<i4"),
        ("offset_delta", "<u4"),
    ]
)
ROW = np.dtype(
    [
        ("producer_id", "<i8"),  # in memory, -1 means that the row is free
        ("open_offset", "<i8"),
        ("marker_offset", "<i8"),
        ("marker_timestamp", "<i8"),
        ("coordinator_epoch", "<i4"),
        ("epoch", "<i2"),
        ("reserved_38", "<u2"),
        ("used_ms", "<i8"),
        ("batches", BATCH, (BATCHES,)),  # the newest batch first
    ]
)
BATCH_BYTES, ROW_BYTES = 24, 168
assert BATCH.itemsize == BATCH_BYTES and ROW.itemsize == ROW_BYTES
PAIR_BYTES, CHECKSUM_BYTES = 16, 8
PRODUCERS_MAX = 1_000_000  # the most producers that a file may have
FILE_BYTES_MAX = 256 << 20
OFFSET_MAX = MS_MAX = 2**62

Rows = NDArray[np.void]


def empty_rows(count: int) -> Rows:
    """Create rows that are all free."""
    rows = np.zeros(count, ROW)
    for name in ("producer_id", "open_offset", "marker_offset", "coordinator_epoch", "epoch"):
        rows[name] = -1
    rows["marker_timestamp"] = rows["batches"]["timestamp"] = -1
    rows["batches"]["last_offset"] = rows["batches"]["last_sequence"] = -1
    return rows


class Snapshot(NamedTuple):
    """Hold the state of a log's producers just before the record at `offset`.

    Attributes:
        offset: the offset of the next record.
        rows: one row for each producer, in any order. Some rows may be free.
        undecided: one pair for each transaction that has ended, if its marker was not yet below the
            high watermark. A pair has the transaction's first offset and the marker's offset. Both
            offsets increase from pair to pair.
    """

    offset: int
    rows: Rows
    undecided: list[tuple[int, int]]


def name_of(offset: int, suffix: str = SUFFIX) -> str:
    """Return the name of the file for an offset."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str, suffix: str = SUFFIX) -> int | None:
    """Read the offset from the name of a file; return None if the name has another form."""
    stem = name.removesuffix(suffix)
    is_one = name.endswith(suffix) and len(stem) == 20 and stem.isascii() and stem.isdigit()
    return int(stem) if is_one else None


def encode(snapshot: Snapshot, topic_id: bytes, partition: int) -> bytes:
    """Encode the producers of one log, in the order of their ids."""
    rows = in_order(snapshot.rows)
    head = HEADER.pack(
        MAGIC, topic_id, partition, VERSION, snapshot.offset, len(rows), len(snapshot.undecided)
    )
    pairs = np.array(snapshot.undecided, "<i8")
    body = b"".join((head, rows.tobytes(), pairs.tobytes()))
    return body + xxh3_64_intdigest(body).to_bytes(CHECKSUM_BYTES, "big")


def in_order(rows: Rows) -> Rows:
    """Copy the rows of producers in the order of their ids, without the free rows."""
    used = rows[rows["producer_id"] >= 0]
    ordered: Rows = used[np.argsort(used["producer_id"])]
    return ordered


def decode(data: bytes, path: str, topic_id: bytes, partition: int, offset: int) -> Snapshot:
    """Read the bytes that `encode` wrote.

    Args:
        path: the path of the file, for errors.
        topic_id: the topic id of the log.
        partition: the partition of the log.
        offset: the offset in the file's name.

    Raises:
        CorruptCheckpointError: the file is damaged, or belongs to another log or offset. The caller
            rebuilds the state of the producers.
        UnsupportedFormatError: a later version of this library wrote the file.
    """
    reason = _frame_fault(data, path)
    if reason:
        raise CorruptCheckpointError(path=path, position=0, reason=reason)
    _, *names, count, pair_count = HEADER.unpack_from(data)
    if names != [topic_id, partition, VERSION, offset]:
        reason = (
            f"the file belongs to partition {names[1]} of topic {names[0].hex()}, offset {names[3]}"
        )
        raise CorruptCheckpointError(path=path, position=8, reason=reason)
    rows = np.frombuffer(data, ROW, count, HEADER_BYTES)
    pairs_at = HEADER_BYTES + count * ROW_BYTES
    pairs = np.frombuffer(data, "<i8", 2 * pair_count, pairs_at).reshape(-1, 2)
    reason = rows_fault(rows, offset) or _pairs_fault(pairs, offset)
    if reason:
        raise CorruptCheckpointError(path=path, position=HEADER_BYTES, reason=reason)
    return Snapshot(offset, rows, [(first, marker) for first, marker in pairs.tolist()])


def _frame_fault(data: bytes, path: str) -> str:
    """Find the fault in the size, the kind or the checksum of a file."""
    if len(data) < HEADER_BYTES + CHECKSUM_BYTES or data[:8] != MAGIC:
        return f"the {len(data)} bytes are not a file of producers"
    _, _, _, version, _, count, pair_count = HEADER.unpack_from(data)
    if int.from_bytes(data[-CHECKSUM_BYTES:], "big") != xxh3_64_intdigest(data[:-CHECKSUM_BYTES]):
        return "the checksum does not match the content"
    if version != VERSION:
        raise UnsupportedFormatError(path=path, version=version)
    body_bytes = HEADER_BYTES + count * ROW_BYTES + pair_count * PAIR_BYTES
    if len(data) != body_bytes + CHECKSUM_BYTES:
        return f"{count} producers and {pair_count} pairs do not fill {len(data)} bytes"
    return ""


def rows_fault(rows: Rows, offset: int) -> str:
    """Report the first row that cannot be a producer's state before `offset`, or return "".

    Epochs and timestamps may have any value, because a peer chose them.
    """
    if not 0 <= offset <= OFFSET_MAX or len(rows) > PRODUCERS_MAX:
        return f"offset {offset} or {len(rows)} producers are out of range"
    ids, batches = rows["producer_id"], rows["batches"]
    last, is_free = batches["last_offset"], batches["last_offset"] < 0
    older, newer = last[:, 1:], last[:, :-1]
    is_wrong = (ids < 0) | (rows["reserved_38"] != 0)
    is_wrong |= (rows["used_ms"] < 0) | (rows["used_ms"] > MS_MAX)
    for name in ("open_offset", "marker_offset"):
        is_wrong |= (rows[name] < -1) | (rows[name] >= offset)
    is_wrong |= ((last < -1) | (last >= offset)).any(axis=1)
    # The newest batch must come first, and the free places last.
    is_wrong |= ((older >= newer) & (older >= 0)).any(axis=1)
    is_wrong |= (~is_free & (batches["offset_delta"] > last)).any(axis=1)
    is_wrong |= (batches["last_sequence"] < -1).any(axis=1)
    is_wrong[1:] |= ids[1:] <= ids[:-1]
    if not is_wrong.any():
        return ""
    return f"row {int(is_wrong.argmax())} cannot be the state of a producer"


def _pairs_fault(pairs: NDArray[np.int64], offset: int) -> str:
    is_good = (pairs >= 0).all() and (pairs[:, 0] < pairs[:, 1]).all()
    is_good = is_good and (np.diff(pairs, axis=0) > 0).all() and (pairs < offset).all()
    reason = "the offsets of undecided transactions are out of order or out of range"
    return "" if is_good else reason
