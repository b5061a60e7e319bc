"""View a columnar batch as columns, and check everything on which readers rely.

All code that decodes a columnar batch uses this module: appends of encoded batches, reads, Arrow,
`verify` and `repair`. So appends, reads and checks all accept the same batches.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from logstore.format import compression
from logstore.format.batch import RecordBatch, new_tuple
from logstore.format.batch_parts import BatchHeader, Columns
from logstore.format.columnar.columns import Buffer, BytesColumn, decode_column, padded
from logstore.format.columnar.payload import (
    CODEC_MASK,
    HAS_DELTAS,
    HAS_HEADERS,
    HAS_KEYS,
    HAS_TIMESTAMPS,
    HEADER_BYTES,
    LOG_APPEND_TIME,
)
from logstore.format.expansion import (
    EXPANSION_BYTES_MAX,
    RECORD_BYTES,
    expansion_bytes,
    too_much,
)


def decode_columns(
    data: Buffer,
    position: int,
    header: BatchHeader,
    expansion_bytes_max: int = EXPANSION_BYTES_MAX,
) -> RecordBatch:
    """View the batch with this header as columns, and compare the columns with the header.

    A batch that this function returns is valid: its cells, record headers, offsets and timestamps
    can be read safely in every way. A matching checksum does not prove that a batch is valid,
    because the writer may have encoded the batch wrongly.

    Raises:
        RecordExpansionError: the batch needs more memory than allowed; no memory was allocated.
        ValueError: the batch's parts contradict each other or the header.
        UnsupportedFormatError: the library of the batch's codec is not installed.
    """
    attributes, count, stored = header.attributes, header.record_count, header.stored_bytes
    needed = header.payload_bytes + RECORD_BYTES * count
    if needed > expansion_bytes_max:
        raise too_much(needed, expansion_bytes_max)
    start = position + HEADER_BYTES
    end = start + stored
    if count and not attributes & ~LOG_APPEND_TIME:  # the records have only values: the common case
        values, start = decode_column(data, start, end, count)
        if (
            start != end
            or header.payload_bytes != stored
            or header.base_timestamp != header.max_timestamp
            or header.last_offset - header.base_offset != count - 1
        ):
            raise ValueError(_disagreement(header, start - end))
        plain = new_tuple(Columns, (values, None, None, None, None, None, None))
        return RecordBatch(header, plain, count)
    if attributes & CODEC_MASK:
        frame = data[start:end]
        data = compression.decompress(attributes & CODEC_MASK, frame, header.payload_bytes)
        start, end = 0, len(data)
    elif header.payload_bytes != stored:
        raise ValueError(_disagreement(header, 0))
    columns = _columns(data, start, end, header, expansion_bytes_max)
    _check_numbers(header, columns)
    return RecordBatch(header, columns, count)


def _columns(
    data: Buffer, start: int, end: int, header: BatchHeader, expansion_bytes_max: int
) -> Columns:
    """View all columns of an uncompressed payload; the columns must fill the payload exactly."""
    attributes, count = header.attributes, header.record_count
    deltas = timestamps = None
    if attributes & HAS_DELTAS:
        _require(start + 4 * count <= end)
        deltas = np.frombuffer(data, np.uint32, count, start)
        start += padded(4 * count)
    if attributes & HAS_TIMESTAMPS:
        _require(start + 8 * count <= end)
        timestamps = np.frombuffer(data, np.int64, count, start)
        start += 8 * count
    if not count and start == end:
        data, start, end = bytes(8), 0, 8
    values, start = decode_column(data, start, end, count)
    keys = names = cells = starts = None
    if attributes & HAS_KEYS:
        keys, start = decode_column(data, start, end, count)
    if attributes & HAS_HEADERS:
        _require(start + 4 * (count + 1) <= end)
        starts = np.frombuffer(data, np.uint32, count + 1, start)
        start += padded(4 * (count + 1))
        header_count = _header_count(starts)
        needed = expansion_bytes(header.payload_bytes, count, header_count)
        if needed > expansion_bytes_max:
            raise too_much(needed, expansion_bytes_max)
        names, start = decode_column(data, start, end, header_count)
        cells, start = decode_column(data, start, end, header_count)
        _check_names(names)
    if start != end:
        raise ValueError(_disagreement(header, start - end))
    return Columns(values, keys, timestamps, deltas, starts, names, cells)


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("a column ends after the end of its batch")


def _header_count(starts: NDArray[np.uint32]) -> int:
    """Count the record headers; check that the headers of the records follow one another."""
    if starts[0] != 0 or bool((starts[1:] < starts[:-1]).any()):
        raise ValueError("record headers do not follow one another")
    return int(starts[-1])


def _check_names(names: BytesColumn) -> None:
    """Check that the name of each record header is not null and is valid UTF-8."""
    if names.validity is not None and not names.is_valid.all():
        raise ValueError("a record header has no name")
    octets = np.frombuffer(names.data, np.uint8)
    starts = names.starts[:-1]
    within = octets[starts[starts < len(octets)]]
    # Below, all names are decoded together as one text.
    # So check that no name begins in the middle of a character.
    if bool((within & 0xC0 == 0x80).any()):
        raise ValueError("the name of a record header is not UTF-8")
    str(names.data, "utf-8")  # UnicodeDecodeError is a ValueError


def _check_numbers(header: BatchHeader, columns: Columns) -> None:
    """Compare the offsets and timestamps in the columns with the header."""
    deltas, times, count = columns.offset_deltas, columns.timestamps, header.record_count
    if not count:
        return
    last_delta = header.last_offset - header.base_offset
    if deltas is None and count - 1 != last_delta:
        raise ValueError(_disagreement(header, 0))
    if deltas is not None and (
        int(deltas[-1]) > last_delta or bool((deltas[1:] <= deltas[:-1]).any())
    ):
        raise ValueError("the offset deltas do not increase, or exceed the last offset delta")
    if times is None:
        is_true = header.max_timestamp == header.base_timestamp
    else:
        is_true = int(times.max()) == header.max_timestamp
    if not is_true:
        raise ValueError(_disagreement(header, 0))


def _disagreement(header: BatchHeader, overrun_bytes: int) -> str:
    """Describe how a batch's columns and its header disagree."""
    if overrun_bytes:
        return "bytes are left after the last column"
    if not header.attributes & CODEC_MASK and header.payload_bytes != header.stored_bytes:
        return "the sizes in the header do not agree"
    is_dense = not header.attributes & HAS_DELTAS
    if is_dense and header.last_offset - header.base_offset != header.record_count - 1:
        return "dense offsets and the last offset delta disagree"
    return f"the largest timestamp is not {header.max_timestamp}, as the header says"
