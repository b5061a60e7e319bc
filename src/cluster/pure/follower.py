"""Follow a leader: fetch from the log end, append, and truncate by leader epoch (P9).

The log of a leader may begin after the end of a follower's log. This happens if the follower is
new, or if the leader deleted records while the follower was down. A new or late follower removes
all its records, and begins where the leader's log begins (P26). This removal is not a loss, because
the leader deleted these records on purpose, after they were replicated. So the follower raises no
alarm, although it removes records below its high watermark.
"""

from __future__ import annotations

from cluster.pure import flushing
from cluster.pure.exchange import (
    Alarm,
    AppendAsFollower,
    AppendedAsFollower,
    BeginAt,
    DeleteBefore,
    RemoveReplica,
    SendToBroker,
    TruncateTo,
)
from cluster.pure.flushing import flush, needs_flush
from cluster.pure.replica import Replica, Role
from cluster.requests import FetchAnswer, FollowerFetch


def begin(replica: Replica) -> None:
    """Begin to follow. The log stays unchanged until the leader reports where the logs differ."""
    replica.role = Role.FOLLOWER


def fetch(replica: Replica) -> None:
    """Ask the leader for records. The request also confirms all records before its offset.

    While an append is running, no request is sent, because the end of the log is not known.
    """
    if replica.role is not Role.FOLLOWER or not replica.is_dir_good or is_appending(replica):
        return
    if needs_flush(replica):
        flush(replica)
        return
    assert replica.state is not None
    request = FollowerFetch(
        replica.topic,
        replica.partition,
        replica.broker_id,
        replica.member_epoch,
        replica.leader_epoch,
        replica.log.end,
        replica.log.last_epoch,
        is_leaving=replica.host.is_leaving,
        log_start=replica.log.log_start_offset,
    )
    replica.emit(SendToBroker(replica.state.leader, request))


def is_appending(replica: Replica) -> bool:
    """Check whether an append is still running, even if it began while the replica led."""
    return replica.appending > 0


def epoch_bound(replica: Replica) -> int:
    """Return the largest leader epoch that a batch from the leader may have."""
    return replica.leader_epoch


def on_answer(replica: Replica, answer: FetchAnswer) -> None:
    """Append records or truncate the log, if the answer is for the present log."""
    request = answer.request
    if replica.role is not Role.FOLLOWER or not replica.is_dir_good or is_appending(replica):
        return
    if request.registration_epoch != replica.member_epoch:
        return
    if request.leader_epoch != replica.leader_epoch:
        return
    if (request.offset, request.last_epoch) != (replica.log.end, replica.log.last_epoch):
        return
    if answer.is_beginning_anew:
        begin_anew(replica, answer.log_start)
    elif answer.diverging is not None:
        epoch, end = answer.diverging
        is_compacted = answer.may_lack and answer.high_watermark > replica.log.end
        truncate(replica, min(replica.log.end_of(epoch)[1], end), is_compacted=is_compacted)
    else:
        # Set the high watermark of the log first.
        # After the append, the records that the leader has deleted are deleted here, too.
        # But only records below the high watermark are deleted.
        replica.leader_high_watermark = answer.high_watermark
        replica.leader_start = answer.log_start
        follow_high_watermark(replica)
        replica.appending += 1
        bound, may_lack = epoch_bound(replica), answer.may_lack
        replica.emit(AppendAsFollower(replica.log_life, answer.records, bound, may_lack))


def on_append(replica: Replica, appended: AppendedAsFollower) -> None:
    """Add the appended records of the leader to the known end of the log."""
    if replica.is_of_this_life(appended.log):
        replica.end_append()
        replica.log.append_all(appended.spans)
    if replica.role is Role.FOLLOWER:
        follow_high_watermark(replica)
        follow_start(replica)


def follow_high_watermark(replica: Replica) -> None:
    """Set the high watermark to the leader's, or to the end of this log if that is lower."""
    end = min(replica.leader_high_watermark, replica.log.end)
    replica.set_high_watermark(max(replica.high_watermark, end))


def follow_start(replica: Replica) -> None:
    """Delete the records that the leader has deleted (P26), up to the high watermark.

    If the replica kept deleted records, they would come back when this replica leads.
    """
    start = min(replica.leader_start, replica.high_watermark)
    if start > replica.log.log_start_offset:
        replica.emit(DeleteBefore(start))


def begin_anew(replica: Replica, start: int) -> None:
    """Remove all records, and begin where the leader's log begins.

    This log shares no record with the leader's log. If this log ends after `start`, the records
    from `start` on are cut first. If `start` is below this replica's high watermark, the cut is
    refused with an alarm.
    """
    is_loss = may_lose(replica)
    if start < replica.log.end:
        truncate(replica, start)
    log = replica.log
    if replica.role is not Role.FOLLOWER or log.start == log.end == start:
        return
    replica.emit(BeginAt(start, is_loss and log.end > log.start))
    log.begin_at(start)
    replica.copy += 1
    replica.forget_leaders_log()
    replica.high_watermark = start


def create_again(replica: Replica) -> None:
    """Create the log again at offset 0, because the new leader's log ends before this log begins.

    This happens only after an election that may have lost records.
    """
    start, end = replica.log.log_start_offset, replica.log.end
    if end > start:
        replica.emit(TruncateTo(start, end))
    replica.emit(RemoveReplica())
    replica.create()
    replica.forget_leaders_log()
    flushing.obey(replica)


def truncate(replica: Replica, offset: int, *, is_compacted: bool = False) -> None:
    """Remove the records from an offset on, but no record that may have been acknowledged.

    There is one exception. If compaction has removed all records of an epoch, a replica that was
    copied after the compaction does not know this epoch. If a replica that was copied late leads,
    it may not know the last epoch of this log, although no record was lost. If the leader does not
    know this epoch, this log is cut, too, and the records that are left are fetched again. Until
    these records are fetched, no election can choose this replica, because it lacks records below
    the leader's high watermark.

    Records below the high watermark are removed only after an election that may have lost records.
    After an election that may have lost records, all removed records are kept in a file, even the
    records above the high watermark. After a crash, the high watermark of the replica may be too
    low. So the records above the high watermark may have been acknowledged, too.

    Args:
        is_compacted: whether the leader's log may lack offsets, and all records of this log are
            below the leader's high watermark.
    """
    if offset < replica.high_watermark and not (is_compacted or may_lose(replica)):
        replica.role = Role.NONE
        replica.emit(
            Alarm(
                f"the leader's log ends at offset {offset}, below the high watermark "
                f"{replica.high_watermark} of broker {replica.broker_id}"
            )
        )
        return
    if offset < replica.log.log_start_offset:
        create_again(replica)
        return
    keep_below = replica.log.end if may_lose(replica) else offset
    replica.emit(TruncateTo(offset, max(offset, keep_below)))
    replica.log.truncate(offset)
    replica.copy += 1
    replica.forget_leaders_log()
    replica.high_watermark = min(replica.high_watermark, offset)


def may_lose(replica: Replica) -> bool:
    """Check that an election that may have lost records is newer than the last record."""
    return replica.state is not None and replica.state.unclean_epoch > replica.log.last_epoch
