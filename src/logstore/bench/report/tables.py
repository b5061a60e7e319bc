"""Join the trace with pytest-benchmark's JSON in Spark: one row for each measurement.

`throughput`: MB/s of values over the rounds (5th, 50th, 95th percentile). `latency`: milliseconds
of an operation (50th, 95th, 99th percentile, largest). `workers`: each worker's share of the bytes
(skew), and its latency.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from logstore.bench.samples import SAMPLE, TOPIC

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

RUNS_SCHEMA = (
    "datetime string, commit_info map<string,string>, "
    "machine_info struct<release:string,python_version:string,"
    "cpu:struct<brand_raw:string,count:int>>, "
    "benchmarks array<struct<group:string,name:string,params:map<string,string>,"
    "extra_info:map<string,string>,stats:struct<data:array<double>>>>"
)
SAMPLES_SCHEMA = (
    "measurement string, start_ns long, latency_ns long, size_bytes long, records int, worker int"
)


def load_runs(spark: SparkSession, json_paths: Sequence[str]) -> DataFrame:
    """Read pytest-benchmark's documents: one row per measurement, with its rounds."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

    # The schema is explicit, because a type inferred by Spark would depend on the values of a run.
    documents = (
        spark.read.schema(RUNS_SCHEMA)
        .option("multiLine", True)
        .option("mode", "FAILFAST")
        .json(list(json_paths))
    )
    info = F.col("b.extra_info")
    names = ("layout", "fs", "sync", "detail", "note")
    numbers = ("disks", "log_dirs", "writers", "record_bytes", "raw_bytes", "usable_bytes", "bytes",
               "set_bytes_per_second")  # fmt: skip
    return documents.select("datetime", F.explode("benchmarks").alias("b")).select(
        F.to_timestamp("datetime").alias("run_at"),
        F.col("b.group").alias("phase"),
        F.col("b.name").alias("measurement"),
        *[info[name].alias(name) for name in names],
        *[info[name].try_cast("long").alias(name) for name in numbers],
        F.from_json(info["round_bytes"], "array<double>").alias("round_bytes"),
        F.col("b.stats.data").alias("round_seconds"),
    )


def load_samples(spark: SparkSession, trace_dir: str) -> DataFrame:
    """Read the trace with the `logstore` source, and decode the 32 bytes of each record."""
    from logstore import spark as logstore_spark

    logstore_spark.register(spark)
    records = (
        spark.read.format("logstore").option("logDirs", trace_dir).option("subscribe", TOPIC).load()
    )
    return records.select("key", "value").mapInArrow(_take_apart, SAMPLES_SCHEMA)


def _take_apart(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Decode whole batches at once, not record by record."""
    import pyarrow as pa

    for batch in batches:
        values = batch.column("value").cast(pa.binary())
        _, offsets, data = values.buffers()
        first = np.frombuffer(offsets, np.int32)[values.offset]
        rows = np.frombuffer(data, SAMPLE, count=len(batch), offset=int(first))
        columns = [pa.array(np.ascontiguousarray(rows[name])) for name in SAMPLE.names or ()]
        yield pa.RecordBatch.from_arrays(
            [batch.column("key").cast(pa.string()), *columns],
            names=["measurement", *(SAMPLE.names or ())],
        )


def throughput(runs: DataFrame) -> DataFrame:
    """Compute MB/s of values over the rounds of each measurement."""
    from pyspark.sql import functions as F  # noqa: N812

    rates = F.zip_with(
        "round_bytes", "round_seconds", lambda size, seconds: size / seconds / F.lit(1e6)
    )
    kept = [name for name in runs.columns if not name.startswith("round_")]
    rounds = runs.withColumn("mb_s", F.explode(rates))
    return (
        rounds.groupBy(*kept)
        .agg(
            F.count("*").alias("rounds"),
            *[F.percentile("mb_s", F.lit(q)).alias(f"mb_s_p{q * 100:02.0f}") for q in (0.05, 0.95)],
            F.median("mb_s").alias("mb_s"),
        )
        .orderBy("phase", "layout", "measurement")
    )


def _latency_columns() -> list[Any]:
    from pyspark.sql import functions as F  # noqa: N812

    latency = F.col("latency_ns") / F.lit(1e6)
    return [
        F.count("*").alias("operations"),
        *[F.percentile(latency, F.lit(q)).alias(f"ms_p{q * 100:02.0f}") for q in (0.5, 0.95, 0.99)],
        F.max(latency).alias("ms_max"),
    ]


def latency(samples: DataFrame) -> DataFrame:
    """Compute percentiles of the operations' latencies in ms, for each measurement."""
    return samples.groupBy("measurement").agg(*_latency_columns()).orderBy("measurement")


def workers(samples: DataFrame) -> DataFrame:
    """Compute each worker's share of the bytes of its measurement, and its latencies in ms."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    whole = F.sum("size_bytes").over(Window.partitionBy("measurement"))
    return (
        samples.groupBy("measurement", "worker")
        .agg(F.sum("size_bytes").alias("size_bytes"), *_latency_columns())
        .withColumn("share", F.col("size_bytes") / whole)
        .orderBy("measurement", "worker")
    )


def make(spark: SparkSession, json_paths: Sequence[str], trace_dir: str) -> dict[str, DataFrame]:
    """Build the tables of one directory of results: `measurements` and `workers`."""
    runs, samples = load_runs(spark, json_paths), load_samples(spark, trace_dir).cache()
    operations = samples.where("records > 0")
    facts = runs.select("run_at", "measurement", "phase", "layout", "detail", "log_dirs")
    return {
        "measurements": throughput(runs).join(latency(operations), "measurement", "left"),
        "workers": workers(samples).join(facts, "measurement"),
    }
