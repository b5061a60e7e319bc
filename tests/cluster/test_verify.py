"""`logstore cluster verify` finds replicas that differ, in a real cluster."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from crc32c import crc32c

from broker.wire.error_codes import ErrorCode
from broker.wire.messages import FetchRequest
from cluster import Cluster
from cluster.tools.asking import Asked, parse_servers
from cluster.tools.verify import COMPARING, Pace, Verification
from logstore.cli.app import app
from logstore.format.prefix import walk
from support.replica_nodes import wait_until

SECONDS = 60.0
CRC_AT, CRC_END = 17, 21
BATCHES = 10


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    """Three brokers."""
    with Cluster.start(brokers=3) as cluster:
        yield cluster


def filled(cluster: Cluster, name: str, *, policy: str = "delete") -> None:
    """Create a topic with two partitions, and send ten batches of ten records to each."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    topic = NewTopic(name, 2, replica_assignment=[[1, 2, 3], [2, 3, 1]])
    topic.config = {"cleanup.policy": policy}
    admin.create_topics([topic])[name].result(SECONDS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for batch in range(BATCHES):
        for partition in range(2):
            for number in range(10):
                key = b"%d" % number
                producer.produce(name, b"%d of %d" % (number, batch), key, partition)
            assert producer.flush(SECONDS) == 0
    settle(cluster, name)


def settle(cluster: Cluster, name: str) -> None:
    """Wait until all replicas know that all records are replicated."""
    for partition in range(2):
        cluster.wait_in_sync(name, partition)
    wait_until(lambda: marks(cluster, name) == {BATCHES * 10}, SECONDS)


def marks(cluster: Cluster, name: str) -> set[int]:
    """Return the high watermarks of all replicas: followers learn of them a bit later."""
    stores = [cluster._node(one).store for one in (1, 2, 3)]
    return {store.log(name, one).high_watermark for store in stores for one in range(2)}


def verify(cluster: Cluster, *arguments: object) -> Result:
    words = ["cluster", "verify", "--bootstrap-servers", cluster.bootstrap_servers]
    return CliRunner().invoke(app, [*words, "--format", "json", *map(str, arguments)])


def is_done(words: list[str]) -> bool:
    return CliRunner().invoke(app, words).exit_code == 0


def rows_of(done: Result, code: int) -> list[dict[str, Any]]:
    assert done.exit_code == code, done.output
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def damage(
    cluster: Cluster, broker: int, name: str, offset: int, *, is_hidden: bool = True
) -> None:
    """Change the last value of the batch with an offset, on the disk of a broker.

    Args:
        is_hidden: whether the checksum is changed, too, so that the broker does not see it.
    """
    (path,) = Path(cluster.log_dirs(broker)[0]).glob(f"{name}-0/*.log")
    data = bytearray(path.read_bytes())
    places = [one for one in walk(bytes(data)) if one.base_offset <= offset]
    place = max(places, key=lambda one: one.base_offset)
    end = place.position + place.size_bytes
    data[end - 2] ^= 0x01  # the last byte of a value; a count of headers follows
    if is_hidden:
        crc = crc32c(bytes(data[place.position + CRC_END : end]))
        data[place.position + CRC_AT : place.position + CRC_END] = crc.to_bytes(4, "big")
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), data[place.position : end], place.position)


def test_replicas_that_are_the_same(shared: Cluster) -> None:
    """With the same batches at all brokers; a status lists them on request."""
    filled(shared, "same")
    done = verify(shared, "same")
    assert rows_of(done, 0) == []
    assert "2 partitions, " in done.stderr and " read, 0 problems" in done.stderr
    for row in rows_of(verify(shared, "--all", "same"), 0):
        assert (row["state"], row["offset"], row["end_offset"]) == ("same", 0, BATCHES * 10)
        assert row["brokers"] == [1, 2, 3]
    assert verify(shared, "other").exit_code == 1
    assert verify(shared, "--throttle", "0MB/s", "same").exit_code == 2
    assert verify(shared, "--throttle", "7", "same").exit_code == 2


@pytest.mark.parametrize("broker", [1, 3])
def test_a_hidden_damage_of_one_replica_is_found(shared: Cluster, broker: int) -> None:
    """The leader's or a follower's: bytes and checksum fit, so the broker sees nothing."""
    name = f"hidden-{broker}"
    filled(shared, name)
    damage(shared, broker, name, 35)
    (row,) = rows_of(verify(shared, name), 1)
    assert (row["name"], row["state"], row["offset"]) == (f"{name}-0", "different", 30)
    assert row["brokers"] == [1, 2, 3]
    others = ",".join(str(one) for one in (1, 2, 3) if one != broker)
    groups = row["detail"].split("; ")
    assert sorted(one.split(":")[0] for one in groups) == sorted([str(broker), others])
    assert all(re.search(r": 30-39 crc [0-9a-f]{8} epoch \d+$", one) for one in groups)


@pytest.mark.parametrize("broker", [1, 3])
def test_a_wrong_replica_is_replaced_by_two_reassignments(
    shared: Cluster, broker: int, tmp_path: Path
) -> None:
    """To the others only, and back: then the leader's, or a follower's, is copied again."""
    name = f"mended-{broker}"
    filled(shared, name)
    damage(shared, broker, name, 35)
    others = [one for one in (1, 2, 3) if one != broker]
    for replicas in (others, [1, 2, 3]):
        file = tmp_path / "plan.json"
        entry = {"topic": name, "partition": 0, "replicas": replicas}
        file.write_text(json.dumps({"partitions": [entry]}))
        servers = ["--bootstrap-servers", shared.bootstrap_servers]
        words = ["cluster", "reassign", *servers, "--file", str(file)]
        assert CliRunner().invoke(app, [*words, "--execute"]).exit_code == 0
        wait_until(partial(is_done, [*words, "--verify"]), SECONDS)
    settle(shared, name)
    assert rows_of(verify(shared, name), 0) == []


