"""Test the leader's part: move the high watermark, change the ISR, and acknowledge."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.pure.exchange import (
    Acknowledge,
    AnswerFetch,
    AppendAsLeader,
    Appended,
    Flush,
    Flushed,
    GaveUp,
    Lagged,
    LeaseEnded,
    LeaseRenewed,
    Produced,
    ProduceError,
    Refuse,
    SendToBroker,
    SendToController,
    StartRose,
    Tick,
)
from cluster.pure.leader import is_followed
from cluster.pure.partition import handle
from cluster.pure.replica import LAG_SECONDS_MAX, Replica
from cluster.requests import (
    AlterPartition,
    AlterRefused,
    FetchAnswer,
    FollowerFetch,
)
from support.replicas import NEWER, STATE, TOPIC, order, replica_of


def leading(**changes: Any) -> Replica:
    """Return the leader of epoch 4, with the ISR of 1 and 2 and four records, two replicated."""
    replica = replica_of()
    handle(replica, order(state=STATE._replace(**changes)), 0)
    handle(replica, Appended(replica.log_life, ((4, 4),), "client", 4, 4), 0)
    return replica


def fetch(
    replica: Replica, follower: int, offset: int, now: float = 0, **changes: Any
) -> list[Any]:
    """Let a follower fetch whose log is a prefix of the leader's log."""
    last_epoch = 4 if offset > 3 else 2
    request = FollowerFetch(TOPIC, 0, follower, 20, 4, offset, last_epoch)._replace(**changes)
    return handle(replica, request, now)


def proposals(effects: list[Any]) -> list[dict[int, int]]:
    """Return the ISRs that the leader proposes."""
    return [
        dict(one.request.isr)
        for one in effects
        if isinstance(one, SendToController) and isinstance(one.request, AlterPartition)
    ]


def test_the_high_watermark_is_the_smallest_position() -> None:
    """It moves when the last member of the ISR has the record; then the client is answered."""
    replica = leading()
    assert replica.high_watermark == 2
    effects = fetch(replica, 2, 3)
    assert replica.high_watermark == 3 and Acknowledge("client", 4) not in effects
    effects = fetch(replica, 2, 4)
    assert replica.high_watermark == 4 and Acknowledge("client", 4) in effects
    assert isinstance(effects[-1], AnswerFetch) and effects[-1].high_watermark == 4


@pytest.mark.parametrize("changes", [{"leader_epoch": 3}, {"leader_epoch": 5}, {"topic": NEWER}])
def test_a_fetch_of_another_epoch_does_not_count(changes: dict[str, Any]) -> None:
    """A position counts only in the leader's epoch, and only from a replica (P9)."""
    replica = leading()
    assert fetch(replica, 2, 4, **changes) == []
    assert fetch(replica, 9, 4) == []
    assert replica.high_watermark == 2


def test_a_proposed_member_counts() -> None:
    """It counts from the proposal until a later version, even after a refusal (P7)."""
    replica = leading()
    fetch(replica, 2, 3)
    assert proposals(fetch(replica, 3, 3, registration_epoch=30)) == [{1: 10, 2: 20, 3: 30}]
    handle(replica, AlterRefused(TOPIC, 0, 7), 0)
    fetch(replica, 2, 4)
    assert replica.high_watermark == 3
    handle(replica, order(8), 0)
    assert replica.high_watermark == 4


def test_members_that_still_fetch_prove_that_no_other_broker_leads() -> None:
    """Each member must have fetched, because each could have been elected."""
    replica = leading()
    assert not is_followed(replica, 0)
    fetch(replica, 2, 4, now=5)
    assert is_followed(replica, 5) and not is_followed(replica, 6)
    fetch(replica, 3, 4, now=6)  # it is proposed, so it may be elected soon
    assert is_followed(replica, 5) and not is_followed(replica, 6)
    fetch(replica, 2, 4, now=6)
    assert is_followed(replica, 6)
    assert not is_followed(replica_of(), 0)


def test_a_removed_member_counts_until_the_state_says_so() -> None:
    """A smaller ISR is used only after it was read back (P10)."""
    replica = leading(min_isr=1)
    effects = handle(replica, Lagged(frozenset({2})), 0)
    assert proposals(effects) == [{1: 10}] and replica.high_watermark == 2
    smaller = STATE._replace(isr={1: 10}, min_isr=1)
    effects = handle(replica, order(8, state=smaller), 0)
    assert replica.high_watermark == 4 and Acknowledge("client", 4) in effects


