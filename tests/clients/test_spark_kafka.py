"""Spark's own Kafka source and sink, in batches and in streams."""

from __future__ import annotations

import sys
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from support.client_programs import Served, demand_java, jars, lines_of
from support.places import environment

# The newest on Maven; pyspark may be newer.
VERSION = "4.2.0"
PROGRAM = Path(__file__).parent / "spark" / "tables.py"
TIME, COUNT, SECONDS = 1_700_000_000_000, 300, 60.0


@pytest.fixture(scope="module")
def classes() -> str:
    """Fetch the source's jars; gives their paths."""
    demand_java()
    source = ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION)
    found = jars(f"spark-kafka-{VERSION}", source).glob("*.jar")
    return ",".join(str(path) for path in found if "slf4j" not in path.name)


def fill(served: Served, topic: str, start: int, count: int) -> None:
    """Write records to two partitions, a millisecond apart."""
    producer = confluent_kafka.Producer({"bootstrap.servers": served.address})
    for number in range(start, start + count):
        producer.produce(
            topic, b"%d" % number, b"k", partition=number % 2, timestamp=TIME + number
        )  # fmt: skip
    assert producer.flush(SECONDS) == 0


def read(served: Served, topic: str) -> list[bytes]:
    """Read all records of a topic."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": served.address, "group.id": "all"})
    partitions = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(2)]
    wanted = sum(consumer.get_watermark_offsets(one, SECONDS)[1] for one in partitions)
    consumer.assign(partitions)
    found: list[bytes] = []
    while len(found) < wanted:
        found += [message.value() for message in consumer.consume(wanted, 1.0)]
    consumer.close()
    return found


def test_tables_and_streams_over_topics(classes: str, served: Served, tmp_path: Path) -> None:
    """A stream goes on from its checkpoint in a new process, after a restart of the broker."""
    admin = AdminClient({"bootstrap.servers": served.address})
    names = ["spark-times", "spark-written", "spark-in", "spark-out"]
    for made in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        made.result(SECONDS)
    fill(served, "spark-times", 0, 100)
    fill(served, "spark-in", 0, COUNT)

    def run(steps: str) -> list[str]:
        checkpoint = tmp_path / "checkpoint"
        return lines_of(
            [sys.executable, PROGRAM, served.address, classes, steps, checkpoint], env=environment()
        )

    between = [*range(20, 60, 2), *range(31, 61, 2)]
    assert run("batch,stream") == [
        " ".join(map(str, between)), "10", "55", "400 400", str(COUNT)
    ]  # fmt: skip
    served.restart()
    fill(served, "spark-in", COUNT, COUNT)
    assert run("stream") == [str(COUNT)]
    copies = sorted(b"copy of %d" % number for number in range(2 * COUNT))
    assert sorted(read(served, "spark-out")) == copies
