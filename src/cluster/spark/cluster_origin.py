"""Let Spark read records from a cluster: `option("brokers", "host:9092")`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from cluster.spark.bounds import ClusterSpan, look, survey
from cluster.spark.piece_reader import read_piece
from cluster.spark.pieces import ClusterPiece, pieces_of
from logstore.names import TopicPartition
from logstore.spark.options import PartitionOffsets, ReadOptions
from logstore.spark.read.offsets import Reached
from logstore.spark.read.read_plan import Spans
from logstore.spark.read.views import forget_all

if TYPE_CHECKING:
    import pyarrow as pa


class ClusterOrigin:
    """Read the topics of a cluster. A task reads the files of a replica on its own machine."""

    def survey(self, options: ReadOptions, known: Reached) -> Spans:
        """Select partitions, and ask their leaders for the readable ranges."""
        return survey(options, known)

    def look(self, keys: Iterable[TopicPartition], options: ReadOptions, known: Reached) -> Spans:
        """Ask the leaders of some partitions for the readable ranges."""
        return look(list(keys), options, known)

    def pieces(
        self, spans: Mapping[TopicPartition, ClusterSpan], starts: PartitionOffsets,
        ends: Mapping[TopicPartition, int], options: ReadOptions,
    ) -> list[InputPartition]:  # fmt: skip
        """Ask the brokers where their replicas are, and cut the ranges into pieces."""
        return list(pieces_of(spans, starts, ends, options))

    def read(self, partition: InputPartition, options: ReadOptions) -> Iterator[pa.RecordBatch]:
        """Read one piece of a partition."""
        if not isinstance(partition, ClusterPiece):  # there is nothing to read
            return iter(())
        return read_piece(partition, options)

    def forget(self, options: ReadOptions) -> None:
        """Close the files that this process has opened."""
        forget_all()


__all__ = ["ClusterOrigin"]
