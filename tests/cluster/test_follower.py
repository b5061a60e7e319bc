"""Fetch, append and truncate: the follower's part."""

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
    FetchDue,
    Flush,
    Flushed,
    Opened,
    RoleEnded,
    SendToBroker,
    TruncateTo,
)
from cluster.pure.partition import handle
from cluster.pure.replica import Replica, Role
from cluster.requests import FetchAnswer, FollowerFetch
from support.replicas import NEWER, STATE, TOPIC, order, replica_of

FETCH = FollowerFetch(TOPIC, 0, 2, 10, 4, 3, 2)


def following(**changes: Any) -> Replica:
    """Give a follower in epoch 4 with three records of epoch 2, of which two are replicated."""
    replica = replica_of(2)
    handle(replica, order(state=STATE._replace(**changes)), 0)
    return replica


def test_a_follower_fetches_from_its_log_end() -> None:
    """The request names the incarnation, both epochs, and the offset."""
    assert handle(following(), FetchDue(), 0) == [SendToBroker(1, FETCH)]


def test_records_are_appended() -> None:
    """The high watermark follows as far as the log reaches."""
    replica = following()
    effects = handle(replica, FetchAnswer(FETCH, 5, "records"), 0)
    assert effects == [AppendAsFollower(replica.log_life, "records", 4), AdvanceHighWatermark(3)]
    assert handle(replica, AppendedAsFollower(replica.log_life, ((4, 4),)), 0) == [
        AdvanceHighWatermark(4)
    ]


def test_regression_an_earlier_leaders_high_watermark_is_forgotten() -> None:
    """With each order, each end of a role and each truncation: the log may have changed since."""
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
    """With acks=1 nobody waits for it, and its records are not replicated."""
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
    """It was made for another log, incarnation, epoch or topic."""
    replica = following()
    assert handle(replica, FetchAnswer(FETCH._replace(**changes), 5, "records"), 0) == []
    assert handle(replica, FetchAnswer(FETCH._replace(**changes), 5, None, (0, 0)), 0) == []


def test_a_follower_truncates_to_the_end_of_a_common_epoch() -> None:
    """To the smaller of both ends; above its high watermark nothing has to be kept (P9)."""
    replica = following()
    effects = handle(replica, FetchAnswer(FETCH, 2, None, (2, 2)), 0)
    assert effects == [TruncateTo(2, 2)]
    assert (replica.log.end, replica.log.last_epoch) == (2, 2)


def test_a_truncation_below_the_high_watermark_is_refused() -> None:
    """The replica stops and raises an alarm, because the records may be acknowledged (P9)."""
    replica = following()
    effects = handle(replica, FetchAnswer(FETCH, 1, None, (2, 1)), 0)
    assert [type(effect) for effect in effects] == [Alarm]
    assert (replica.log.end, replica.role) == (3, Role.NONE)


@pytest.mark.parametrize(("unclean_epoch", "is_allowed"), [(2, False), (3, True)])
def test_after_an_unclean_election_the_records_are_kept(
    unclean_epoch: int, is_allowed: bool
) -> None:
    """Only if the election is newer than the last record (P9, P16)."""
    replica = following(unclean_epoch=unclean_epoch)
    effects = handle(replica, FetchAnswer(FETCH, 1, None, (0, 0)), 0)
    assert (effects == [TruncateTo(0, 3)]) is is_allowed
    assert replica.high_watermark == (0 if is_allowed else 2)


def test_a_follower_flushes_before_it_confirms() -> None:
    """A fetch confirms all records before its offset (P24)."""
    replica = replica_of(2, flushed=1)
    handle(replica, order(state=STATE._replace(flushes=True)), 0)
    assert handle(replica, FetchDue(), 0) == [Flush(replica.log_life, 3)]
    handle(replica, Flushed(replica.log_life, 3), 0)
    assert handle(replica, FetchDue(), 0) == [SendToBroker(1, FETCH)]
