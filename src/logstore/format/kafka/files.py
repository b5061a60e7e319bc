"""Decode the bytes of the small files that a Kafka broker keeps beside the segments.

    X.index       u32 relative offset | u32 position                              8 bytes per entry
    X.timeindex   i64 timestamp | u32 relative offset                            12
    X.txnindex    u16 version 0 | i64 producer id | i64 first | i64 last offset of an aborted
                  transaction | i64 last stable offset at its end                34
    X.snapshot    u16 version 1 | u32 crc-32c of the rest | u32 count | entries of 46 bytes
    leader-epoch-checkpoint
                  lines of text: version 0 | count | an epoch and its first offset, per entry

The numbers in the binary files are big-endian. For the active segment, a broker preallocates
`.index` and `.timeindex`, so zeros may follow the last entry of these two files. Each function
returns the entries before the first fault, and the fault.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logstore.format.kafka.crc import crc32c

INDEX_ENTRY = np.dtype([("offset", ">u4"), ("position", ">u4")])
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">u4")])
ABORTED_ENTRY = struct.Struct(">Hqqqq")
SNAPSHOT_HEAD = struct.Struct(">HII")
SNAPSHOT_ENTRY_BYTES = 46
SNAPSHOT_LAST_OFFSET = struct.Struct(">14xq")
SNAPSHOT_VERSION = 1
CRC_END = 6

Numbers = NDArray[np.int64]


class Fault(NamedTuple):
    """Describe a fault in a file, and its position."""

    position: int
    reason: str


class AbortedEntry(NamedTuple):
    """Describe an aborted transaction, and the last stable offset at its end."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def offset_entries(data: bytes, is_growing: bool) -> tuple[Numbers, Numbers, Fault | None]:
    """Read an `.index`: relative offsets and positions; both must increase."""
    rows, fault = _rows(data, INDEX_ENTRY, is_growing)
    offsets, positions = rows["offset"].astype(np.int64), rows["position"].astype(np.int64)
    is_behind = (np.diff(offsets) > 0) & (np.diff(positions) > 0)
    end, fault = _in_order(is_behind, len(rows), INDEX_ENTRY.itemsize, fault)
    return offsets[:end], positions[:end], fault


def time_entries(data: bytes, is_growing: bool) -> tuple[Numbers, Numbers, Fault | None]:
    """Read a `.timeindex`: timestamps must increase, and relative offsets must not decrease."""
    rows, fault = _rows(data, TIME_ENTRY, is_growing)
    times, offsets = rows["timestamp"].astype(np.int64), rows["offset"].astype(np.int64)
    is_behind = (times[1:] > times[:-1]) & (np.diff(offsets) >= 0)
    end, fault = _in_order(is_behind, len(rows), TIME_ENTRY.itemsize, fault)
    return times[:end], offsets[:end], fault


def _rows(
    data: bytes, kind: np.dtype[np.void], is_growing: bool
) -> tuple[NDArray[np.void], Fault | None]:
    """Read whole entries, without the zeros after the last entry."""
    size = kind.itemsize
    rows = np.frombuffer(data, kind, len(data) // size)
    used_bytes = len(data[: len(rows) * size].rstrip(b"\0"))
    count = -(-used_bytes // size)
    if count == 0 and len(rows) == 1:
        count = 1  # if the first record's timestamp is 0, its entry has only zeros
    if len(data) % size:
        return rows[:count], Fault(len(rows) * size, f"{len(data) % size} bytes are not an entry")
    if count < len(rows) and not is_growing:
        return rows[:count], Fault(count * size, "there are zeros after the last entry")
    return rows[:count], None


def _in_order(
    is_behind: NDArray[np.bool_], count: int, size: int, fault: Fault | None
) -> tuple[int, Fault | None]:
    if bool(is_behind.all()):
        return count, fault
    end = int(is_behind.argmin()) + 1
    return end, Fault(end * size, f"entry {end} does not come after the previous entry")


def aborted_entries(data: bytes) -> tuple[list[AbortedEntry], Fault | None]:
    """Read a `.txnindex`: aborted transactions in the order of their ends."""
    found: list[AbortedEntry] = []
    size = ABORTED_ENTRY.size
    for at in range(0, len(data) - size + 1, size):
        version, *fields = ABORTED_ENTRY.unpack_from(data, at)
        entry = AbortedEntry(*fields)
        if version != 0:
            return found, Fault(at, f"version {version} is unknown")
        if not 0 <= entry.first_offset <= entry.last_offset:
            return found, Fault(at, f"a transaction cannot go from {entry[1]} to {entry[2]}")
        if found and entry.last_offset <= found[-1].last_offset:
            return found, Fault(at, "the transaction does not end after the previous transaction")
        found.append(entry)
    if len(data) % size:
        return found, Fault(len(data) // size * size, f"{len(data) % size} bytes are not an entry")
    return found, None


def snapshot_fault(data: bytes, end_offset: int) -> Fault | None:
    """Return the fault of a `.snapshot`, or None; all offsets in it must be below `end_offset`."""
    if len(data) < SNAPSHOT_HEAD.size:
        return Fault(0, f"{len(data)} bytes are not a snapshot of producers")
    version, crc, count = SNAPSHOT_HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        return Fault(0, f"version {version} is unknown")
    if crc32c(data[CRC_END:]) != crc:
        return Fault(2, "the checksum does not match")
    if len(data) != SNAPSHOT_HEAD.size + count * SNAPSHOT_ENTRY_BYTES:
        return Fault(CRC_END, f"{count} producers do not fit in {len(data)} bytes")
    for at in range(SNAPSHOT_HEAD.size, len(data), SNAPSHOT_ENTRY_BYTES):
        (last_offset,) = SNAPSHOT_LAST_OFFSET.unpack_from(data, at)
        if last_offset >= end_offset:
            return Fault(
                at, (f"the last offset {last_offset} of a producer is not below {end_offset}")
            )
    return None


def epoch_entries(data: bytes) -> tuple[list[tuple[int, int]], str]:
    """Read a `leader-epoch-checkpoint`; return each epoch with its first offset, and any fault."""
    lines = data.decode("utf-8", "replace").removesuffix("\n").split("\n")
    try:
        found = [(int(epoch), int(start)) for epoch, start in map(str.split, lines[2:])]
        if int(lines[0]) != 0 or int(lines[1]) != len(found):
            return [], "the entries do not match the first lines"
    except (ValueError, IndexError) as error:
        return [], f"the file is not a list of leader epochs ({error})"
    for (epoch, start), (next_epoch, next_start) in pairwise(found):
        if next_epoch <= epoch or next_start <= start:
            return [], (
                f"epoch {next_epoch}, from offset {next_start} on, cannot follow epoch "
                f"{epoch}, from offset {start} on"
            )
    return found, ""
