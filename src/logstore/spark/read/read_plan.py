"""Plan a read: choose the partitions, their ranges of offsets, and the pieces that tasks read.

The planning runs in a process of the driver. At the same time, another process may own the store. A
piece has the name of a partition and a range of offsets. A piece has no path, because the replica
may move before a task reads the piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

from pyspark.sql.datasource import InputPartition

from logstore.errors import LogStoreError, OffsetOutOfRangeError, UnknownPartitionError
from logstore.log import host
from logstore.log.log import Log
from logstore.log.read.split import OffsetRange
from logstore.log.read.transactions import AbortedBy, Decided
from logstore.names import TopicPartition
from logstore.spark.options import EARLIEST, LATEST, Bound, PartitionOffsets, ReadOptions
from logstore.spark.read.views import check_all_serve, find, forget, view_of
from logstore.store.store import LogStore

# A task reads this many bytes in about a tenth of a second.
# With smaller pieces, the scheduling takes more time.
PIECE_BYTES = 32 << 20
# Columns that are not read cost almost nothing.
# So pieces are larger if key, value and headers are not read.
NARROW_PIECE_BYTES = 128 << 20
WIDE = {"key", "value", "headers"}
# Topics that a broker keeps for itself. The option `subscribePattern` does not select the internal
# topics.
INTERNAL_TOPICS = {
    "__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state",
}  # fmt: skip


@dataclass
class Piece(InputPartition):
    """Describe the records that one task reads, in a form that can be pickled.

    Attributes:
        aborted: the transactions whose records the task leaves out; the key is the producer.
    """

    topic: str
    partition: int
    topic_id: bytes
    start: int
    end: int
    aborted: AbortedBy

    def __init__(self, key: TopicPartition, span: Span, start: int, end: int) -> None:
        super().__init__((*key, start, end))
        self.topic, self.partition = key
        self.topic_id, self.start, self.end = span.log.topic_id, start, end
        self.aborted = {} if span.decided is None else _within(span.decided, start, end)


class RangedLog(Protocol):
    """The part of a log that a plan uses, for logs in log dirs and for logs of brokers."""

    @property
    def topic_id(self) -> bytes:
        """16 bytes that distinguish this topic from a later topic of the same name."""

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record that can be read at present."""

    def offset_for_timestamp(self, timestamp: int) -> int | None:
        """Return the first offset with a timestamp at or after `timestamp`; None without one."""


class AnySpan(Protocol):
    """A partition's readable range at the time of a survey."""

    @property
    def log(self) -> RangedLog:
        """The log of the partition."""

    @property
    def start(self) -> int:
        """The first offset of the range."""

    @property
    def end(self) -> int:
        """The offset after the range."""


Spans = Mapping[TopicPartition, AnySpan]


class Span(NamedTuple):
    """Describe a partition's readable range at the time of the survey.

    Attributes:
        decided: the transactions of the partition that have ended, if only committed records are
            wanted; else None.
    """

    log: Log
    start: int
    end: int
    decided: Decided | None = None


def select(store: LogStore, options: ReadOptions) -> list[TopicPartition]:
    """List, in sorted order, the partitions that the options select.

    Raises:
        UnknownPartitionError: a topic or partition in the options does not exist.
        LogDirOfflineError: a log dir is offline, so that not all partitions are known.
    """
    there = list(store)
    # Kafka's admin client also leaves out internal topics.
    if options.place.is_kafka and options.pattern is not None:
        there = [key for key in there if key.topic not in INTERNAL_TOPICS]
    if options.fails_on_data_loss and not options.assigned:
        check_all_serve(store)
    if options.fails_on_data_loss:
        for key in options.assigned:
            if key not in store:
                find(store, key, is_read=True)  # this call raises an error with the reason
    topics = {key.topic for key in there}
    for topic in options.topics:
        if topic not in topics:
            raise UnknownPartitionError(
                f"there is no topic {topic!r} in this store; it has {_few(sorted(topics))}",
                topic=topic,
                partition=-1,
            )
    return [key for key in there if options.is_wanted(key)]


def _few(names: Sequence[object]) -> str:
    text = ", ".join(map(str, names[:10])) or "none"
    return text if len(names) <= 10 else f"{text} and {len(names) - 10} more"


def survey(options: ReadOptions) -> dict[TopicPartition, Span]:
    """Select partitions and find their readable ranges.

    After an error, try once more in a new view.

    Raises:
        LogStoreError: a partition is missing or unreadable, and `failOnDataLoss` is set.
    """
    for is_last in (False, True):
        store = view_of(options.place)
        try:
            return look(store, select(store, options), options)
        except LogStoreError:
            if is_last:
                raise
            forget(options.place)
    raise AssertionError("the second try returns or raises")


def look(
    store: LogStore, keys: Iterable[TopicPartition], options: ReadOptions
) -> dict[TopicPartition, Span]:
    """Find the present readable range of partitions.

    If the options accept data loss, partitions that cannot be read are left out. If only committed
    records are wanted, a partition's range ends at the start of its first open transaction.
    """
    spans = {}
    for key in keys:
        try:
            log = find(store, key, is_read=True)
            decided = host.decided_now(log) if options.is_committed else None
        except LogStoreError:
            if options.fails_on_data_loss:
                raise
            continue
        end = log.log_end_offset if decided is None else decided.last_stable_offset
        spans[key] = Span(log, log.log_start_offset, end, decided)
    return spans


