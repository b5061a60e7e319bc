"""Append records to the log of a hosted replica, and make the event that reports the result."""

from __future__ import annotations

import logging

from cluster.disks.log_spans import Spans, spans_of
from cluster.disks.revocation import Revocation
from cluster.pure import exchange as x
from logstore import Log
from logstore.errors import LogStoreError, OffsetOutOfRangeError

LOG = logging.getLogger("cluster")
ACKS_ALL = -1


def append(log: Log, effect: x.AppendAsLeader, before: int, revocation: Revocation) -> x.Appended:
    """Append a client's records. If the log refuses, only this client gets an error.

    Even if the append raises an error, the records may be in the log.

    Args:
        before: the log end that the rules know.
    """
    life, waiter, leader_epoch, acks = effect
    try:
        end_offset = waiter.append(log, leader_epoch).last_offset + 1
    except (LogStoreError, ValueError) as error:
        waiter.fail(error)
        waiter, end_offset = None, log.log_end_offset
    spans = spans_of(log, before) if end_offset > before else ()
    if waiter is not None and acks != ACKS_ALL:
        revocation.acknowledge(x.Acknowledge(waiter, end_offset))
        waiter = None
    return x.Appended(life, spans, waiter, end_offset, leader_epoch)


def append_as_follower(
    log: Log, effect: x.AppendAsFollower, before: int, name: str
) -> x.AppendedAsFollower:
    """Append the leader's batches. If the log refuses the batches, fetch them again.

    Args:
        before: the log end that the rules know.
        name: the name of the replica, for the message about bad batches.
    """
    life, records, epoch, gaps = effect
    try:
        if records:
            log.append_as_follower(records, leader_epoch=epoch, may_lack_offsets=gaps)
    except (ValueError, OffsetOutOfRangeError) as error:
        LOG.warning("%s: bad records from the leader: %s", name, error)
    spans: Spans = spans_of(log, before) if log.log_end_offset > before else ()
    return x.AppendedAsFollower(life, spans)
