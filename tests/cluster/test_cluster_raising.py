"""Transactions whose epoch rises with each end, in a cluster: brokers ask each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from broker.coordinator.internal_topic import partition_of
from broker.transaction_coordinator.state_topic import TRANSACTION_STATE
from broker.wire import messages
from cluster import Cluster
from support.cluster_asking import coordinator_of, running, stable, until
from support.feature_requests import GROUPS, NAME, SAFE, UP, finalized, update
from support.kafka_client import KafkaClient, values_in
from support.places import fast_directory
from support.transaction_requests import RawProducer, fetch_offset

STATES = 2
CONFIG = {
    "offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": STATES,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 100, "min_insync_replicas": 1,
    "default_replication_factor": 3,
}  # fmt: skip


class Scene:
    """A cluster with a topic whose partitions have different leaders, and a producer."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        with KafkaClient(cluster.bootstrap_servers) as client:
            client.create("t", 3)
        until(lambda: all(cluster.partition("t", number) for number in range(3)))
        self.leaders = {number: cluster.wait_for_leader("t", number) for number in range(3)}
        assert len(set(self.leaders.values())) == 3
        self.coordinator, _ = coordinator_of(cluster, "tx")
        self.addresses = running(cluster)
        with self.at(self.coordinator) as client:
            self.producer = RawProducer(client, "tx").begin()
        self.group = next(
            name for name in (f"g{n}" for n in range(100))
            if coordinator_of(cluster, name, 0)[0] != self.coordinator
        )  # fmt: skip

    @contextmanager
    def at(self, broker: int) -> Iterator[KafkaClient]:
        with KafkaClient(self.addresses[broker]) as client:
            yield client

    def send(self, number: int, value: bytes) -> int:
        """Send a batch to the leader of a partition."""
        leader = self.cluster.wait_for_leader("t", number)
        with self.at(leader) as self.producer.client:
            return self.producer.send("t", value, partition=number)

    def commit_offset(self, offset: int) -> int:
        """Commit an offset at the coordinator of the group."""
        with KafkaClient(coordinator_of(self.cluster, self.group, 0)[1]) as client:
            self.producer.client = client
            return self.producer.again(
                lambda: self.producer.commit_offset(self.group, "t", offset, version=5)
            )

    def end(self, *, commit: bool, asker: tuple[int, int] | None = None) -> int:
        """End the transaction, and wait for its markers."""
        with KafkaClient(coordinator_of(self.cluster, "tx")[1]) as client:
            self.producer.client = client
            code = self.producer.again(
                lambda: self.producer.end_raising(commit=commit, asker=asker), 14, 15, 16, 51
            )
            if not code:
                self.producer.wait_for("CompleteCommit" if commit else "CompleteAbort")
            return code

    def committed(self, number: int) -> list[bytes | None]:
        """Read the values of a partition whose transactions have all ended."""
        with self.at(self.cluster.wait_for_leader("t", number)) as client:
            row = client.fetch("t", 0, partition=number, isolation_level=1)
            assert row.last_stable_offset == row.high_watermark
            return values_in(row.records)

    def offset(self) -> tuple[int, int]:
        with KafkaClient(coordinator_of(self.cluster, self.group, 0)[1]) as client:
            return fetch_offset(client, self.group, "t", stable=True)


@contextmanager
def scene() -> Iterator[Scene]:
    with (
        fast_directory() as root,
        Cluster.start(3, directory=root, config=CONFIG, session_seconds=1.5) as cluster,
    ):
        yield Scene(cluster)


def test_leaders_add_their_partitions() -> None:
    """Each leader asks the coordinator before the first batch; so does the group's coordinator."""
    with scene() as made:
        for turn, is_commit in enumerate((True, False, True)):
            for number in range(3):
                assert made.send(number, b"%d" % turn) == 0
            assert made.commit_offset(turn + 1) == 0
            assert made.offset()[0] == 88
            with made.at(made.coordinator) as made.producer.client:
                topics = {one.topic: tuple(one.partitions) for one in made.producer.state().topics}
            assert topics["t"] == (0, 1, 2) and len(topics["__consumer_offsets"]) == 1
            assert made.end(commit=is_commit) == 0
            assert made.producer.epoch == turn + 1
            expected = 3 if turn == 2 else 1
            until(lambda: made.offset() == (0, expected))  # noqa: B023 - called at once
        assert [made.committed(number)[0::2][:3] for number in range(3)] == [[b"0", b"1", b"2"]] * 3


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_is_repeated_at_the_next_coordinator(is_commit: bool) -> None:
    """The coordinator dies after the end; the next one gives the same answer, and the markers."""
    with scene() as made:
        for number in range(3):
            assert made.send(number, b"x") == 0
        assert made.commit_offset(5) == 0
        asker = made.producer.id, made.producer.epoch
        with made.at(made.coordinator) as client:
            made.producer.client = client
            assert made.producer.again(lambda: made.producer.end_raising(commit=is_commit)) == 0
        given = made.producer.id, made.producer.epoch
        made.cluster.kill(made.coordinator)
        number = partition_of("tx", STATES)
        made.cluster.wait_for_leader(TRANSACTION_STATE.name, number, other_than=made.coordinator)
        until(lambda: coordinator_of(made.cluster, "tx")[0] != made.coordinator)
        assert made.end(commit=is_commit, asker=asker) == 0
        assert (made.producer.id, made.producer.epoch) == given == (asker[0], asker[1] + 1)
        for number in range(3):
            leader = made.cluster.wait_for_leader("t", number, other_than=made.coordinator)
            with made.at(leader) as client:
                # 3 if the next coordinator writes the marker again
                until(lambda: stable(client, number) in (2, 3))  # noqa: B023 - called at once
        until(lambda: made.offset() == (0, 5 if is_commit else -1))
        old = RawProducer(made.producer.client, "tx")
        old.id, old.epoch = asker
        leader = made.cluster.wait_for_leader("t", 0, other_than=made.coordinator)
        with made.at(leader) as old.client:
            assert old.send("t", b"zombie") == 47


