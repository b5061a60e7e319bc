"""Log dirs are added to brokers and removed from them while a client produces, without a restart.

The brokers have real sockets and logs, and two log dirs each. The producer sends with acks=all. At
the end of each test, each replica has every acknowledged record once, in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.wire.error_codes import ErrorCode
from cluster import znodes
from cluster.pure.replica import Role
from logstore import LogDirError, LogDirOfflineError
from support.bad_dirs import (
    NAME,
    SECONDS,
    alter,
    failing_disk,
    placed,
    producing,
    view_of,
    views_of,
    wait_offline,
)
from support.cluster_brokers import ClusterBrokers, Running
from support.places import fast_directory
from support.replica_nodes import wait_until

PARTITIONS = 4


@pytest.fixture
def brokers() -> Iterator[ClusterBrokers]:
    with (
        fast_directory() as root,
        ClusterBrokers(
            root, (1, 2, 3), dirs=2, default_replication_factor=3, min_insync_replicas=2
        ) as made,
    ):
        yield made


def wait_in_sync(brokers: ClusterBrokers) -> None:
    brokers.wait_in_sync(NAME, 1, 2, 3)


def registered_dirs(brokers: ClusterBrokers, broker: int) -> int:
    """Count the log dirs of a broker's registration."""
    path = znodes.broker_path(broker)
    znode = brokers.admin.get(path)
    node = znodes.parse_registration(znode.data, path, znode.czxid, znode.mzxid)
    return len(node.registration.dir_epochs)


def roles(running: Running) -> dict[int, tuple[Role, int]]:
    """Give role and leader epoch of each replica of a broker."""
    return {
        one.number: (one.role, one.leader_epoch)
        for one in running.broker.member.replicas
        if one.name == NAME
    }


def described(brokers: ClusterBrokers, broker: int) -> dict[str, ErrorCode]:
    """Ask for the log dirs of a broker, by their names."""
    with brokers.client(broker) as client:
        found: Any = client.call("DescribeLogDirs", topics=None).results
    return {one.log_dir[-3:]: ErrorCode(one.error_code) for one in found}


def has_dirs(brokers: ClusterBrokers, broker: int, count: int) -> bool:
    host = brokers[broker].broker.member.host
    return registered_dirs(brokers, broker) == len(host.dirs) == count and host.are_all_good


def wait_for_dirs(brokers: ClusterBrokers, broker: int, count: int) -> None:
    wait_until(partial(has_dirs, brokers, broker, count), SECONDS)


def add(brokers: ClusterBrokers, broker: int) -> None:
    """Add a third log dir, and wait until the broker is registered with it."""
    brokers[broker].store.add_dir(brokers.root / f"{broker}-2")
    wait_for_dirs(brokers, broker, 3)


def move_all(brokers: ClusterBrokers, broker: int, number: int) -> None:
    """Move all replicas of a broker to one of its log dirs."""
    wanted = dict.fromkeys(placed(brokers[broker]), number)
    assert set(alter(brokers, broker, wanted).values()) == {ErrorCode.NONE}
    there = dict.fromkeys(wanted, f"{broker}-{number}")
    wait_until(lambda: placed(brokers[broker]) == there, SECONDS)


def is_empty(running: Running) -> bool:
    """Tell whether the first log dir of a broker has no replica."""
    found = running.store.describe_dirs().log_dirs
    return not next(one for one in found if one.path == str(running.paths[0])).partitions


def is_removed(running: Running, path: Path) -> bool:
    """Remove a log dir; the store refuses this while it purges what moved away."""
    try:
        running.store.remove_dir(path)
    except LogDirError:
        return False
    return True


def test_a_log_dir_is_added_and_another_one_removed(brokers: ClusterBrokers) -> None:
    """Replicas move to it, new ones are created in it, and the broker leads what it led.

    A leader that moves there gets a new leader epoch, because the log dir is newer than it (P11).
    """
    with producing(brokers, PARTITIONS) as client:
        wait_in_sync(brokers)
        before = roles(brokers[1])
        add(brokers, 1)
        assert described(brokers, 1) == dict.fromkeys(("1-0", "1-1", "1-2"), ErrorCode.NONE)
        client.create("more", 3)
        store = brokers[1].store
        wait_until(lambda: all(("more", one) in store for one in range(3)), SECONDS)
        assert "1-2" in {store.log("more", one).log_dir[-3:] for one in range(3)}
        client.wait_for_progress()
        assert roles(brokers[1]) == before
        move_all(brokers, 1, 2)
        alter(brokers, 1, dict.fromkeys(range(3), 2), "more")
        wait_until(lambda: is_empty(brokers[1]), SECONDS)
        wait_until(partial(is_removed, brokers[1], brokers.root / "1-0"), SECONDS)
        wait_for_dirs(brokers, 1, 2)
        assert described(brokers, 1) == dict.fromkeys(("1-1", "1-2"), ErrorCode.NONE)
        client.wait_for_progress()
        after = roles(brokers[1])
        assert [after[one][0] for one in before] == [role for role, _ in before.values()]
        assert not view_of(brokers).offline
        brokers[1].kill()
        brokers.configured[1] = ["1", "2"]
        brokers.start(1)
        wait_in_sync(brokers)
        assert placed(brokers[1]) == dict.fromkeys(range(PARTITIONS), "1-2")