def starts_of(spans: Spans, options: ReadOptions) -> PartitionOffsets:
    """Return the offset from which each partition is read."""
    if options.starting_times is None:
        _check_none_else(spans, options.starting, "startingOffsets", options)
        return {
            key: _at(key, span, options.starting, "startingOffsets", options)
            for key, span in spans.items()
        }
    _check_none_else(spans, options.starting_times, "startingOffsetsByTimestamp", options)
    return {
        key: _at_time(key, span, options.starting_times, options) for key, span in spans.items()
    }


def ends_of(spans: Spans, options: ReadOptions) -> PartitionOffsets:
    """Return the offset at which the read of each partition ends (exclusive)."""
    if options.ending_times is None:
        _check_none_else(spans, options.ending, "endingOffsets", options)
        return {
            key: _at(key, span, options.ending, "endingOffsets", options)
            for key, span in spans.items()
        }
    _check_none_else(spans, options.ending_times, "endingOffsetsByTimestamp", options)
    ends = {}
    for key, span in spans.items():
        time = _of(options.ending_times, key, "endingOffsetsByTimestamp")
        offset = span.log.offset_for_timestamp(time)
        ends[key] = span.end if offset is None else min(offset, span.end)
    return ends


def check_order(starts: PartitionOffsets, ends: PartitionOffsets) -> None:
    """Raise ValueError if a partition's start is after its end."""
    for key, start in starts.items():
        if start > ends[key]:
            raise ValueError(
                f"{key} is to be read from offset {start} to {ends[key]}: the start in the options "
                "is after the end"
            )


def _check_none_else(spans: Spans, bound: Bound, name: str, options: ReadOptions) -> None:
    """Check that a bound in the options names only partitions that are read.

    If the options accept data loss, the bound may also name a selected partition that no longer
    exists.
    """
    if not isinstance(bound, dict):
        return
    is_strict = options.fails_on_data_loss
    others = [
        key for key in bound if key not in spans and (is_strict or not options.is_wanted(key))
    ]
    if others:
        raise ValueError(
            f"{name} names {_few(sorted(others))}, which is not read. {name} must name exactly "
            f"the partitions that are read: {_few(sorted(spans))}"
        )


def _of(bound: Bound, key: TopicPartition, name: str) -> int:
    if not isinstance(bound, dict):
        return bound
    if key not in bound:
        raise ValueError(f"{name} does not name {key}: it must name every partition that is read")
    return bound[key]


def _at(key: TopicPartition, span: AnySpan, bound: Bound, name: str, options: ReadOptions) -> int:
    offset = _of(bound, key, name)
    if offset in (EARLIEST, LATEST):
        return span.start if offset == EARLIEST else span.end
    if not span.start <= offset <= span.end and options.fails_on_data_loss:
        raise lost(key, offset, span.start, span.end, name)
    return min(max(offset, span.start), span.end)


def _at_time(key: TopicPartition, span: AnySpan, times: Bound, options: ReadOptions) -> int:
    time = _of(times, key, "startingOffsetsByTimestamp")
    offset = span.log.offset_for_timestamp(time)
    if offset is not None:
        return min(offset, span.end)
    if options.is_late_start_latest:
        return span.end
    raise ValueError(
        f"{key} has no record at or after the timestamp {time}; "
        "set startingOffsetsByTimestampStrategy=latest to begin at its end"
    )


def lost(
    key: TopicPartition, offset: int, start: int, end: int, what: str
) -> OffsetOutOfRangeError:
    """Create the error for a read of records that no longer exist."""
    where = "retention or a deletion removed it" if offset < start else "the log ends before it"
    return OffsetOutOfRangeError(
        f"{key}: {what} wants offset {offset}, the log has {start}..{end}: {where}. Begin where "
        "the log begins, or set failOnDataLoss=false to read the records that are left",
        offset=offset,
        log_start_offset=start,
        log_end_offset=end,
    )


def pieces_of(
    spans: Mapping[TopicPartition, Span],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    options: ReadOptions,
) -> list[Piece]:
    """Cut the ranges into pieces of similar size: about `minPartitions` pieces, or more."""
    total = sum(host.bytes_between(span.log, starts[key], ends[key]) for key, span in spans.items())
    piece_bytes = piece_bytes_of(total, options)
    for key, span in spans.items():
        damage = None if span.decided is None else span.decided.damage
        if damage is not None and ends[key] > damage[0]:
            raise damage[1]  # the marker of an open transaction may be in the damaged part
    return [
        Piece(key, span, start, end)
        for key, span in spans.items()
        for whole in host.split(span.log, starts[key], ends[key], piece_bytes)
        for start, end in cut(*whole, options.records_per_piece_max)
    ]


def piece_bytes_of(total_bytes: int, options: ReadOptions) -> int:
    """Return how many stored bytes a piece of a read should have."""
    largest = PIECE_BYTES if WIDE & set(options.columns) else NARROW_PIECE_BYTES
    return min(largest, max(total_bytes // options.partitions_min, 1))


def cut(start: int, end: int, records_max: int | None) -> Iterable[OffsetRange]:
    """Cut a range of offsets into equal parts of at most `records_max` offsets each."""
    count = 1 if records_max is None else -(-(end - start) // records_max)
    cuts = [start + (end - start) * number // count for number in range(count + 1)]
    return pairwise(cuts)


def _within(decided: Decided, start: int, end: int) -> AbortedBy:
    """Return the aborted transactions that overlap a range of offsets."""
    found = {
        producer_id: [row for row in rows if row.first_offset < end and row.last_offset >= start]
        for producer_id, rows in decided.aborted.items()
    }
    return {producer_id: rows for producer_id, rows in found.items() if rows}
