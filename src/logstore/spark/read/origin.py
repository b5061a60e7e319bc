"""Choose where records come from: the log dirs of a store, or the brokers of a cluster.

The readers of batches and streams plan and read through an origin. An origin has no state, so Spark
can send it from one process to another. The package `cluster` reads from brokers. `cluster` imports
this package, so this package cannot import `cluster`. Instead, `cluster` is loaded by its name when
the option `brokers` is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from pyspark.sql.datasource import InputPartition

from logstore.names import TopicPartition
from logstore.spark.options import PartitionOffsets, ReadOptions
from logstore.spark.read.offsets import Reached
from logstore.spark.read.read_plan import Piece, Span, Spans, look, pieces_of, survey
from logstore.spark.read.read_task import read_piece
from logstore.spark.read.views import forget, view_of

if TYPE_CHECKING:
    import pyarrow as pa

CLUSTER = "cluster.spark.cluster_origin"


class Origin(Protocol):
    """Where records come from.

    Two methods have an argument `known`: for each partition, an offset that its log once had, and
    the topic id of this log. If a log with this id now ends before this offset, the answer may come
    from an old leader. So an origin may ask again for some seconds.
    """

    def survey(self, options: ReadOptions, known: Reached) -> Spans:
        """Select partitions, and find their present readable ranges. Raises LogStoreError."""

    def look(self, keys: Iterable[TopicPartition], options: ReadOptions, known: Reached) -> Spans:
        """Find the present readable ranges of some partitions. Raises LogStoreError."""

    def pieces(
        self, spans: Any, starts: PartitionOffsets, ends: Mapping[TopicPartition, int],
        options: ReadOptions,
    ) -> list[InputPartition]:  # fmt: skip
        """Cut ranges of offsets into the pieces that tasks read.

        Args:
            spans: what `survey` or `look` of this origin returned.
        """

    def read(self, partition: InputPartition, options: ReadOptions) -> Iterator[pa.RecordBatch]:
        """Read one piece; this method runs in a task."""

    def forget(self, options: ReadOptions) -> None:
        """Close what this process holds open for a read."""


class StoreOrigin:
    """Read the log dirs of a store, which every executor sees under the same paths."""

    def survey(self, options: ReadOptions, known: Reached) -> Spans:
        """Select partitions, and find their present readable ranges."""
        return survey(options)

    def look(self, keys: Iterable[TopicPartition], options: ReadOptions, known: Reached) -> Spans:
        """Find the present readable ranges of some partitions."""
        return look(view_of(options.place), keys, options)

    def pieces(
        self, spans: Mapping[TopicPartition, Span], starts: PartitionOffsets,
        ends: Mapping[TopicPartition, int], options: ReadOptions,
    ) -> list[InputPartition]:  # fmt: skip
        """Cut ranges of offsets into the pieces that tasks read."""
        return list(pieces_of(spans, starts, ends, options))

    def read(self, partition: InputPartition, options: ReadOptions) -> Iterator[pa.RecordBatch]:
        """Read one piece of a partition."""
        if not isinstance(partition, Piece):  # there was nothing to read
            return iter(())
        return read_piece(partition, options)

    def forget(self, options: ReadOptions) -> None:
        """Drop the view of the store in this process."""
        forget(options.place)


def origin_of(options: ReadOptions) -> Origin:
    """Return the origin that the options name.

    Raises:
        ImportError: brokers are named, and the extra `broker` is not installed.
    """
    if not options.brokers:
        return StoreOrigin()
    return cast(Origin, import_module(CLUSTER).ClusterOrigin())


__all__ = ["Origin", "StoreOrigin", "origin_of"]
