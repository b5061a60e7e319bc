"""Find where the records of Kafka's batches begin and end: each says how long it is, at its start.

So within a batch they can only be found one after the other. Of many batches they are found
together, one record of each at a step; of few, a stretch of records of one size at a look.
"""

from __future__ import annotations

from array import array
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logstore.format.kafka_header import RECORD_BYTES_MIN
from logstore.format.kafka_varints import Numbers, pairs_of, short_varints, varint

STRETCHES_MAX = 8
# A step costs as much as this many records one after the other.
STEP_RECORDS = 48

Octets = NDArray[np.uint8]


class Batches(NamedTuple):
    """Say where the rows of batches stand, back to back, with PADDING behind them all.

    Attributes:
        data, octets: the same bytes.
        starts: where each batch's rows begin, and where the last one's end.
        counts: how many records each has; at least 1.
    """

    data: bytes
    octets: Octets
    starts: Numbers
    counts: Numbers

    @property
    def firsts(self) -> Numbers:
        """Number of each batch's first record, and of all records."""
        firsts = np.zeros(len(self.counts) + 1, np.int64)
        np.cumsum(self.counts, out=firsts[1:])
        return firsts


def record_bounds(batches: Batches) -> tuple[Numbers, Numbers]:
    """Find where each record begins, with its length, and ends.

    Raises:
        ValueError: the records of a batch do not end where it does.
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


# --- many batches ---------------------------------------------------------------------------------


@cache
def _strides() -> Numbers:
    """Tabulate what the first two octets of a record say: how far it is to the next one.

    0 for what begins no record, and for one whose length has more than two octets.
    """
    numbers, widths = short_varints()
    return np.where((widths > 0) & (numbers >= RECORD_BYTES_MIN - 1), numbers + widths, 0)


def _together(batches: Batches) -> tuple[Numbers, Numbers]:
    """Step through all batches at once, those with the most records first."""
    order = np.argsort(-batches.counts, kind="stable")
    counts = batches.counts[order]
    firsts, position = batches.firsts[:-1][order], batches.starts[:-1][order]
    # Where each record begins; the last one ends with the last batch.
    edges = np.full(int(counts.sum()) + 1, batches.starts[-1])
    pairs, strides = pairs_of(batches.data), _strides()
    # How many batches have more records than these.
    lanes = np.searchsorted(-counts, -np.arange(int(counts[0]))).tolist()
    for number, going in enumerate(lanes):
        here = position[:going]
        edges[firsts[:going] + number] = here
        try:
            stride = strides.take(pairs[here])
        except IndexError:
            raise ValueError("a record ends behind its batch") from None
        if np.count_nonzero(stride) < going:
            _read_long(batches.data, here, stride)
        here += stride
    if not np.array_equal(position, batches.starts[1:][order]):
        raise ValueError("the records of a batch do not end where it does")
    return edges[:-1], edges[1:]


def _read_long(data: bytes, position: Numbers, stride: Numbers) -> None:
    """Read the lengths of records that have more than two octets, in place."""
    for lane in np.flatnonzero(stride == 0).tolist():
        start = int(position[lane])
        length, behind = varint(data, start)
        if not RECORD_BYTES_MIN - 1 <= length <= len(data) - behind:
            raise ValueError("a record ends behind its batch")
        stride[lane] = behind + length - start


# --- few batches ----------------------------------------------------------------------------------


def _one_by_one(batches: Batches, position: int, total: int, count: int) -> tuple[Numbers, Numbers]:
    """Step through the records of one batch; a stretch of one size is found at one look."""
    data, octets = batches.data, batches.octets
    begins, ends = array("q"), array("q")
    done = fruitless = 0
    while done < count:
        if position >= total:
            raise ValueError("there are fewer records than the header says")
        octet = data[position]
        if octet < 0x80:
            size, start = octet >> 1, position + 1
        elif (high := data[position + 1]) < 0x80:
            size, start = (octet & 0x7F | high << 7) >> 1, position + 2
        else:
            size, start = varint(data, position)
        end = start + size
        if octet & 1 or size < RECORD_BYTES_MIN - 1 or end > total:
            raise ValueError("a record ends behind its batch")
        begins.append(position)
        ends.append(end)
        done += 1
        if fruitless < STRETCHES_MAX and end < total and data[end] == octet:
            stride = end - position
            rows = min((total - position) // stride, count - done + 1)
            more = _stretch(octets, position, start - position, stride, rows)
            fruitless += more < 4
            steps = np.arange(1, more + 1, dtype=np.int64) * stride
            begins.frombytes((steps + position).tobytes())
            ends.frombytes((steps + end).tobytes())
            done += more
            end += more * stride
        position = end
    if position != total:
        raise ValueError("bytes are left behind the last record")
    return np.frombuffer(begins, np.int64), np.frombuffer(ends, np.int64)


def _stretch(octets: Octets, position: int, length_bytes: int, stride: int, rows: int) -> int:
    """Count the records behind the one at `position`, of `rows`, that have the same length."""
    table = np.ndarray((rows, length_bytes), np.uint8, octets, position, (stride, 1))
    is_same = (table == table[0]).all(axis=1)
    return (rows if is_same.all() else int(is_same.argmin())) - 1
