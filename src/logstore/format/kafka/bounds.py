"""Find where the records of Kafka's batches begin and end.

Each record begins with its length. So the records of one batch can only be found one after the
other. With many batches, each step finds one record in every batch. With only a few batches, a run
of records of the same size is found in one step.
"""

from __future__ import annotations

from array import array
from functools import cache
from itertools import pairwise, repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logstore.format.kafka.header import RECORD_BYTES_MIN
from logstore.format.kafka.varints import Numbers, pairs_of, short_varints, varint
from logstore.format.steps import Steps

# After this many runs that are too short, step through all remaining records one by one.
STRETCHES_MAX = 8
STRETCH_RECORDS_MIN = 4
# One step through all batches takes as long as stepping over this many records one by one.
STEP_RECORDS = 48
STEP_RECORDS_MAX = 1024  # stepping over this many records one by one takes 0.1 ms

Octets = NDArray[np.uint8]


class Batches(NamedTuple):
    """Hold the rows of batches, one batch after the other, with PADDING after the last row.

    Attributes:
        data: the bytes of all rows.
        octets: the same bytes as a NumPy array.
        starts: the position of each batch's first row; the last element is the end of all rows.
        counts: the number of records of each batch, at least 1.
    """

    data: bytes
    octets: Octets
    starts: Numbers
    counts: Numbers

    @property
    def firsts(self) -> Numbers:
        """The number of each batch's first record; the last element is the record count."""
        firsts = np.zeros(len(self.counts) + 1, np.int64)
        np.cumsum(self.counts, out=firsts[1:])
        return firsts


def record_bounds(batches: Batches) -> tuple[Numbers, Numbers]:
    """Find the start (the position of the length) and the end of each record.

    A returned record may have a length that is negative or too small. The caller must refuse a
    record with a wrong length: the caller reads all lengths at once, so its check is faster than a
    check here.

    Raises:
        ValueError: the records of a batch do not end where the batch ends.
    """
    if int(batches.counts.sum()) > STEP_RECORDS * int(batches.counts.max()):
        return _together(batches)
    found = [
        _one_by_one(batches, start, end, count)
        for (start, end), count in zip(
            pairwise(batches.starts.tolist()), batches.counts.tolist(), strict=True
        )
    ]
    begins, ends = zip(*found, strict=True)
    return np.concatenate(begins), np.concatenate(ends)


def bounds_in_steps(batches: Batches) -> Steps[tuple[Numbers, Numbers]]:
    """Find the records of one large batch, as `record_bounds` does, but in steps.

    Raises:
        ValueError: the records do not end where the batch ends.
    """
    (start, total), (count,) = batches.starts.tolist(), batches.counts.tolist()
    edges = array("q", [start])
    while len(edges) <= count:
        edges.extend(_walk(batches.data, edges[-1], min(STEP_RECORDS_MAX, count + 1 - len(edges))))
        yield
    if edges[-1] != total:
        raise ValueError("the records of a batch do not end where the batch does")
    found = np.frombuffer(edges, np.int64)
    return found[:-1], found[1:]


# --- many batches ---------------------------------------------------------------------------------


@cache
def _strides() -> Numbers:
    """Build a table that maps a record's first two bytes to the distance to the next record.

    The distance in the table is 0 if no record begins with the two bytes, or if the record's length
    has more than two bytes.
    """
    numbers, widths = short_varints()
    return np.where((widths > 0) & (numbers >= RECORD_BYTES_MIN - 1), numbers + widths, 0)


