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

The columns and options are the same as in Spark's Kafka source. Spark is imported when a function
of this module is called for the first time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.spark.local import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from logstore.spark.checks import LogDirs

__all__ = ["describe", "register", "session", "verify"]


def register(spark: SparkSession) -> None:
    """Register `format("logstore")` with a session.

    Call this function once per session. The call takes about a second.
    """
    from logstore.spark.source import LogStoreSource

    spark.dataSource.register(LogStoreSource)


def verify(spark: SparkSession, log_dirs: LogDirs, *, kafka_log_dirs: bool = False) -> DataFrame:
    """Check every batch of a store in parallel; return one row per problem.

    Another process may own the store. The columns are dir, topic, partition, segment (its base
    offset), position (bytes), offset, reason.

    Args:
        kafka_log_dirs: whether the log dirs belong to a Kafka broker.
    """
    from logstore.spark import checks

    return checks.verify(spark, log_dirs, kafka_log_dirs)


def describe(spark: SparkSession, log_dirs: LogDirs, *, kafka_log_dirs: bool = False) -> DataFrame:
    """Measure every partition of a store: bytes, records, keys and their skew, time range.

    Call `register(spark)` first. The columns are dir, topic, partition, bytes, segments,
    log_start_offset, log_end_offset, records, keys, null_keys, key_skew, min_timestamp,
    max_timestamp.

    Args:
        kafka_log_dirs: whether the log dirs belong to a Kafka broker. The broker's internal topics
            are left out.
    """
    from logstore.spark import checks

    return checks.describe(spark, log_dirs, kafka_log_dirs)
