"""Read a cluster while its files and brokers change (`make spark-brokers`).

Each test compares with a consumer. Most tests call the reader as a task of Spark does, without the
JVM, so that they can change something between two batches of a task.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import random
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from cluster import Cluster
from cluster.errors import PeerError
from cluster.spark import bounds
from cluster.spark.leader_reading import TopicGoneError
from cluster.tools.asking import Asked, parse_servers
from logstore import LogStore
from logstore.errors import OffsetOutOfRangeError
from logstore.log import host
from support import brokers_of_spark as spark_brokers
from support.brokers_of_spark import (
    CODECS,
    SECONDS,
    consumed,
    create,
    planned,
    produce,
    produce_transactions,
    rows_of,
    rows_with,
    wait_until_local,
    with_holders,
)
from support.replica_nodes import wait_until

LEVELS = ("read_uncommitted", "read_committed")
COUNT = 400
numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three brokers, which no test stops."""
    with spark_brokers.started() as made:
        yield made


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """Make a topic with records in many segments, whose high watermarks are on the disks."""
    name = f"topic-{next(numbers)}"
    create(cluster, name, {"segment.bytes": "16384"})
    produce(cluster, name, COUNT)
    wait_until_local(cluster, name)
    return name


def segments(cluster: Cluster, broker: int, topic: str, partition: int) -> list[Path]:
    """List the segments of a replica, in order."""
    name = f"{topic}-{partition}"
    paths = [one for path in cluster.log_dirs(broker) for one in Path(path).glob(f"{name}/*.log")]
    return sorted(paths, key=lambda path: path.name)


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_records(cluster: Cluster, codec: str) -> None:
    """The bytes of each codec are decoded as the consumer decodes them."""
    create(cluster, codec)
    produce(cluster, codec, COUNT, codec=codec)
    wait_until_local(cluster, codec)
    wanted = consumed(cluster.bootstrap_servers, codec)
    reader, pieces = planned(cluster, codec)
    assert rows_of(reader, pieces) == (wanted, {"local": 2 * COUNT})
    fetched = with_holders(pieces, lambda _: ())
    assert rows_of(reader, fetched) == (wanted, {"fetched": 2 * COUNT})


@pytest.mark.parametrize("level", LEVELS)
def test_transactions_in_many_pieces(cluster: Cluster, level: str) -> None:
    """Pieces cut transactions anywhere, and each record comes once, from files or by Fetch."""
    name = f"transactions-{level}".replace("_", "-")
    create(cluster, name)
    opened = produce_transactions(cluster, name, 15, is_last_open=True)
    wait_until_local(cluster, name)
    wanted = consumed(cluster.bootstrap_servers, name, level)
    assert len(wanted) == (70 if level == "read_committed" else 150)
    for most in (1, 3, 1000):
        reader, pieces = planned(
            cluster, name, isolationLevel=level, maxRecordsPerPartition=str(most)
        )
        assert rows_of(reader, pieces) == (wanted, {"local": len(wanted)})
        fetched = with_holders(pieces, lambda _: ())
        assert rows_of(reader, fetched) == (wanted, {"fetched": len(wanted)})
    del opened


def compact(cluster: Cluster, topic: str) -> int:
    """Compact all replicas; return how many bytes they have."""
    size = 0
    for broker, partition in itertools.product(cluster.broker_ids, range(2)):
        log = cluster._node(broker).store.log(topic, partition)
        log.flush()
        log.compact()
        size += log.size_bytes
    return size


def test_a_compacted_topic(cluster: Cluster) -> None:
    """What compaction left is what a consumer reads; a compaction during a read doubles nothing."""
    name = "compacted"
    given = {"cleanup.policy": "compact", "segment.bytes": "16384"}
    create(cluster, name, given)
    spark_brokers.produce_keyed(cluster, name, 3000)
    wait_until_local(cluster, name)
    before = consumed(cluster.bootstrap_servers, name)
    reader, pieces = planned(cluster, name, maxRecordsPerPartition="500")
    rows, _ = rows_with(reader, pieces, lambda: compact(cluster, name))
    assert len({row[:2] for row in rows}) == len(rows) and set(rows) <= set(before)
    wanted = consumed(cluster.bootstrap_servers, name)
    assert len(wanted) < len(before) / 2 and set(wanted) <= set(rows)
    assert rows_of(reader, pieces) == (wanted, {"local": len(wanted)})
    fetched = with_holders(pieces, lambda _: ())
    assert rows_of(reader, fetched) == (wanted, {"fetched": len(wanted)})


