"""The scenarios of KIP-112: log dirs fail, return, and are replaced, while a client produces.

The brokers have real sockets and logs, and two log dirs each. The producer sends with acks=all. At
the end of each test, each replica has every acknowledged record once, in order. A failing disk
answers each call with EIO.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from broker.wire import messages as m
from broker.wire.error_codes import ErrorCode
from cluster import znodes
from logstore import LogStoreError
from support.bad_dirs import (
    NAME,
    SECONDS,
    failing_disk,
    placed,
    producing,
    reassign,
    state_of,
    versions,
    view_of,
    views_of,
    wait_offline,
)
from support.cluster_brokers import ClusterBrokers
from support.kafka_client import KafkaClient
from support.places import fast_directory
from support.replica_nodes import wait_until

PARTITIONS = 6


def cluster(root: Any, *brokers: int) -> ClusterBrokers:
    return ClusterBrokers(
        root, brokers, dirs=2, default_replication_factor=3, min_insync_replicas=2
    )


@pytest.fixture
def brokers() -> Iterator[ClusterBrokers]:
    with fast_directory() as root, cluster(root, 1, 2, 3) as made:
        yield made


def wait_in_sync(brokers: ClusterBrokers) -> None:
    brokers.wait_in_sync(NAME, 1, 2, 3)


def test_1_a_topic_is_created_while_a_disk_fails(brokers: ClusterBrokers) -> None:
    """The replicas are created in the other log dir of this broker, and join the ISR."""
    with failing_disk(brokers, 1, 0) as disk, producing(brokers, PARTITIONS):
        wait_in_sync(brokers)
        assert disk.injected
        assert placed(brokers[1]) == dict.fromkeys(range(PARTITIONS), "1-1")
        assert sorted(placed(brokers[2]).values()) == ["2-0"] * 3 + ["2-1"] * 3


@pytest.mark.alone
def test_2_a_disk_fails_under_load(brokers: ClusterBrokers) -> None:
    """Its partitions have new leaders within a second; the others notice nothing."""
    with producing(brokers, PARTITIONS) as client:
        wait_in_sync(brokers)
        there = placed(brokers[1])
        concerned = [one for one, name in there.items() if name == "1-0"]
        others = [one for one in there if one not in concerned]
        led = [one for one in concerned if view_of(brokers, one).leader == 1]
        views, before = [view_of(brokers, one) for one in others], versions(brokers, others)
        assert led and others
        with failing_disk(brokers, 1, 0):
            began = time.monotonic()
            for partition in led:
                brokers.leader(NAME, partition, other_than=1)
            seconds = time.monotonic() - began
            for partition in concerned:
                wait_offline(brokers, partition, 1)
            client.wait_for_progress()
            print(f"{len(led)} partitions had new leaders after {seconds:.2f} s")
            assert seconds < 1
            assert [view_of(brokers, one) for one in others] == views
            assert versions(brokers, others) == before
            assert brokers.admin.get(znodes.broker_path(1)).version == 0  # not registered again
        brokers[1].store.reopen_dir(brokers[1].paths[0])
        wait_in_sync(brokers)
        assert placed(brokers[1]) == there


def test_3_a_broker_starts_with_a_bad_disk(brokers: ClusterBrokers) -> None:
    """It serves the replicas of the other log dir, and creates nothing in place of the lost ones.

    Without a log dir that works, it does not start.
    """
    with producing(brokers, PARTITIONS) as client:
        wait_in_sync(brokers)
        there = placed(brokers[1])
        brokers[1].kill()
        with failing_disk(brokers, 1, 0):
            brokers.start(1)
            for partition, name in there.items():
                if name == "1-0":
                    wait_offline(brokers, partition, 1)
                else:
                    wait_until(partial(is_in_sync, brokers, partition), SECONDS)
            client.wait_for_progress()
            found = placed(brokers[1])
            assert found == {one: name for one, name in there.items() if name == "1-1"}
            brokers[1].kill()
            with failing_disk(brokers, 1, 1), pytest.raises(LogStoreError):
                brokers.start(1)
        brokers.start(1)
        wait_in_sync(brokers)
        assert placed(brokers[1]) == there


def is_in_sync(brokers: ClusterBrokers, partition: int) -> bool:
    views = views_of(brokers, partition)
    return all(set(view.isr) == {1, 2, 3} and not view.offline for view in views)


def has_no_leader(brokers: ClusterBrokers, partition: int) -> bool:
    return all(view.leader == -1 for view in views_of(brokers, partition))


def test_4_a_disk_is_replaced_by_an_empty_one(
    brokers: ClusterBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replicas are created again, and lead only after they have caught up."""
    with producing(brokers, 2) as client:
        wait_in_sync(brokers)
        there = placed(brokers[1])
        (lost,) = [one for one, name in there.items() if name == "1-0"]
        brokers[1].kill()
        client.wait_for_progress()
        shutil.rmtree(brokers[1].paths[0])
        brokers[1].paths[0].mkdir()
        one = brokers.start(1)
        wait_offline(brokers, lost, 1)  # an empty directory may be a disk that is not mounted
        assert lost not in placed(one)
        replica = one.broker.member.replicas.at(NAME, lost)
        assert replica is not None
        with monkeypatch.context() as patch:
            patch.setattr(replica, "next_fetch", lambda: None)
            one.store.reopen_dir(one.paths[0], format_new=True)
            wait_until(lambda: placed(one) == there, SECONDS)
            for other in (2, 3):
                brokers[other].kill()
            wait_until(partial(has_no_leader, brokers, lost), SECONDS)
            assert one.store.log(NAME, lost).log_end_offset == 0
            for other in (2, 3):
                brokers.start(other)
            assert brokers.leader(NAME, lost).id in (2, 3)
        one.broker.member.may_fetch(replica)
        wait_in_sync(brokers)
        client.wait_for_progress()
        assert state_of(brokers, lost).unclean_epoch == -1


