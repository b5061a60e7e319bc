"""Search a damaged segment for whole batches, and for its layout."""

from __future__ import annotations

import time
from contextlib import suppress
from types import ModuleType

from logstore.disk import bulk, files
from logstore.errors import UnsupportedFormatError
from logstore.format import layouts
from logstore.format.columnar import record_batch as columnar
from logstore.format.prefix import LENGTH_OVERHEAD_BYTES, PREFIX_BYTES, unpack_prefix

WINDOW_BYTES = 1 << 20
# This many batches are enough to distinguish a segment's own batches from batches in a value.
RUN_MAX = 1000


def magic_of(fd: int, end: int | None = None) -> int:
    """Read a segment's layout from its first batch; if that batch is damaged, from later batches.

    If the segment has no whole batch, the first batch's magic decides. If this magic is unknown,
    the result is columnar.

    Args:
        end: where the segment ends; by default, where the file ends.
    """
    head = files.read_up_to(fd, PREFIX_BYTES, 0)
    is_kafkas = len(head) == PREFIX_BYTES and head[layouts.MAGIC_AT] == layouts.KAFKA_MAGIC
    claimed, other = columnar.MAGIC, layouts.KAFKA_MAGIC
    if is_kafkas:
        claimed, other = other, claimed
    if len(head) < PREFIX_BYTES:
        return claimed
    end = files.fstat(fd).st_size if end is None else end
    with suppress(UnsupportedFormatError):
        if whole_at(fd, 0, end, layouts.layout_of(claimed)):
            return claimed
    return max((claimed, other), key=lambda magic: _reach(fd, end, magic))


def _reach(fd: int, end: int, magic: int) -> int:
    """Return where the first run of whole batches of a layout ends; 0 if there is no whole batch.

    A record's value may contain batches of the other layout. A run of such batches ends inside the
    value, so the run of the segment's own batches ends later.
    """
    try:
        layout = layouts.layout_of(magic)
    except UnsupportedFormatError:  # this process cannot read Kafka's layout
        return 0
    found, reach = find_batch(fd, 0, end, magic), 0
    for _ in range(RUN_MAX):
        if found is None:
            break
        reach = found[0] + _size_at(fd, found[0])
        found = whole_at(fd, reach, end, layout)
    return reach


def _size_at(fd: int, position: int) -> int:
    """Read the size of the batch at a position from its prefix."""
    length: int = unpack_prefix(files.read_up_to(fd, PREFIX_BYTES, position))[1]
    return length + LENGTH_OVERHEAD_BYTES


def find_batch(
    fd: int, position: int, end: int, magic: int = columnar.MAGIC
) -> tuple[int, int] | None:
    """Find the next whole batch at or after `position`; return its position and base offset.

    The search finds only batches of the segment's own layout, because a record's value may contain
    a batch of the other layout.
    """
    layout = layouts.layout_of(magic)
    overhead: int = layout.OVERHEAD_BYTES
    if magic == layouts.KAFKA_MAGIC:
        # A Kafka batch may begin at any byte.
        # So first try the end of the damaged batch, according to the size in its header.
        head = files.read_up_to(fd, PREFIX_BYTES, position)
        size_bytes = unpack_prefix(head)[1] + LENGTH_OVERHEAD_BYTES if len(head) > 16 else 0
        if size_bytes > 0 and (found := whole_at(fd, position + size_bytes, end, layout)):
            return found
    else:
        position = _behind_claimed(fd, position, end)
    position += -position % layout.ALIGNMENT
    while position + overhead <= end:
        data = files.read_up_to(fd, min(WINDOW_BYTES, end - position), position)
        for at in layouts.candidates(data, 0, magic):
            if found := whole_at(fd, position + at, end, layout):
                return found
        time.sleep(0)
        if len(data) < layouts.HEADER_BYTES_MAX:
            return None
        # The windows overlap, because the end of a window may cut a header in two.
        following = position + max(len(data) - layouts.HEADER_BYTES_MAX, 8) // 8 * 8
        if not data.strip(b"\0"):  # skip zeros quickly: a sparse file may have a hole of 1 TiB here
            after = bulk.next_data(fd, position + len(data), end) - layouts.HEADER_BYTES_MAX
            following = max(following, after // 8 * 8)
        position = following
    return None


def _behind_claimed(fd: int, position: int, end: int) -> int:
    """Return where to begin the search: after the damaged batch, if the batch's size is known.

    The search must not begin inside a batch, because a record's value may contain a whole batch of
    another log. A header contains the size of its batch twice. If the two sizes in a header are
    equal, they count as right. If the sizes differ, the right size leads to the next batch, or to
    the end of the file.
    """
    head = files.read_up_to(fd, columnar.HEADER_BYTES, position)
    if len(head) < columnar.HEADER_BYTES or whole_at(fd, position, end, columnar):
        return position
    small, large = sorted(columnar.claimed_sizes(head, 0))
    if small == large:
        return position + small
    for at in (position + small, position + large):
        found = whole_at(fd, at, end, columnar) if at > position else None
        if at == end or (found is not None and found[1] == columnar.next_offset(head, 0)):
            return at
    return position


def whole_at(fd: int, position: int, end: int, layout: ModuleType) -> tuple[int, int] | None:
    """If a whole batch of this layout begins at a position, return its position and base offset."""
    head = files.read_up_to(fd, PREFIX_BYTES, position)
    if len(head) < PREFIX_BYTES:
        return None
    base_offset, length, _, magic = unpack_prefix(head)
    size_bytes = length + LENGTH_OVERHEAD_BYTES
    if magic != layout.MAGIC or not layout.OVERHEAD_BYTES <= size_bytes <= end - position:
        return None
    batch = files.read_up_to(fd, size_bytes, position)
    return (position, base_offset) if layouts.fault(batch, 0, None) is None else None
