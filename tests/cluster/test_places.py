"""Test that a replica keeps its losses when it moves to another log dir, also over a kill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.pure.exchange import Moved, Opened, WriteOwnSince
from cluster.pure.partition import handle
from cluster.requests import NEVER
from logstore import StoreEvent, StoreEventKind
from mover import ReplicaMover
from support.inside import abandon
from support.places import fast_directory
from support.replica_group import NAME, NUMBER, Group, Node
from support.replica_nodes import wait_until
from support.replicas import TOPIC, dir_returned, order, replica_of

MOVED = StoreEventKind.REPLICA_MOVED


@pytest.fixture
def group() -> Iterator[Group]:
    with fast_directory() as root, Group(root, dirs=2) as made:
        yield made


def other_dir(node: Node) -> str:
    (other,) = set(node.store.log_dirs) - {node.replica.dir_id}
    return other


def move(node: Node) -> None:
    """Move the replica to the other log dir; the rules are not told."""
    moved: list[StoreEvent] = []
    node.store.add_listener(lambda one: moved.append(one) if one.kind is MOVED else None)
    ReplicaMover.of(node.store).move(NAME, NUMBER, other_dir(node))
    wait_until(lambda: bool(moved))


def lose(node: Node, log_dir: str, since: int) -> None:
    """Let a log dir have lost records at this registration epoch."""
    state = node.host.dirs[log_dir]
    state.whole_since = state.flushed_since = since


def test_regression_a_kill_after_a_move_forgets_no_loss(group: Group) -> None:
    """The replica could lead without acknowledged records that its earlier log dir had lost."""
    group.lead(1)
    node = group.nodes[2]
    source, target = node.replica.dir_id, other_dir(node)
    lose(node, source, 150)
    move(node)
    assert node.replica.dir_id == source  # the process is killed before it hears of the move
    abandon(node.store)
    again = group.start(2)
    lose(again, source, 150)
    lose(again, target, 50)
    assert again.replica.dir_id == target
    assert whole_since(group, again) == 150
    lose(again, source, 160)  # later losses of the earlier log dir do not count any more
    assert whole_since(group, again) == 150
    abandon(again.store)
    once_more = group.start(2)
    lose(once_more, source, 160)
    lose(once_more, target, 50)
    assert whole_since(group, once_more) == 150


def whole_since(group: Group, node: Node) -> int:
    """Ask the replica, as a controller does."""
    group.version += 1
    answer = node.replica.obey(group.role(node, group.state(1, [1])))
    assert answer is not None and not answer.is_offline
    return answer.whole_since


def test_regression_a_follower_fetches_for_its_new_log_dir(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was still served by the thread of its earlier log dir, and waited if that dir hung."""
    group.lead(1)
    node = group.nodes[2]
    fetched: list[str] = []
    monkeypatch.setattr(node, "may_fetch", lambda replica: fetched.append(replica.log.log_dir))
    target = other_dir(node)
    node.replica.look_at_dir()
    assert not fetched  # it has not moved
    move(node)
    node.replica.look_at_dir()
    assert fetched == [target] == [node.replica.dir_id]


def test_a_replica_whose_earlier_log_dir_is_unknown_counts_as_lossy() -> None:
    """Nobody knows what the earlier log dir has lost."""
    replica = replica_of()
    opened = Opened("b", TOPIC, exists=True, spans=((2, 3),), own_since=10, placed_in="?")
    handle(replica, opened, 0)
    assert replica.whole_since == replica.host.registration_epoch
    assert WriteOwnSince(replica.host.registration_epoch, False, 10) in handle(replica, order(), 0)
    assert not replica.is_displaced


def test_the_losses_of_both_log_dirs_count_until_the_numbers_are_written() -> None:
    """The broker was killed before it heard of the move."""
    replica = replica_of()
    dirs = replica.host.dirs
    handle(replica, Opened("b", TOPIC, exists=True, own_since=5, placed_since=6, placed_in="a"), 0)
    dirs["a"].whole_since, dirs["b"].whole_since = 8, 7
    assert replica.whole_since == 8
    dirs["b"].whole_since = 9
    assert replica.whole_since == 9
    dir_returned(replica.host, "a", 15)
    assert replica.whole_since == 15


def test_regression_a_move_that_ends_before_the_registration_is_no_loss() -> None:
    """The replica counted as lossy for ever, because the numbers of its log dirs were unknown."""
    replica = replica_of()
    for log_dir in replica.host.dirs.values():
        log_dir.whole_since = log_dir.flushed_since = NEVER
    handle(replica, Opened("a", TOPIC, exists=True, spans=((2, 3),), own_since=4), 0)
    assert handle(replica, Moved("b", 3), 0) == []
    for log_dir in replica.host.dirs.values():
        log_dir.whole_since = log_dir.flushed_since = 7
    assert replica.whole_since == 7
    assert WriteOwnSince(7, False, 7) in handle(replica, order(), 0)
    assert replica.whole_since == 7
