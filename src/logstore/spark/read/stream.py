"""Read a store in micro-batches; Spark's checkpoint has the range of offsets of each batch.

If a partition is created during the stream, it is read from its beginning.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from logstore.errors import UnknownPartitionError
from logstore.names import TopicPartition
from logstore.spark.options import PartitionOffsets, ReadOptions
from logstore.spark.read.offsets import (
    NOTHING,
    Reached,
    TopicIds,
    from_document,
    limited,
    same,
    short_id,
    to_document,
)
from logstore.spark.read.origin import origin_of
from logstore.spark.read.read_plan import Spans, lost, starts_of

if TYPE_CHECKING:
    import pyarrow as pa


def gone(key: TopicPartition, offset: int, what: str, otherwise: str) -> UnknownPartitionError:
    """Create the error for a partition that a stream can no longer follow."""
    return UnknownPartitionError(
        f"{key}: the stream has read this partition up to offset {offset}, but the partition "
        f"{what}. Begin with a new checkpoint, or set failOnDataLoss=false to {otherwise}",
        topic=key.topic,
        partition=key.partition,
    )


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Read a stream; one reader plans all batches, and its copies read the pieces in tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._origin = origin_of(options)
        self._target: PartitionOffsets | None = None
        self._last_batch_at: float | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offsets at which a new stream begins."""
        spans = self._look()
        return to_document(starts_of(spans, self._options), ids_of(spans))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how many records a batch is allowed to have."""
        limit = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Set the end of the stream to the present ends of the logs."""
        self._target = {key: span.end for key, span in self._look().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the offsets at which the next batch ends."""
        begun = from_document(start)
        spans = self._look(begun)
        ids = ids_of(spans)
        reached = self._target
        if reached is None:
            reached = {key: span.end for key, span in spans.items()}
        starts = {key: span.start for key, span in spans.items()} | same(begun, ids)
        # If a transaction is open, the readable range may end before the stream's position.
        ends = {
            key: max(end, min(starts[key], spans[key].log.log_end_offset))
            for key, end in reached.items()
            if key in spans
        }
        # A partition that is not visible now keeps its offset, because its disk may come back.
        ends |= {key: offset for key, offset in begun.offsets.items() if key not in ends}
        if self._is_too_early(sum(max(end - starts[key], 0) for key, end in ends.items())):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = limited(starts, ends, limit.max_rows)
        return to_document(ends, begun.ids | ids)

    def _is_too_early(self, behind: int) -> bool:
        """Report whether to wait longer, because a batch would be too small now."""
        options, now, last = self._options, time.monotonic(), self._last_batch_at
        has_enough = behind >= options.offsets_per_trigger_min or self._target is not None
        if has_enough or last is None or (now - last) * 1000 >= options.trigger_delay_ms_max:
            self._last_batch_at = now
            return False
        return True

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the ends of the logs, for Spark's progress report."""
        return to_document({key: span.end for key, span in self._look().items()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan the pieces of one batch; if Spark repeats a batch, the ranges are the same."""
        begun, ends = from_document(start), from_document(end)
        is_strict = self._options.fails_on_data_loss
        # If failOnDataLoss is false, leave out the partitions from which nothing is to be read.
        done = {} if is_strict else same(begun, ends.ids)
        keys = [key for key, last in sorted(ends.offsets.items()) if done.get(key) != last]
        spans = self._origin.look(keys, self._options, begun)
        starts = {key: span.start for key, span in spans.items()}
        starts |= {key: at for key, at in same(begun, ends.ids).items() if key in spans}
        if is_strict:
            known = {key: at for key, at in begun.offsets.items() if key in spans}
            self._check(Reached(known, begun.ids | ends.ids), spans)
        for key, span in spans.items():
            last = ends.offsets[key]
            if is_strict and starts[key] < min(span.start, last):
                raise lost(key, starts[key], span.start, span.end, "the stream")
            starts[key] = min(max(starts[key], span.start), last)
        return self._origin.pieces(spans, starts, ends.offsets, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one piece of a partition; this method runs in a task."""
        return self._origin.read(partition, self._options)

    def stop(self) -> None:
        """Close the files of the planning process."""
        self._origin.forget(self._options)

    def _look(self, begun: Reached | None = None) -> Spans:
        """Find the present ranges of the partitions; check that the stream can continue in them."""
        spans = self._origin.survey(self._options, NOTHING if begun is None else begun)
        if begun is not None and self._options.fails_on_data_loss:
            self._check(begun, spans)
        return spans

    def _check(self, begun: Reached, spans: Spans) -> None:
        """Raise if the store has lost partitions or records that the stream still needs."""
        alike = same(begun, ids_of(spans))
        for key, offset in begun.offsets.items():
            span = spans.get(key)
            if span is None:
                raise gone(key, offset, "no longer exists", "continue if it comes back")
            if key not in alike:
                what = "was deleted and created again"
                raise gone(key, offset, what, "read the new partition from its beginning")
            if span.log.log_end_offset < offset:
                raise lost(key, offset, span.start, span.log.log_end_offset, "the stream")
        for key, span in spans.items():
            if key not in begun.offsets and span.start > 0:
                raise lost(
                    key, 0, span.start, span.end, "the stream, to which this partition is new,"
                )


def ids_of(spans: Spans) -> TopicIds:
    """Return the topic ids in the form of a checkpoint document."""
    ids = {key: short_id(span.log.topic_id) for key, span in spans.items()}
    return {key: topic_id for key, topic_id in ids.items() if topic_id}


__all__ = ["StreamReader"]
