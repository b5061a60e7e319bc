"""Count only flushed records where the topic asks for it, and know since when that is so (P24).

A replica that counts only flushed records loses nothing that counts when the power fails. That is
true only from the moment at which all that it had counted before was flushed. So the replica first
flushes, then writes a mark into its metadata, and only with the mark do losses of power not count.
Before a record counts that is not flushed, the mark is removed.
"""

from __future__ import annotations

from cluster.pure.exchange import Flush
from cluster.pure.replica import Replica


def obey(replica: Replica) -> None:
    """Begin or end to count only flushed records, as the state says that was just obeyed."""
    if replica.flushes:
        replica.unflushed_end = replica.log.end
        mark(replica)
    elif replica.counts_flushed:
        unmark(replica)


def mark(replica: Replica) -> None:
    """Write the mark, once all is flushed that the replica had when the setting began.

    Losses of power from before the mark still count, so they become the replica's own.
    """
    is_due = replica.flushes and not replica.counts_flushed and not replica.is_incomplete
    if is_due and replica.log.flushed >= min(replica.unflushed_end, replica.log.end):
        replica.own_since = replica.whole_since
        replica.counts_flushed = True
        replica.write_own_since()


def unmark(replica: Replica) -> None:
    """Remove the mark, because from now on records count that are not flushed."""
    replica.counts_flushed = False
    replica.write_own_since()


def flush(replica: Replica) -> None:
    """Ask for a flush if only flushed records count."""
    if needs_flush(replica):
        replica.emit(Flush(replica.log_life, replica.log.end))


def needs_flush(replica: Replica) -> bool:
    """Check whether there are records that must be flushed before they count."""
    return replica.flushes and replica.log.flushed < replica.log.end