def test_a_log_dir_fails_right_after_it_was_added(brokers: ClusterBrokers) -> None:
    """Only the replica on it is offline; it follows again when the log dir works again."""
    with producing(brokers, PARTITIONS) as client:
        wait_in_sync(brokers)
        add(brokers, 1)
        moved = min(placed(brokers[1]))
        alter(brokers, 1, {moved: 2})
        wait_until(lambda: placed(brokers[1])[moved] == "1-2", SECONDS)
        with failing_disk(brokers, 1, 2):
            wait_offline(brokers, moved, 1)
            client.wait_for_progress()
            assert described(brokers, 1)["1-2"] is ErrorCode.KAFKA_STORAGE_ERROR
            assert registered_dirs(brokers, 1) == 3
            for other in set(range(PARTITIONS)) - {moved}:
                assert not view_of(brokers, other).offline
        brokers[1].store.reopen_dir(brokers.root / "1-2")
        wait_in_sync(brokers)
        assert placed(brokers[1])[moved] == "1-2"


def restart_without(brokers: ClusterBrokers) -> int:
    """Move a replica of a broker to a new log dir, and start the broker without this log dir."""
    wait_in_sync(brokers)
    add(brokers, 1)
    moved = min(placed(brokers[1]))
    alter(brokers, 1, {moved: 2})
    wait_until(lambda: placed(brokers[1])[moved] == "1-2", SECONDS)
    brokers[1].kill()
    brokers.start(1)
    wait_offline(brokers, moved, 1)
    return moved


def test_a_broker_restarts_without_its_new_log_dir_and_with_it(brokers: ClusterBrokers) -> None:
    """Without it, its replica is offline, and nothing is created in its place."""
    with producing(brokers, PARTITIONS) as client:
        moved = restart_without(brokers)
        client.wait_for_progress()
        with pytest.raises(LogDirOfflineError):
            brokers[1].store.log(NAME, moved)
        brokers[1].store.add_dir(brokers.root / "1-2")  # the missing log dir is found
        wait_in_sync(brokers)
        assert placed(brokers[1])[moved] == "1-2"
        brokers[1].stop()
        brokers.configured[1] = ["0", "1", "2"]
        brokers.start(1)
        wait_in_sync(brokers)
        assert placed(brokers[1])[moved] == "1-2"


def test_a_missing_log_dir_is_given_up(brokers: ClusterBrokers) -> None:
    """The replica that was on it is created again in another log dir, and follows."""
    with producing(brokers, PARTITIONS) as client:
        moved = restart_without(brokers)
        brokers[1].store.remove_dir(brokers.root / "1-2", lost=True)
        wait_in_sync(brokers)
        assert placed(brokers[1])[moved] in ("1-0", "1-1")
        client.wait_for_progress()


def test_a_lost_log_dir_is_given_up(brokers: ClusterBrokers) -> None:
    """Its replicas are created again in another log dir, and follow, without a restart."""
    with producing(brokers, PARTITIONS) as client:
        wait_in_sync(brokers)
        there = placed(brokers[1])
        with failing_disk(brokers, 1, 0):
            lost = [one for one, name in there.items() if name == "1-0"]
            for partition in lost:
                wait_offline(brokers, partition, 1)
            kept = {one: role for one, role in roles(brokers[1]).items() if one not in lost}
            brokers[1].store.remove_dir(brokers.root / "1-0", lost=True)
            wait_in_sync(brokers)
            assert placed(brokers[1]) == dict.fromkeys(range(PARTITIONS), "1-1")
            assert {one: roles(brokers[1])[one] for one in kept} == kept
        assert has_dirs(brokers, 1, 1) and set(described(brokers, 1)) == {"1-1"}
        assert all(not view.offline for view in views_of(brokers, lost[0]))
        client.wait_for_progress()
