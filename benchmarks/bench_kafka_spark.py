"""Measure how fast Spark sums up a topic in a broker's directory, against a client of that broker.

    python -m benchmarks.bench_kafka_spark [--records N] [--rounds N] [--master local[2]]

Kafka's own producer, with its default batches, sends 5 million records of 100 bytes in 4 partitions
to a real broker. Then both sides take turns. Each counts the records, and sums up sizes and
timestamps by partition. One side is Spark, which reads the broker's files. The other side is
confluent-kafka, the fastest Python client, over a connection on loopback. Both results must equal
the result of Kafka's own consumer. All data is in the page cache. The start of Spark's session and
the first round are reported separately. The JVM still compiles during some later rounds, so every
round is reported.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import logstore.spark
from benchmarks.kafka import java
from benchmarks.kafka.broker import TOOLS, Broker
from benchmarks.report import machine

TOPIC, PARTITIONS = "measured", 4
RECORD_BYTES = 100
PRODUCER_BATCH_BYTES = 16384  # Kafka's default
CONSUME_MESSAGES, CONSUME_SECONDS, OFFSETS_SECONDS = 10_000, 1.0, 120.0
SUMS_SOURCE = Path(java.__file__).with_name("ConsumerSums.java")
GOAL = 3.0

# By partition: records, bytes of values, sum of timestamps in ms.
Sums = dict[int, tuple[int, int, int]]


def fill(broker: Broker, records: int) -> None:
    """Create the topic, and produce the records."""
    broker.run(
        f"{TOOLS}.TopicCommand", "--bootstrap-server", broker.address, "--create", "--topic",
        TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "1",
    )  # fmt: skip
    broker.produce(TOPIC, records, RECORD_BYTES, -1, PRODUCER_BATCH_BYTES)


def by_kafka(home: Path, broker: Broker) -> Sums:
    """Compute the sums with Kafka's own consumer, in a separate JVM."""
    words = java.command(home, str(SUMS_SOURCE), broker.address, TOPIC, heap="512m")
    rows = [tuple(map(int, line.split())) for line in java.do(words, home).splitlines()]
    return {partition: (count, size, times) for partition, count, size, times in rows}


def by_client(servers: str) -> Sums:
    """Sum up with confluent-kafka, in one thread."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    settings: dict[str, Any] = {"bootstrap.servers": servers, "group.id": "measuring"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "queued.min.messages": 1_000_000})
    sums = [[0, 0, 0] for _ in range(PARTITIONS)]
    try:
        places = [TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        left = sum(consumer.get_watermark_offsets(place, OFFSETS_SECONDS)[1] for place in places)
        consumer.assign(places)
        while left:
            messages = consumer.consume(CONSUME_MESSAGES, CONSUME_SECONDS)
            for message in messages:
                row = sums[message.partition() or 0]
                row[0] += 1
                row[1] += len(message.value() or b"")
                row[2] += message.timestamp()[1]
            left -= len(messages)
    finally:
        consumer.close()
    return {number: (row[0], row[1], row[2]) for number, row in enumerate(sums)}


def by_spark(spark: Any, log_dirs: list[str]) -> Sums:
    """Sum up with Spark, which reads the broker's files."""
    reader = spark.read.format("logstore").option("kafkaLogDirs", "true")
    reader = reader.option("logDirs", json.dumps(log_dirs)).option("subscribe", TOPIC)
    frame = reader.option("columns", "partition,timestamp,value").load()
    frame.createOrReplaceTempView("measured")
    rows = spark.sql(
        "select partition, count(*), sum(length(value)), sum(unix_millis(timestamp)) "
        "from measured group by partition"
    ).collect()
    return {row[0]: (row[1], row[2], row[3]) for row in rows}


def in_turns(
    sides: dict[str, Callable[[], Sums]], expected: Sums, rounds: int
) -> dict[str, list[float]]:
    """Time all sides in turns; return the seconds of each side, without its first round."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, run in sides.items():
            began = time.perf_counter()
            found = run()
            took = time.perf_counter() - began
            assert found == expected, (name, found, expected)
            if number:
                seconds[name].append(took)
            else:
                print(f"  {name}, first time: {took:.2f} s")
    return seconds


def compare(home: Path, base: str, arguments: argparse.Namespace) -> float:
    """Fill a broker and measure; return the client's seconds divided by Spark's seconds."""
    log_dirs = [f"{base}/a", f"{base}/b"]
    for path in log_dirs:
        Path(path).mkdir()
    broker = Broker(home, log_dirs)
    try:
        fill(broker, arguments.records)
        expected = by_kafka(home, broker)
        assert sum(row[0] for row in expected.values()) == arguments.records
        began = time.perf_counter()
        spark = logstore.spark.session(arguments.master)
        logstore.spark.register(spark)
        print(f"\n  a session of Spark: {time.perf_counter() - began:.2f} s")
        sides = {
            "client": lambda: by_client(broker.address),
            "Spark": lambda: by_spark(spark, log_dirs),
        }
        seconds = in_turns(sides, expected, arguments.rounds)
        spark.stop()
    finally:
        broker.stop()
    print(f"\n{arguments.records:,} records of {RECORD_BYTES} bytes, {machine(base)}\n")
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    for name, median in medians.items():
        each = " ".join(f"{one:.2f}" for one in seconds[name])
        rate = arguments.records / median / 1e6
        print(f"  {name:6} {median:6.2f} s ({each}), {rate:.2f} M records/s")
    return medians["client"] / medians["Spark"]


def main() -> int:
    """Run the comparison; return 1 if the goal is missed, 2 if Kafka is not available."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--dir", default=None)
    arguments = parser.parse_args()
    try:
        home = java.fetch()
    except java.MissingError as error:
        print(f"cannot compare with Kafka: {error}", file=sys.stderr)
        return 2
    base = tempfile.mkdtemp(prefix="logstore-kafka-", dir=arguments.dir)
    try:
        ratio = compare(home, base, arguments)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    mark = "met" if ratio >= GOAL else "MISSED"
    print(
        f"\n  counts and sums equal those of Kafka's consumer; Spark is {ratio:.2f} times as fast"
    )
    print(f"  (at least {GOAL:g}: {mark})")
    return 0 if ratio >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
