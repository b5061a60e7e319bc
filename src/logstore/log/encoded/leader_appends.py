"""Append batches that a client encoded; give them this log's next offsets and leader epoch.

check    the bytes, without the log's lock: frames, checksums, records, timestamps
fence    under the lock: a leader that was replaced appends nothing
compare  with the earlier batches of the same producers: a batch that the log has is not written
write    with one call, if the batches fit into one segment
answer   the offsets of the batches, or an exception that says whether they are in the log
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logstore.arguments import flag
from logstore.errors import InvalidTimestampError, MissingKeyError, RecordTooLargeError
from logstore.format import expansion_lease as lease
from logstore.format import layouts
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar.columns import Buffer
from logstore.format.kafka.header import CONTROL
from logstore.log.encoded.raw_batches import OFFSETS_MAX, Found, parse, placed
from logstore.log.producers import appends
from logstore.log.producers.rules import bits_of, out_of_order
from logstore.log.producers.rules import is_watched as is_of_producer
from logstore.log.state import RELATIVE_OFFSET_MAX
from logstore.log.write import appending, batch_group, flush, roll
from logstore.log.write.batch_group import PlacedBatch
from logstore.log.write.outcome import NO_TIMESTAMP, AppendInfo, mark

if TYPE_CHECKING:
    from logstore.log.producers.producer_state import Duplicate, Producers
    from logstore.log.state import LogState
    from logstore.log.write.rules import AppendRules

NONE: Sequence[Duplicate] = ()


def append_encoded(
    state: LogState,
    raw: Buffer,
    leader_epoch: int | None = None,
    durable: bool = False,
    *,
    token: int | None = None,
    takes_known: bool = True,
    is_checked: bool = True,
) -> AppendInfo:
    """Append batches with new offsets; see `Log.append_encoded`.

    Args:
        takes_known: True to accept batches that the log already has, False to refuse them.
        is_checked: whether to refuse timestamps that the configuration does not allow, and, in a
            compacted log, records without a key.
    """
    is_begun = False
    try:
        rules, now_ms = state.rules, state.now_ms()
        append_time = now_ms if rules.is_log_append_time else NO_TIMESTAMP
        is_durable = durable is not False and flag(durable, "durable")
        batches = _parsed(raw, rules, now_ms)
        known, duplicates = None, NONE
        latest, is_watched = _look_at(batches)
        _check(batches, rules, latest, now_ms, is_checked=is_checked)
        with state.lock:
            try:
                may_refuse = state.log_dir.is_refusing_appends or state.refusal
                if may_refuse or state.unavailable is not None:
                    state.check_appendable()
                if leader_epoch is not None:
                    state.replication.fence(leader_epoch)
                if is_watched:
                    known = appends.current(state)
                    duplicates = known.check([header for _, header in batches], token)
                base_offset = end = state.log_end_offset
                if duplicates:
                    base_offset, end = _range_of(duplicates, batches, takes_known=takes_known)
                    is_begun = True
                elif batches:
                    base_offset = state.active.end_offset
                    end = _end_of(batches, base_offset)
                    is_begun = True
                    write_and_take(state, batches, end, known, now_ms)
            except BaseException as error:
                # Compare under the lock: later, another thread's append may move the log end.
                mark(error, is_begun and state.active.end_offset >= end)
                raise
        if duplicates and rules.is_log_append_time:
            append_time = duplicates[-1].timestamp
        elif batches and not duplicates:
            appending.after_append(state, end - 1)
        if batches and is_durable:
            flush.flush_appended(state, end)
        return AppendInfo(base_offset, end - 1, append_time, state.log_start_offset, latest)
    except BaseException as error:
        # `mark` changes nothing if the error is already marked.
        mark(error, is_begun and state.active.end_offset >= end)
        raise


def _look_at(batches: Found) -> tuple[int, bool]:
    """Return the latest timestamp of batches, and whether the log must track their producers."""
    latest, is_watched = batches[0][1].max_timestamp if batches else NO_TIMESTAMP, False
    for _, header in batches:
        latest = max(latest, header.max_timestamp)
        if header.producer_id >= 0 and not is_watched:
            is_watched = is_of_producer(header)
    return latest, is_watched


def _range_of(
    duplicates: Sequence[Duplicate], batches: Found, *, takes_known: bool
) -> tuple[int, int]:
    """Return the offsets of batches that the log has; raise ValueError if some are missing."""
    if not takes_known:
        out_of_order(batches[duplicates[0].number][1], -1)
    if len(duplicates) < len(batches):
        raise ValueError(
            f"the log already has {len(duplicates)} of {len(batches)} batches; the first of these "
            f"has offset {duplicates[0].first_offset}: append only the others"
        )
    return duplicates[0].first_offset, duplicates[-1].last_offset + 1


def write_and_take(
    state: LogState, batches: Found, end: int, known: Producers | None, now_ms: int
) -> None:
    """Write batches, and remember what their producers sent; the caller must hold the lock.

    Args:
        known: the producers of the log; None if the batches have no producer.
    """
    offset = state.active.end_offset
    try:
        if known is not None:
            state.producers.is_torn = True
        _write(state, batches, now_ms)
        if known is not None:
            appends.take(state, known, batches, offset, now_ms)
    except BaseException as error:
        is_written = state.active.end_offset >= end
        if known is not None and not is_written:
            state.producers.is_torn = False
        mark(error, is_written)
        raise


def _end_of(batches: Found, base_offset: int) -> int:
    """Return the log end offset after an append of the batches at `base_offset`."""
    for _, header in batches:
        base_offset += header.last_offset + 1 - header.base_offset
    if base_offset > OFFSETS_MAX:
        raise ValueError(f"offset {base_offset - 1} is larger than any offset that a log can have")
    return base_offset


def _write(state: LogState, batches: Found, now_ms: int) -> None:
    """Write batches at the end of the log; the caller must hold the lock.

    If there is only one batch, and its layout and offsets fit the active segment, the write takes a
    faster path.
    """
    data, header = batches[0]
    active, epoch, size = state.active, state.replication.leader_epoch, header.size_bytes
    offset, delta = active.end_offset, header.last_offset - header.base_offset
    if (
        len(batches) > 1
        or header.magic != state.rules.magic
        or offset + delta - active.base_offset > RELATIVE_OFFSET_MAX
    ):
        batch_group.write(state, _placed(batches, offset, epoch))
        return
    if active.size_bytes + size > state.room_bytes or now_ms >= state.roll_at_ms:
        active = roll.make_room(state, size, now_ms >= state.roll_at_ms)
    buffers = layouts.reframe(data, header.magic, offset, epoch)
    appending.write_batch(state, active, buffers, offset, delta, header.max_timestamp, epoch)


def _placed(batches: Found, offset: int, epoch: int) -> list[PlacedBatch]:
    """Give batches a leader epoch and consecutive offsets, beginning at `offset`."""
    group = []
    for data, header in batches:
        last_offset = offset + header.last_offset - header.base_offset
        buffers = layouts.reframe(data, header.magic, offset, epoch)
        group.append(placed(buffers, header, offset, last_offset, epoch))
        offset = last_offset + 1
    return group


def _parsed(raw: Buffer, rules: AppendRules, now_ms: int) -> Found:
    """Split and check encoded batches, and apply the log's settings to them.

    LogAppendTime sets the time of the append, and `encoded_compression_type` sets a codec.
    """
    batches = parse(raw, rules.expansion_bytes_max, rules.max_message_bytes)
    if rules.is_log_append_time:
        batches = [_stamped(data, header, now_ms) for data, header in batches]
    if rules.encoded_codec_id is not None:
        batches = [_recompressed(data, header, rules) for data, header in batches]
    return batches


def _recompressed(
    data: Buffer, header: BatchHeader, rules: AppendRules
) -> tuple[Buffer, BatchHeader]:
    """Give a batch the codec of the log; the batch may grow."""
    from logstore.format.kafka.recompress import with_codec

    assert rules.encoded_codec_id is not None
    made = with_codec(data, header, rules.encoded_codec_id, rules.expansion_bytes_max)
    if made is data:
        return data, header
    if len(made) > rules.max_message_bytes:
        raise RecordTooLargeError(size_bytes=len(made), max_message_bytes=rules.max_message_bytes)
    return made, layouts.read_header(made, 0)


def _stamped(data: Buffer, header: BatchHeader, now_ms: int) -> tuple[Buffer, BatchHeader]:
    """Give a batch the time of its append, as LogAppendTime requires."""
    if not header.record_count:
        return data, header
    stamped = layouts.with_append_time(data, header, now_ms)
    return stamped, layouts.read_header(stamped, 0)


def _check(
    batches: Found, rules: AppendRules, latest: int, now_ms: int, *, is_checked: bool
) -> None:
    """If `is_checked` is True, check the records. No later step decompresses a batch."""
    if is_checked:
        _check_records(batches, rules, latest, now_ms)
    lease.settle()


def _check_records(batches: Found, rules: AppendRules, latest: int, now_ms: int) -> None:
    """Refuse records that the configuration does not allow.

    For most batches, the headers are enough for this decision.
    """
    if rules.requires_keys:
        _check_keys(batches, rules)
    if rules.before_max_ms is not None or (
        rules.after_max_ms is not None and latest > now_ms + rules.after_max_ms
    ):
        _check_timestamps(batches, rules, now_ms)


def _check_keys(batches: Found, rules: AppendRules) -> None:
    """Refuse a record without a key; the error has the number of the record in its batch."""
    for data, header in batches:
        if header.record_count and not bits_of(header) & CONTROL:
            batch = layouts.decoder_of(data, 0, "", rules.expansion_bytes_max)(data, 0, header)
            if batch.keys.validity is not None:
                is_valid = batch.keys.is_valid
                if not is_valid.all():
                    raise MissingKeyError(number=int(is_valid.argmin()))


def _check_timestamps(batches: Found, rules: AppendRules, now_ms: int) -> None:
    """Refuse a timestamp that is too far from now, as Kafka does; -1 means no timestamp."""
    before, after = rules.before_max_ms, rules.after_max_ms
    least = None if before is None else now_ms - before
    most = None if after is None else now_ms + after
    for data, header in batches:
        if not header.record_count:
            continue
        if most is not None and header.max_timestamp > most:
            raise InvalidTimestampError(
                timestamp=header.max_timestamp, timestamp_min=least, timestamp_max=most
            )
        if least is None:
            continue
        batch = layouts.decoder_of(data, 0, "", rules.expansion_bytes_max)(data, 0, header)
        times = batch.timestamps
        is_early = (times < least) & (times != NO_TIMESTAMP)
        if is_early.any():
            raise InvalidTimestampError(
                timestamp=int(times[is_early].min()), timestamp_min=least, timestamp_max=most
            )
