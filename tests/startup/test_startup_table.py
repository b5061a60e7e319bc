"""The start-up table says what becomes of every replica directory."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import (
    DuplicateLogError,
    LogDirOfflineError,
    ReplicaIncompleteError,
    ReplicaOfflineError,
)
from logstore.log.metadata import CAUGHT_UP, COPYING, MoveRecord, Moving, Superseded
from logstore.names import NAME_BYTES_MAX, TopicPartition
from logstore.store.start.startup_table import Act, Decision, ReplicaFacts, decide, is_covered

KEY = TopicPartition("orders", 0)
MOVE_ID = "0123456789abcdef" * 2


def replica(kind: str = "live", log_dir: str = "/1", **facts: Any) -> ReplicaFacts:
    """Make one directory of orders-0."""
    suffix = "" if kind == "live" else f".{MOVE_ID}.{kind}"
    made = ReplicaFacts(log_dir, f"orders-0{suffix}", "orders", 0, kind, "t", generation=1)
    return made._replace(**{"directory_id": f"id of {log_dir}", **facts})


def deletion(**facts: Any) -> ReplicaFacts:
    """Make a directory that its user deleted."""
    return replica("delete", is_deleted_by_user=True, **facts)


def a_move(state: str = COPYING, **facts: Any) -> ReplicaFacts:
    """Make a `.move` from log dir 1 to log dir 2."""
    record = MoveRecord(MOVE_ID, "id of /1", state, 10)
    return replica("move", "/2", **{"record": record, "end_offset": 10, "generation": 2, **facts})


def superseded(**facts: Any) -> ReplicaFacts:
    """Make the source of that move, renamed."""
    return replica("delete", superseded_by=Superseded(2, "id of /2"), end_offset=10)._replace(
        **facts
    )


def acts(*dirs: ReplicaFacts, is_a_dir_bad: bool = False) -> list[tuple[Any, ...]]:
    """Give the acts, each with the kinds of directory that it is about."""
    decisions = decide(dirs, is_a_dir_bad=is_a_dir_bad)
    return [(d.act, *(facts.kind for facts in d.replicas)) for d in decisions]


def test_one_live_dir_opens() -> None:
    """Whether a dir is bad or not."""
    for is_a_dir_bad in (False, True):
        decisions = decide([replica()], is_a_dir_bad=is_a_dir_bad)
        assert decisions == [Decision(Act.OPEN, KEY, (replica(),))]


def test_several_live_dirs_of_one_generation_are_offline_and_all_named() -> None:
    """None of them is touched."""
    (decision,) = decide([replica(), replica(log_dir="/2")], is_a_dir_bad=False)
    assert decision.act is Act.OFFLINE
    error = decision.error()
    assert isinstance(error, DuplicateLogError)
    assert error.paths == ["/1/orders-0", "/2/orders-0"]


def test_of_several_live_dirs_the_highest_generation_opens() -> None:
    """Only of one topic id, only where one is higher than all others; the others become stray."""
    old, new = replica(), replica(log_dir="/2", generation=2)
    for live in ([old, new], [new, old]):
        opened, stray = decide(live, is_a_dir_bad=False)
        assert (opened.act, opened.replicas) == (Act.OPEN, (new,))
        assert (stray.act, stray.replicas) == (Act.STRAY, (old,))
    for other in (
        new._replace(topic_id="u"),
        new._replace(generation=1),
        new._replace(topic_id=""),
    ):
        assert acts(old, other) == [(Act.OFFLINE, "live", "live")]


def test_what_a_user_deleted_is_purged_once_no_dir_is_bad() -> None:
    """While one is bad, a copy may come back with it."""
    assert acts(deletion()) == [(Act.PURGE, "delete")]
    assert acts(deletion(), is_a_dir_bad=True) == [(Act.LEAVE, "delete")]
    anew = replica(topic_id="u")
    assert acts(anew, deletion()) == [(Act.OPEN, "live"), (Act.PURGE, "delete")]


def test_a_deletion_takes_every_copy_of_its_topic_and_goes_last() -> None:
    """Also a live one that was on a bad dir then; but not one of a later generation."""
    assert acts(deletion(), a_move(), superseded()) == [(Act.PURGE, "move", "delete", "delete")]
    assert acts(deletion(), replica(log_dir="/3")) == [(Act.PURGE, "live", "delete")]
    later = replica(log_dir="/3", generation=2)
    assert acts(deletion(), later) == [(Act.OPEN, "live"), (Act.PURGE, "delete")]
    assert acts(deletion(), a_move(), is_a_dir_bad=True) == [
        (Act.LEAVE, "move"),
        (Act.LEAVE, "delete"),
    ]
    other = a_move(topic_id="u")
    assert acts(deletion(), other) == [(Act.INCOMPLETE, "move"), (Act.PURGE, "delete")]


def test_a_move_is_resumed_only_when_the_live_copy_names_it() -> None:
    """By its id and its log dir; all others are purged, caught up or not."""
    named = replica(moving=Moving(MOVE_ID, "id of /2"))
    for state in (COPYING, CAUGHT_UP):
        assert acts(named, a_move(state)) == [(Act.OPEN, "live"), (Act.RESUME, "move")]
        for live in (
            replica(),
            replica(moving=Moving("f" * 32, "id of /2")),
            replica(moving=Moving(MOVE_ID, "id of /3")),
            named._replace(topic_id="u"),
        ):
            assert acts(live, a_move(state)) == [(Act.OPEN, "live"), (Act.PURGE, "move")]


def test_a_move_without_metadata_is_known_by_its_name() -> None:
    """A crash came before it was written, or it is damaged: the move begins anew."""
    named = replica(moving=Moving(MOVE_ID, "id of /2"))
    bare = a_move(topic_id="", record=None, generation=0)
    assert acts(named, bare) == [(Act.OPEN, "live"), (Act.RESUME, "move")]
    assert acts(replica(), bare) == [(Act.OPEN, "live"), (Act.PURGE, "move")]
    unreadable = replica(topic_id="")
    assert acts(unreadable, bare) == [(Act.OPEN, "live"), (Act.LEAVE, "move")]


def test_without_a_live_dir_nothing_is_touched_while_a_dir_is_bad() -> None:
    """The live copy may be on that dir: callers get what KIP-112 gives them."""
    for copy in (a_move(CAUGHT_UP), superseded(), replica("delete")):
        (decision,) = decide([copy], is_a_dir_bad=True)
        assert decision.act is Act.OFFLINE
        error = decision.error()
        assert isinstance(error, LogDirOfflineError) and copy.path in error.reason


def test_a_swap_that_a_crash_cut_between_its_renames_is_completed() -> None:
    """Only where the marks agree to the letter, and the target has as much as the source."""
    done = [(Act.COMPLETE, "move"), (Act.PURGE_COVERED, "delete")]
    assert acts(a_move(CAUGHT_UP), superseded()) == done
    assert acts(superseded(), a_move(CAUGHT_UP)) == done
    for move, old in (
        (a_move(COPYING), superseded()),
        (a_move(CAUGHT_UP, generation=3), superseded()),
        (a_move(CAUGHT_UP, directory_id="id of /3"), superseded()),
        (a_move(CAUGHT_UP, end_offset=9), superseded()),
        (a_move(CAUGHT_UP), superseded(superseded_by=None)),
    ):
        assert acts(move, old) == [(Act.INCOMPLETE, "move", "delete")]


def test_what_may_lack_records_opens_incomplete_and_says_what_is_missing() -> None:
    """The highest generation, then the highest end offset; nothing is touched."""
    source = replica("delete", "/3", superseded_by=Superseded(1, "id of /1"), generation=0)
    (decision,) = decide([source, a_move(COPYING, end_offset=4)], is_a_dir_bad=False)
    assert (decision.act, decision.replicas[0].kind) == (Act.INCOMPLETE, "move")
    error = decision.error()
    assert isinstance(error, ReplicaIncompleteError)
    assert "ends at offset 4" in error.reason
    assert "offsets 4 to 10, which its source in log dir id of /1 had, are missing" in error.reason
    assert source.path in error.reason
    (decision,) = decide(
        [superseded(), superseded(log_dir="/3", end_offset=12)], is_a_dir_bad=False
    )
    assert decision.replicas[0].end_offset == 12
    assert "a copy of generation 2 in log dir id of /2 replaced this copy" in decision.reason


def test_copies_that_contradict_each_other_are_offline() -> None:
    """Nobody can say which is the right one; the error says what to do."""
    (decision,) = decide([a_move(), superseded(topic_id="u")], is_a_dir_bad=False)
    assert decision.act is Act.OFFLINE and len(decision.replicas) == 2
    assert isinstance(decision.error(), ReplicaOfflineError)
    assert "close the store, and move" in str(decision.error())
    cut = replica("delete", topic_id="", dir_name="x" * NAME_BYTES_MAX)
    (decision,) = decide([cut], is_a_dir_bad=False)
    assert decision.act is Act.OFFLINE and "do not show which partition" in decision.reason


def test_regression_copies_without_metadata_are_incomplete() -> None:
    """They were offline, and no command settled them; an empty one is no copy."""
    unknown = replica("delete", topic_id="", generation=0)
    longer = a_move(topic_id="", record=None, generation=0, end_offset=12)
    (decision,) = decide([unknown], is_a_dir_bad=False)
    assert (
        decision.act is Act.INCOMPLETE
        and "partition.metadata of the replica is lost" in decision.reason
    )
    assert acts(unknown, longer) == [(Act.INCOMPLETE, "move", "delete")]
    assert acts(unknown, a_move()) == [(Act.INCOMPLETE, "move", "delete")]
    empty = a_move(topic_id="", record=None, is_empty=True)
    assert acts(empty) == [(Act.PURGE, "move")]
    assert acts(empty, unknown) == [(Act.PURGE, "move"), (Act.INCOMPLETE, "delete")]
    assert acts(empty, is_a_dir_bad=True) == [(Act.OFFLINE, "move")]


def test_a_copy_that_is_open_is_never_replaced() -> None:
    """What comes back with its dir is older, or it is an error that names both."""
    opened = replica(is_open=True, generation=2)
    assert acts(opened, replica(log_dir="/2")) == [(Act.OPEN, "live"), (Act.STRAY, "live")]
    for other in (
        replica(log_dir="/2", generation=3),
        replica(log_dir="/2", generation=2),
        replica(log_dir="/2", topic_id="u"),
    ):
        kept, conflict = decide([other, opened], is_a_dir_bad=False)
        assert (kept.act, kept.replicas) == (Act.OPEN, (opened,))
        assert (conflict.act, conflict.replicas) == (Act.CONFLICT, (other, opened))
        error = conflict.error()
        assert isinstance(error, DuplicateLogError) and error.paths == [other.path, opened.path]


def test_a_superseded_copy_goes_once_it_is_covered() -> None:
    """By its successor or a later one of the same topic, with as many records."""
    live = replica(log_dir="/2", generation=2, end_offset=10)
    assert acts(live, superseded()) == [(Act.OPEN, "live"), (Act.PURGE_COVERED, "delete")]
    assert is_covered(superseded(), live)
    assert is_covered(superseded(), live._replace(generation=3, end_offset=11))
    for other in (
        live._replace(end_offset=9),
        live._replace(generation=1),
        live._replace(topic_id="u"),
        live._replace(topic_id=""),
    ):
        assert not is_covered(superseded(), other)
    assert not is_covered(superseded(end_offset=-1), live)
    assert acts(replica(topic_id="u"), superseded()) == [(Act.OPEN, "live"), (Act.LEAVE, "delete")]


def test_a_stray_is_left_alone() -> None:
    """It belongs to nobody, and takes no name."""
    assert acts(replica("stray")) == [(Act.LEAVE, "stray")]


MARKS = st.fixed_dictionaries(
    {},
    optional={
        "moving": st.just(Moving(MOVE_ID, "id of /2")),
        "record": st.builds(
            MoveRecord, st.just(MOVE_ID), st.just("d"), st.sampled_from([COPYING, CAUGHT_UP]),
            st.integers(0, 3),
        ),
        "superseded_by": st.builds(Superseded, st.integers(0, 3), st.just("id of /2")),
        "is_deleted_by_user": st.booleans(),
        "is_empty": st.booleans(),
        "end_offset": st.integers(-1, 3),
    },
)  # fmt: skip


@given(
    dirs=st.lists(
        st.builds(
            lambda facts, marks: facts._replace(**marks),
            st.builds(
                replica,
                kind=st.sampled_from(["live", "move", "delete", "stray"]),
                log_dir=st.sampled_from(["/1", "/2", "/3"]),
                generation=st.integers(0, 3),
                topic_id=st.sampled_from(["", "t", "u"]),
                topic=st.sampled_from(["orders", "x.move"]),
                partition=st.integers(0, 1),
            ),
            MARKS,
        ),
        max_size=8,
        unique=True,
    ),
    is_a_dir_bad=st.booleans(),
)
def test_no_directory_is_forgotten(dirs: list[ReplicaFacts], is_a_dir_bad: bool) -> None:
    """Each is in a decision, one copy at most is served, and none has two fates."""
    decisions = decide(dirs, is_a_dir_bad=is_a_dir_bad)
    named = {facts for decision in decisions for facts in decision.replicas}
    assert named == set(dirs)
    served = [
        d.topic_partition for d in decisions if d.act in (Act.OPEN, Act.COMPLETE, Act.INCOMPLETE)
    ]
    assert len(served) == len(set(served))
    changed = [
        f for d in decisions if d.act in (Act.COMPLETE, Act.STRAY, Act.PURGE) for f in d.replicas
    ]
    assert len(changed) == len(set(changed))
    for decision in decisions:
        if decision.act is Act.PURGE and is_a_dir_bad:
            assert not any(facts.is_deleted_by_user for facts in decision.replicas)
