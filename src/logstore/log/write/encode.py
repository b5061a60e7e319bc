"""Check the records that a caller appends, and encode them as the payload of one batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logstore.arguments import many, shown, timestamp_of, wrong
from logstore.errors import MissingKeyError, RecordExpansionError, RecordTooLargeError
from logstore.format import layouts
from logstore.format.batch import Headers, Record
from logstore.format.columnar import payload as payloads
from logstore.format.columnar import record_batch as columnar
from logstore.format.columnar.columns import Buffer, append_padded, encode_cells, raw
from logstore.format.expansion import expansion_bytes, too_much

TIMESTAMP_MAX = 2**63 - 1
NO_HEADERS: Headers = ()
HEADER = "pairs of str and bytes or None"

# The largest overhead in bytes.
# For each batch: header, checksum, ends of the columns.
# For each record: timestamp, starts, validity.
# For each record header: starts, validity.
BATCH_OVERHEAD_BYTES = 256
RECORD_OVERHEAD_BYTES = 36
HEADER_OVERHEAD_BYTES = 16

HeadersLike = Iterable["tuple[str, bytes | None]"] | Mapping[str, "bytes | None"]
Timestamp = int | datetime
Timestamps = Iterable["Timestamp | None"] | NDArray[Any] | Timestamp | None


def check_cell(cell: Any, what: str) -> bytes | None:
    """Check one value or one key. Raises TypeError."""
    if cell is None or type(cell) is bytes:
        return cell
    if isinstance(cell, bytes | bytearray | memoryview):
        return bytes(cell)
    hint = "; encode text first, as in text.encode()" if isinstance(cell, str) else ""
    raise TypeError(f"a {what} must be bytes or None, not {shown(cell)}{hint}")


def check_timestamp(timestamp: Any) -> int:
    """Convert a number or datetime to ms since the epoch. Raises TypeError or ValueError."""
    number = timestamp_of(timestamp)
    if not 0 <= number <= TIMESTAMP_MAX:
        raise ValueError(f"timestamp {timestamp} is not in 0..{TIMESTAMP_MAX} ms since the epoch")
    return number


def check_headers(headers: HeadersLike | None) -> Headers:
    """Check one record's headers, given as pairs or a mapping. Raises TypeError or ValueError."""
    if headers is None or headers is NO_HEADERS:
        return NO_HEADERS
    pairs = headers.items() if isinstance(headers, Mapping) else many(headers, "headers", HEADER)
    checked = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise wrong("each of headers", HEADER, pair)
        if not pair[0].isascii():
            pair[0].encode()  # a lone surrogate must not make other records fail
        checked.append((pair[0], check_cell(pair[1], "header's value")))
    return tuple(checked)


def size_max(value: bytes | None, key: bytes | None, headers: Headers) -> int:
    """Return the largest number of bytes that a record adds to a batch.

    The batch needs up to `BATCH_OVERHEAD_BYTES` in addition.
    """
    size = RECORD_OVERHEAD_BYTES + len(value or b"") + len(key or b"")
    if headers:
        for name, cell in headers:
            size += HEADER_OVERHEAD_BYTES + 4 * len(name) + len(cell or b"")
    return size


def magic_of(payload: layouts.AnyPayload) -> int:
    """Return the magic number of the batch that is made from a payload."""
    return columnar.MAGIC if type(payload) is payloads.Payload else layouts.KAFKA_MAGIC


def check_keys(keys: Sequence[bytes | None] | None, count: int) -> None:
    """Raise MissingKeyError if a record has no key."""
    if keys is None:
        if count:
            raise MissingKeyError(number=0)
    elif None in keys:
        raise MissingKeyError(number=list(keys).index(None))


def check_size(
    payload: layouts.AnyPayload, max_message_bytes: int, expansion_bytes_max: int
) -> None:
    """Refuse a batch that is too large, or that needs more memory than the store allows."""
    if payload.size_bytes > max_message_bytes:
        raise too_large(payload.size_bytes, max_message_bytes, expansion_bytes_max)
    if payload.expansion_bytes > expansion_bytes_max:
        raise too_much(payload.expansion_bytes, expansion_bytes_max)


def too_large(
    size_bytes: int, max_message_bytes: int, expansion_bytes_max: int
) -> RecordTooLargeError | RecordExpansionError:
    """Make the error for a batch of one record that is larger than one of the two limits."""
    if size_bytes <= max_message_bytes:
        needed = expansion_bytes(size_bytes - columnar.OVERHEAD_BYTES, 1)
        return too_much(needed, expansion_bytes_max)
    return RecordTooLargeError(size_bytes=size_bytes, max_message_bytes=max_message_bytes)


