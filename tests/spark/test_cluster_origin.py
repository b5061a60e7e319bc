"""Spark reads a cluster as a consumer does: from files of this machine, or by Fetch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from cluster import Cluster
from cluster.spark.pieces import ClusterPiece
from logstore import LogConfig, LogStore
from support import brokers_of_spark as spark_brokers
from support.brokers_of_spark import (
    ALL_COLUMNS,
    consumed,
    create,
    produce,
    produce_transactions,
    reader_of,
    row_of,
    rows_of,
    wait_until_local,
)

LEVELS = ("read_uncommitted", "read_committed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three brokers, with a topic of plain records and a topic of transactions."""
    with spark_brokers.started() as made:
        create(made, "plain")
        produce(made, "plain", 300)
        create(made, "transactions")
        opened = produce_transactions(made, "transactions", 7, is_last_open=True)
        for topic in ("plain", "transactions"):
            wait_until_local(made, topic)
        yield made
        del opened  # up to here, its last transaction is open


def elsewhere(piece: Any) -> ClusterPiece:
    """Give a piece as it is for an executor on a machine without a replica."""
    assert isinstance(piece, ClusterPiece)
    return dataclasses.replace(piece, holders=())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("topic", ["plain", "transactions"])
def test_records_are_those_of_a_consumer(cluster: Cluster, topic: str, level: str) -> None:
    """From local files and by Fetch, with both isolation levels, in pieces of any size."""
    wanted = consumed(cluster.bootstrap_servers, topic, level)
    assert len(wanted) == {"plain": 600}.get(topic, 70 if level == LEVELS[0] else 30)
    for most in ("1000", "7"):
        given = {"isolationLevel": level, "maxRecordsPerPartition": most}
        reader = reader_of(cluster.bootstrap_servers, topic, **given)
        assert rows_of(reader) == (wanted, {"local": len(wanted)})
        pieces = [elsewhere(piece) for piece in reader.partitions()]
        assert rows_of(reader, pieces) == (wanted, {"fetched": len(wanted)})


def test_spark_itself_reads_the_cluster(cluster: Cluster, spark: Any, tmp_path: Path) -> None:
    """A batch and a stream through the JVM give the records of a consumer."""
    given = {"brokers": cluster.bootstrap_servers, "topic": "plain", "columns": ALL_COLUMNS}
    batch = spark.read.format("logstore").options(**given).load().toArrow()
    options = {"checkpointLocation": str(tmp_path / "checkpoint"), "path": str(tmp_path / "out")}
    stream = spark.readStream.format("logstore").options(**given, startingOffsets="earliest")
    writer = stream.load().writeStream.format("parquet").options(**options)
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    wanted = consumed(cluster.bootstrap_servers, "plain")
    for table in (batch, pq.read_table(tmp_path / "out")):
        rows = [row_of(row) for row in table.to_pylist()]
        assert sorted(rows, key=lambda row: row[:2]) == wanted


def test_a_foreign_log_dir_at_the_reported_path_is_not_read(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Another machine has another disk at the same path: the name and the topic id may agree."""
    create(cluster, "sole", replicas=1)
    produce(cluster, "sole", 50)
    wait_until_local(cluster, "sole")
    wanted = consumed(cluster.bootstrap_servers, "sole")
    reader = reader_of(cluster.bootstrap_servers, "sole")
    pieces: list[Any] = list(reader.partitions())
    with LogStore.open([tmp_path / "other"], admin_socket=False) as store:
        config = LogConfig(record_format="kafka")
        for piece in pieces:
            log = store.create(*piece.key, config=config, topic_id=piece.topic_id)
            log.extend([b"foreign"] * 60)
    path = str(tmp_path / "other")
    planted = []
    for piece in pieces:
        (holder,) = piece.holders
        there = holder._replace(log_dirs=((path, holder.log_dirs[0][1]),))
        planted.append(dataclasses.replace(piece, holders=(there,)))
    assert rows_of(reader, planted) == (wanted, {"fetched": len(wanted)})
    assert rows_of(reader, pieces) == (wanted, {"local": len(wanted)})


@pytest.mark.parametrize("strict", ["true", "false"])
def test_regression_a_leader_that_is_cut_off_does_not_end_a_read(strict: str) -> None:
    """Clients reach the old leader, which is the first server; it lacks acknowledged records."""
    with spark_brokers.started() as made:
        create(made, "plain")
        produce(made, "plain", 50)
        view = made.partition("plain", 0)
        assert view is not None
        old = view.leader
        nodes = {
            one.id: f"{one.host}:{one.port}"
            for one in AdminClient({"bootstrap.servers": made.bootstrap_servers})
            .list_topics(timeout=60)
            .brokers.values()
        }
        others = ",".join(address for one, address in nodes.items() if one != old)
        made.cut(old)
        made.wait_for_leader("plain", 0, other_than=old)
        producer = Producer({"bootstrap.servers": others})
        for _ in range(100):
            producer.produce("plain", b"new", partition=0)
        assert producer.flush(60) == 0
        reader = reader_of(f"{nodes[old]},{others}", "plain", failOnDataLoss=strict)
        pieces: list[Any] = list(reader.partitions())
        ends = [piece.end for piece in pieces if piece.partition == 0]
        assert max(ends) == 150
        assert len([row for row in rows_of(reader)[0] if row[0] == 0]) == 150
        made.heal()
