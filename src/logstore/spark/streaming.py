"""Follow a store in micro-batches, each a range of offsets that Spark's checkpoint remembers.

    {"orders": {"0": 1200, "1": 980}}      the next offset of each partition, as Kafka has it

Offsets are compared by Spark as text, so topics and partitions always stand in order. A partition
that appears while the stream runs is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from logstore.errors import LogStoreError, UnknownPartitionError
from logstore.names import TopicPartition
from logstore.spark.options import PartitionOffsets, ReadOptions
from logstore.spark.planning import Piece, Span, look, lost, pieces_of, select, starts_of
from logstore.spark.reading import read_piece
from logstore.spark.views import forget, view_of

if TYPE_CHECKING:
    import pyarrow as pa

OffsetDocument = dict[str, dict[str, int]]


def to_document(offsets: Mapping[TopicPartition, int]) -> OffsetDocument:
    """Give offsets as what Spark writes into the checkpoint."""
    document: OffsetDocument = {}
    for key in sorted(offsets):
        document.setdefault(key.topic, {})[str(key.partition)] = offsets[key]
    return document


def from_document(document: Mapping[str, Mapping[str, int]]) -> PartitionOffsets:
    """Read offsets back."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, of_topic in document.items()
        for partition, offset in of_topic.items()
    }


def limited(starts: PartitionOffsets, ends: PartitionOffsets, limit: int) -> PartitionOffsets:
    """Move every start towards its end by its share of `limit` records in all."""
    behind = {key: max(ends[key] - starts[key], 0) for key in ends}
    total = sum(behind.values())
    if total <= limit:
        return dict(ends)
    reached, done, given = {}, 0, 0
    for key in sorted(ends):
        done += behind[key]
        share = limit * done // total - given
        given += share
        reached[key] = starts[key] + share if behind[key] else ends[key]
    return reached


def gone(key: TopicPartition, offset: int, what: str) -> UnknownPartitionError:
    """Make the error of a partition that a stream can no longer follow."""
    return UnknownPartitionError(
        f"{key}: the stream has read it up to offset {offset}, and it {what}. Begin with a new "
        "checkpoint, or set failOnDataLoss=false to go on at that offset, should it come",
        topic=key.topic,
        partition=key.partition,
    )


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Read a stream; one object plans all its batches, copies of it read the pieces in tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._target: PartitionOffsets | None = None
        self._topic_ids: dict[TopicPartition, bytes] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Give where a new stream begins."""
        return to_document(starts_of(self._look(), self._options))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Give how many records a batch may have."""
        limit = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of a stream that stops when it has read what is there now."""
        self._target = {key: span.end for key, span in self._look().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Give where the next batch ends."""
        begun = from_document(start)
        spans = self._look(begun)
        reached = self._target
        if reached is None:
            reached = {key: span.end for key, span in spans.items()}
        ends = {key: end for key, end in reached.items() if key in spans}
        # One that is not seen now keeps its place: its disk may come back.
        ends |= {key: offset for key, offset in begun.items() if key not in ends}
        starts = {key: begun.get(key, spans[key].start if key in spans else 0) for key in ends}
        if isinstance(limit, ReadMaxRows):
            ends = limited(starts, ends, limit.max_rows)
        return to_document(ends)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Give where the logs end, for the progress report."""
        return to_document({key: span.end for key, span in self._look().items()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan the pieces of one batch; the same ranges again when it is repeated."""
        begun, ends = from_document(start), from_document(end)
        store = view_of(self._options.place)
        is_strict = self._options.fails_on_data_loss
        spans = look(store, sorted(ends), self._options)
        starts = {key: begun.get(key, span.start) for key, span in spans.items()}
        if is_strict:
            self._check({key: begun[key] for key in spans if key in begun}, spans)
        for key, span in spans.items():
            if is_strict and starts[key] < min(span.start, ends[key]):
                raise lost(key, starts[key], span.start, span.end, "the stream")
            starts[key] = min(max(starts[key], span.start), ends[key])
        return list(pieces_of(spans, starts, ends, self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one piece, in a task."""
        if not isinstance(partition, Piece):
            return iter(())
        return read_piece(partition, self._options)

    def stop(self) -> None:
        """Let go of the files of the planning process."""
        forget(self._options.place)

    def _look(self, begun: PartitionOffsets | None = None) -> dict[TopicPartition, Span]:
        """Look at the partitions as they are now, and whether they are those the stream knows."""
        options = self._options
        try:
            spans = self._look_once()
        except LogStoreError:
            forget(options.place)
            spans = self._look_once()
        if options.fails_on_data_loss:
            self._check(begun or {}, spans)
        # Of the topics that were seen first, whoever asks: none is forgotten before it is compared.
        self._topic_ids = {key: span.log.topic_id for key, span in spans.items()} | self._topic_ids
        return spans

    def _check(self, begun: PartitionOffsets, spans: Mapping[TopicPartition, Span]) -> None:
        """Refuse to go on where what the stream has read is no longer what is there."""
        for key, offset in begun.items():
            span = spans.get(key)
            if span is None:
                raise gone(key, offset, "is no longer there")
            if self._topic_ids.get(key, span.log.topic_id) != span.log.topic_id:
                raise gone(key, offset, "was deleted and created anew")
            if span.end < offset:
                raise lost(key, offset, span.start, span.end, "the stream")

    def _look_once(self) -> dict[TopicPartition, Span]:
        store = view_of(self._options.place)
        keys = select(store, self._options)
        return look(store, keys, self._options)


__all__ = ["StreamReader", "from_document", "limited", "to_document"]