def encode_headers(headers: Sequence[Headers]) -> list[Buffer] | None:
    """Encode the headers of all records; return None if no record has headers."""
    if not any(headers):
        return None
    starts = np.zeros(len(headers) + 1, np.uint32)
    np.cumsum([len(pairs) for pairs in headers], out=starts[1:])
    pairs = [pair for row in headers for pair in row]
    parts: list[Buffer] = []
    append_padded(parts, raw(starts))
    parts += encode_cells([name.encode() for name, _ in pairs])
    parts += encode_cells([value for _, value in pairs])
    return parts


def _timestamps(timestamps: Timestamps, count: int, now_ms: int) -> NDArray[np.int64] | int:
    if timestamps is None:
        return now_ms
    if isinstance(timestamps, int | np.integer | datetime):
        return check_timestamp(timestamps)
    if not isinstance(timestamps, np.ndarray):
        timestamps = as_list(timestamps, "timestamps", "whole numbers of ms")
    elif timestamps.ndim != 1:
        raise TypeError(
            f"timestamps must be a one-dimensional array, but it has {timestamps.ndim} dimensions"
        )
    if len(timestamps) != count:
        raise ValueError(f"there are {len(timestamps)} timestamps for {count} values")
    if not isinstance(timestamps, np.ndarray):
        if None in timestamps:
            timestamps = [now_ms if at is None else at for at in timestamps]
        kinds = set(map(type, timestamps))
        if not kinds <= {int}:
            timestamps = [check_timestamp(at) for at in timestamps]
        try:
            timestamps = np.array(timestamps, np.int64)
        except OverflowError:
            raise ValueError(f"a timestamp is not in 0..{TIMESTAMP_MAX}") from None
    if timestamps.dtype.kind not in "iu":
        raise TypeError(f"timestamps must be whole numbers of ms, not {timestamps.dtype}")
    if count and (int(timestamps.min()) < 0 or int(timestamps.max()) > TIMESTAMP_MAX):
        raise ValueError(f"a timestamp is not in 0..{TIMESTAMP_MAX}")
    return timestamps.astype(np.int64, copy=False)


def _cells(cells: Sequence[bytes | None], what: str) -> list[Buffer]:
    try:
        return encode_cells(cells)
    except TypeError:  # `check_cell` raises a clear error, or converts the cell to bytes
        return encode_cells([check_cell(cell, what) for cell in cells])


def unpack_records(
    records: Sequence[Record],
) -> tuple[list[bytes | None], list[bytes | None], list[int], list[Headers]]:
    """Split records into columns; the offsets of the records are ignored."""
    for record in records:
        if not isinstance(record, Record):
            kind = type(record).__name__
            raise TypeError(
                f"values must be all Records or all bytes, but a value is of type {kind}"
            )
    return (
        [record.value for record in records],
        [record.key for record in records],
        [record.timestamp for record in records],
        [record.headers for record in records],
    )


def as_list(cells: Iterable[Any], what: str, of: str = "bytes") -> Sequence[Any]:
    """Return a list or tuple unchanged, and other iterables as a list; refuse bytes and str."""
    if isinstance(cells, list | tuple):
        return cells
    return list(many(cells, what, of))


def build(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    timestamps: Timestamps,
    headers: Sequence[HeadersLike | None] | None,
    *,
    now_ms: int,
    codec_id: int,
    is_log_append_time: bool,
    magic: int = columnar.MAGIC,
) -> layouts.AnyPayload:
    """Encode one batch. Raises TypeError or ValueError if an argument is wrong."""
    count = len(values)
    for what, cells in (("keys", keys), ("headers", headers)):
        if cells is not None and len(cells) != count:
            raise ValueError(f"{len(cells)} {what} for {count} values")
    times = now_ms if is_log_append_time else _timestamps(timestamps, count, now_ms)
    has_keys = keys is not None and any(key is not None for key in keys)
    rows = None if headers is None else [check_headers(pairs) for pairs in headers]
    if magic != columnar.MAGIC:
        build_payload = layouts.kafka_layout().build_payload
        how = {"codec_id": codec_id, "is_log_append_time": is_log_append_time}
        try:
            return build_payload(values, keys, times, rows, **how)  # type: ignore[no-any-return]
        except TypeError:  # `check_cell` raises a clear error, or converts the cell
            values = [check_cell(cell, "value") for cell in values]
            keys = None if keys is None else [check_cell(cell, "key") for cell in keys]
            return build_payload(values, keys, times, rows, **how)  # type: ignore[no-any-return]
    return payloads.build_payload(
        _cells(values, "value"),
        count,
        keys=_cells(keys, "key") if has_keys and keys is not None else None,
        headers=None if rows is None else encode_headers(rows),
        timestamps=times,
        codec_id=codec_id,
        is_log_append_time=is_log_append_time,
    )
