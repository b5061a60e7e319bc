"""Write batches to a log's active segment, one thread at a time, under the log's lock.

Readers take no lock: they see a batch only after `write_batch` has moved the segment's end. If a
batch was written only in part, its bytes are cut off again. So an interrupt leaves no bytes that a
reader could see.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.disk import files
from logstore.format import layouts
from logstore.format.batch import Record
from logstore.format.columnar import record_batch as columnar
from logstore.format.columnar.columns import Buffer
from logstore.log.segments.segment import Segment
from logstore.log.state import RELATIVE_OFFSET_MAX, LogState
from logstore.log.subscription import LogEvent, tell
from logstore.log.write import batch_group, encode, flush, roll
from logstore.log.write.hung_locks import NOT_WRITING, reclaim
from logstore.log.write.outcome import mark
from logstore.log.write.rules import NEVER

if TYPE_CHECKING:
    from logstore.format.layouts import AnyPayload


def append_record(
    state: LogState,
    value: bytes | None,
    key: bytes | None,
    timestamp: encode.Timestamp | None,
    headers: encode.HeadersLike,
) -> int:
    """Append one record and return its offset; see `Log.append`.

    Most records have only a value. The batch of a record with only a value is encoded here, in half
    the time that `build` needs.
    """
    if (
        key is None
        and headers is encode.NO_HEADERS
        and state.rules.is_plain
        and type(value) is bytes
    ):
        roll_at = NEVER
        if timestamp is None:
            timestamp, roll_at = state.now_ms(), state.roll_at_ms
        elif type(timestamp) is not int or not 0 <= timestamp < NEVER:
            timestamp = encode.check_timestamp(timestamp)
        size = ((len(value) + 7) & ~7) + 88
        with state.lock:
            if state.unavailable is not None or state.log_dir.is_refusing_appends or state.refusal:
                state.check_appendable()
            rules = state.rules
            bytes_max = rules.plain_bytes_max  # this is 0 if the configuration has just changed
            if size <= bytes_max:
                active = state.active
                if active.size_bytes + size > state.room_bytes or timestamp >= roll_at:
                    active = roll.make_room(state, size, timestamp >= roll_at)
                offset, epoch = active.end_offset, state.replication.leader_epoch
                data = columnar.frame_one(offset, epoch, timestamp, value)
                write_batch(state, active, data, offset, 0, timestamp, epoch)
        if size <= bytes_max:
            if offset >= state.flush_at or state.waiters or state.subscriptions:
                after_append(state, offset)
            return offset
        if bytes_max:
            raise encode.too_large(size, rules.max_message_bytes, rules.expansion_bytes_max)
    payload = build(state, [value], None if key is None else [key], timestamp, [headers])
    return append_payload(state, payload)


class Columns(NamedTuple):
    """The arguments of an append, with one item for each record."""

    values: Sequence[Any]
    keys: Sequence[Any] | None
    timestamps: encode.Timestamps
    headers: Sequence[Any] | None

    def part(self, start: int, end: int) -> Columns:
        """Return the columns of the records with the numbers `start..end`."""
        if end - start == len(self.values):
            return self
        times = self.timestamps
        return Columns(
            self.values[start:end],
            None if self.keys is None else self.keys[start:end],
            list(times)[start:end] if isinstance(times, Iterable) else times,
            None if self.headers is None else self.headers[start:end],
        )


def columns_of(
    values: Iterable[Any],
    keys: Iterable[Any] | None,
    timestamps: encode.Timestamps,
    headers: Iterable[Any] | None,
) -> Columns:
    """Make columns from a caller's arguments or Records. Raises TypeError, ValueError."""
    cells = encode.as_list(values, "values")
    if cells and isinstance(cells[0], Record):
        if keys is not None or timestamps is not None or headers is not None:
            raise ValueError(
                "Records have their own keys, timestamps and headers: do not pass these arguments"
            )
        cells, keys, timestamps, headers = encode.unpack_records(cells)
    return Columns(
        cells,
        None if keys is None else encode.as_list(keys, "keys"),
        timestamps,
        None if headers is None else encode.as_list(headers, "headers"),
    )


def build(
    state: LogState,
    values: Sequence[Any],
    keys: Sequence[Any] | None,
    timestamps: encode.Timestamps,
    headers: Sequence[Any] | None,
    *,
    is_gathered: bool = False,
) -> AnyPayload:
    """Encode records as one batch.

    Args:
        is_gathered: whether each record was checked when it joined the batch. If the records were
            checked, the batch is accepted even if `max_message_bytes` was reduced after the check.
    """
    rules = state.rules
    if rules.requires_keys and not is_gathered:
        encode.check_keys(keys, len(values))
    codec_id, is_log_append_time, magic = rules.encoding
    payload = encode.build(
        values,
        keys,
        timestamps,
        headers,
        now_ms=state.now_ms(),
        codec_id=codec_id,
        is_log_append_time=is_log_append_time,
        magic=magic,
    )
    if not is_gathered:
        encode.check_size(payload, rules.max_message_bytes, rules.expansion_bytes_max)
    return payload


