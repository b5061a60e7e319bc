"""Flush records before they are acknowledged, if the topic's settings say so (P24).

A replica that acknowledges only flushed records loses no acknowledged record when the power fails.
This guarantee begins when all earlier records are flushed, too. So the replica first flushes, and
then writes a mark into its metadata. If the mark is missing, a loss of power counts as a loss of
records. The mark is removed before an unflushed record is acknowledged.
"""

from __future__ import annotations

from cluster.pure.exchange import Flush
from cluster.pure.replica import Replica


def obey(replica: Replica) -> None:
    """Turn the flushes before acknowledgements on or off, as the new state says."""
    if replica.flushes:
        replica.unflushed_end = replica.log.end
        mark(replica)
    elif replica.counts_flushed:
        unmark(replica)


def mark(replica: Replica) -> None:
    """Write the mark, if all records that are older than the change of the setting are flushed.

    A loss of power before this moment still counts as a loss of records. So the replica's own
    `whole_since`, which shows this loss, is written together with the mark.
    """
    is_due = replica.flushes and not replica.counts_flushed and not replica.is_incomplete
    if is_due and replica.log.flushed >= min(replica.unflushed_end, replica.log.end):
        replica.own_since = replica.whole_since
        replica.counts_flushed = True
        replica.write_own_since()


def unmark(replica: Replica) -> None:
    """Remove the mark, because from now on unflushed records are acknowledged, too."""
    replica.counts_flushed = False
    replica.write_own_since()


def flush(replica: Replica) -> None:
    """Ask for a flush if only flushed records may be acknowledged."""
    if needs_flush(replica):
        replica.emit(Flush(replica.log_life, replica.log.end))


def needs_flush(replica: Replica) -> bool:
    """Check whether there are records that must be flushed before they are acknowledged."""
    return replica.flushes and replica.log.flushed < replica.log.end
