"""Plug a store into Spark: `format("logstore")`.

Spark makes these objects in processes of its own and sends them from one to another, so they hold
options alone and open what they need where they need it. There is no `pushFilters`: in Spark 4.1 to
4.3 what one query pushed is applied to the next one too. The options bound what is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from logstore.spark.columns import schema_text
from logstore.spark.options import ReadOptions, read_options
from logstore.spark.planning import (
    Piece,
    check_order,
    ends_of,
    pieces_of,
    starts_of,
    survey,
)
from logstore.spark.reading import read_piece
from logstore.spark.streaming import StreamReader
from logstore.spark.writing import BatchWriter, StreamWriter, prepare, write_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class LogStoreSource(DataSource):
    """The data source; see docs/SPARK.md for its options and columns."""

    @classmethod
    def name(cls) -> str:
        """Give the name of the format."""
        return "logstore"

    def schema(self) -> str:
        """Give the columns that the options ask for."""
        # A stream is told by its own reader that it has no end; both have the same columns.
        options = {k: v for k, v in self.options.items() if not k.lower().startswith("ending")}
        return schema_text(read_options(options, is_stream=True).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a batch."""
        options = read_options(self.options, is_stream=False)
        check_schema(schema, options)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        """Make the reader of a stream."""
        options = read_options(self.options, is_stream=True)
        check_schema(schema, options)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Make the writer of a DataFrame."""
        options = write_options(self.options, schema, overwrite)
        prepare(options)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Make the writer of a stream."""
        # Of output mode complete the whole result comes with each batch, and is appended.
        options = write_options(self.options, schema, overwrite=False)
        prepare(options)
        return StreamWriter(options)


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """Refuse a schema that the user gave and that is not ours; raises ValueError."""
    if tuple(schema.names) != options.columns:
        raise ValueError(
            f"the columns of format logstore are {', '.join(options.columns)}: leave out schema(), "
            "and choose among them with the option columns"
        )


class BatchReader(DataSourceReader):
    """Read a range of offsets that is fixed when the query is planned."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Plan the pieces; Spark keeps them with the DataFrame, `load()` plans anew."""
        options = self._options
        spans = survey(options)
        starts, ends = starts_of(spans, options), ends_of(spans, options)
        check_order(starts, ends)
        return list(pieces_of(spans, starts, ends, options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one piece, in a task."""
        if not isinstance(partition, Piece):  # there was nothing to read
            return iter(())
        return read_piece(partition, self._options)


__all__ = ["BatchReader", "LogStoreSource"]
