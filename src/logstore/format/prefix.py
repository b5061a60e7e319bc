"""Read the first 17 bytes of a record batch, which all layouts share (docs/FORMAT.md, section 3).

    base_offset i64 | batch_length i32 | leader_epoch i32 | magic u8      big-endian

A walk from batch to batch needs only these 17 bytes: a batch ends `batch_length` bytes after the
end of the field `batch_length`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

PREFIX = struct.Struct(">qiiB")
PREFIX_BYTES = 17
assert PREFIX.size == PREFIX_BYTES

# Bytes up to the end of the field `batch_length`: base_offset (8) and the field itself (4).
LENGTH_OVERHEAD_BYTES = 12
BATCH_BYTES_MIN = PREFIX_BYTES + 8
BATCH_BYTES_MAX = 2**31 - 1

unpack_prefix = PREFIX.unpack_from


class Span(NamedTuple):
    """Hold the place of one batch in a buffer, and its base offset."""

    position: int
    size_bytes: int
    base_offset: int
    magic: int


def walk(data: bytes | memoryview, position: int = 0, end: int | None = None) -> Iterator[Span]:
    """Step through the batches of a buffer; stop at the first batch that is not whole.

    Args:
        data: bytes of a segment with a batch at `position`.
        position: the position of the first batch.
        end: the position at which to stop; the end of the buffer by default.
    """
    if end is None:
        end = len(data)
    while position + PREFIX_BYTES <= end:
        base_offset, batch_length, _, magic = unpack_prefix(data, position)
        size_bytes = batch_length + LENGTH_OVERHEAD_BYTES
        if size_bytes < BATCH_BYTES_MIN or position + size_bytes > end:
            return
        yield Span(position, size_bytes, base_offset, magic)
        position += size_bytes
