"""Read batches as they stand, and append such: a leader's verbatim, or anyone's with new offsets.

A checksum proves that a peer's bytes came over whole, not that the peer made them well; so every
batch's structure is checked before one byte of it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.arguments import wrong
from logstore.errors import CorruptRecordBatchError, LogStoreError, OffsetOutOfRangeError
from logstore.format import columnar, layouts
from logstore.format.batch import CODEC_MASK, BatchHeader
from logstore.format.columns import Buffer
from logstore.format.compression import CODEC_NAMES
from logstore.log.cursor import Cursor
from logstore.log.custody import keeping

if TYPE_CHECKING:
    from logstore.log.log import Log
    from logstore.log.reader import LogReader
    from logstore.log.segment import Segment

RAW_WINDOW_BYTES = 1 << 20
OFFSETS_MAX = 2**62  # behind it there would be no room to go on in 64 bits


def parse(raw: bytes) -> list[tuple[Buffer, BatchHeader]]:
    """Take encoded batches apart and check them; raises TypeError or ValueError.

    Of Kafka's batches the records are not decoded: a broker takes them for what they say, too.
    """
    if not isinstance(raw, bytes | bytearray | memoryview):
        raise wrong("raw", "encoded batches as bytes", raw)
    raw = bytes(raw)
    look = memoryview(raw)
    found: list[tuple[Buffer, BatchHeader]] = []
    position, end = 0, len(raw)
    while position < end:
        header = _sound_header(look, position, end)
        data: Buffer = look[position : position + header.size_bytes]
        if header.magic == columnar.MAGIC:
            data = bytes(data)
            columnar.check_structure(columnar.decode(data, 0))
        if header.attributes & CODEC_MASK not in CODEC_NAMES:
            number = header.attributes & CODEC_MASK
            raise ValueError(f"the batch at position {position} is of codec {number}, not known")
        found.append((data, header))
        position += header.size_bytes
    return found


def _sound_header(look: memoryview, position: int, end: int) -> BatchHeader:
    """Check one batch, whatever offset it begins with; raises ValueError."""
    base_offset = int.from_bytes(look[position : position + 8], "big")  # none is below 0
    header = layouts.sound_header_of(look, position)(look, position, end, base_offset)
    if header is None:
        reason = layouts.fault(look, position, None)
        raise ValueError(f"no whole batch stands at position {position}: {reason}")
    return header


def append_as_follower(log: Log, raw: bytes) -> range:
    """Append batches verbatim; see `Log.append_as_follower`."""
    batches = parse(raw)
    with log._lock, keeping(log, "_lock"):
        log._check_appendable()
        end = log.log_end_offset
        if not batches:
            return range(end, end)
        first = batches[0][1].base_offset
        is_empty = end == log.log_start_offset and not log._active.size_bytes
        expected = first if is_empty and first >= end else end
        epoch = log._leader_epoch
        for _, header in batches:
            if header.base_offset != expected:
                raise OffsetOutOfRangeError(
                    offset=header.base_offset,
                    log_start_offset=log.log_start_offset,
                    log_end_offset=expected,
                )
            if header.last_offset >= OFFSETS_MAX:
                raise ValueError(f"offset {header.last_offset} is behind what a log can hold")
            if header.leader_epoch < epoch:
                raise ValueError(f"leader epoch {header.leader_epoch} comes after {epoch}")
            epoch = header.leader_epoch
            expected = header.last_offset + 1
        if first > end:
            _start_empty_at(log, first)
        for data, header in batches:
            _write(log, [data], header.base_offset, header.leader_epoch, header)
        log._leader_epoch = max(epoch, log._leader_epoch)
    log._after_append(expected - 1)
    return range(first, expected)


def _start_empty_at(log: Log, offset: int) -> None:
    """Let an empty log begin at the offset where its leader's begins; the lock is held.

    When its new segment cannot be begun, the log start goes back to where it was: else records
    that others append before it would count as deleted at the next start. Who is interrupted
    behind that does the rest nevertheless: a segment with nothing before it would look damaged.
    """
    old, start = log._active, log._log_start_offset
    try:
        log._set_metadata(log_start_offset=offset)
        log._roll(offset)
        _leave(log, old, offset)
    except BaseException:
        if log._active is not old:
            _leave(log, old, offset)
        elif not log._log_dir.is_offline:
            _start_again_at(log, start)
        raise


def _leave(log: Log, old: Segment, offset: int) -> None:
    """Have the new segment alone, and remove the empty one; a second time does no harm."""
    from logstore.log.retention import _remove_files

    log._activate([log._active])
    log._log_start_offset = log._recovery_point = offset
    log._count_from_flushed()
    old.is_dropped = True
    _remove_files(log, (old,))


def _start_again_at(log: Log, offset: int) -> None:
    """Write an earlier log start down; a log for which that fails takes nothing until reopened."""
    try:
        log._set_metadata(log_start_offset=offset)
    except LogStoreError as error:
        log.detach(error)


def append_encoded(log: Log, raw: bytes) -> range:
    """Append batches with new offsets; see `Log.append_encoded`."""
    batches = parse(raw)
    for _, header in batches:
        if header.size_bytes > log._max_message_bytes:
            raise log._too_large(header.size_bytes)
    with log._lock:
        log._check_appendable()
        first = end = log._active.end_offset
        epoch = log._leader_epoch
        for data, header in batches:
            moved = layouts.reframe(data, header.magic, end, epoch)
            end = _write(log, moved, end, epoch, header)
    if batches:
        log._after_append(end - 1)
    return range(first, end)


def _write(
    log: Log, buffers: list[Buffer], base_offset: int, epoch: int, header: BatchHeader
) -> int:
    """Write one batch at an offset with an epoch, its own or not; give the next offset."""
    active, size = log._active, header.size_bytes
    is_other = header.magic != (log._foreign_magic or log._magic)
    if is_other or active.size_bytes + size > log._room_bytes:
        active = log._make_room(size, False, header.magic)
    last_delta = header.last_offset - header.base_offset
    log._write(active, buffers, base_offset, last_delta, header.max_timestamp, epoch)
    if header.magic != log._magic:
        log._foreign_magic, log._room_bytes = header.magic, 0
    return base_offset + last_delta + 1


def read_raw(log: LogReader, offset: int, max_bytes: int) -> bytes:
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