def test_4_a_disk_is_removed_from_the_configuration(brokers: ClusterBrokers) -> None:
    """Its replicas are created again on the disk that is left, and follow."""
    with producing(brokers, PARTITIONS) as client:
        wait_in_sync(brokers)
        brokers[1].kill()
        client.wait_for_progress()
        brokers.configured[1] = ["1"]
        brokers.start(1)
        wait_in_sync(brokers)
        assert placed(brokers[1]) == dict.fromkeys(range(PARTITIONS), "1-1")
        brokers[2].kill()
        client.wait_for_progress()  # the new replicas count, and may lead
        brokers.start(2)
        wait_in_sync(brokers)


def test_5_a_client_asks_which_replicas_are_offline(brokers: ClusterBrokers) -> None:
    """Metadata name those on bad log dirs and those on dead brokers; DescribeLogDirs the dirs."""
    with producing(brokers, 2):
        wait_in_sync(brokers)
        (bad,) = [one for one, name in placed(brokers[1]).items() if name == "1-0"]
        with failing_disk(brokers, 1, 0):
            wait_offline(brokers, bad, 1)
            for broker in (1, 2, 3):
                with brokers.client(broker) as client:
                    assert offline_replicas(client) == {bad: [1], 1 - bad: []}
            with brokers.client(1) as client:
                dirs = {one.log_dir[-3:]: one for one in log_dirs(client)}
            assert ErrorCode(dirs["1-0"].error_code) is ErrorCode.KAFKA_STORAGE_ERROR
            assert ErrorCode(dirs["1-1"].error_code) is ErrorCode.NONE
            assert not dirs["1-0"].topics
            brokers[3].kill()
            wait_offline(brokers, bad, 1, 3)
            wait_offline(brokers, 1 - bad, 3)
            with brokers.client(2) as client:
                assert offline_replicas(client) == {bad: [1, 3], 1 - bad: [3]}
        brokers.start(3)
        brokers[1].store.reopen_dir(brokers[1].paths[0])
        wait_in_sync(brokers)
        with brokers.client(1) as client:
            assert offline_replicas(client) == {0: [], 1: []}


def offline_replicas(client: KafkaClient) -> dict[int, list[int]]:
    """Ask for the metadata of the topic."""
    asked = [m.MetadataRequest.MetadataRequestTopic(name=NAME)]
    (topic,) = client.call("Metadata", topics=asked).topics
    return {one.partition_index: sorted(one.offline_replicas) for one in topic.partitions}


