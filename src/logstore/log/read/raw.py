"""Read whole encoded batches, unchanged, for a follower."""

from __future__ import annotations

from logstore.errors import CorruptRecordBatchError
from logstore.log.read.cursor import Cursor
from logstore.log.read.records import segment_at
from logstore.log.replica import Replica

RAW_WINDOW_BYTES = 1 << 20


def read_raw(state: Replica, offset: int, max_bytes: int) -> bytes:
    """Read whole encoded batches; see `ReadableLog.read_raw`."""
    state.check()
    state.refresh()
    state.check_readable(offset, offset)
    parts: list[bytes]
    while offset < state.log_end_offset:
        state.check()
        seen = state.view
        segment = segment_at(state, offset)
        parts = []
        taken = 0
        try:
            cursor = Cursor(segment, offset, state.environment)
            for data, _, run in cursor.runs(min(max_bytes, RAW_WINDOW_BYTES)):
                for at, header in run:
                    taken += header.size_bytes
                    if parts and taken > max_bytes:
                        return b"".join(parts)
                    parts.append(bytes(data[at : at + header.size_bytes]))
            return b"".join(parts)
        except FileNotFoundError as error:
            state.retry(segment, offset, error)
        except CorruptRecordBatchError as error:
            if parts:
                return b"".join(parts)
            state.look_twice(offset, seen, error)
        except OSError as error:
            state.take_failure(segment, offset, error)
    return b""