def test_bytes_that_do_not_fit_their_checksum(shared: Cluster) -> None:
    """The checksum is computed again: the header alone would look the same."""
    filled(shared, "torn")
    damage(shared, 2, "torn", 99, is_hidden=False)
    (row,) = rows_of(verify(shared, "torn"), 1)
    assert (row["state"], row["offset"], row["brokers"]) == ("wrong checksum", 90, [2])


def test_a_batch_that_its_broker_cannot_read(shared: Cluster) -> None:
    """After a restart, the broker checks each batch at its first read, and refuses this one."""
    filled(shared, "refused")
    damage(shared, 3, "refused", 35, is_hidden=False)
    shared.stop(3)
    shared.restart(3)
    settle(shared, "refused")
    (row,) = rows_of(verify(shared, "refused"), 1)
    assert (row["state"], row["offset"], row["brokers"]) == ("unreadable", 30, [3])


def test_a_compacted_topic_may_lack_records(shared: Cluster) -> None:
    """One replica is compacted: no difference. A changed record is one."""
    filled(shared, "compacted", policy="compact")
    store = shared._node(2).store
    assert rows_of(verify(shared, "compacted"), 0) == []
    log = store.log("compacted", 0)
    assert log.roll_if_due(2**50)
    log.flush()
    log.compact()
    assert len([*store["compacted", 0]]) == 10
    assert rows_of(verify(shared, "compacted"), 0) == []
    damage(shared, 3, "compacted", 99)
    (row,) = rows_of(verify(shared, "compacted"), 1)
    assert (row["state"], row["offset"]) == ("different", 99)


def test_regression_a_topic_that_was_compacted_earlier(shared: Cluster) -> None:
    """Two replicas were compacted before the policy was changed; a changed record is found."""
    filled(shared, "earlier", policy="compact")
    for broker in (1, 2):
        log = shared._node(broker).store.log("earlier", 0)
        assert log.roll_if_due(2**50)
        log.flush()
        log.compact()
    admin = AdminClient({"bootstrap.servers": shared.bootstrap_servers})
    policy = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ConfigResource.Type.TOPIC, "earlier", incremental_configs=[policy])
    for done in admin.incremental_alter_configs([changed]).values():
        done.result(SECONDS)
    assert len([*shared._node(2).store["earlier", 0]]) == 10
    assert len([*shared._node(3).store["earlier", 0]]) == 100
    assert rows_of(verify(shared, "earlier"), 0) == []
    damage(shared, 3, "earlier", 99)
    (row,) = rows_of(verify(shared, "earlier"), 1)
    assert (row["state"], row["offset"]) == ("different", 90)


def test_a_replica_that_does_not_answer_is_not_compared() -> None:
    """The others are; the exit code says that something is missing."""
    with Cluster.start(brokers=3) as cluster:
        filled(cluster, "orders")
        cluster.kill(3)
        cluster.wait_for_leader("orders", 0, other_than=3)
        rows = rows_of(verify(cluster, "orders"), 1)
        assert [(row["name"], row["state"], row["brokers"]) for row in rows] == [
            ("orders-0", "not compared", [3]),
            ("orders-1", "not compared", [3]),
        ]
        damage(cluster, 2, "orders", 0)
        rows = rows_of(verify(cluster, "orders"), 1)
        assert [row["state"] for row in rows] == ["different", "not compared", "not compared"]


def test_the_rate_and_the_memory_are_limited(shared: Cluster) -> None:
    """An answer has at most one second's bytes, or one batch."""
    filled(shared, "slow")
    slept: list[float] = []
    with Asked(parse_servers(shared.bootstrap_servers)) as asked:
        metadata = asked.metadata()
        size = 0
        for rate in (None, 1000):
            pace = Pace(rate, sleep=slept.append, clock=lambda: 0.0)
            work = Verification(asked, metadata, pace)
            (found,) = work.compare(("slow", 0), (1, 2, 3), is_compacted=False)
            assert found.state == "same"
            size = size or pace.size_bytes
            assert pace.size_bytes == size
    assert max(slept) == pytest.approx(size / 1000)
    assert len(slept) >= 3 * BATCHES / 8  # an answer of 1,000 bytes has fewer than eight batches


def test_a_follower_answers_a_tool_only(shared: Cluster) -> None:
    """A consumer is sent to the leader; the tool gets what is replicated, without a wait."""
    filled(shared, "roles")
    with Asked(parse_servers(shared.bootstrap_servers)) as asked:
        brokers = {one.node_id: one for one in asked.metadata().brokers}
        for replica_id, expected in ((COMPARING, 0), (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)):
            part = FetchRequest.FetchPartition(
                partition=0, fetch_offset=BATCHES * 10, partition_max_bytes=1000
            )
            topic = FetchRequest.FetchTopic(topic="roles", partitions=[part])
            request = FetchRequest(
                replica_id=replica_id, max_wait_ms=60_000, min_bytes=1, topics=[topic]
            )
            row = asked.fetch(brokers[3], request).responses[0].partitions[0]
            assert row.error_code == expected
            if not expected:
                assert (row.high_watermark, row.log_start_offset) == (BATCHES * 10, 0)