def log_dirs(client: KafkaClient) -> Any:
    """Ask for all log dirs of a broker."""
    return client.call("DescribeLogDirs", topics=None).results


def test_6_the_controller_dies_with_a_disk(brokers: ClusterBrokers) -> None:
    """The next one finds out which replicas are offline, and so does the one after it."""
    with producing(brokers, PARTITIONS) as client:
        wait_in_sync(brokers)
        first = controller_of(brokers)
        victim = next(one for one in (1, 2, 3) if one != first)
        bad = [one for one, name in placed(brokers[victim]).items() if name == f"{victim}-0"]
        with failing_disk(brokers, victim, 0):
            brokers[first].kill()
            for partition in bad:
                wait_offline(brokers, partition, first, victim)
            brokers.start(first)
            client.wait_for_progress()
            second = controller_of(brokers)
            assert second != first
            brokers[second].kill()
            if second != victim:
                for partition in bad:
                    wait_offline(brokers, partition, second, victim)
            brokers.start(second)
            client.wait_for_progress()
            for partition in bad:
                wait_offline(brokers, partition, victim)
        brokers[victim].store.reopen_dir(brokers[victim].paths[0])
        wait_in_sync(brokers)


def controller_of(brokers: ClusterBrokers) -> int:
    return brokers.up()[0].broker.member.metadata.view.controller_id


def test_7_a_reassignment_waits_for_offline_replicas() -> None:
    """Nothing is removed before the new replicas are in sync, and nothing offline is forgotten."""
    with (
        fast_directory() as root,
        cluster(root, 1, 2, 3, 4) as brokers,
        producing(brokers, 1) as client,
    ):
        old = list(view_of(brokers).replicas)
        (new,) = {1, 2, 3, 4} - set(old)
        gone, wanted = old[0], [*old[1:], new]
        brokers[new].store.take_offline(brokers[new].paths[1])
        reassign(brokers, {0: wanted})
        wait_offline(brokers, 0, new)  # it may have the replica on the bad disk (P17)
        client.wait_for_progress()
        state = state_of(brokers)
        assert state.target == tuple(wanted) and set(state.isr) == set(old)
        number = int(placed(brokers[gone])[0][-1])
        brokers[gone].store.take_offline(brokers[gone].paths[number])
        client.wait_for_progress()
        brokers[new].store.reopen_dir(brokers[new].paths[1])
        wait_until(lambda: state_of(brokers).target is None, SECONDS)
        assert state_of(brokers).replicas == tuple(wanted)
        client.wait_for_progress()
        assert state_of(brokers).removed == {gone}
        assert (brokers[gone].paths[number] / f"{NAME}-0").is_dir()
        brokers[gone].store.reopen_dir(brokers[gone].paths[number])
        wait_until(lambda: not state_of(brokers).removed, SECONDS)
        assert placed(brokers[gone]) == {}


def test_8_a_topic_is_deleted_while_a_replica_is_offline(brokers: ClusterBrokers) -> None:
    """The replica is deleted when its disk returns; then a new topic has a replica there, too."""
    with producing(brokers, 1):
        wait_in_sync(brokers)
        number = int(placed(brokers[1])[0][-1])
        path = brokers[1].paths[number]
        brokers[1].store.take_offline(path)
        wait_offline(brokers, 0, 1)
    delete(brokers)
    wait_until(lambda: not placed(brokers[2]) and not placed(brokers[3]), SECONDS)
    assert len(brokers.admin.children(znodes.DELETIONS)) == 1
    assert (path / f"{NAME}-0").is_dir()
    with producing(brokers, 1) as client:
        wait_offline(brokers, 0, 1)
        brokers[1].store.reopen_dir(path)
        wait_until(lambda: not brokers.admin.children(znodes.DELETIONS), SECONDS)
        wait_in_sync(brokers)
        client.wait_for_progress()


def delete(brokers: ClusterBrokers) -> None:
    with brokers.client(2) as client:
        topics = [m.DeleteTopicsRequest.DeleteTopicState(NAME)]
        (row,) = client.call("DeleteTopics", topics=topics, timeout_ms=20_000).responses
        assert ErrorCode(row.error_code) is ErrorCode.NONE
