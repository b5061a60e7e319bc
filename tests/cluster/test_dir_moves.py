"""KIP-113 in a cluster: replicas move between the log dirs of a broker, while a client produces.

The cluster does not notice a move: role, leader epoch, ISR and the state in the coordination store
stay. The producer sends with acks=all. At the end, each replica has every acknowledged record once,
in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from broker.wire import messages as m
from broker.wire.error_codes import ErrorCode
from support.bad_dirs import (
    NAME,
    SECONDS,
    alter,
    placed,
    producing,
    reassign,
    state_of,
    versions,
    view_of,
    views_of,
)
from support.cluster_brokers import ClusterBrokers, Running
from support.places import fast_directory
from support.replica_nodes import wait_until


def cluster(root: Any, *brokers: int) -> ClusterBrokers:
    return ClusterBrokers(
        root, brokers, dirs=2, default_replication_factor=3, min_insync_replicas=2
    )


@pytest.fixture
def brokers() -> Iterator[ClusterBrokers]:
    with fast_directory() as root, cluster(root, 1, 2, 3) as made:
        yield made


def other_dir(running: Running, partition: int) -> int:
    return 1 - int(placed(running)[partition][-1])


def is_placed(running: Running, partition: int, number: int) -> bool:
    return placed(running).get(partition) == f"{running.id}-{number}"


def has_begun(running: Running, wanted: dict[int, int]) -> bool:
    """Check that each move has made its copy, or has ended already."""
    log_dirs = running.store.describe_dirs().log_dirs
    copies = {one.partition for found in log_dirs for one in found.partitions if one.is_temporary}
    return all(one in copies or is_placed(running, one, number) for one, number in wanted.items())


def test_a_leader_and_followers_move_under_load(brokers: ClusterBrokers) -> None:
    """All replicas move at once, there and back, without a change of role, epoch or state."""
    with producing(brokers, 3) as client:
        brokers.wait_in_sync(NAME, 1, 2, 3)
        before = versions(brokers, range(3)), [views_of(brokers, one) for one in range(3)]
        assert {view_of(brokers, one).leader for one in range(3)} == {1, 2, 3}
        for _ in range(2):
            for broker in (1, 2, 3):
                wanted = {one: other_dir(brokers[broker], one) for one in range(3)}
                codes = alter(brokers, broker, wanted)
                assert codes == dict.fromkeys(range(3), ErrorCode.NONE)
                for partition, number in wanted.items():
                    wait_until(partial(is_placed, brokers[broker], partition, number), SECONDS)
            client.wait_for_progress()
        after = versions(brokers, range(3)), [views_of(brokers, one) for one in range(3)]
        assert after == before


def test_a_move_beside_a_change_of_role(brokers: ClusterBrokers) -> None:
    """Another leader is elected during the move; after the move, the first one leads again."""
    with producing(brokers, 1) as client:
        brokers.wait_in_sync(NAME, 1, 2, 3)
        for _ in range(3):
            first = view_of(brokers).replicas[0]
            number = other_dir(brokers[first], 0)
            assert alter(brokers, first, {0: number}) == {0: ErrorCode.NONE}
            second = view_of(brokers).replicas[1]
            brokers[second].stop()
            brokers.start(second)
            brokers.wait_in_sync(NAME, 1, 2, 3)
            wait_until(partial(is_placed, brokers[first], 0, number), SECONDS)
            assert brokers.leader(NAME).id == first
            following = other_dir(brokers[second], 0)
            assert alter(brokers, second, {0: following}) == {0: ErrorCode.NONE}
            brokers[first].stop()  # a follower that moves is elected
            brokers.leader(NAME, other_than=first)
            client.wait_for_progress()
            brokers.start(first)
            brokers.wait_in_sync(NAME, 1, 2, 3)
            wait_until(partial(is_placed, brokers[second], 0, following), SECONDS)
            elect_preferred(brokers)


def elect_preferred(brokers: ClusterBrokers) -> None:
    """Let the first replica lead again."""
    with brokers.client(view_controller(brokers)) as client:
        client.call("ElectLeaders", election_type=0, topic_partitions=None, timeout_ms=20_000)
    wait_until(lambda: view_of(brokers).leader == view_of(brokers).replicas[0], SECONDS)


def view_controller(brokers: ClusterBrokers) -> int:
    return brokers.up()[0].broker.member.metadata.view.controller_id


def test_a_broker_is_killed_while_its_leaders_move(brokers: ClusterBrokers) -> None:
    """The moves continue after its return, and its replicas are as whole as before."""
    with producing(brokers, 2) as client:  # as many as threads that move
        brokers.wait_in_sync(NAME, 1, 2, 3)
        for _ in range(3):
            wanted = {one: other_dir(brokers[1], one) for one in range(2)}
            with brokers.client(1) as admin:  # slow moves: the kill comes before their end
                limit(admin, 1_000)
            assert set(alter(brokers, 1, wanted).values()) == {ErrorCode.NONE}
            wait_until(partial(has_begun, brokers[1], wanted))  # a move that waits is forgotten
            brokers[1].kill()
            client.wait_for_progress()
            brokers.start(1)
            with brokers.client(1) as admin:
                limit(admin, 1 << 30)
            for partition, number in wanted.items():
                wait_until(partial(is_placed, brokers[1], partition, number), SECONDS)
            brokers.wait_in_sync(NAME, 1, 2, 3)
            client.wait_for_progress()


def limit(client: Any, bytes_per_second: int) -> None:
    """Limit the rate of all moves of a broker."""
    request = m.IncrementalAlterConfigsRequest
    key = "replica.alter.log.dirs.io.max.bytes.per.second"
    config = request.AlterableConfig(key, 0, str(bytes_per_second))
    (row,) = client.call(
        "IncrementalAlterConfigs",
        resources=[request.AlterConfigsResource(4, str(broker_of(client)), [config])],
    ).responses
    assert ErrorCode(row.error_code) is ErrorCode.NONE, row.error_message


def broker_of(client: Any) -> int:
    """Return the broker to which a client is connected."""
    port = client.socket.getpeername()[1]
    brokers = client.call("DescribeCluster").brokers
    return next(int(one.broker_id) for one in brokers if one.port == port)


def test_a_reassignment_names_log_dirs() -> None:
    """A request is kept until the replica exists, over a restart, and for a new topic."""
    with fast_directory() as root, cluster(root, 1, 2, 3, 4) as brokers:
        for number in (1, 0):
            assert alter(brokers, 4, {0: number}) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        for broker in (1, 2, 3):
            assert alter(brokers, broker, {0: 1}) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        with producing(brokers, 1) as client:
            old = view_of(brokers).replicas
            for broker in set(old) - {4}:
                assert placed(brokers[broker]) == {0: f"{broker}-1"}
            if 4 in old:
                assert placed(brokers[4]) == {0: "4-0"}
            (new,) = {1, 2, 3, 4} - set(old)
            for number in (0, 1):
                codes = alter(brokers, new, {0: number})
                assert codes == {0: ErrorCode.REPLICA_NOT_AVAILABLE}  # as Kafka answers
            brokers[new].kill()
            brokers.start(new)
            reassign(brokers, {0: [new, *old[1:]]})
            wait_until(lambda: state_of(brokers).target is None, SECONDS)
            assert placed(brokers[new]) == {0: f"{new}-1"}
            wait_until(lambda: placed(brokers[old[0]]) == {}, SECONDS)
            client.wait_for_progress()
