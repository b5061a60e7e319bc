"""Read and write a segment's two index files, and the trailer that says which segment they are of.

The trailer is written only after the part of the `.log` it describes was flushed. So one that
checks out also proves that those bytes were durable, and recovery need not look at them again.
Neither file is synced: one that a crash tore does not check out, and is made anew.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from logstore.disk import files, mapped
from logstore.errors import CorruptIndexError
from logstore.log.offset_index import ENTRY_BYTES, OffsetIndex
from logstore.log.time_index import TimeIndex

MAGIC = b"LSINDEX1"
TRAILER = struct.Struct(
    ">"
    "8s"  # magic
    "16s"  # topic_id
    "I"  # partition
    "I"  # entry_count
    "q"  # base_offset
    "q"  # end_offset
    "Q"  # log_bytes
    "Q"  # last_position
    "Q"  # first_checksum
    "Q"  # last_checksum
    "q"  # max_timestamp
    "i"  # last_leader_epoch
    "I"  # is_sealed
    "Q"  # time_checksum
    "Q"  # entries_checksum
    "Q"  # reserved_112
    "Q"  # checksum
)
TRAILER_BYTES = 128
assert TRAILER.size == TRAILER_BYTES


class Trailer(NamedTuple):
    """Carry what identifies a segment, in the order of the file."""

    topic_id: bytes
    partition: int
    entry_count: int
    base_offset: int
    end_offset: int
    log_bytes: int
    last_position: int
    first_checksum: int
    last_checksum: int
    max_timestamp: int
    last_leader_epoch: int
    is_sealed: int
    time_checksum: int = 0
    entries_checksum: int = 0

    def to_bytes(self) -> bytes:
        """Lay the trailer out with its checksum."""
        body = TRAILER.pack(MAGIC, *self, 0, 0)[:-8]
        return body + struct.pack(">Q", xxh3_64_intdigest(body))


def parse(data: bytes) -> Trailer | None:
    """Read a trailer; None when these bytes are none."""
    if len(data) != TRAILER_BYTES or data[:8] != MAGIC:
        return None
    _, *fields, _, checksum = TRAILER.unpack(data)
    if checksum != xxh3_64_intdigest(data[:-8]):
        return None
    return Trailer(*fields)


def read_trailer(path: str, file_bytes: int) -> Trailer | None:
    """Read the trailer of an `.index` of `file_bytes`; None when there is none that checks out."""
    if file_bytes < TRAILER_BYTES:
        return None
    fd = files.open_file(path, files.READ)
    try:
        data = files.read_up_to(fd, TRAILER_BYTES, file_bytes - TRAILER_BYTES)
    finally:
        files.close(fd)
    trailer = parse(data)
    if trailer is None or file_bytes != trailer.entry_count * ENTRY_BYTES + TRAILER_BYTES:
        return None
    return trailer


def write_indexes(
    index_path: str, time_index_path: str, index: OffsetIndex, time_index: TimeIndex, trailer: Trailer
) -> None:
    """Write both files of a segment, the time index first."""
    time_bytes = time_index.to_bytes()
    entries = index.to_bytes()
    whole = trailer._replace(
        entry_count=len(entries) // ENTRY_BYTES,
        time_checksum=xxh3_64_intdigest(time_bytes),
        entries_checksum=xxh3_64_intdigest(entries),
    )
    for path, data in ((time_index_path, time_bytes), (index_path, entries + whole.to_bytes())):
        temporary = f"{path}.tmp"
        fd = files.open_file(temporary, files.REPLACE)
        try:
            files.write_fully(fd, [data], 0)
        finally:
            files.close(fd)
        files.rename(temporary, path)


def _whole_file(path: str) -> bytes | memoryview:
    fd = files.open_file(path, files.READ)
    try:
        return mapped.view(fd, files.fstat(fd).st_size, 0)
    finally:
        files.close(fd)


def read_index(path: str, *, growing: bool = False) -> tuple[OffsetIndex, Trailer]:
    """Read an `.index`.

    Raises:
        CorruptIndexError: it does not check out; the caller makes it anew.
        OSError: the disk could not give it.
    """
    data = _whole_file(path)
    trailer = parse(bytes(data[-TRAILER_BYTES:]))
    entries = data[:-TRAILER_BYTES]
    if trailer is None or len(entries) != trailer.entry_count * ENTRY_BYTES:
        raise CorruptIndexError(path=path, position=0, reason="the trailer does not check out")
    if xxh3_64_intdigest(entries) != trailer.entries_checksum:
        raise CorruptIndexError(path=path, position=0, reason="the entries do not check out")
    return OffsetIndex.from_bytes(entries, growing=growing), trailer


def read_time_index(path: str, trailer: Trailer, *, growing: bool = False) -> TimeIndex:
    """Read a `.timeindex`; raises as `read_index` does."""
    data = _whole_file(path)
    if xxh3_64_intdigest(data) != trailer.time_checksum:
        raise CorruptIndexError(path=path, position=0, reason="the entries do not check out")
    return TimeIndex.from_bytes(data, growing=growing)