def append_range(state: LogState, payload: AnyPayload, *, is_durable: bool) -> range:
    """Write one batch, and return its offsets; if there are no records, write nothing."""
    if payload.record_count == 0:
        state.check()
        end = state.log_end_offset
        return range(end, end)
    offset = append_payload(state, payload)
    end = offset + payload.last_offset_delta + 1
    if is_durable:
        flush.flush_appended(state, end)
    return range(offset, end)


def append_payload(state: LogState, payload: AnyPayload, receipt: list[int] | None = None) -> int:
    """Write one batch, and return its base offset.

    Args:
        receipt: a list whose first item is set to the base offset as soon as the records are in the
            log. So a caller that is interrupted later still knows the offset.
    """
    size = payload.size_bytes
    with state.lock:
        state.check_appendable()
        if encode.magic_of(payload) != state.rules.magic:
            offset = _append_foreign(state, payload)
        else:
            active, now_ms = state.active, state.now_ms()
            if active.size_bytes + size > state.room_bytes or now_ms >= state.roll_at_ms:
                active = roll.make_room(state, size, now_ms >= state.roll_at_ms)
            offset, epoch = active.end_offset, state.replication.leader_epoch
            buffers = layouts.frame(payload, offset, epoch)
            last_offset_delta = payload.last_offset_delta
            write_batch(
                state, active, buffers, offset, last_offset_delta, payload.max_timestamp, epoch
            )
        if receipt is not None:
            receipt[0] = offset
    last_offset = offset + payload.last_offset_delta
    if last_offset >= state.flush_at or state.waiters or state.subscriptions:
        after_append(state, last_offset)
    return offset


def _append_foreign(state: LogState, payload: AnyPayload) -> int:
    """Write a batch that was encoded for an earlier `record_format`.

    The caller must hold the lock.
    """
    offset, epoch = state.active.end_offset, state.replication.leader_epoch
    batch = batch_group.PlacedBatch(
        layouts.frame(payload, offset, epoch),
        payload.size_bytes,
        offset,
        offset + payload.last_offset_delta,
        payload.max_timestamp,
        epoch,
        encode.magic_of(payload),
    )
    batch_group.write(state, [batch])
    return offset


def write_batch(
    state: LogState,
    active: Segment,
    data: bytes | list[Buffer],
    base_offset: int,
    last_offset_delta: int,
    max_timestamp: int,
    epoch: int,
) -> None:
    """Write one batch at the log's end, and show it to readers; the caller must hold the lock."""
    assert base_offset == active.end_offset and last_offset_delta >= 0
    timing = state.timing
    started = 0.0 if timing is None else time.perf_counter()
    state.writing = position = active.size_bytes
    try:
        writer = state.writer
        if writer is None:
            writer = state.take_writer(active)
        fd = writer.fd
        if type(data) is bytes:
            size = len(data)
            written = files.pwrite(fd, data, position)
            if written != size:
                files.write_fully(fd, [memoryview(data)[written:]], position + written)
        else:
            size = files.write_fully(fd, data, position)  # type: ignore[arg-type]
        interval_bytes = state.rules.index_interval_bytes
        if position - state.indexed_position >= interval_bytes or not position:
            state.add_index_entry(active, base_offset, position)
        if active.last_epoch != epoch:
            active.last_epoch = epoch
            state.replication.note(epoch, base_offset)
        highest = max(active.max_timestamp, max_timestamp)
    except OSError as error:
        failure = state.failed(error)
        try:
            raise (roll.undo_write(state, position) or failure) from error
        finally:
            del failure  # avoid a reference cycle that keeps a descriptor open
    except BaseException as error:  # after an interrupt, readers must not find an unpublished batch
        state.half_made, state.room_bytes = roll.TORN, 0  # no interrupt can come here
        if state.log_dir.is_offline or roll.undo_write(state, position) is not None:
            mark(error, None)
        raise
    finally:
        state.writing = NOT_WRITING
        if state.in_custody:
            reclaim(state, ("lock",))
    active.max_timestamp = highest
    active.last_position = position
    active.size_bytes = position + size
    active.end_offset = base_offset + last_offset_delta + 1
    if last_offset_delta and active.end_offset - active.base_offset >= RELATIVE_OFFSET_MAX:
        state.room_bytes = 0
    if timing is not None:
        timing.writes.note(time.perf_counter() - started)


def after_append(state: LogState, offset: int) -> None:
    """Wake waiting threads, call subscribers, and flush if the append has reached `flush_at`."""
    if state.waiters:
        state.arrivals.wake()
    if state.subscriptions:
        tell(state.subscriptions, LogEvent.APPENDED)
    if offset >= state.flush_at:
        flush.flush_appended(state, offset + 1)
