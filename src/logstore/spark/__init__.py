"""Read and write the logs of a store with Spark (extra `spark`).

    import logstore.spark

    spark = logstore.spark.session()
    logstore.spark.register(spark)
    orders = (
        spark.read.format("logstore")
        .option("logDirs", "/disk1/logs,/disk2/logs")
        .option("subscribe", "orders")
        .load()
    )

Columns and options are those of Spark's Kafka source. Spark is imported with the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.spark.local import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "session"]


def register(spark: SparkSession) -> None:
    """Make `format("logstore")` known to a session; takes about a second, once."""
    from logstore.spark.source import LogStoreSource

    spark.dataSource.register(LogStoreSource)
