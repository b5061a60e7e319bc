"""Measure how fast Spark reads a topic of a cluster: from local replicas, and by Fetch.

    python -m benchmarks.bench_spark_brokers [--records N] [--rounds N] [--master local[2]]

A producer sends records of 100 bytes to a topic with 4 partitions and 3 replicas, in a cluster of
three processes `logstore broker`. Then the sides take turns. Each computes, for each partition, the
number of records, the bytes of values and the sum of timestamps. All sides must get the same sums.

    local      Spark, option brokers: the files of replicas on this machine
    fetched    the same, with localReplicas=false: Fetch from the leaders
    kafka      Spark's own Kafka source, from the same brokers (if Maven can fetch it)
    client     confluent-kafka, in one thread

All data is in the page cache. The first round of each side is reported separately. Before that, one
process reads all records without Spark, from files and by Fetch, and its processor time is printed.
With `--rounds 0`, only this is done.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import logstore.spark
from benchmarks.bench_kafka_spark import PARTITIONS, TOPIC, Sums, by_client, in_turns
from benchmarks.cluster.processes import Brokers, running
from benchmarks.cluster.zookeeper import zookeeper
from benchmarks.kafka import java
from benchmarks.report import machine
from logstore.spark.options import read_options
from logstore.spark.source import BatchReader

REPLICAS = 3
RECORD_BYTES = 100
SECONDS = 120.0
CHECKPOINT_SECONDS_MAX, LOOK_SECONDS = 150.0, 2.0
PROCESSOR_RUNS = 5
KAFKA_SOURCE = ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0")
SUMS = (
    "select partition, count(*), sum(length(value)), sum(unix_millis(timestamp)) "
    "from measured group by partition"
)


def fill(servers: str, records: int) -> None:
    """Create the topic, and send the records."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, REPLICAS)])[TOPIC].result(SECONDS)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "acks": "all"})
    for number in range(records):
        value = b"%0100d" % number
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(SECONDS):
        raise RuntimeError("not all records were sent")


def summed(spark: Any, frame: Any) -> Sums:
    """Compute the sums of a DataFrame with Spark."""
    frame.createOrReplaceTempView("measured")
    return {row[0]: (row[1], row[2], row[3]) for row in spark.sql(SUMS).collect()}


def by_spark(spark: Any, servers: str, **options: str) -> Sums:
    """Compute the sums with this project's source."""
    given = {"brokers": servers, "topic": TOPIC, "columns": "partition,timestamp,value", **options}
    return summed(spark, spark.read.format("logstore").options(**given).load())


def by_kafka_source(spark: Any, servers: str) -> Sums:
    """Compute the sums with Spark's own Kafka source."""
    given = {"kafka.bootstrap.servers": servers, "subscribe": TOPIC}
    return summed(spark, spark.read.format("kafka").options(**given).load())


def read_here(servers: str, columns: str, **options: str) -> tuple[float, Counter[str]]:
    """Read all records in this process, as tasks do; return the processor time, and the origins."""
    given = {"brokers": servers, "topic": TOPIC, "columns": f"{columns},readFrom", **options}
    reader = BatchReader(read_options(given, is_stream=False))
    began, origins = time.process_time(), Counter[str]()
    for piece in reader.partitions():
        for batch in reader.read(piece):
            origins[batch.column("readFrom")[0].as_py()] += batch.num_rows
    return time.process_time() - began, origins


def wait_for_checkpoints(servers: str) -> None:
    """Wait until the brokers have written the high watermarks, so that all records are local."""
    deadline = time.monotonic() + CHECKPOINT_SECONDS_MAX
    while set(read_here(servers, "offset")[1]) != {"local"}:
        if time.monotonic() > deadline:
            raise RuntimeError("not all records became local")
        time.sleep(LOOK_SECONDS)


def measure_processor(servers: str, records: int) -> None:
    """Print the processor time of reading in one process, without Spark: the best of some runs."""
    for name in ("true", "false"):
        turns = [read_here(servers, "partition,timestamp,value", localReplicas=name)
                 for _ in range(PROCESSOR_RUNS)]  # fmt: skip
        seconds = min(turn[0] for turn in turns)
        print(
            f"  processor time of a reader, {'/'.join(turns[0][1])}: "
            f"{seconds:.2f} s, {seconds / records * 1e6:.2f} us a record",
            flush=True,
        )


def kafka_jars() -> str:
    """Return the jars of Spark's Kafka source, or "" if they cannot be fetched."""
    try:
        libs = java.fetch(f"spark-kafka-{KAFKA_SOURCE[2]}", [KAFKA_SOURCE]) / "libs"
    except java.MissingError as error:
        print(f"without Spark's own Kafka source: {error}", file=sys.stderr)
        return ""
    return ",".join(str(path) for path in libs.glob("*.jar") if "slf4j" not in path.name)


def compare(brokers: Brokers, arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Fill the topic, and time all sides in turns."""
    servers = brokers.servers
    began = time.perf_counter()
    fill(servers, arguments.records)
    print(f"sent {arguments.records:,} records in {time.perf_counter() - began:.1f} s", flush=True)
    expected = by_client(servers)
    assert sum(row[0] for row in expected.values()) == arguments.records
    wait_for_checkpoints(servers)
    measure_processor(servers, arguments.records)
    if not arguments.rounds:
        return {}
    found = kafka_jars()
    spark = logstore.spark.session(arguments.master, conf={"spark.jars": found} if found else {})
    try:
        logstore.spark.register(spark)
        sides: dict[str, Callable[[], Sums]] = {
            "local": lambda: by_spark(spark, servers),
            "fetched": lambda: by_spark(spark, servers, localReplicas="false"),
            "client": lambda: by_client(servers),
        }
        if found:
            sides["kafka"] = lambda: by_kafka_source(spark, servers)
        return in_turns(sides, expected, arguments.rounds)
    finally:
        spark.stop()


def main() -> int:
    """Run the comparison, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--dir", default=None)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="spark-brokers-", dir=arguments.dir) as base,
        tempfile.TemporaryDirectory(prefix="spark-brokers-", dir="/dev/shm") as records,
        zookeeper() as keeper,
        running(Path(base), Path(records), keeper.hosts) as brokers,
    ):
        seconds = compare(brokers, arguments)
        print(f"\n{arguments.records:,} records of {RECORD_BYTES} bytes, {machine(base)}\n")
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    for name, median in medians.items():
        each = " ".join(f"{one:.2f}" for one in seconds[name])
        rate = arguments.records / median / 1e6
        print(f"  {name:8} {median:6.2f} s ({each}), {rate:.2f} M records/s")
    if medians:
        print(
            f"\n  fetched takes {medians['fetched'] / medians['local']:.2f} times as long as local"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
