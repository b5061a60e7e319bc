"""Test the follower's part: fetch, append and truncate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cluster.pure.exchange import (
    AdvanceHighWatermark,
    Alarm,
    AppendAsFollower,
    Appended,
    AppendedAsFollower,
    BeginAt,
    CreateReplica,
    DeleteBefore,
    FetchDue,
    Flush,
    Flushed,
    Opened,
    RemoveReplica,
    RoleEnded,
    SendToBroker,
    StartRose,
    TruncateTo,
)
from cluster.pure.partition import handle
from cluster.pure.replica import Replica, Role
from cluster.requests import FetchAnswer, FollowerFetch
from support.replicas import NEWER, STATE, TOPIC, order, replica_of

FETCH = FollowerFetch(TOPIC, 0, 2, 10, 4, 3, 2)


def following(**changes: Any) -> Replica:
    """Return a follower in epoch 4 with three records of epoch 2, of which two are replicated."""
    replica = replica_of(2)
    handle(replica, order(state=STATE._replace(**changes)), 0)
    return replica


def test_a_follower_fetches_from_its_log_end() -> None:
    """The request has the incarnation, both epochs, and the offset."""
    assert handle(following(), FetchDue(), 0) == [SendToBroker(1, FETCH)]


def test_records_are_appended() -> None:
    """The high watermark follows up to the end of the log."""
    replica = following()
    effects = handle(replica, FetchAnswer(FETCH, 5, "records"), 0)
    assert effects == [AdvanceHighWatermark(3), AppendAsFollower(replica.log_life, "records", 4)]
    assert handle(replica, AppendedAsFollower(replica.log_life, ((4, 4),)), 0) == [
        AdvanceHighWatermark(4)
    ]


def test_regression_an_earlier_leaders_high_watermark_is_forgotten() -> None:
    """After each order, end of a role and truncation, the leader's log may have changed."""
    ends: list[Callable[[Replica], Any]] = [
        lambda replica: handle(replica, order(8), 0),
        lambda replica: handle(replica, RoleEnded(), 0),
        lambda replica: handle(replica, Opened("a", TOPIC, exists=True, spans=((2, 3),)), 0),
        lambda replica: handle(replica, FetchAnswer(FETCH, 9, None, (2, 3)), 0),
        lambda replica: handle(replica, order(topic=NEWER), 0),
    ]
    for end in ends:
        replica = following()
        handle(replica, FetchAnswer(FETCH, 9, "records"), 0)
        handle(replica, AppendedAsFollower(replica.log_life, ()), 0)
        assert replica.leader_high_watermark == 9
        end(replica)
        assert replica.leader_high_watermark == 0


def test_regression_a_late_append_of_a_leader_moves_no_high_watermark() -> None:
    """With acks=1, no client waits for it, and its records are not replicated."""
    replica = following()
    handle(replica, FetchAnswer(FETCH, 9, "records"), 0)
    handle(replica, Appended(replica.log_life, ((4, 5),), None, 5, 4), 0)
    assert (replica.log.end, replica.high_watermark) == (5, 3)


@pytest.mark.parametrize(
    "changes",
    [
        {"registration_epoch": 9},
        {"leader_epoch": 3},
        {"offset": 2},
        {"last_epoch": 1},
        {"topic": NEWER},
    ],
)
def test_a_late_answer_is_ignored(changes: dict[str, Any]) -> None:
    """The answer belongs to another log, incarnation, epoch or topic."""
    replica = following()
    assert handle(replica, FetchAnswer(FETCH._replace(**changes), 5, "records"), 0) == []
    assert handle(replica, FetchAnswer(FETCH._replace(**changes), 5, None, (0, 0)), 0) == []


def test_a_follower_truncates_to_the_end_of_a_common_epoch() -> None:
    """The smaller end counts; records above the high watermark need not be kept (P9)."""
    replica = following()
    effects = handle(replica, FetchAnswer(FETCH, 2, None, (2, 2)), 0)
    assert effects == [TruncateTo(2, 2)]
    assert (replica.log.end, replica.log.last_epoch) == (2, 2)


def test_a_truncation_below_the_high_watermark_is_refused() -> None:
    """The replica stops with an alarm, because the records may be acknowledged (P9)."""
    replica = following()
    effects = handle(replica, FetchAnswer(FETCH, 1, None, (2, 1)), 0)
    assert [type(effect) for effect in effects] == [Alarm]
    assert (replica.log.end, replica.role) == (3, Role.NONE)


@pytest.mark.parametrize(("high_watermark", "is_allowed"), [(3, False), (4, True)])
def test_regression_a_leader_that_lacks_a_compacted_epoch_stops_no_follower(
    high_watermark: int, is_allowed: bool
) -> None:
    """The follower must lack replicated records, so that it is in no ISR (P9)."""
    replica = following()
    answer = FetchAnswer(FETCH, high_watermark, None, (1, 1), may_lack=True)
    effects = handle(replica, answer, 0)
    if not is_allowed:
        assert [type(effect) for effect in effects] == [Alarm]
        return
    assert effects == [TruncateTo(0, 0)]
    assert (replica.log.end, replica.high_watermark, replica.role) == (0, 0, Role.FOLLOWER)


