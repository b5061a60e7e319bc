"""A cluster with topics of every kind, and what a consumer reads from it; for the Spark tests."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker.config import STORE_CONFIG
from cluster import Cluster
from cluster.spark.pieces import ClusterPiece
from logstore.spark.options import read_options
from logstore.spark.source import BatchReader
from support.places import fast_directory
from support.replica_nodes import wait_until

SECONDS = 60.0
PARTITIONS = 2
CODECS = ("gzip", "snappy", "lz4", "zstd")
CONFIG: dict[str, Any] = {
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    "default_replication_factor": 3,
    "min_insync_replicas": 1,
    # The high watermark on the disk follows the real one at once.
    "store_config": STORE_CONFIG.replace(log_flush_offset_checkpoint_interval_ms=100),
}
ALL_COLUMNS = "partition,offset,key,value,timestamp,headers,readFrom"

Row = tuple[int, int, bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]


@contextmanager
def started() -> Iterator[Cluster]:
    """Start three brokers with two log dirs each."""
    with (
        fast_directory() as root,
        Cluster.start(3, 2, directory=root, config=CONFIG, session_seconds=1.5) as cluster,
    ):
        yield cluster


def create(
    cluster: Cluster, name: str, config: Mapping[str, str] | None = None, replicas: int = 3
) -> None:
    """Create a topic whose partitions have their first replicas on brokers 1 and 2."""
    chosen = [[1, 2, 3][:replicas], [2, 3, 1][:replicas]]
    topic = NewTopic(name, PARTITIONS, replica_assignment=chosen)
    topic.config = dict(config or {})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([topic])[name].result(SECONDS)
    for partition in range(PARTITIONS):
        cluster.wait_for_leader(name, partition)
        cluster.wait_in_sync(name, partition)


def produce(cluster: Cluster, name: str, count: int, first: int = 0, codec: str = "none") -> None:
    """Send records to both partitions, in batches of 50; some have no key, or headers."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "compression.type": codec})
    for number in range(first, first + count):
        for partition in range(PARTITIONS):
            key = None if number % 7 == 0 else b"k%d" % (number % 10)
            headers = [("n", b"%d" % number), ("empty", None)] if number % 3 == 0 else None
            value = b"value %d of %d" % (number, partition) * (number % 5)
            producer.produce(
                name, value, key, partition, timestamp=10**12 + number, headers=headers
            )
        if number % 50 == 49:
            assert producer.flush(SECONDS) == 0
    assert producer.flush(SECONDS) == 0


def produce_keyed(cluster: Cluster, name: str, count: int) -> None:
    """Send records with few different keys to both partitions."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(count):
        for partition in range(PARTITIONS):
            producer.produce(name, b"%d" % number, b"k%d" % (number % 50), partition)
        if number % 100 == 99:
            assert producer.flush(SECONDS) == 0
    assert producer.flush(SECONDS) == 0


def produce_transactions(cluster: Cluster, name: str, count: int, *, is_last_open: bool) -> Any:
    """Send transactions of ten records; every second one is aborted. Return the producer."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"of-{name}",
            "transaction.timeout.ms": 900_000,
        }
    )  # fmt: skip
    producer.init_transactions(SECONDS)
    for number in range(count):
        producer.begin_transaction()
        for one in range(10):
            producer.produce(name, b"%d.%d" % (number, one), b"k%d" % one, one % PARTITIONS)
        assert producer.flush(SECONDS) == 0
        if number % 2:
            producer.abort_transaction(SECONDS)
        elif number + 1 < count or not is_last_open:
            producer.commit_transaction(SECONDS)
    return producer


def consumed(
    servers: str, topic: str, level: str = "read_uncommitted", first: int = 0
) -> list[Row]:
    """Read a topic from an offset to its end with a consumer of librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": "none", "isolation.level": level,
            "enable.partition.eof": True, "enable.auto.commit": False,
            "auto.offset.reset": "error", "check.crcs": True,
        }
    )  # fmt: skip
    left, rows = set(range(PARTITIONS)), []
    try:
        consumer.assign([TopicPartition(topic, one, first) for one in left])
        while left:
            message = consumer.poll(SECONDS)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(message.partition())
                continue
            rows.append((
                message.partition(), message.offset(), message.key(), message.value(),
                message.timestamp()[1], tuple(message.headers() or ()),
            ))  # fmt: skip
    finally:
        consumer.close()
    return sorted(rows, key=lambda row: row[:2])


def reader_of(servers: str, topic: str, **options: str) -> BatchReader:
    """Make a reader of a topic, as Spark makes it."""
    given = {"brokers": servers, "topic": topic, "columns": ALL_COLUMNS, **options}
    return BatchReader(read_options(given, is_stream=False))


def rows_of(reader: BatchReader, pieces: list[Any] | None = None) -> tuple[list[Row], Counter[str]]:
    """Read all pieces; give the rows in order, and how many records came from where."""
    rows, origins = [], Counter[str]()
    for piece in reader.partitions() if pieces is None else pieces:
        for batch in reader.read(piece):
            for row in batch.to_pylist():
                rows.append(row_of(row))
                origins[row["readFrom"]] += 1
    return sorted(rows, key=lambda row: row[:2]), origins


def row_of(row: Mapping[str, Any]) -> Row:
    """Bring a row of Spark into the form of `consumed`."""
    headers = tuple((one["key"], one["value"]) for one in row["headers"] or ())
    timestamp = round(row["timestamp"].timestamp() * 1000)
    return row["partition"], row["offset"], row["key"], row["value"], timestamp, headers


def wait_until_local(cluster: Cluster, topic: str, **options: str) -> None:
    """Wait until the high watermarks on the disk have reached the ends of a topic."""

    def is_local() -> bool:
        reader = reader_of(cluster.bootstrap_servers, topic, **options)
        return set(rows_of(reader)[1]) <= {"local"}

    wait_until(is_local, SECONDS)


def planned(cluster: Cluster, topic: str, **options: str) -> tuple[BatchReader, list[Any]]:
    """Plan a read, with one piece for each partition."""
    reader = reader_of(cluster.bootstrap_servers, topic, **options)
    return reader, list(reader.partitions())


def with_holders(
    pieces: list[Any], choose: Callable[[ClusterPiece], tuple[Any, ...]]
) -> list[ClusterPiece]:
    """Give the pieces as they are for a machine that has only some of the replicas."""
    return [dataclasses.replace(piece, holders=choose(piece)) for piece in pieces]


def rows_with(
    reader: BatchReader, pieces: list[Any], change: Callable[[], object]
) -> tuple[list[Row], Counter[str]]:
    """Read the pieces, and call `change` after the first batch of the first piece."""
    rows, origins, is_changed = [], Counter[str](), False
    for piece in pieces:
        for batch in reader.read(piece):
            for row in batch.to_pylist():
                rows.append(row_of(row))
                origins[row["readFrom"]] += 1
            if not is_changed:
                change()
                is_changed = True
    assert is_changed
    return sorted(rows, key=lambda row: row[:2]), origins
