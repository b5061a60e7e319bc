"""Find which records of Kafka's transactions were aborted, and where the last stable offset is.

A transaction consists of the batches of one producer up to its marker. A marker is a control batch
with a commit or an abort (KIP-98). One walk over the headers of each segment finds the markers. The
result is kept. If the segment has grown, the next walk begins where the last walk ended. The last
stable offset is the offset of the first batch whose transaction has no marker below the high
watermark. If there is no such batch, the last stable offset is the high watermark. Readers of
committed records stop at the last stable offset.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from logstore.errors import CorruptRecordBatchError, UnsupportedFormatError
from logstore.format import layouts
from logstore.format.batch import RecordBatch
from logstore.format.batch_parts import BatchHeader
from logstore.log.producers.stability import kept_last_stable_offset
from logstore.log.read import records
from logstore.log.read.cursor import Cursor
from logstore.log.segments.search import magic_of
from logstore.log.segments.segment import Segment

if TYPE_CHECKING:
    from logstore.log.replica import Replica

WINDOW_BYTES = 1 << 20
TRANSACTIONAL, CONTROL = 0x10, 0x20
BEGIN, ABORT, COMMIT = "begin", "abort", "commit"
MARKER_KEY = struct.Struct(">hh")  # version, type
FATES = {BEGIN: "open", ABORT: "aborted", COMMIT: "committed"}
MARKER_TYPES = {0: ABORT, 1: COMMIT}


class Event(NamedTuple):
    """A batch that begins or ends a transaction: its kind, its producer, its offset."""

    kind: str
    producer_id: int
    offset: int


class Aborted(NamedTuple):
    """An aborted transaction: the offsets of its first record and of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class Walked(NamedTuple):
    """What the walks over a segment have found.

    Attributes:
        size_bytes: the size of the segment when the last walk began.
        next_offset: where the next walk begins.
        open_ids: the producers whose last event is BEGIN.
    """

    size_bytes: int
    next_offset: int
    events: list[Event]
    open_ids: frozenset[int]


Found = TypeVar("Found")
# By producer id: the offset and the kind of each marker.
Ends = dict[int, list[tuple[int, str]]]
AbortedBy = Mapping[int, Sequence[Aborted]]


class Decided(NamedTuple):
    """The aborted transactions of a log, and its last stable offset.

    Attributes:
        aborted: the aborted transactions of each producer.
        last_stable_offset: before this offset, all transactions have ended.
        damage: if a segment is damaged, the segment's base offset, and the error. The state of
            transactions from this offset on is unknown.
    """

    aborted: dict[int, list[Aborted]]
    last_stable_offset: int
    damage: tuple[int, CorruptRecordBatchError] | None


def marker_of(data: bytes | memoryview, at: int, header: BatchHeader) -> str:
    """Read the kind of a marker; return "" if the control batch does not end a transaction."""
    try:
        (key,) = layouts.kafka_layout().decode_all(data, at, header).keys.to_list()
        return MARKER_TYPES.get(MARKER_KEY.unpack_from(key or b"")[1], "")
    except (ValueError, UnsupportedFormatError, struct.error):
        return ""


def events_of(state: Replica, segment: Segment) -> list[Event]:
    """Find where transactions begin and end in a segment.

    Raises OSError or CorruptRecordBatchError.
    """
    known: Walked | None = state.transaction_events.get(segment)
    size_bytes = segment.size_bytes
    if known is not None and known.size_bytes == size_bytes:
        return known.events
    first = max(segment.base_offset, state.log_start_offset)
    # Another owner may replace the bytes of the segment's file. Then the segment is walked from its
    # start. If the log start was moved over batches that were not walked, they may have markers.
    is_other = known is None or known.size_bytes > size_bytes or segment.inode
    if known is None or is_other or known.next_offset < first:
        known = Walked(0, first, [], frozenset())
    events: list[Event] = []
    open_ids, following = set(known.open_ids), known.next_offset
    handle = segment.handle(state.environment) if size_bytes else None
    if handle is not None and magic_of(handle.fd) == layouts.KAFKA_MAGIC:
        for data, _, run in Cursor(segment, following, state.environment).runs(WINDOW_BYTES):
            for at, header in run:
                _note(events, open_ids, data, at, header)
                following = header.last_offset + 1
    found = [*known.events, *events] if events else known.events
    state.transaction_events[segment] = Walked(size_bytes, following, found, frozenset(open_ids))
    return found


def forget_dropped(state: Replica) -> None:
    """Forget the events of the segments that the log has dropped."""
    # Read the known events before the view, because the view may get new segments.
    known = set(state.transaction_events)
    for dropped in known - set(state.segments):
        state.transaction_events.pop(dropped, None)


def _note(
    events: list[Event],
    open_ids: set[int],
    data: bytes | memoryview,
    at: int,
    header: BatchHeader,
) -> None:
    producer_id, attributes = header.producer_id, header.attributes
    if producer_id < 0:  # no marker can end its transaction; `Producers` ignores this batch, too
        return
    if attributes & CONTROL:
        kind = marker_of(data, at, header)
        open_ids.discard(producer_id)
        if kind:
            events.append(Event(kind, producer_id, header.base_offset))
    elif attributes & TRANSACTIONAL and producer_id not in open_ids:
        open_ids.add(producer_id)
        events.append(Event(BEGIN, producer_id, header.base_offset))


