"""Append a leader's batches unchanged, with the offsets and leader epochs that they carry.

A leader that compacted its log in Kafka's layout has gaps between the offsets of its batches. If
the follower's log is also compacted, or if the leader says that its log may have gaps, the follower
keeps these gaps, and also a gap before the first batch. There is never a gap between two segments:
a new segment begins at the end offset of the previous segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.arguments import flag
from logstore.errors import LogStoreError, OffsetOutOfRangeError
from logstore.format import layouts
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar.columns import Buffer
from logstore.log.encoded.raw_batches import OFFSETS_MAX, Found, parse, placed
from logstore.log.metadata import SPARSE_OFFSETS
from logstore.log.producers import appends, snapshots
from logstore.log.state import RELATIVE_OFFSET_MAX
from logstore.log.write import appending, batch_group, flush, roll
from logstore.log.write.batch_group import PlacedBatch
from logstore.log.write.flush import allow_gaps, set_metadata
from logstore.log.write.hung_locks import held, keeping
from logstore.log.write.outcome import mark

if TYPE_CHECKING:
    from logstore.log.segments.segment import Segment
    from logstore.log.state import LogState


def append_as_follower(
    state: LogState,
    raw: Buffer,
    leader_epoch: int | None = None,
    durable: bool = False,
    *,
    may_lack_offsets: bool = False,
) -> range:
    """Append batches unchanged; see `Log.append_as_follower`."""
    begun: list[bool] = []
    try:
        is_durable = flag(durable, "durable")
        batches = parse(raw, state.rules.expansion_bytes_max)
        if _has_gap(batches, state.log_end_offset):
            # The append may change the log start and the files, so it needs the flush lock, too.
            with state.flush_lock, held(state, "flush_lock"):
                may_lack = _may_lack(state, batches, may_lack_offsets)
                offsets = _append(state, begun, batches, leader_epoch, True, may_lack)
        else:
            offsets = _append(state, begun, batches, leader_epoch)
        if offsets:
            appending.after_append(state, offsets.stop - 1)
            if is_durable:
                flush.flush_appended(state, offsets.stop)
        return offsets
    except BaseException as error:
        mark(error, bool(begun))  # this has no effect if the error was already marked
        raise


def _append(
    state: LogState,
    begun: list[bool],
    batches: Found,
    leader_epoch: int | None,
    may_begin: bool = False,
    may_lack: bool = False,
) -> range:
    """Check batches against the log, and write them.

    Args:
        begun: the function adds an item to this list when the write begins.
        may_begin: if True, an empty log may begin at the offset of the first batch, and the caller
            must hold the flush lock.
        may_lack: whether offsets may be missing before a batch; only together with `may_begin`.
    """
    with state.lock, keeping(state, "lock"):
        state.check_appendable()
        state.replication.fence(leader_epoch)
        end = state.log_end_offset
        if not batches:
            return range(end, end)
        first = batches[0][1].base_offset
        known = appends.current(state) if appends.are_watched(batches) else None
        is_empty = end == state.log_start_offset and not state.active.size_bytes
        is_begun = is_empty and may_begin and first > end
        is_begun = is_begun and not (may_lack and _keeps_start(state, batches[0][1]))
        expected = first if is_begun else end
        is_sparse = _has_gap(batches, expected)
        _check_order(state, batches, expected, may_lack=may_lack)
        _check_epochs(state, batches, leader_epoch)
        last_offset = batches[-1][1].last_offset
        try:
            begun.append(True)
            if is_begun:
                start_empty_at(state, first)
                known = None if known is None else appends.current(state)
            if is_sparse:
                allow_gaps(state)
                state.active.is_sparse = True
            if known is not None:
                state.producers.is_torn = True
            batch_group.write(state, [_verbatim(*batch) for batch in batches])
            if known is not None:
                appends.take(state, known, batches, None, state.now_ms())
        except BaseException as error:
            is_written = state.active.end_offset > last_offset
            if known is not None and not is_written:
                state.producers.is_torn = False
            mark(error, is_written)
            raise
    return range(first, last_offset + 1)


def _verbatim(data: Buffer, header: BatchHeader) -> PlacedBatch:
    return placed([data], header, header.base_offset, header.last_offset, header.leader_epoch)


def _has_gap(batches: Found, expected: int) -> bool:
    """Check whether batches leave out offsets at or after `expected`."""
    for _, header in batches:
        if header.base_offset > expected:
            return True
        expected = header.last_offset + 1
    return False


def _may_lack(state: LogState, batches: Found, may_lack_offsets: bool) -> bool:
    """Check whether the leader's compaction may have removed the offsets before these batches.

    The present settings are not enough for this check: the topic may have been compacted earlier.
    """
    is_kafka = all(header.magic == layouts.KAFKA_MAGIC for _, header in batches)
    is_known = state.config.is_compacted or SPARSE_OFFSETS in state.metadata.extra
    return is_kafka and (is_known or may_lack_offsets)


def _keeps_start(state: LogState, header: BatchHeader) -> bool:
    """Check whether an empty log keeps its start although the first batch has a later offset.

    If retention never removes records, the leader's log most likely begins at the same start: the
    offsets before the first batch are missing because of compaction. But a log that knows producers
    does not keep its start, because the missing records may include markers of transactions.
    """
    has_producers = state.producers.are_known and len(appends.current(state)) > 0
    is_near = header.last_offset - state.log_end_offset <= RELATIVE_OFFSET_MAX
    return is_near and not has_producers and not state.config.is_retained


def _check_order(state: LogState, batches: Found, expected: int, *, may_lack: bool) -> None:
    """Refuse batches that are not contiguous, or that do not begin at the offset `expected`.

    Args:
        may_lack: whether offsets may be missing before a batch.
    """
    for _, header in batches:
        span = header.last_offset - expected
        if may_lack and header.base_offset > expected and span <= RELATIVE_OFFSET_MAX:
            expected = header.base_offset
        if header.base_offset != expected:
            raise OffsetOutOfRangeError(
                f"a batch begins at offset {header.base_offset}, but the next offset is {expected}",
                offset=header.base_offset,
                log_start_offset=state.log_start_offset,
                log_end_offset=expected,
            )
        if header.last_offset >= OFFSETS_MAX:
            raise ValueError(
                f"offset {header.last_offset} is larger than any offset that a log can have"
            )
        expected = header.last_offset + 1


def _check_epochs(state: LogState, batches: Found, leader_epoch: int | None) -> None:
    """Refuse a batch with an epoch below the previous batch's epoch, or above the leader's epoch.

    A leader sends batches of its predecessors, too. If the caller does not give the epoch of the
    leader, a batch with an epoch below the log's epoch may come from a leader that was replaced.
    """
    replication = state.replication
    epoch = replication.leader_epoch if leader_epoch is None else max(replication.epochs.latest, 0)
    for _, header in batches:
        if header.leader_epoch < epoch:
            raise ValueError(
                f"a batch of leader epoch {header.leader_epoch} follows a batch of the higher "
                f"leader epoch {epoch}"
            )
        epoch = header.leader_epoch
    if leader_epoch is not None and epoch > leader_epoch:
        raise ValueError(f"a leader of epoch {leader_epoch} cannot send a batch of epoch {epoch}")


def start_empty_at(state: LogState, offset: int) -> None:
    """Let a log without records begin at the offset where the leader's log begins.

    The caller must hold both locks.

    If the new segment cannot be created, this function writes the old log start again. If the new
    log start stayed, records could be appended before it, and the next start of the store would
    treat these records as deleted. If Ctrl-C comes after the segment was created, the remaining
    steps still run. Without these steps, the records before the new segment would appear to be
    lost.
    """
    old, start = state.active, state.log_start_offset
    try:
        snapshots.forget(state)
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
    """Keep only the new segment, and remove the empty segment; a second call does no harm."""
    from logstore.log.removal.retention import _remove_files

    state.activate([state.active])
    state.unflushed = []  # after a recovery, `unflushed` may contain the empty segment, too
    state.log_start_offset = offset
    state.note_flushed(offset)
    old.is_dropped = True
    _remove_files(state, (old,))


def _start_again_at(state: LogState, offset: int) -> None:
    """Write an earlier log start; if this fails, the next append or truncation writes it first.

    If the process dies before the write succeeds, the empty log begins at the later start, which
    does no harm.
    """
    try:
        set_metadata(state, log_start_offset=offset)
    except LogStoreError:
        state.half_made, state.room_bytes = (*state.half_made, *roll.WRONG_START), 0
