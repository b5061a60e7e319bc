"""The start-up table says what becomes of every replica directory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import DuplicateLogError, ReplicaOfflineError
from logstore.names import TopicPartition
from logstore.store.startup import Act, Decision, ReplicaFacts, decide

KEY = TopicPartition("orders", 0)


def replica(kind: str = "live", log_dir: str = "/1", *, by_user: bool = False) -> ReplicaFacts:
    """Make one directory of orders-0."""
    suffix = "" if kind == "live" else f".{'0' * 32}.{kind}"
    return ReplicaFacts(log_dir, f"orders-0{suffix}", "orders", 0, kind, "", by_user)


def acts(decisions: list[Decision]) -> list[Act]:
    """Name the acts in order."""
    return [decision.act for decision in decisions]


def test_one_live_dir_opens() -> None:
    """Whether a dir is bad or not."""
    for is_a_dir_bad in (False, True):
        decisions = decide([replica()], is_a_dir_bad=is_a_dir_bad)
        assert decisions == [Decision(Act.OPEN, KEY, (replica(),))]


def test_several_live_dirs_are_offline_and_all_named() -> None:
    """None of them is touched."""
    (decision,) = decide([replica(), replica(log_dir="/2")], is_a_dir_bad=False)
    assert decision.act is Act.OFFLINE
    error = decision.error()
    assert isinstance(error, DuplicateLogError)
    assert error.paths == ["/1/orders-0", "/2/orders-0"]


def test_of_several_live_dirs_the_highest_generation_opens() -> None:
    """Only of one topic id, only where one is higher than all others; nothing is removed."""
    old = replica()._replace(topic_id="a", generation=1)
    new = replica(log_dir="/2")._replace(topic_id="a", generation=2)
    for live in ([old, new], [new, old]):
        opened, left = decide(live, is_a_dir_bad=False)
        assert (opened.act, opened.replicas) == (Act.OPEN, (new,))
        assert (left.act, left.replicas) == (Act.LEAVE, (old,))
    for other in (
        new._replace(topic_id="b"),
        new._replace(generation=1),
        new._replace(topic_id=""),
    ):
        assert acts(decide([old, other], is_a_dir_bad=False)) == [Act.OFFLINE]


def test_what_a_user_deleted_is_purged_once_no_dir_is_bad() -> None:
    """While one is bad, a copy may come back with it."""
    doomed = replica("delete", by_user=True)
    assert acts(decide([doomed], is_a_dir_bad=False)) == [Act.PURGE]
    assert acts(decide([doomed], is_a_dir_bad=True)) == [Act.LEAVE]
    assert acts(decide([replica(), doomed], is_a_dir_bad=False)) == [Act.OPEN, Act.PURGE]


def test_a_move_beside_live_is_left_alone() -> None:
    """It is reported, and the live one opens."""
    assert acts(decide([replica(), replica("move", "/2")], is_a_dir_bad=False)) == [
        Act.OPEN,
        Act.LEAVE,
    ]


def test_without_a_live_dir_the_rest_is_not_served_and_not_replaced() -> None:
    """The replica is offline by name, so that nobody creates an empty one in its place."""
    for kind in ("move", "delete"):
        decisions = decide([replica(kind)], is_a_dir_bad=False)
        assert acts(decisions) == [Act.OFFLINE, Act.LEAVE]
        error = decisions[0].error()
        assert isinstance(error, ReplicaOfflineError)
        assert f".{kind}" in error.reason


def test_a_deleted_replica_is_not_offline_for_a_move_that_is_left() -> None:
    """The user deleted it: there is no such partition."""
    decisions = decide([replica("delete", by_user=True), replica("move", "/2")], is_a_dir_bad=False)
    assert acts(decisions) == [Act.PURGE, Act.LEAVE]


def test_a_stray_is_left_alone() -> None:
    """It belongs to nobody, and takes no name."""
    assert acts(decide([replica("stray")], is_a_dir_bad=False)) == [Act.LEAVE]


@given(
    dirs=st.lists(
        st.builds(
            ReplicaFacts,
            log_dir=st.sampled_from(["/1", "/2", "/3"]),
            dir_name=st.uuids().map(str),
            topic=st.sampled_from(["orders", "x.move"]),
            partition=st.integers(0, 1),
            kind=st.sampled_from(["live", "move", "delete", "stray"]),
            is_deleted_by_user=st.booleans(),
        ),
        max_size=8,
    ),
    is_a_dir_bad=st.booleans(),
)
def test_no_directory_is_forgotten_and_only_deletions_are_purged(
    dirs: list[ReplicaFacts], is_a_dir_bad: bool
) -> None:
    """Each directory is in a decision; a purge is of a user's `.delete`; one dir at most opens."""
    decisions = decide(dirs, is_a_dir_bad=is_a_dir_bad)
    named = {facts for decision in decisions for facts in decision.replicas}
    assert named == set(dirs)
    opened: list[TopicPartition] = []
    for decision in decisions:
        if decision.act is Act.OPEN:
            opened.append(decision.topic_partition)
            assert decision.replicas[0].kind == "live"
        if decision.act is Act.PURGE:
            assert decision.replicas[0].kind == "delete"
            assert decision.replicas[0].is_deleted_by_user
            assert not is_a_dir_bad
    assert len(opened) == len(set(opened))