def test_the_records_after_the_known_high_watermark_are_fetched(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An election may remove what a replica has after the high watermark on its disk."""
    wanted = consumed(cluster.bootstrap_servers, topic)
    reader, pieces = planned(cluster, topic)
    for mark in (170, 0, None):
        monkeypatch.setattr(host, "checkpointed_high_watermark", lambda _, m=mark: m)
        rows, origins = rows_of(reader, pieces)
        assert rows == wanted and origins["local"] == 2 * (mark or 0)


def test_a_replica_that_moves_is_read(cluster: Cluster, topic: str, small_batches: None) -> None:
    """All replicas move to the other log dir between planning and reading, and during a read."""
    wanted = consumed(cluster.bootstrap_servers, topic)
    reader, pieces = planned(cluster, topic)
    move(cluster, topic)
    assert rows_of(reader, pieces) == (wanted, {"local": len(wanted)})
    rows, origins = rows_with(reader, pieces, lambda: move(cluster, topic))
    assert rows == wanted and origins["local"] > 0


def move(cluster: Cluster, topic: str) -> None:
    """Move each replica to the other log dir of its broker, and wait until it is there."""
    with Asked(parse_servers(cluster.bootstrap_servers)) as asked:
        for broker in asked.metadata([]).brokers:
            wanted = {
                (topic, one): next(
                    path
                    for path in cluster.log_dirs(broker.node_id)
                    if path != cluster._node(broker.node_id).store.log(topic, one).log_dir
                )
                for one in range(2)
            }
            assert not any(asked.move_replicas(broker, wanted).values())
            store = cluster._node(broker.node_id).store
            wait_until(partial(are_in, store, wanted), SECONDS)


def are_in(store: LogStore, paths: Mapping[tuple[str, int], str]) -> bool:
    """Report whether replicas are in these log dirs."""
    return all(store.log(*key).log_dir == path for key, path in paths.items())


def test_a_damaged_or_short_replica_is_left_for_another_one(
    cluster: Cluster, topic: str, small_batches: None, caplog: pytest.LogCaptureFixture
) -> None:
    """The read continues after the last good batch: in another replica, or by Fetch."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    wanted = consumed(cluster.bootstrap_servers, topic)
    reader, pieces = planned(cluster, topic)
    for piece in pieces:
        follower = piece.holders[1].broker
        path = rng.choice(segments(cluster, follower, topic, piece.partition)[:-1])
        data = bytearray(path.read_bytes())
        if piece.partition:
            data[rng.randrange(len(data) // 2, len(data))] ^= 0xFF
            path.write_bytes(data)
        else:
            with path.open("r+b") as file:
                file.truncate(len(data) // 2)
    assert rows_of(reader, pieces) == (wanted, {"local": len(wanted)})
    bad_first = with_holders(pieces, lambda piece: piece.holders[1:])
    with caplog.at_level(logging.WARNING, logger="logstore"):
        assert rows_of(reader, bad_first) == (wanted, {"local": len(wanted)})
    assert "is not read from offset" in caplog.text
    only_bad = with_holders(pieces, lambda piece: piece.holders[1:2])
    rows, origins = rows_of(reader, only_bad)
    assert rows == wanted and origins["fetched"] > 0


def test_records_that_were_deleted_after_planning(cluster: Cluster, topic: str) -> None:
    """The error has both ranges; failOnDataLoss=false continues with what is left."""
    strict, pieces = planned(cluster, topic)
    lenient, _ = planned(cluster, topic, failOnDataLoss="false")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for future in admin.delete_records(
        [TopicPartition(topic, one, 111) for one in (0, 1)]
    ).values():
        future.result(SECONDS)
    wait_until(lambda: starts(cluster, topic) == {111}, SECONDS)
    left = consumed(cluster.bootstrap_servers, topic, first=111)
    assert left[0][1] == 111
    for some in (pieces, with_holders(pieces, lambda _: ())):
        with pytest.raises(OffsetOutOfRangeError, match="a task wants offset 0, the log has 111"):
            rows_of(strict, some)
        assert rows_of(lenient, some)[0] == left


def starts(cluster: Cluster, topic: str) -> set[int]:
    """Give the log starts of all replicas."""
    stores = [cluster._node(one).store for one in cluster.broker_ids]
    return {store.log(topic, one).log_start_offset for store in stores for one in range(2)}


def test_a_topic_that_was_created_again_is_not_read(cluster: Cluster, topic: str) -> None:
    """Not from its files and not by Fetch, although the name and the paths are the same."""
    strict, pieces = planned(cluster, topic)
    lenient, _ = planned(cluster, topic, failOnDataLoss="false")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(SECONDS)
    with pytest.raises(TopicGoneError, match="was deleted"):
        rows_of(strict, pieces)
    wait_until(lambda: is_absent(cluster, topic), SECONDS)
    create(cluster, topic)
    produce(cluster, topic, COUNT + 10)
    wait_until_local(cluster, topic)
    with pytest.raises(TopicGoneError, match="deleted and created again"):
        rows_of(strict, pieces)
    assert rows_of(lenient, pieces) == ([], {})


def test_a_topic_that_is_created_again_during_a_read_gives_no_record(
    cluster: Cluster, topic: str, small_batches: None
) -> None:
    """The files of the new topic have the same names, and records at the same offsets."""
    reader, pieces = planned(cluster, topic, failOnDataLoss="false")

    def create_again() -> None:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.delete_topics([topic])[topic].result(SECONDS)
        wait_until(lambda: is_absent(cluster, topic), SECONDS)
        create(cluster, topic, {"segment.bytes": "16384"})
        produce(cluster, topic, COUNT, 1000)
        wait_until_local(cluster, topic)

    wanted = consumed(cluster.bootstrap_servers, topic)
    rows, _ = rows_with(reader, pieces, create_again)
    assert 0 < len(rows) < len(wanted) and set(rows) <= set(wanted)


def is_absent(cluster: Cluster, topic: str) -> bool:
    """Report whether no broker has a directory of a topic."""
    return not any(
        (Path(path) / f"{topic}-{one}").exists()
        for broker in cluster.broker_ids
        for path in cluster.log_dirs(broker)
        for one in range(2)
    )


def test_a_cluster_that_does_not_answer_is_an_error(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No records are left out, even with failOnDataLoss=false: nothing is known to be lost."""
    monkeypatch.setattr(bounds, "SECONDS_MAX", 0.5)
    reader, pieces = planned(cluster, topic, failOnDataLoss="false")
    nowhere = [dataclasses.replace(piece, holders=(), servers="127.0.0.1:1") for piece in pieces]
    with pytest.raises(PeerError, match="refuses connections"):
        rows_of(reader, nowhere)