def test_nothing_moves_below_min() -> None:
    """Neither the high watermark moves, nor is a produce with acks=all accepted (P8, P20)."""
    replica = leading(isr={1: 10})
    assert replica.high_watermark == 2
    refused = [Refuse("next", ProduceError.NOT_ENOUGH_REPLICAS)]
    assert handle(replica, Produced("next", -1), 0) == refused
    assert len(handle(replica, Produced("next", 1), 0)) == 1


@pytest.mark.parametrize(("offset", "is_proposed"), [(1, False), (2, False), (3, True)])
def test_a_follower_joins_with_all_records_before_the_epoch(offset: int, is_proposed: bool) -> None:
    """The high watermark alone is not enough: in a new epoch, it may be too low (P10)."""
    replica = leading()
    assert bool(proposals(fetch(replica, 3, offset, registration_epoch=30))) is is_proposed


def test_a_follower_is_proposed_once() -> None:
    """The next fetch does not repeat the proposal."""
    replica = leading()
    assert len(proposals(fetch(replica, 3, 3))) == 1
    assert proposals(fetch(replica, 3, 3)) == []


def test_a_proposal_without_an_answer_is_withdrawn() -> None:
    """The leader proposes the present ISR, which gives a later version (P7)."""
    replica = leading()
    fetch(replica, 3, 3)
    assert handle(replica, Tick(), 0.5) == []
    assert proposals(handle(replica, Tick(), 1.0)) == [{1: 10, 2: 20}]
    assert replica.proposed == {1, 2, 3}


def test_a_follower_that_lags_is_removed() -> None:
    """The follower lacked records for too long (P10)."""
    replica = leading()
    fetch(replica, 2, 4, now=5)
    handle(replica, Appended(replica.log_life, ((4, 6),), None, 6, 4), 6)
    fetch(replica, 2, 5, now=7)
    assert proposals(handle(replica, Tick(), 5 + LAG_SECONDS_MAX)) == []
    assert proposals(handle(replica, Tick(), 6 + LAG_SECONDS_MAX)) == [{1: 10}]


def test_a_follower_that_keeps_pace_does_not_lag() -> None:
    """It has all records from the time of its last fetch, although new ones keep coming."""
    replica = leading()
    for step in range(20):
        handle(replica, Appended(replica.log_life, ((4, 5 + step),), None, 5 + step, 4), 10 * step)
        fetch(replica, 2, 4 + step, now=10 * step)
    assert proposals(handle(replica, Tick(), 200)) == []


def test_a_diverging_follower_gets_the_end_of_its_epoch() -> None:
    """The answer has an epoch that both know, and the position does not count (P9)."""
    replica = leading()
    (effect,) = fetch(replica, 2, 5, last_epoch=3)
    assert isinstance(effect, SendToBroker) and isinstance(effect.request, FetchAnswer)
    assert effect.request.diverging == (2, 3)
    assert replica.high_watermark == 2
    (effect,) = fetch(replica, 2, 4, last_epoch=2)
    assert effect.request.diverging == (2, 3)


def test_regression_a_follower_may_have_records_whose_append_has_not_ended() -> None:
    """The late answer that it diverges would cut replicated records (P25)."""
    replica = leading()
    handle(replica, Produced("next", 1), 0)
    assert fetch(replica, 2, 5) == []
    (effect,) = fetch(replica, 2, 4, last_epoch=2)
    assert effect.request.diverging == (2, 3)
    handle(replica, Appended(replica.log_life, ((4, 5),), None, 5, 4), 0)
    assert isinstance(fetch(replica, 2, 5)[-1], AnswerFetch)


def test_a_duplicate_waits_like_its_original() -> None:
    """The leader's record may not be replicated yet (P20)."""
    replica = leading()
    assert handle(replica, Appended(replica.log_life, (), "retry", 4, 4), 0) == []
    assert Acknowledge("retry", 4) in fetch(replica, 2, 4)
    assert handle(replica, Appended(replica.log_life, (), "again", 4, 4), 0) == [
        Acknowledge("again", 4)
    ]


def test_the_number_of_waiting_produces_is_bounded() -> None:
    """Without a controller, the ISR does not shrink; refused produces are not appended (P20)."""
    replica = leading()
    replica.waiting_max = 3
    assert len(replica.waiting) == 1
    for waiter in ("second", "third"):
        (append,) = handle(replica, Produced(waiter, -1), 0)
        assert isinstance(append, AppendAsLeader)
    refused = [Refuse("fourth", ProduceError.NOT_ENOUGH_REPLICAS)]
    assert handle(replica, Produced("fourth", -1), 0) == refused
    handle(replica, Appended(replica.log_life, ((4, 5),), "second", 5, 4), 0)
    assert handle(replica, Produced("fourth", -1), 0) == refused
    assert len(handle(replica, Produced("any", 1), 0)) == 1
    handle(replica, Appended(replica.log_life, ((4, 6),), "third", 6, 4), 0)
    handle(replica, Appended(replica.log_life, ((4, 7),), None, 7, 4), 0)
    fetch(replica, 2, 7)
    assert len(handle(replica, Produced("fourth", -1), 0)) == 1