def test_a_late_marker_from_another_broker_is_refused() -> None:
    """The request between brokers says that the epoch was raised."""
    with scene() as made:
        assert made.send(0, b"x") == 0 and made.end(commit=True) == 0
        assert made.send(0, b"y") == 0
        asked = messages.WriteTxnMarkersRequest
        topic = asked.WritableTxnMarkerTopic("t", [0])
        marker = asked.WritableTxnMarker(
            made.producer.id, made.producer.epoch, True, [topic], 1000, True
        )
        with made.at(made.leaders[0]) as client:
            (found,) = client.call("WriteTxnMarkers", markers=[marker]).markers
            assert found.topics[0].partitions[0].error_code == 47
            assert stable(client, 0) == 2
        assert made.end(commit=False) == 0


def test_regression_a_partition_with_a_later_coordinator_epoch() -> None:
    """The transaction stayed prepared, because its marker was refused and never sent again."""
    with scene() as made:
        asked = messages.WriteTxnMarkersRequest
        topic = asked.WritableTxnMarkerTopic("t", [0])
        assert made.send(0, b"x") == 0
        marker = asked.WritableTxnMarker(
            made.producer.id, made.producer.epoch, False, [topic], 1000, False
        )
        with made.at(made.leaders[0]) as client:
            (found,) = client.call("WriteTxnMarkers", markers=[marker]).markers
            assert found.topics[0].partitions[0].error_code == 0
            (found,) = client.call(
                "WriteTxnMarkers", markers=[marker._replace(coordinator_epoch=7)]
            ).markers
            row = found.topics[0].partitions[0]
            assert (row.error_code, row.coordinator_epoch) == (52, 1000)
        assert made.end(commit=False) == 0


def test_many_producers_at_the_same_time() -> None:
    """Their questions share requests; each transaction has all its batches."""
    with scene() as made:
        failures: list[Exception] = []

        def run(name: str) -> None:
            try:
                with KafkaClient(coordinator_of(made.cluster, name)[1]) as client:
                    producer = RawProducer(client, name).begin()
                for turn in range(3):
                    for number, leader in made.leaders.items():
                        with made.at(leader) as producer.client:
                            value = f"{name}-{turn}".encode()
                            assert producer.send("t", value, partition=number) == 0
                    with KafkaClient(coordinator_of(made.cluster, name)[1]) as client:
                        producer.client = client
                        commit = turn != 1
                        assert (
                            producer.again(
                                lambda commit=commit: producer.end_raising(commit=commit)
                            )
                            == 0
                        )
                        producer.wait_for("CompleteCommit" if commit else "CompleteAbort")
                assert producer.epoch == 3
            except Exception as error:  # noqa: BLE001 - the test reports it
                failures.append(error)

        threads = [threading.Thread(target=run, args=(f"p{number}",)) for number in range(12)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert not failures, failures
        for number in range(3):
            found = [one for one in made.committed(number) if one and b"-" in one]
            assert len(found) == 36 and len(set(found)) == 36


def test_a_transaction_is_open_while_the_level_changes() -> None:
    """It is ended with its protocol; the next ones use the older protocol, then the newer."""
    with scene() as made:
        assert made.send(0, b"x") == 0
        with made.at(made.leaders[1]) as client:
            assert update(client, (NAME, 1, SAFE)) == 0

        def is_known(level: int) -> bool:
            found = []
            for broker in made.addresses:
                with made.at(broker) as client:
                    found.append(finalized(client)[1] == {NAME: level, GROUPS: 1})
            return all(found)

        until(lambda: is_known(1))
        assert made.send(1, b"aborted") == 0
        assert made.end(commit=False) == 0 and made.producer.epoch == 1
        with made.at(made.coordinator) as client:
            made.producer.client = client
            assert made.producer.again(lambda: made.producer.add(("t", 1))) == 0
        with made.at(made.leaders[1]) as client:
            made.producer.client = client
            assert made.producer.produce("t", b"y", partition=1) == 0
        with made.at(made.coordinator) as client:
            made.producer.client = client
            made.producer.finish(commit=True)
            assert (
                made.producer.init(producer_id=made.producer.id, producer_epoch=made.producer.epoch)
                == 0
            )
        with made.at(made.leaders[2]) as client:
            assert update(client, (NAME, 2, UP)) == 0
        until(lambda: is_known(2))
        assert made.send(1, b"z") == 0 and made.end(commit=True) == 0
        assert made.producer.epoch == 3
        assert {b"y", b"z"} <= set(made.committed(1))