def decided(state: Replica) -> Decided:
    """Find the aborted transactions of a log, and where its first open transaction begins."""
    aborted: dict[int, list[Aborted]] = {}
    begun: dict[int, int] = {}
    damage = None
    end_offset = state.high_watermark  # later records and markers are ignored
    segments = state.segments
    forget_dropped(state)
    for segment in segments:
        try:
            events = events_of(state, segment)
        except CorruptRecordBatchError as error:
            damage = (segment.base_offset, error)
            break
        for kind, producer_id, offset in events:
            if offset >= end_offset:
                break
            if kind == BEGIN:
                begun.setdefault(producer_id, offset)
                continue
            first = begun.pop(producer_id, None)
            if kind == ABORT and first is not None:
                row = Aborted(producer_id, first, offset)
                aborted.setdefault(producer_id, []).append(row)
    kept = kept_last_stable_offset(state)
    stable = min([end_offset if kept is None else min(kept, end_offset), *begun.values()])
    # The first batch of an open transaction may begin before the log start.
    return Decided(aborted, max(stable, state.log_start_offset), damage)


def decided_now(state: Replica) -> Decided:
    """Refresh a log, and find which of its transactions have ended. Raises LogStoreError."""

    def look() -> tuple[Decided, object]:
        found = decided(state)
        return found, found.damage

    return steady(state, look)


def steady(state: Replica, look: Callable[[], tuple[Found, object]]) -> Found:
    """Walk over the segments of a log again until no segment was replaced during the walk.

    Retention, a truncation, a compaction or a move may remove a segment before the walk opens the
    segment's file. After the removal, the file is missing, or is the file of another segment.

    Args:
        look: walks over the segments; returns the result, and the damage that it found, or None.

    Raises:
        LogStoreError: the log is closed or unavailable, or the disk failed.
    """
    while True:
        state.check()
        state.refresh()
        segments = state.segments
        try:
            found, damage = look()
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                state.look_anew()
            if not _are_replaced(state, segments):
                raise state.failed(error) from error
        else:
            if damage is not None:
                state.look_anew()
            is_same = damage is None and state.segments == segments
            if is_same or not _are_replaced(state, segments):
                return found
        for segment in segments:
            if segment.is_dropped:
                state.stale(segment)
                break
        forget_dropped(state)


def _are_replaced(state: Replica, segments: tuple[Segment, ...]) -> bool:
    """Check whether the log has dropped one of the segments."""
    return any(one.is_dropped for one in segments) or not set(segments) <= set(state.segments)


def committed(
    state: Replica, offset: int | None, end_offset: int | None, options: dict[str, Any]
) -> Iterator[RecordBatch]:
    """Yield the batches of a range up to the last stable offset, without aborted batches.

    The range is `offset..end_offset`.
    """
    cut, facts = state.cut, decided_now(state)
    wanted = state.high_watermark if end_offset is None else end_offset
    start = state.log_start_offset if offset is None else offset
    while True:
        end = min(wanted, facts.last_stable_offset)
        if facts.damage is not None:
            end = min(end, facts.damage[0])
        state.check_readable(start, start)
        for batch in records.batches_of(state, start, max(start, end), **options):
            if cut.later is not None:
                break
            start = batch.header.last_offset + 1
            if not is_aborted(facts.aborted, batch.header):
                yield batch
            del batch  # release its memory before the next read
        if cut.later is None:
            break
        # The log was truncated: other transactions may have the offsets after the cut.
        cut = cut.last
        facts = decided_now(state)
    if facts.damage is not None and end < wanted:  # an open transaction may end in the damaged part
        raise facts.damage[1]


def is_aborted(aborted: AbortedBy, header: BatchHeader) -> bool:
    """Check whether a batch belongs to an aborted transaction."""
    if header.magic != layouts.KAFKA_MAGIC or not header.attributes & TRANSACTIONAL:
        return False
    offset = header.base_offset
    return any(
        row.first_offset <= offset <= row.last_offset for row in aborted.get(header.producer_id, ())
    )


def fates_after(state: Replica, offset: int) -> list[tuple[RecordBatch, str]]:
    """Read the batches from an offset on; see `ReplicatedLog.transactions_after`."""
    start = max(offset, state.log_start_offset)
    batches = list(records.batches_of(state, start, None))

    def look() -> tuple[tuple[Ends, CorruptRecordBatchError | None], object]:
        ends: Ends = {}
        try:
            for segment in state.segments:
                if segment.end_offset > start:
                    for kind, producer_id, at in events_of(state, segment):
                        if kind != BEGIN:
                            ends.setdefault(producer_id, []).append((at, kind))
        except CorruptRecordBatchError as error:
            return (ends, error), error
        return (ends, None), None

    ends, damage = steady(state, look)
    if damage is not None:
        raise damage
    return [
        (batch, _fate(batch.header, ends.get(batch.header.producer_id, ())))
        for batch in batches
        if not batch.header.attributes & CONTROL
    ]


def _fate(header: BatchHeader, ends: Sequence[tuple[int, str]]) -> str:
    """Return the outcome of a batch's transaction, from the producer's next marker in `ends`."""
    if header.magic != layouts.KAFKA_MAGIC or not header.attributes & TRANSACTIONAL:
        return FATES[COMMIT]
    kinds = (kind for at, kind in ends if at > header.base_offset)
    return FATES[next(kinds, BEGIN)]
