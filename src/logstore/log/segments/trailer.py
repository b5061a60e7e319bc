"""Read a segment's two index files, and the trailer that identifies the segment.

The part of the `.log` that the trailer describes is flushed before the trailer is written. So a
valid trailer also proves that this part is durable, and recovery does not read it again. The index
files themselves are not synced. If a crash leaves an index file incomplete, the file's checksum is
wrong, and the index is rebuilt.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from logstore.disk import files, mapped
from logstore.errors import CorruptIndexError
from logstore.format import layouts
from logstore.log.segments.offset_index import ENTRY_BYTES, OffsetIndex
from logstore.log.segments.time_index import TimeIndex

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
INDEX_BYTES_MAX = 256 << 20  # 32 million entries
CHECKSUM_HEAD_BYTES = 21  # a batch's prefix, and the checksum that follows it in Kafka's layout
assert TRAILER.size == TRAILER_BYTES


class Trailer(NamedTuple):
    """The fields that identify a segment, in the same order as in the file."""

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
    time_checksum: int
    entries_checksum: int

    def to_bytes(self) -> bytes:
        """Encode the trailer, with its checksum at the end."""
        body = TRAILER.pack(MAGIC, *self, 0, 0)[:-8]
        return body + struct.pack(">Q", xxh3_64_intdigest(body))


def parse(data: bytes) -> Trailer | None:
    """Parse the bytes of a trailer; return None if the bytes are not a valid trailer."""
    if len(data) != TRAILER_BYTES or data[:8] != MAGIC:
        return None
    _, *fields, _, checksum = TRAILER.unpack(data)
    if checksum != xxh3_64_intdigest(data[:-8]):
        return None
    trailer = Trailer(*fields)
    is_possible = (
        trailer.partition < 2**31
        and 0 <= trailer.base_offset <= trailer.end_offset
        and trailer.last_position <= trailer.log_bytes < 2**63
    )
    return trailer if is_possible else None


def read_trailer(path: str, file_bytes: int) -> Trailer | None:
    """Read the trailer of an `.index` file; return None if the file has no valid trailer.

    Args:
        file_bytes: the size of the file.
    """
    if file_bytes < TRAILER_BYTES:
        return None
    try:
        fd = files.open_regular(path, files.READ)
    except files.UnfitError:
        return None
    try:
        data = files.read_up_to(fd, TRAILER_BYTES, file_bytes - TRAILER_BYTES)
    finally:
        files.close(fd)
    trailer = parse(data)
    if trailer is None or file_bytes != trailer.entry_count * ENTRY_BYTES + TRAILER_BYTES:
        return None
    return trailer


def stored_checksum(fd: int, position: int, end_position: int) -> int:
    """Read the checksum that is stored in a batch; return 0 if the file ends too early."""
    return checksum_and_magic(fd, position, end_position)[0]


def checksum_and_magic(fd: int, position: int, end_position: int) -> tuple[int, int]:
    """Read a batch's stored checksum and its layout; return zeros if the file ends too early."""
    head = files.read_up_to(fd, CHECKSUM_HEAD_BYTES, position)
    if len(head) < CHECKSUM_HEAD_BYTES:
        return 0, 0
    tail = files.read_up_to(fd, 8, max(end_position - 8, 0))
    return layouts.checksum(head, tail), head[layouts.MAGIC_AT]


def _whole_file(path: str) -> bytes | memoryview:
    try:
        fd = files.open_regular(path, files.READ)
    except files.UnfitError as error:
        raise CorruptIndexError(path=path, position=0, reason=error.reason) from None
    try:
        size_bytes = files.fstat(fd).st_size
        if size_bytes > INDEX_BYTES_MAX:
            reason = f"the file has {size_bytes} bytes, but at most {INDEX_BYTES_MAX} are allowed"
            raise CorruptIndexError(path=path, position=0, reason=reason)
        return mapped.view(fd, size_bytes, 0)
    finally:
        files.close(fd)


def read_index(path: str, *, growing: bool = False) -> tuple[OffsetIndex, Trailer]:
    """Read an `.index` file: the offset index, and the trailer.

    Raises:
        CorruptIndexError: a checksum is wrong. The caller then rebuilds the index.
        OSError: the disk could not read the bytes.
    """
    data = _whole_file(path)
    trailer = trailer_in(data)
    if trailer is None:
        raise CorruptIndexError(path=path, position=0, reason="the trailer is missing or damaged")
    return index_in(data, trailer, path, growing=growing), trailer


def read_growing(path: str, file_bytes: int) -> tuple[bytes | memoryview, Trailer | None]:
    """Read a whole `.index` file, and return its bytes and its trailer. Raises OSError.

    The caller can pass the bytes and the trailer to `index_in`. If the file is not usable, the
    trailer is None.

    Args:
        file_bytes: the size of the file.
    """
    if file_bytes < TRAILER_BYTES:
        return b"", None
    try:
        data = _whole_file(path)
    except CorruptIndexError:
        return b"", None
    return data, trailer_in(data)


def trailer_in(data: bytes | memoryview) -> Trailer | None:
    """Parse the trailer at the end of an `.index`; return None if the trailer is not valid."""
    trailer = parse(bytes(data[-TRAILER_BYTES:]))
    if trailer is None or len(data) != trailer.entry_count * ENTRY_BYTES + TRAILER_BYTES:
        return None
    return trailer


def index_in(
    data: bytes | memoryview, trailer: Trailer, path: str, *, growing: bool = False
) -> OffsetIndex:
    """Decode the offset index from the bytes of an `.index` file. Raises CorruptIndexError."""
    entries = data[:-TRAILER_BYTES]
    if xxh3_64_intdigest(entries) != trailer.entries_checksum:
        raise CorruptIndexError(path=path, position=0, reason="the entries are damaged")
    return OffsetIndex.from_bytes(entries, growing=growing)


def read_time_index(
    path: str, trailer: Trailer, *, growing: bool = False, file_bytes: int = -1
) -> TimeIndex:
    """Read a `.timeindex` file. Raises the same errors as `read_index`.

    Args:
        file_bytes: the size of the file, or -1 if the caller does not know the size. If the size is
            0, the file is not opened.
    """
    data = _whole_file(path) if file_bytes else b""
    if xxh3_64_intdigest(data) != trailer.time_checksum:
        raise CorruptIndexError(path=path, position=0, reason="the entries are damaged")
    return TimeIndex.from_bytes(data, growing=growing)
