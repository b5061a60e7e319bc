"""Change one rule about log starts: the functions that mutants use instead."""

from __future__ import annotations

from cluster.pure import elect, follower, leader, partition
from cluster.pure.exchange import BeginAt, DeleteBefore, TruncateTo
from cluster.pure.log_ends import NO_EPOCH, LogEnds
from cluster.pure.replica import Replica, Role
from cluster.requests import FollowerFetch

_on_fetch, _divergence, _end_of = leader.on_fetch, leader.divergence, LogEnds.end_of


def begin_at_leaders_start(replica: Replica) -> None:
    if min(replica.leader_start, replica.high_watermark) > replica.log.start:
        replica.emit(BeginAt(replica.leader_start, keeps_lost=False))
        replica.log.begin_at(replica.leader_start)
        replica.high_watermark = replica.leader_start


ANEW_OVER_RECORDS = [(follower, "follow_start", begin_at_leaders_start)]


def count_where_it_begins(replica: Replica, fetch: FollowerFetch, now: float) -> None:
    _on_fetch(replica, fetch, now)
    is_asked = replica.role is Role.LEADER and fetch.leader_epoch == replica.leader_epoch
    if is_asked and fetch.offset < replica.log.start:
        leader._count(replica, fetch._replace(offset=replica.log.start), now)
        leader.advance(replica)
        leader.expand(replica, fetch.follower, now)


COUNT_BELOW_START = [(leader, "on_fetch", count_where_it_begins)]


def end_of_or_zero(self: LogEnds, epoch: int) -> tuple[int, int]:
    known, end = _end_of(self, epoch)
    return (known, end) if known > NO_EPOCH else (NO_EPOCH, 0)


CUT_AT_ZERO = [(LogEnds, "end_of", end_of_or_zero)]


def follow_at_once(replica: Replica) -> None:
    if replica.leader_start > replica.log.start:
        replica.emit(DeleteBefore(replica.leader_start))


NO_FOLLOW = [(follower, "follow_start", lambda replica: None)]
FOLLOW_AT_ONCE = [(follower, "follow_start", follow_at_once)]


def trust_at_start(replica: Replica, fetch: FollowerFetch) -> tuple[int, int] | None:
    return None if fetch.offset == replica.log.start else _divergence(replica, fetch)


TRUST_AT_START = [(leader, "divergence", trust_at_start)]
EMPTY_DIVERGES = [(FollowerFetch, "is_empty", property(lambda self: self.offset == 0))]


def refuse_below_start(replica: Replica, fetch: FollowerFetch) -> tuple[int, int] | None:
    return None if fetch.offset < replica.log.start else _divergence(replica, fetch)


NEVER_ANEW = [(leader, "divergence", refuse_below_start)]
EMPTY_RANKS_LAST = [
    (elect, "longest", lambda logs: max(logs, key=lambda one: (*one[:2], -one[2]))[2])
]
UNHEARD_START = [(partition, "on_start", lambda replica, start: None)]


def cut_before_start(replica: Replica) -> None:
    replica.emit(TruncateTo(0, replica.log.end))


CUT_BEFORE_START = [(follower, "create_again", cut_before_start)]
