"""Test the roles of one replica: in order, late, doubled, and for other incarnations."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.pure.attest import DirFailed, DirJoined, SessionBegan
from cluster.pure.exchange import (
    AppendAsLeader,
    Appended,
    AppendedAsFollower,
    CreateReplica,
    FetchDue,
    Flush,
    Flushed,
    LeaseEnded,
    LeaseRenewed,
    Moved,
    Opened,
    Produced,
    ProduceError,
    Refuse,
    RemoveReplica,
    RoleEnded,
    SendToController,
    WriteOwnSince,
    WriteTopic,
)
from cluster.pure.partition import handle
from cluster.pure.replica import Replica, Role
from cluster.registration import NO_BROKER, NO_TOPIC, TopicIdentity
from cluster.requests import NEVER, FetchAnswer, LeaderAndIsr, RoleAnswer
from support.replicas import NEWER, STATE, TOPIC, dir_returned, host_of, order, replica_of

BOUND = STATE._replace(is_unclean_allowed=True)  # a leader stops with its lease


def answers(effects: list[Any]) -> list[RoleAnswer]:
    """Return the answers to the controller."""
    return [
        one.request
        for one in effects
        if isinstance(one, SendToController) and isinstance(one.request, RoleAnswer)
    ]


def test_a_replica_leads_and_answers() -> None:
    """The answer has the facts that elections need."""
    replica = replica_of(own_since=6)
    effects = handle(replica, order(), 0)
    assert replica.role is Role.LEADER
    assert (replica.leader_epoch, replica.epoch_start, replica.version) == (4, 3, 7)
    assert answers(effects) == [RoleAnswer(TOPIC, 0, 1, 10, False, 10, 2, 3, 7, 10)]


def test_a_replica_follows() -> None:
    """The replica keeps its log until the leader reports where it differs."""
    replica = replica_of(2)
    handle(replica, order(), 0)
    assert replica.role is Role.FOLLOWER
    assert (replica.log.end, replica.high_watermark) == (3, 2)


@pytest.mark.parametrize(
    "request_",
    [
        order(broker_epoch=9),
        order(topic=TopicIdentity("older", 2)),
        order(state=STATE._replace(replicas=(2, 3), isr={2: 20}, leader=2)),
    ],
)
def test_a_request_for_another_incarnation_is_ignored(request_: LeaderAndIsr) -> None:
    """Such a request gives no role, and gets no answer (P6)."""
    replica = replica_of()
    assert handle(replica, request_, 0) == []
    assert replica.role is Role.NONE


def test_only_a_later_version_is_obeyed() -> None:
    """An earlier or doubled request gets an answer, and changes nothing (P6)."""
    replica = replica_of()
    handle(replica, order(), 0)
    nobody = STATE._replace(leader=NO_BROKER, isr={}, leader_epoch=5)
    for version in (6, 7):
        effects = handle(replica, order(version, state=nobody), 0)
        assert [one.version for one in answers(effects)] == [7]
        assert replica.role is Role.LEADER
    handle(replica, order(8, state=nobody), 0)
    assert replica.role is Role.NONE


def test_a_newer_topic_replaces_the_replica() -> None:
    """The old replica is removed, even if its own version is larger (P6)."""
    replica = replica_of()
    handle(replica, order(), 0)
    effects = handle(replica, order(1, topic=NEWER), 0)
    assert effects[0] == RemoveReplica()
    assert CreateReplica(NEWER, "a", 10) in effects
    assert (replica.topic, replica.log.end, replica.version) == (NEWER, 0, 1)
    assert handle(replica, order(9), 0) == []


def test_regression_a_replica_is_kept_if_its_topic_has_another_creation_number() -> None:
    """A copied store has other creation numbers; the same id is the same topic."""
    copied = TOPIC._replace(created=900)
    replica = replica_of()
    effects = handle(replica, order(topic=copied), 0)
    assert not [one for one in effects if isinstance(one, RemoveReplica | CreateReplica)]
    assert (replica.topic, replica.role, replica.log.end) == (copied, Role.LEADER, 3)
    renumbered = replica_of()
    handle(renumbered, order(topic=TOPIC._replace(created=1)), 0)
    assert (renumbered.topic.created, renumbered.role) == (1, Role.LEADER)


def test_regression_a_replica_without_a_topic_id_belongs_to_the_topic_of_the_request() -> None:
    """The replica is not deleted, and its topic is known from then on."""
    replica = Replica(host_of(), 0)
    handle(replica, Opened("a", NO_TOPIC, exists=True, spans=((2, 3),), flushed=3), 0)
    effects = handle(replica, order(), 0)
    assert not [one for one in effects if isinstance(one, RemoveReplica | CreateReplica)]
    assert effects[0] == WriteTopic(TOPIC)
    assert (replica.topic, replica.log.end) == (TOPIC, 3)
    assert RemoveReplica() in handle(replica, order(topic=NEWER), 0)


def test_a_replica_that_came_back_does_not_lead() -> None:
    """Its log dir or the replica itself is newer than the election (P11)."""
    replica = replica_of()
    dir_returned(replica.host, "a", 15)
    handle(replica, order(), 0)
    assert replica.role is Role.NONE
    younger = replica_of(own_since=11)
    handle(younger, order(), 0)
    assert younger.role is Role.NONE


def test_a_leader_that_moves_keeps_its_role() -> None:
    """This holds even if the new log dir came back after the election (P11)."""
    replica = replica_of()
    dir_returned(replica.host, "b", 15)
    handle(replica, order(), 0)
    moved = WriteOwnSince(10, counts_flushed=False, placed_since=15)
    assert handle(replica, Moved("b", 3), 0) == [moved]
    (answer,) = answers(handle(replica, order(8), 0))
    assert replica.role is Role.LEADER
    assert (answer.whole_since, answer.held_since) == (10, 15)


def test_a_moved_replica_carries_the_losses_of_its_old_dir() -> None:
    """Later losses of its new dir count, too, but not earlier losses of that dir (P4)."""
    replica = replica_of()
    dirs = replica.host.dirs
    dirs["a"].whole_since, dirs["b"].whole_since = 20, 30
    assert replica.whole_since == 20
    handle(replica, Moved("b", 3), 0)
    assert replica.whole_since == 20
    dirs["b"].whole_since = 31
    assert replica.whole_since == 31
    handle(replica, Moved("a", 3), 0)
    assert replica.whole_since == 31


@pytest.mark.parametrize("dir_id", ["b", "c"])
def test_regression_a_move_to_a_dir_that_is_not_attested(dir_id: str) -> None:
    """Later losses of this dir count: its next number is not one from before the move (P4).

    The dir works again, or was added, while the coordination store did not answer.
    """
    replica = replica_of()
    replica.host.dirs["b"].is_good, replica.host.dirs["b"].whole_since = False, NEVER
    handle(replica, Moved(dir_id, 3), 0)
    assert replica.placed_since == 0
    replica.host.handle(DirJoined(dir_id, "id", "boot", "mount"), 0)
    dir_returned(replica.host, dir_id, 25)
    assert replica.whole_since == 25


def test_an_incomplete_replica_is_never_whole() -> None:
    """Another copy may have more of its records (P4)."""
    replica = replica_of(is_incomplete=True)
    assert answers(handle(replica, order(), 0))[0].whole_since == NEVER


def test_a_replica_that_is_not_found_is_created() -> None:
    """The replica is whole only since the present registration (P17)."""
    replica = Replica(host_of(2), 0)
    dir_returned(replica.host, "b", 15)
    effects = handle(replica, order(), 0)
    assert effects[0] == CreateReplica(TOPIC, "a", 15)
    assert replica.role is Role.FOLLOWER and answers(effects)[0].whole_since == 15


def test_nothing_is_created_while_a_dir_is_bad() -> None:
    """The replica may be on the bad log dir (P17)."""
    replica = Replica(host_of(2), 0)
    replica.host.handle(DirFailed("b"), 0)
    effects = handle(replica, order(), 0)
    assert not replica.exists
    assert [one.is_offline for one in answers(effects)] == [True]
    assert answers(effects)[0].topic == TOPIC


def test_a_new_topic_is_placed_on_a_good_dir() -> None:
    """A new topic cannot have an older replica (P17)."""
    replica = Replica(host_of(2), 0)
    replica.host.handle(DirFailed("a"), 0)
    effects = handle(replica, order(is_new=True), 0)
    assert effects[0] == CreateReplica(TOPIC, "b", 10)


def test_a_replica_on_a_bad_dir_is_not_created_again() -> None:
    """Even a request that calls the topic new may be late."""
    replica = replica_of(2)
    replica.host.handle(DirFailed("a"), 0)
    handle(replica, RoleEnded(), 0)
    effects = handle(replica, order(is_new=True), 0)
    assert [one.is_offline for one in answers(effects)] == [True]
    assert replica.dir_id == "a" and replica.exists


def test_a_failed_dir_ends_the_role() -> None:
    """The waiting produces fail, and the controller is informed."""
    replica = replica_of()
    handle(replica, order(), 0)
    handle(replica, Appended(replica.log_life, ((4, 4),), "client", 4, 4), 0)
    effects = handle(replica, RoleEnded(), 0)
    assert effects[0] == Refuse("client", ProduceError.TIMED_OUT)
    assert answers(effects)[0].is_offline
    assert replica.role is Role.NONE and replica.log.end == 4


@pytest.mark.parametrize(("is_allowed", "role"), [(True, Role.NONE), (False, Role.LEADER)])
def test_the_end_of_a_lease_ends_the_role(is_allowed: bool, role: Role) -> None:
    """Only topics that may elect another leader uncleanly stop (P16)."""
    replica = replica_of()
    handle(replica, order(state=STATE._replace(is_unclean_allowed=is_allowed)), 0)
    handle(replica, LeaseEnded(), 0)
    assert replica.role is role
    refused = Refuse("client", ProduceError.NOT_LEADER)
    appended = AppendAsLeader(replica.log_life, "client", 4, -1)
    expected = refused if is_allowed else appended
    assert handle(replica, Produced("client", -1), 0) == [expected]


def test_regression_a_renewed_lease_gives_the_role_back() -> None:
    """The request has the same version, or a later version of the same epoch (P16)."""
    for version in (None, 8):
        replica = replica_of()
        handle(replica, order(state=BOUND), 0)
        handle(replica, LeaseEnded(), 0)
        if version is not None:
            handle(replica, order(version, state=BOUND), 0)
        refused = [Refuse("client", ProduceError.NOT_LEADER)]
        assert handle(replica, Produced("client", -1), 0) == refused
        handle(replica, LeaseRenewed(), 0)
        assert replica.role is Role.LEADER
        assert handle(replica, Produced("client", -1), 0) == [
            AppendAsLeader(replica.log_life, "client", 4, -1)
        ]


def test_regression_nothing_but_the_lease_gives_the_role_back() -> None:
    """A new epoch without a lease, or a lease of a new session, is not enough (P11, P16)."""
    replica = replica_of()
    handle(replica, order(state=BOUND), 0)
    handle(replica, LeaseEnded(), 0)
    late = order(8, state=BOUND._replace(leader_epoch=5))
    handle(replica, late, 0)
    assert replica.role is Role.NONE
    replica.host.handle(SessionBegan(40), 0)
    handle(replica, LeaseRenewed(), 0)
    assert replica.role is Role.NONE and not replica.is_suspended


def test_regression_a_proposal_outlives_the_end_of_a_lease() -> None:
    """It may still be accepted, so its members count for the high watermark (P7)."""
    replica = replica_of()
    handle(replica, order(state=BOUND), 0)
    replica.proposed = {1, 2, 3}
    handle(replica, LeaseEnded(), 0)
    handle(replica, LeaseRenewed(), 0)
    assert replica.proposed == {1, 2, 3}


def test_a_change_of_role_fails_waiting_produces() -> None:
    """The error leaves open whether records were written (P11, P20)."""
    replica = replica_of()
    handle(replica, order(), 0)
    handle(replica, Appended(replica.log_life, ((4, 4),), "client", 4, 4), 0)
    state = STATE._replace(leader=2, leader_epoch=5)
    effects = handle(replica, order(8, state=state), 0)
    assert Refuse("client", ProduceError.TIMED_OUT) in effects
    assert replica.role is Role.FOLLOWER and not replica.waiting


def test_an_append_for_an_earlier_epoch_is_not_acknowledged() -> None:
    """The role changed while the records were written."""
    replica = replica_of()
    handle(replica, order(), 0)
    handle(replica, order(8, state=STATE._replace(leader_epoch=5)), 0)
    effects = handle(replica, Appended(replica.log_life, ((4, 4),), "client", 4, 4), 0)
    assert effects == [Refuse("client", ProduceError.TIMED_OUT)]


def test_an_append_to_an_older_log_is_not_in_the_new_one() -> None:
    """The topic was created again while the disk was slow (P25)."""
    replica = replica_of()
    handle(replica, order(), 0)
    handle(replica, Produced("client", -1), 0)
    late = Appended(replica.log_life, ((4, 4),), "client", 4, 4)
    handle(replica, order(1, topic=NEWER), 0)
    assert handle(replica, late, 0) == [Refuse("client", ProduceError.TIMED_OUT)]
    assert (replica.log.end, replica.appending) == (0, 0)


def test_a_replica_does_not_follow_before_its_appends_have_ended() -> None:
    """The replica led when they began; until they end, the log end is unknown (P25)."""
    replica = replica_of()
    handle(replica, order(), 0)
    handle(replica, Produced("client", -1), 0)
    handle(replica, order(8, state=STATE._replace(leader=2, leader_epoch=5)), 0)
    assert replica.role is Role.FOLLOWER
    assert handle(replica, FetchDue(), 0) == []
    handle(replica, Appended(replica.log_life, ((4, 4),), "client", 4, 4), 0)
    (fetch,) = handle(replica, FetchDue(), 0)
    assert (fetch.request.offset, fetch.request.last_epoch) == (4, 4)


def test_an_append_that_ends_in_a_later_role_counts() -> None:
    """The replica followed when the append began, and leads when it ends."""
    replica = replica_of()
    handle(replica, order(state=STATE._replace(leader=2)), 0)
    (fetch,) = handle(replica, FetchDue(), 0)
    handle(replica, FetchAnswer(fetch.request, 3, "records"), 0)
    handle(replica, order(8, state=STATE._replace(leader_epoch=5, isr={1: 10}, min_isr=1)), 0)
    assert replica.high_watermark == 3
    handle(replica, AppendedAsFollower(replica.log_life, ((4, 4),)), 0)
    assert (replica.log.end, replica.high_watermark, replica.appending) == (4, 4, 0)


@pytest.mark.parametrize("change", ["cut", "move"])
def test_a_flush_of_an_older_copy_does_not_count(change: str) -> None:
    """The log was cut or moved while the disk was slow (P24, P25)."""
    replica = replica_of(2, flushed=0)
    handle(replica, order(), 0)
    late = Flushed(replica.log_life, 3)
    (fetch,) = handle(replica, FetchDue(), 0)
    if change == "cut":
        handle(replica, FetchAnswer(fetch.request, 2, None, (2, 2)), 0)
    else:
        handle(replica, Moved("b", 0), 0)
    handle(replica, late, 0)
    assert replica.log.flushed == 0
    handle(replica, Flushed(replica.log_life, 2), 0)
    assert replica.log.flushed == 2


def test_regression_a_copy_may_have_records_whose_append_has_not_ended() -> None:
    """They count when their append ends, although the copy is already flushed (P25)."""
    replica = replica_of(flushed=1)
    state = STATE._replace(flushes=True, isr={1: 10}, min_isr=1)
    handle(replica, order(state=state), 0)
    handle(replica, Produced("client", -1), 0)
    handle(replica, Moved("b", 4), 0)
    assert (replica.log.flushed, replica.log.end) == (3, 3)


def test_a_leader_flushes_the_copy_that_it_moved_to() -> None:
    """The flush of the old copy does not count for the new copy (P24)."""
    replica = replica_of(flushed=1)
    handle(replica, order(state=STATE._replace(flushes=True)), 0)
    assert handle(replica, Moved("b", 1), 0)[-1] == Flush(replica.log_life, 3)


def test_regression_an_unknown_event_is_an_error() -> None:
    """So a caller that sends a wrong event notices this at once."""
    with pytest.raises(TypeError, match="a replica does not know the event"):
        handle(replica_of(), DirFailed("a"), 0)


def test_a_replica_without_a_role_does_nothing() -> None:
    """Without a role, it neither fetches nor appends."""
    replica = replica_of()
    assert handle(replica, FetchDue(), 0) == []
    refused = [Refuse("client", ProduceError.NOT_LEADER)]
    assert handle(replica, Produced("client", 1), 0) == refused