@pytest.mark.parametrize(("unclean_epoch", "is_allowed"), [(2, False), (3, True)])
def test_after_an_unclean_election_the_records_are_kept(
    unclean_epoch: int, is_allowed: bool
) -> None:
    """This is only so if the election is newer than the last record (P9, P16)."""
    replica = following(unclean_epoch=unclean_epoch)
    effects = handle(replica, FetchAnswer(FETCH, 1, None, (0, 0)), 0)
    assert (effects == [TruncateTo(0, 3)]) is is_allowed
    assert replica.high_watermark == (0 if is_allowed else 2)


def test_a_follower_flushes_before_it_confirms() -> None:
    """A fetch confirms all records before its offset, so they are flushed first (P24)."""
    replica = replica_of(2, flushed=1)
    handle(replica, order(state=STATE._replace(flushes=True)), 0)
    assert handle(replica, FetchDue(), 0) == [Flush(replica.log_life, 3)]
    handle(replica, Flushed(replica.log_life, 3), 0)
    assert handle(replica, FetchDue(), 0) == [SendToBroker(1, FETCH)]


def anew(start: int, request: FollowerFetch = FETCH) -> FetchAnswer:
    """Return the answer of a leader that has no record in common with the follower."""
    return FetchAnswer(request, 50, None, (-1, start), start)


@pytest.mark.parametrize("start", [3, 9])
def test_a_follower_begins_anew_where_the_leader_begins(start: int) -> None:
    """All records before the leader's start were replicated and then deleted."""
    replica = following()
    assert handle(replica, anew(start), 0) == [BeginAt(start, keeps_lost=False)]
    assert (replica.log.start, replica.log.end, replica.high_watermark) == (start, start, start)
    fetch = SendToBroker(1, FETCH._replace(offset=start, last_epoch=-1, log_start=start))
    assert handle(replica, FetchDue(), 0) == [fetch]
    assert handle(replica, anew(start, fetch.request), 0) == []


def test_records_after_the_leaders_start_are_cut_first() -> None:
    """The cut is refused below the high watermark."""
    replica = replica_of(2, spans=((2, 9),), high_watermark=4)
    handle(replica, order(), 0)
    request = FETCH._replace(offset=9)
    effects = handle(replica, anew(6, request), 0)
    assert effects == [TruncateTo(6, 6), BeginAt(6, keeps_lost=False)]
    replica = replica_of(2, spans=((2, 9),), high_watermark=4)
    handle(replica, order(), 0)
    assert [type(effect) for effect in handle(replica, anew(3, request), 0)] == [Alarm]
    assert (replica.log.end, replica.role) == (9, Role.NONE)


def test_a_beginning_after_an_unclean_election_keeps_the_records() -> None:
    """The removed records may have been acknowledged."""
    replica = following(unclean_epoch=3)
    assert handle(replica, anew(9), 0) == [BeginAt(9, keeps_lost=True)]


def test_a_leader_that_ends_before_the_log_start_makes_a_new_replica() -> None:
    """Without an election that may have lost records, the replica stops instead."""
    for unclean_epoch in (-1, 3):
        replica = replica_of(2, spans=((2, 9),), start=7, high_watermark=8)
        handle(replica, order(state=STATE._replace(unclean_epoch=unclean_epoch)), 0)
        request = FETCH._replace(offset=9, log_start=7)
        effects = handle(replica, FetchAnswer(request, 5, None, (1, 5), 0), 0)
        if unclean_epoch < 0:
            assert [type(effect) for effect in effects] == [Alarm]
        else:
            made = [TruncateTo(7, 9), RemoveReplica(), CreateReplica(TOPIC, "a", 10)]
            assert effects == made and replica.log.end == replica.high_watermark == 0


def test_a_leader_that_ends_inside_the_first_batch_makes_a_new_replica_as_well() -> None:
    """A log cannot be cut before its log start, even if the first batch begins earlier."""
    replica = replica_of(2, spans=((2, 9),), start=4, log_start_offset=7, high_watermark=8)
    handle(replica, order(state=STATE._replace(unclean_epoch=3)), 0)
    request = FETCH._replace(offset=9, log_start=7)
    effects = handle(replica, FetchAnswer(request, 5, None, (1, 5), 0), 0)
    assert effects == [TruncateTo(7, 9), RemoveReplica(), CreateReplica(TOPIC, "a", 10)]


def test_a_follower_deletes_what_its_leader_deleted() -> None:
    """The follower deletes the same records, up to its own high watermark."""
    replica = following()
    handle(replica, FetchAnswer(FETCH, 3, "records", None, 5), 0)
    effects = handle(replica, AppendedAsFollower(replica.log_life, ((4, 8),)), 0)
    assert effects == [DeleteBefore(3)]
    assert handle(replica, StartRose(1, 3), 0) == [] and replica.log.start == 1
    assert handle(replica, AppendedAsFollower(replica.log_life, ()), 0) == []
    (fetch,) = handle(replica, FetchDue(), 0)
    assert fetch.request.log_start == 3, "a leader that has compacted has no batch at 1"
