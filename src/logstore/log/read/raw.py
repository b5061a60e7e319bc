"""Read whole encoded batches as they are in the segments, for a follower."""

from __future__ import annotations

from logstore.errors import CorruptRecordBatchError
from logstore.log.read.cursor import Cursor
from logstore.log.segment_reader import SegmentReader

RAW_WINDOW_BYTES = 1 << 20


def read_raw(log: SegmentReader, offset: int, max_bytes: int) -> bytes:
    """Read whole encoded batches; see `LogReader.read_raw`."""
    log._check()
    log._refresh()
    log._check_readable(offset, offset)
    parts: list[bytes]
    while offset < log.log_end_offset:
        log._check()
        seen = log._view
        segment = log._segment_at(offset)
        parts = []
        taken = 0
        try:
            cursor = Cursor(segment, offset, log._environment)
            for data, _, run in cursor.runs(min(max_bytes, RAW_WINDOW_BYTES)):
                for at, header in run:
                    taken += header.size_bytes
                    if parts and taken > max_bytes:
                        return b"".join(parts)
                    parts.append(bytes(data[at : at + header.size_bytes]))
            return b"".join(parts)
        except FileNotFoundError as error:
            log._retry(segment, offset, error)
        except CorruptRecordBatchError as error:
            if parts:
                return b"".join(parts)
            log._look_twice(offset, seen, error)
        except OSError as error:
            log._take_failure(segment, offset, error)
    return b""
