"""Append encoded batches unchanged: a leader's with its offsets, or others with new offsets.

A checksum proves that a peer's bytes arrived whole, not that the peer encoded them well. So every
batch's structure is checked before any byte of it is written.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING

from logstore.arguments import wrong
from logstore.errors import (
    LogStoreError,
    OffsetOutOfRangeError,
    RecordExpansionError,
    RecordTooLargeError,
)
from logstore.format import layouts
from logstore.format.batch import CODEC_MASK
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar import record_batch as columnar
from logstore.format.columnar.columns import Buffer
from logstore.format.compression import CODEC_NAMES
from logstore.format.expansion import EXPANSION_BYTES_MAX
from logstore.format.prefix import BATCH_BYTES_MAX
from logstore.log.write import appending, batch_group, roll
from logstore.log.write.batch_group import PlacedBatch
from logstore.log.write.flush import set_metadata
from logstore.log.write.hung_locks import held, keeping

if TYPE_CHECKING:
    from logstore.log.segments.segment import Segment
    from logstore.log.state import LogState

Run = list[tuple[int, BatchHeader]]
Found = list[tuple[Buffer, BatchHeader]]

OFFSETS_MAX = 2**62  # after it there would be no room to continue in 64 bits


def parse(
    raw: bytes,
    expansion_bytes_max: int = EXPANSION_BYTES_MAX,
    max_message_bytes: int = BATCH_BYTES_MAX,
) -> Found:
    """Split encoded batches and check them, and the records in them.

    Raises:
        RecordTooLargeError: one is larger than `max_message_bytes`; none was decoded.
        RecordExpansionError: one needs more memory than allowed. TypeError, ValueError: they are no
        whole, sound batches.
    """
    if not isinstance(raw, bytes | bytearray | memoryview):
        raise wrong("raw", "encoded batches as bytes", raw)
    raw = bytes(raw)
    look = memoryview(raw)
    run: Run = []
    position, end = 0, len(raw)
    while position < end:
        header = _sound_header(look, position, end)
        if header.attributes & CODEC_MASK not in CODEC_NAMES:
            number = header.attributes & CODEC_MASK
            raise ValueError(f"the batch at position {position} is of codec {number}, not known")
        run.append((position, header))
        position += header.size_bytes
    largest = max((header.size_bytes for _, header in run), default=0)
    if largest > max_message_bytes:
        raise RecordTooLargeError(size_bytes=largest, max_message_bytes=max_message_bytes)
    for _, same in groupby(run, key=lambda place: place[1].magic):
        _check_records(look, list(same), expansion_bytes_max)
    is_columnar = columnar.MAGIC
    return [
        (bytes(data) if header.magic == is_columnar else data, header)
        for data, header in ((look[at : at + header.size_bytes], header) for at, header in run)
    ]


def _check_records(look: memoryview, run: Run, expansion_bytes_max: int) -> None:
    """Check the records of batches, all together if none is faulty; raises ValueError."""
    with suppress(ValueError):
        layouts.check_run(look, run, expansion_bytes_max, is_strict=True, checks_claims=True)
        return
    for at, header in run:
        try:
            layouts.check_run(
                look, [(at, header)], expansion_bytes_max, is_strict=True, checks_claims=True
            )
        except RecordExpansionError as error:
            raise RecordExpansionError(**{**error.facts, "position": at}) from error
        except ValueError as error:
            raise ValueError(f"the batch at position {at} cannot be read: {error}") from error


def _sound_header(look: memoryview, position: int, end: int) -> BatchHeader:
    """Check one batch, whatever its base offset is; raises ValueError."""
    # a base offset is never below 0
    base_offset = int.from_bytes(look[position : position + 8], "big")
    header = layouts.sound_header_of(look, position)(look, position, end, base_offset)
    if header is None:
        reason = layouts.fault(look, position, None)
        raise ValueError(f"there is no whole batch at position {position}: {reason}")
    return header


def append_as_follower(state: LogState, raw: bytes) -> range:
    """Append batches unchanged; see `Log.append_as_follower`."""
    batches = parse(raw, state.rules.expansion_bytes_max)
    if batches and batches[0][1].base_offset > state.log_end_offset:
        with state.flush_lock, held(state, "flush_lock"):  # the log start and the files may change
            appended = _append_verbatim(state, batches, may_begin=True)
    else:
        appended = _append_verbatim(state, batches, may_begin=False)
    if appended:
        appending.after_append(state, appended[-1])  # without the locks: it may flush
    return appended


def _append_verbatim(state: LogState, batches: Found, *, may_begin: bool) -> range:
    """Append batches unchanged.

    Args:
        may_begin: an empty log may begin at the first batch; the flush lock is held then.
    """
    with state.lock, keeping(state, "lock"):
        state.check_appendable()
        end = state.log_end_offset
        if not batches:
            return range(end, end)
        first = batches[0][1].base_offset
        is_empty = end == state.log_start_offset and not state.active.size_bytes
        expected = first if is_empty and may_begin and first > end else end
        epoch = state.replication.leader_epoch
        for _, header in batches:
            if header.base_offset != expected:
                raise OffsetOutOfRangeError(
                    offset=header.base_offset,
                    log_start_offset=state.log_start_offset,
                    log_end_offset=expected,
                )
            if header.last_offset >= OFFSETS_MAX:
                raise ValueError(
                    f"offset {header.last_offset} is after the last one that a log can hold"
                )
            if header.leader_epoch < epoch:
                raise ValueError(f"leader epoch {header.leader_epoch} comes after {epoch}")
            epoch = header.leader_epoch
            expected = header.last_offset + 1
        if first > end:
            _start_empty_at(state, first)
        batch_group.write(state, [_placed([data], header) for data, header in batches])
        state.replication.leader_epoch = max(epoch, state.replication.leader_epoch)
    return range(first, expected)


def _start_empty_at(state: LogState, offset: int) -> None:
    """Let an empty log begin at the offset where its leader's begins; the lock is held.

    If its new segment cannot be begun, the log start goes back to its old value. Otherwise records
    that are appended before it would count as deleted at the next start. If this is interrupted
    after that, the remaining steps still run: a segment with nothing before it would look damaged.
    """
    old, start = state.active, state.log_start_offset
    try:
        set_metadata(state, log_start_offset=offset)
        roll.roll(state, offset)
        _leave(state, old, offset)
    except BaseException:
        if state.active is not old:
            _leave(state, old, offset)
        elif not state.log_dir.is_offline:
            _start_again_at(state, start)
        raise


def _leave(state: LogState, old: Segment, offset: int) -> None:
    """Keep only the new segment, and remove the empty one; repeating it does no harm."""
    from logstore.log.removal.retention import _remove_files

    state.activate([state.active])
    state.unflushed = []  # after a recovery it names the empty segment too, whose file goes now
    state.log_start_offset = offset
    state.note_flushed(offset)
    old.is_dropped = True
    _remove_files(state, (old,))


def _start_again_at(state: LogState, offset: int) -> None:
    """Write an earlier log start; if that fails, the log refuses appends until it is reopened."""
    try:
        set_metadata(state, log_start_offset=offset)
    except LogStoreError as error:
        state.detach(error)


def append_encoded(state: LogState, raw: bytes) -> range:
    """Append batches with new offsets; see `Log.append_encoded`."""
    batches = parse(raw, state.rules.expansion_bytes_max, state.rules.max_message_bytes)
    if state.rules.is_log_append_time:
        batches = [_stamped(data, header, state.now_ms()) for data, header in batches]
    with state.lock:
        state.check_appendable()
        first = end = state.active.end_offset
        epoch = state.replication.leader_epoch
        placed = []
        for data, header in batches:
            last_offset = end + header.last_offset - header.base_offset
            moved = header._replace(base_offset=end, last_offset=last_offset, leader_epoch=epoch)
            placed.append(_placed(layouts.reframe(data, header.magic, end, epoch), moved))
            end = last_offset + 1
        if end > OFFSETS_MAX:
            raise ValueError(f"offset {end - 1} is after the last one that a log can hold")
        if placed:
            batch_group.write(state, placed)
    if batches:
        appending.after_append(state, end - 1)
    return range(first, end)


def _stamped(data: Buffer, header: BatchHeader, now_ms: int) -> tuple[Buffer, BatchHeader]:
    """Give a batch the time of its append, as LogAppendTime requires."""
    if not header.record_count:
        return data, header
    stamped = layouts.with_append_time(data, header, now_ms)
    return stamped, layouts.read_header(stamped, 0)


def _placed(buffers: list[Buffer], header: BatchHeader) -> PlacedBatch:
    return PlacedBatch(
        buffers,
        header.size_bytes,
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        header.leader_epoch,
        header.magic,
    )