def test_a_produce_gives_up() -> None:
    """The error leaves open whether records were written; no later acknowledgement (P20)."""
    replica = leading()
    timed_out = [Refuse("client", ProduceError.TIMED_OUT)]
    assert handle(replica, GaveUp("client"), 0) == timed_out
    assert handle(replica, GaveUp("client"), 0) == []
    assert Acknowledge("client", 4) not in fetch(replica, 2, 4)


def test_only_flushed_records_count_if_the_topic_flushes() -> None:
    """The leader flushes during the replication (P24)."""
    replica = replica_of()
    handle(replica, order(state=STATE._replace(flushes=True)), 0)
    assert handle(replica, Appended(replica.log_life, ((4, 4),), "client", 4, 4), 0) == [
        Flush(replica.log_life, 4)
    ]
    fetch(replica, 2, 4)
    assert replica.high_watermark == 3
    assert Acknowledge("client", 4) in handle(replica, Flushed(replica.log_life, 4), 0)


@pytest.mark.parametrize(
    ("offset", "last_epoch", "log_start", "diverging"),
    [
        (1, 2, 0, (-1, 3)),  # before the start
        (0, -1, 0, (-1, 3)),
        (3, 2, 0, (-1, 3)),  # at the start, with a last record that is not known here
        (4, 3, 0, (-1, 3)),  # after the start, without a common epoch
        (3, 4, 0, None),
        (3, -1, 3, None),
        (4, -1, 4, None),  # an empty log that begins later
        (5, -1, 5, (-1, 3)),  # an empty log that begins after the end of this one
    ],
)
def test_a_follower_without_a_common_record_begins_anew(
    offset: int, last_epoch: int, log_start: int, diverging: tuple[int, int] | None
) -> None:
    """It begins at the leader's log start; before that, its position does not count (P26)."""
    replica = leading()
    handle(replica, Appended(replica.log_life, (), None, 4, 4), 0)
    fetch(replica, 2, 3)
    assert handle(replica, StartRose(3), 0) == []
    request = FollowerFetch(TOPIC, 0, 3, 30, 4, offset, last_epoch, log_start=log_start)
    effects = handle(replica, request, 0)
    if diverging is None:
        assert AnswerFetch(request, replica.high_watermark) in effects
        assert replica.followers[3].offset == offset
    else:
        assert effects == [SendToBroker(3, FetchAnswer(request, 3, None, diverging, 3))]
        assert 3 not in replica.followers


def refusals(effects: list[Any]) -> list[ProduceError]:
    """Return the reasons why produces were refused."""
    return [one.error for one in effects if isinstance(one, Refuse)]


def test_a_leader_that_is_cut_off_sends_its_clients_away() -> None:
    """This needs an ended lease, and two seconds without a fetch of a member of the ISR."""
    replica = leading()
    fetch(replica, 2, 3, 10.0)
    handle(replica, LeaseEnded(), 10.0)
    assert refusals(handle(replica, Produced("soon", -1), 11.9)) == []
    handle(replica, Appended(replica.log_life, ((4, 5),), "soon", 5, 4), 11.9)
    assert refusals(handle(replica, Tick(), 11.9)) == []
    assert refusals(handle(replica, Produced("late", -1), 12.1)) == [ProduceError.NOT_LEADER]
    assert refusals(handle(replica, Tick(), 12.1)) == [ProduceError.TIMED_OUT] * 2
    assert refusals(handle(replica, Produced("one replica is enough", 1), 12.1)) == []
    handle(replica, LeaseRenewed(), 12.2)
    assert refusals(handle(replica, Produced("again", -1), 12.2)) == []


def test_a_leader_goes_on_while_only_the_store_is_away() -> None:
    """The members of the ISR fetch; a silent member alone is no reason, either."""
    replica = leading()
    handle(replica, LeaseEnded(), 10.0)
    fetch(replica, 2, 3, 100.0)
    assert refusals(handle(replica, Produced("a", -1), 101.0)) == []
    replica = leading()
    fetch(replica, 2, 3, 10.0)
    assert refusals(handle(replica, Produced("b", -1), 100.0)) == []
