"""Choose the layout of a batch by the magic in its prefix."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from logstore.errors import UnsupportedFormatError
from logstore.format import columnar
from logstore.format.columns import Buffer
from logstore.format.prefix import (
    BATCH_BYTES_MIN,
    LENGTH_OVERHEAD_BYTES,
    PREFIX_BYTES,
    unpack_prefix,
)

KAFKA_MAGIC = 2
RECORD_FORMATS = {"columnar": columnar}


def layout_of(magic: int, path: str) -> ModuleType:
    """Give the module that reads batches of this magic.

    Raises:
        UnsupportedFormatError: no module here does.
    """
    if magic == columnar.MAGIC:
        return columnar
    reason = "Kafka's record batches are not read by this version" if magic == KAFKA_MAGIC else ""
    raise UnsupportedFormatError(path=path, version=magic, reason=reason)


def fault(data: Buffer, position: int, expected_offset: int | None) -> str | None:
    """Say what is wrong with the batch at `position` of a buffer, or None when it is whole.

    Args:
        data: bytes of a segment, up to where it ends or ought to.
        expected_offset: the offset the batch must begin with; None when that is not known.
    """
    available = len(data) - position
    if available < PREFIX_BYTES:
        return f"only {available} bytes are left"
    base_offset, length, _, magic = unpack_prefix(data, position)
    size_bytes = length + LENGTH_OVERHEAD_BYTES
    if magic != columnar.MAGIC or not BATCH_BYTES_MIN <= size_bytes <= available:
        return _prefix_fault(base_offset, size_bytes, magic, available)
    reason = columnar.header_fault(data, position, size_bytes)
    if reason is None and not columnar.checksum_holds(data, position, size_bytes):
        reason = "the checksum does not hold"
    if reason is None and expected_offset is not None and base_offset != expected_offset:
        reason = f"the batch begins with offset {base_offset}, not {expected_offset}"
    return reason


def _prefix_fault(base_offset: int, size_bytes: int, magic: int, available: int) -> str:
    if magic == base_offset == 0 and size_bytes == LENGTH_OVERHEAD_BYTES:
        return "zeros stand here"
    if magic != columnar.MAGIC:
        return f"magic {magic:#04x} is no record batch"
    if size_bytes < BATCH_BYTES_MIN:
        return f"a batch of {size_bytes} bytes cannot be"
    return f"the batch has {size_bytes} bytes and only {available} are left"


def candidates(data: Buffer, position: int) -> list[int]:
    """List where, at or behind `position`, a batch could begin by its magic and version.

    `position` is a multiple of the layout's alignment, and so are the results.
    """
    step = columnar.ALIGNMENT
    rows = (len(data) - position) // step
    lanes = np.frombuffer(data, np.uint8, rows * step, position).reshape(rows, step)
    # The magic stands at byte 16 of a batch and the version at 17: two lanes further on.
    hits = np.flatnonzero((lanes[2:, 0] == columnar.MAGIC) & (lanes[2:, 1] == columnar.VERSION))
    found: list[int] = (hits * step + position).tolist()
    return found
