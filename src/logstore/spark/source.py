"""Make a store available in Spark: `format("logstore")`.

Spark creates these objects in its own processes and sends them from one process to another. So the
objects hold only options, and each process opens the store when it needs the store. There is no
`pushFilters`: in Spark 4.1 to 4.3, the filters that were pushed for one query also apply to the
next query. Use options to limit the records that are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from logstore.spark.options import ReadOptions, read_options
from logstore.spark.read.columns import schema_text
from logstore.spark.read.offsets import NOTHING
from logstore.spark.read.origin import origin_of
from logstore.spark.read.read_plan import check_order, ends_of, starts_of
from logstore.spark.read.stream import StreamReader
from logstore.spark.write.sink import BatchWriter, StreamWriter, prepare, write_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class LogStoreSource(DataSource):
    """Provide the data source; docs/SPARK.md describes its options and columns."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "logstore"

    def schema(self) -> str:
        """Return the columns that the options ask for."""
        # Spark does not report whether the options are for a batch or for a stream.
        # A stream has no options for the end, and the columns do not depend on these options.
        options = {k: v for k, v in self.options.items() if not k.lower().startswith("ending")}
        return schema_text(read_options(options, is_stream=True).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Create the reader of a batch."""
        options = read_options(self.options, is_stream=False)
        check_schema(schema, options)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        """Create the reader of a stream."""
        options = read_options(self.options, is_stream=True)
        check_schema(schema, options)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Create the writer of a DataFrame."""
        options = write_options(self.options, schema, overwrite)
        prepare(options)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Create the writer of a stream."""
        # In Spark's output mode `complete`, the sink appends the whole result for each batch.
        options = write_options(self.options, schema, overwrite=False)
        prepare(options)
        return StreamWriter(options)


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """Raise ValueError if the user gave a schema that differs from the format's columns."""
    if tuple(schema.names) != options.columns:
        raise ValueError(
            f"the columns of format logstore are {', '.join(options.columns)}: leave out schema(), "
            "and choose columns with the option columns"
        )


class BatchReader(DataSourceReader):
    """Read ranges of offsets that are fixed when the query is planned."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._origin = origin_of(options)

    def partitions(self) -> list[InputPartition]:
        """Plan which pieces of the partitions the tasks read.

        Spark stores the pieces with the DataFrame. Only a new call of `load()` plans again.
        """
        options = self._options
        spans = self._origin.survey(options, NOTHING)
        starts, ends = starts_of(spans, options), ends_of(spans, options)
        check_order(starts, ends)
        return self._origin.pieces(spans, starts, ends, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one piece of a partition; this method runs in a task."""
        return self._origin.read(partition, self._options)


__all__ = ["BatchReader", "LogStoreSource"]
