"""Step through all batches of one `.log` file for `dump`, including damaged batches.

Only one batch is in memory at a time. After damage, the walk continues at the next position at
which a whole batch begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from logstore.disk import files
from logstore.format import layouts
from logstore.format.columnar import record_batch as columnar
from logstore.format.prefix import LENGTH_OVERHEAD_BYTES, PREFIX_BYTES, unpack_prefix
from logstore.log.segments.search import find_batch, magic_of


class Found(NamedTuple):
    """Describe a batch, or the bytes where a batch should be.

    Attributes:
        data: the bytes of the batch; for a damaged batch, at most the bytes of its header.
        fault: what is wrong with the batch; None for a whole batch.

    """

    position: int
    size_bytes: int
    data: bytes
    fault: str | None


def walk_file(fd: int) -> Iterator[Found]:
    """Yield the batches and the damage of an open `.log` file, up to its present end."""
    end = files.fstat(fd).st_size
    position = 0
    expected_offset: int | None = None
    while position < end:
        data, fault = read_batch(fd, position, end, expected_offset)
        if fault is None:
            yield Found(position, len(data), data, None)
            header = layouts.read_header(data, 0)
            expected_offset = header.last_offset + 1
            position += len(data)
            continue
        resumed = next_whole_batch(fd, position, end)
        yield Found(position, resumed - position, data[: columnar.HEADER_BYTES], fault)
        position, expected_offset = resumed, None


def read_batch(
    fd: int, position: int, end: int, expected_offset: int | None
) -> tuple[bytes, str | None]:
    """Read the batch at `position`; return its bytes and its fault.

    The fault of a whole batch is None.
    """
    head = files.read_up_to(fd, min(columnar.HEADER_BYTES, end - position), position)
    if len(head) < PREFIX_BYTES:
        return head, f"only {len(head)} bytes are left"
    _, length, _, magic = unpack_prefix(head, 0)
    size_bytes, left = length + LENGTH_OVERHEAD_BYTES, end - position
    if size_bytes > left and magic in layouts.MAGICS.values():
        return head, f"the batch has {size_bytes} bytes, but only {left} are left"
    if not layouts.OVERHEAD_BYTES_MIN <= size_bytes <= left:
        fault = layouts.fault(head, 0, expected_offset)
        return head, fault or f"a batch cannot have {size_bytes} bytes"
    data = files.read_up_to(fd, size_bytes, position)
    return data, layouts.fault(data, 0, expected_offset)


def next_whole_batch(fd: int, position: int, end: int) -> int:
    """Find the next whole batch after damage at `position`; return `end` if there is none."""
    magic = magic_of(fd)
    if magic == columnar.MAGIC:
        position += columnar.ALIGNMENT - position % columnar.ALIGNMENT
    found = find_batch(fd, position, end, magic)
    return end if found is None else found[0]