def _together(batches: Batches) -> tuple[Numbers, Numbers]:
    """Step through all batches at once; batches with many records come first."""
    order = np.argsort(-batches.counts, kind="stable")
    counts = batches.counts[order]
    firsts, position = batches.firsts[:-1][order], batches.starts[:-1][order]
    # The start of each record. The last element is the end of the last batch.
    edges = np.full(int(counts.sum()) + 1, batches.starts[-1])
    pairs, strides = pairs_of(batches.data), _strides()
    # For each step, the number of batches that still have a record.
    lanes = np.searchsorted(-counts, -np.arange(int(counts[0]))).tolist()
    for number, going in enumerate(lanes):
        here = position[:going]
        edges[firsts[:going] + number] = here
        try:
            stride = strides.take(pairs[here])
        except IndexError:
            raise ValueError("a record ends after the end of its batch") from None
        if np.count_nonzero(stride) < going:
            _read_long(batches.data, here, stride)
        here += stride
    if not np.array_equal(position, batches.starts[1:][order]):
        raise ValueError("the records of a batch do not end where the batch does")
    return edges[:-1], edges[1:]


def _read_long(data: bytes, position: Numbers, stride: Numbers) -> None:
    """Read lengths of more than two bytes, and write the distances into `stride`."""
    for lane in np.flatnonzero(stride == 0).tolist():
        start = int(position[lane])
        length, behind = varint(data, start)
        if not RECORD_BYTES_MIN - 1 <= length <= len(data) - behind:
            raise ValueError("a record ends after the end of its batch")
        stride[lane] = behind + length - start


# --- few batches ----------------------------------------------------------------------------------


def _one_by_one(batches: Batches, position: int, total: int, count: int) -> tuple[Numbers, Numbers]:
    """Find one batch's records one by one; find a run of records of one size in one step."""
    data, octets = batches.data, batches.octets
    edges = array("q", [position])
    fruitless = 0
    while len(edges) <= count and fruitless < STRETCHES_MAX:
        end = _end_of(data, position)
        edges.append(end)
        stride, left = end - position, count + 1 - len(edges)
        if left and end < total and data[end] == data[position]:
            length_bytes = varint(data, position)[1] - position
            rows = min((total - end) // stride, left)
            more = _stretch(octets, position, length_bytes, stride, rows + 1)
            fruitless += more < STRETCH_RECORDS_MIN
            edges.frombytes((np.arange(1, more + 1, dtype=np.int64) * stride + end).tobytes())
            end += more * stride
        else:
            fruitless += 1
        position = end
    if len(edges) <= count:
        edges.extend(_walk(data, position, count + 1 - len(edges)))
    if edges[-1] != total:
        raise ValueError("the records of a batch do not end where the batch does")
    found = np.frombuffer(edges, np.int64)
    return found[:-1], found[1:]


def _end_of(data: bytes, position: int) -> int:
    """Return the end of a record, which is within `data`, but perhaps after the batch's end."""
    size, start = varint(data, position)
    if not RECORD_BYTES_MIN - 1 <= size <= len(data) - start:
        raise ValueError("a record ends after the end of its batch")
    return start + size


def _walk(data: bytes, position: int, count: int) -> array[int]:
    """Return the ends of `count` records by stepping over their lengths, in 0.1 us per record.

    This function accepts negative and too small lengths of one or two bytes. `read_fields` in
    `decode` refuses negative and too small lengths.
    """
    ends: list[int] = []
    note = ends.append
    try:
        for _ in repeat(None, count):
            octet = data[position]
            if octet < 0x80:
                position += (octet >> 1) + 1
            elif (high := data[position + 1]) < 0x80:
                # The highest bit of the first byte is not a part of the length.
                position += (high << 6) + (octet >> 1) - 62
            else:
                position = _end_of(data, position)
            note(position)
    except IndexError:
        raise ValueError("a record ends after the end of its batch") from None
    return array("q", ends)


def _stretch(octets: Octets, position: int, length_bytes: int, stride: int, rows: int) -> int:
    """Count how many of the next `rows` records have the length of the record at `position`."""
    if length_bytes > 2:
        table = np.ndarray((rows, length_bytes), np.uint8, octets, position, (stride, 1))
        is_same = (table == table[0]).all(axis=1)
    else:
        kind = np.dtype("u1" if length_bytes == 1 else "<u2")
        lengths = np.ndarray((rows,), kind, octets, position, (stride,))
        is_same = lengths == lengths[0]
    return (rows if is_same.all() else int(is_same.argmin())) - 1
