"""Check in a few steps that a batch's records are valid; recognise only the most common forms.

    length | attributes | timestamp delta | offset delta | key | value | no headers

A client's records usually have no gaps between offsets, no headers, and the same size. This module
recognises only some of the batches that `decode.check_many` accepts. For any other batch,
`decode.check_many` decides. For a small batch, a NumPy check takes longer than the system takes to
write the batch. So this module reads records one by one. But if several records in a row have the
same size, one step checks all of them.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logstore.format.batch_parts import BatchHeader
from logstore.format.expansion import RECORD_BYTES
from logstore.format.kafka.header import LOG_APPEND_TIME
from logstore.format.kafka.varints import varint

# If a run is shorter, it is faster to read its records one by one.
RUN_RECORDS_MIN = 4
# After this many records in a row that form no run, `decode.check_many` is faster.
SINGLES_MAX = 32
# This many runs and single records are recognised.
# A later run must extend to the end of the batch, or to the first longer offset delta.
RUNS_MAX = 64
# Offset deltas below these limits have one, two and three bytes.
# The last limit is the size of the table `_deltas`; a batch with more records is not recognised.
DELTA_LIMITS = (1 << 6, 1 << 13, 1 << 15)
ONE_BYTE_MAX, RECORDS_MAX = DELTA_LIMITS[0], DELTA_LIMITS[-1]
# How many shapes are remembered, and how many records and runs each of these shapes may have.
SHAPES_MAX, SHAPE_RECORDS_MAX, SHAPE_RUNS_MAX = 64, 1 << 14, 4
# The timestamps are a part of a shape.
# In larger batches with different timestamps, no shape occurs twice.
SHAPE_TIMED_MAX = 1 << 9
WORD_BYTES, WORD_MAX = 8, 2**64 - 1

Times = tuple[int, int]
Run = tuple["Places", int]  # the first record, and the number of the record after the run
Words = NDArray[np.uint64]
_word = struct.Struct("<Q").unpack_from


class Places(NamedTuple):
    """Hold the positions of one record's fields; similar records have the same field sizes.

    Attributes:
        head_end: the position after the size of the key.
        value_end: the position after the size of the value.
        time: the timestamp delta of the record.
    """

    start: int
    time_at: int
    delta_at: int
    head_end: int
    value_at: int
    value_end: int
    stop: int
    time: int


class Window(NamedTuple):
    """Hold the bytes at one place of several records that have the same size.

    Attributes:
        offset: the place of these bytes in the first record, relative to the start of the batch's
            records.
        kind: a NumPy type with the size of one record's bytes at this place.
        expected: the bytes of all these records, one record after the other.
    """

    offset: int
    stride: int
    rows: int
    kind: str
    expected: bytes


class Shape(NamedTuple):
    """Describe all bytes of records except keys and values, and the range of time deltas."""

    windows: tuple[Window, ...]
    times: Times


# The remembered shapes; the key is the number and the total size of a batch's records.
# A client's next batch often has the shape of an earlier batch.
_shapes: dict[tuple[int, int], Shape] = {}


def is_regular(
    data: memoryview, start: int, end: int, header: BatchHeader, expansion_bytes_max: int
) -> bool:
    """Return True if a batch's uncompressed records are valid; False if invalid or unknown.

    Args:
        data: a buffer with the records from `start` to `end`. If the records were compressed in the
            batch, the buffer has only the records. In an uncompressed batch, the batch's header
            comes directly before the records.
        header: the header of the batch; its largest timestamp is checked, too.
    """
    count, base = header.record_count, header.base_timestamp
    size_bytes = end - start
    if size_bytes + RECORD_BYTES * count > expansion_bytes_max:
        return False
    shape = _shapes.get((count, size_bytes))
    if shape is not None and start and _matches(data, start, end, shape.windows):
        times: Times | None = shape.times
    else:
        runs: list[Run] = []
        times = times_of(data, start, end, count, runs)
        if (
            times is not None
            and start
            and count <= (SHAPE_RECORDS_MAX if times[0] == times[1] else SHAPE_TIMED_MAX)
            and len(runs) <= SHAPE_RUNS_MAX
        ):
            _keep_shape(data, start, end, count, runs, times)
    if times is None:
        return False
    least, most = base + times[0], base + times[1]
    if least < -(2**63) or most >= 2**63:
        return False
    return most == header.max_timestamp or header.attributes & LOG_APPEND_TIME > 0


def times_of(data: memoryview, start: int, end: int, count: int, runs: list[Run]) -> Times | None:
    """Return the records' smallest and largest timestamp delta, or None if a record may be invalid.

    Args:
        data: a buffer with the uncompressed records of one batch from `start` to `end`.
        count: the number of records.
        runs: a list to which this function adds the runs of records that are alike.
    """
    if not 0 < count <= RECORDS_MAX:
        return None
    number, singles, position = 0, 0, start
    least, most = 2**63, -(2**63)
    try:
        while number < count:
            places = places_of(data, position, number)
            if places is None or places.stop > end:
                return None
            least, most = min(least, places.time), max(most, places.time)
            number, singles, stop = number + 1, singles + 1, places.stop
            rows = min(count - number, (end - stop) // (stop - position))
            if rows >= RUN_RECORDS_MIN and data[stop] == data[position]:
                rows = min(rows, _rows_alike(number))
                times = _run_of(data, places, number, rows)
                if times is None and len(runs) < RUNS_MAX:  # perhaps these records begin a run
                    rows = _run_rows(data, places, number, rows)
                    if rows >= RUN_RECORDS_MIN:
                        times = _run_of(data, places, number, rows)
                if times is not None:
                    least, most = min(least, times[0]), max(most, times[1])
                    stop, number, singles = stop + rows * (stop - position), number + rows, 0
            runs.append((places, number))
            if singles > SINGLES_MAX:
                return None
            position = stop
    except (IndexError, ValueError):  # a number ends after the end of the data, or does not end
        return None
    return (least, most) if position == end else None


def _matches(data: memoryview, start: int, end: int, windows: tuple[Window, ...]) -> bool:
    for offset, stride, rows, kind, expected in windows:
        found = np.ndarray((rows,), kind, data, start + offset, (stride,))
        if found.tobytes() != expected:
            return False
    return not data[end - 1]


def _keep_shape(
    data: memoryview, start: int, end: int, count: int, runs: list[Run], times: Times
) -> None:
    """Remember the shape of a batch with valid records: another batch of this shape is valid, too.

    The last byte of each record is its number of headers. This byte is read together with the head
    of the next record. The byte before the first record is the last byte of the record count in the
    batch's header.
    """
    windows, number = [], 0
    for places, last in runs:
        stride, rows = places.stop - places.start, last - number
        parts = [(places.start - 1, places.value_end)]
        if places.value_at > places.head_end:
            parts = [(places.start - 1, places.head_end), (places.value_at, places.value_end)]
        for begin, stop in parts:
            kind = f"V{stop - begin}"
            found = np.ndarray((rows,), kind, data, begin, (stride,))
            windows.append(Window(begin - start, stride, rows, kind, found.tobytes()))
        number = last
    if len(_shapes) >= SHAPES_MAX:
        _shapes.clear()
    _shapes[count, end - start] = Shape(tuple(windows), times)


def places_of(data: memoryview, start: int, number: int) -> Places | None:
    """Read one record; return None if it has headers, a wrong offset delta, or another fault."""
    length, place = varint(data, start)
    stop, time_at = place + length, place + 1
    time, delta_at = varint(data, time_at)
    delta, key_at = varint(data, delta_at)
    key, head_end = varint(data, key_at)
    value_at = head_end + key if key > 0 else head_end
    value, value_end = varint(data, value_at)
    last = value_end + value if value > 0 else value_end
    if length < 0 or delta != number or key < -1 or value < -1 or last + 1 != stop or data[last]:
        return None
    return Places(start, time_at, delta_at, head_end, value_at, value_end, stop, time)


@cache
def _deltas(shift: int) -> Words:
    """Build a table of the varints of all offset deltas, each shifted by `shift` bits."""
    numbers = np.arange(RECORDS_MAX, dtype=np.uint64) << np.uint64(1)
    low, middle = numbers & np.uint64(0x7F), numbers >> np.uint64(7) & np.uint64(0x7F)
    words = numbers.copy()
    one, two = DELTA_LIMITS[:2]
    words[one:] = (low | np.uint64(0x80) | middle << np.uint64(8))[one:]
    words[two:] |= (np.uint64(0x8000) | (numbers >> np.uint64(14)) << np.uint64(16))[two:]
    return words << np.uint64(shift)


def _rows_alike(number: int) -> int:
    """Count how many deltas, beginning with `number`, have as many bytes as delta `number - 1`."""
    for limit in DELTA_LIMITS:
        if number <= limit:
            return limit - number
    return 0


def _run_of(data: memoryview, places: Places, number: int, rows: int) -> Times | None:
    """Check that the next `rows` records equal `places`, except for timestamps and contents.

    Args:
        number: the number of the record after the record in `places`.
    """
    start, first, stride = places.start, places.stop, places.stop - places.start
    head_end = places.head_end
    is_joined = places.value_at == head_end and places.value_end - start <= WORD_BYTES
    if is_joined:
        head_end = places.value_end
    word_at = _word_at(places, head_end)
    if word_at is None or rows < 1:
        return None
    headers = np.ndarray((rows,), np.uint8, data, first + stride - 1, (stride,))
    if headers.tobytes() != bytes(rows):  # for small arrays, comparing bytes is the fastest test
        return None
    if not is_joined and not _same_sizes(data, places, rows):
        return None
    if word_at > start and _lengths_alike(data, places, word_at, rows) < rows:
        return None
    shift, mask = 8 * (places.delta_at - word_at), (1 << 8 * (head_end - word_at)) - 1
    words = np.ndarray((rows,), "<u8", data, first + word_at - start, (stride,))
    if mask < WORD_MAX:
        words = words & np.uint64(mask)
    (word,) = _word(data, word_at)
    deltas = _deltas(shift)
    expected = deltas[number : number + rows] | np.uint64((word & mask) ^ int(deltas[number - 1]))
    if expected.tobytes() == words.tobytes():
        return places.time, places.time
    return _times_in(words, words ^ expected, places, word_at)


def _word_at(places: Places, head_end: int) -> int | None:
    """Return the start of an 8-byte word with the bytes from the time delta to `head_end`.

    Return None if no word within the record contains all wanted bytes.
    """
    word_at = max(places.start, head_end - WORD_BYTES)
    is_fit = places.stop - places.start >= WORD_BYTES and word_at <= places.time_at
    return word_at if is_fit else None


def _lengths_alike(data: memoryview, places: Places, word_at: int, rows: int) -> int:
    """Count how many of the next `rows` records equal `places` in all bytes before `word_at`."""
    start, stride = places.start, places.stop - places.start
    found = np.ndarray((rows, word_at - start), np.uint8, data, places.stop, (stride, 1))
    is_alike = (found == np.frombuffer(data[start:word_at], np.uint8)).all(axis=1)
    return rows if is_alike.all() else int(is_alike.argmin())


def _run_rows(data: memoryview, places: Places, number: int, rows: int) -> int:
    """Count how many of the next `rows` records are alike at their start, as `_run_of` needs.

    A producer's timestamps rise. So the deltas in a batch become longer, and a run ends where a
    delta gets another byte.
    """
    start, first, stride = places.start, places.stop, places.stop - places.start
    width, word_at = places.delta_at - places.time_at, _word_at(places, places.head_end)
    if word_at is None or width > 2:
        return 0
    if word_at > start:
        rows = _lengths_alike(data, places, word_at, rows)
    times = (1 << 8 * width) - 1 << 8 * (places.time_at - word_at)
    mask = (1 << 8 * (places.head_end - word_at)) - 1 & ~times
    (word,) = _word(data, word_at)
    deltas = _deltas(8 * (places.delta_at - word_at))
    words = np.ndarray((rows,), "<u8", data, first + word_at - start, (stride,)) & np.uint64(mask)
    expected = deltas[number : number + rows] | np.uint64((word ^ int(deltas[number - 1])) & mask)
    is_alike = words == expected
    is_alike &= np.ndarray((rows,), np.uint8, data, first + stride - 1, (stride,)) == 0
    return rows if is_alike.all() else int(is_alike.argmin())


def _same_sizes(data: memoryview, places: Places, rows: int) -> bool:
    """Check that the values of the next `rows` records are as large as the value in `places`."""
    width = places.value_end - places.value_at
    if width > 4:
        return False
    kind = "u1" if width == 1 else "<u2" if width == 2 else "<u4"
    stride, at = places.stop - places.start, places.value_at
    sizes = np.ndarray((rows,), kind, data, at + stride, (stride,))
    if width == 3:
        sizes = sizes & np.uint32(0xFFFFFF)
    return bool((sizes == int.from_bytes(data[at : places.value_end], "little")).all())


def _times_in(words: Words, differing: Words, places: Places, word_at: int) -> Times | None:
    """Read timestamp deltas of one or two bytes; return None if any other field differs."""
    width, shift = places.delta_at - places.time_at, 8 * (places.time_at - word_at)
    if width > 2:
        return None
    mask = (1 << 8 * width) - 1 << shift
    if (differing & ~np.uint64(mask)).any():
        return None
    octets = (words & np.uint64(mask)) >> np.uint64(shift)
    low, high = octets & np.uint64(0xFF), octets >> np.uint64(8)
    if width == 2:
        if (low < 0x80).any() or (high >= 0x80).any():
            return None
        low = low & np.uint64(0x7F) | high << np.uint64(7)
    elif (low >= 0x80).any():
        return None
    numbers = low.view(np.int64)
    times = (numbers >> 1) ^ -(numbers & 1)
    return int(times.min()), int(times.max())
