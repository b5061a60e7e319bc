"""Follow a replica to another log dir of its broker, together with its losses (P4).

A replica has two numbers in its metadata: `own_since` and `placed_since`. They are written for one
log dir. The mover copies the metadata unchanged. So after a move, the numbers say nothing about the
losses of the earlier log dir, until they are written again. The metadata also says for which log
dir the numbers were written (`placed_in`). So a replica is recognized if its broker was killed
before it wrote the numbers again, or if a start has completed its move. The losses of both log dirs
count for such a replica. With its next role, its numbers are written again.
"""

from __future__ import annotations

from cluster.pure import flushing
from cluster.pure.replica import Replica, Role
from cluster.requests import NEVER


def move(replica: Replica, dir_id: str, flushed: int) -> None:
    """Record that the mover has replaced a replica by its copy in another log dir."""
    is_counted = flushed >= replica.log.flushed
    assert is_counted or not replica.counts_flushed, "the copy lacks flushed records"
    since = moved_since(replica)
    replica.dir_id = dir_id
    replica.log.flushed = min(max(flushed, replica.log.start), replica.log.end)
    replica.copy += 1
    if since != NEVER:  # otherwise, the broker just starts, and does not know its log dirs yet
        log_dir = replica.host.dirs[dir_id]
        # any number after 0 means a loss
        _write(replica, since, log_dir.whole_since if log_dir.is_good else 0)
    if replica.role is Role.LEADER:
        flushing.flush(replica)


def moved_since(replica: Replica) -> int:
    """Return the `whole_since` of a moved replica, with the losses of the source log dir (P4).

    Earlier losses of the target log dir are ignored, because the copy was made after them.
    """
    return replica.whole_since_if(flushes=replica.counts_flushed)


def settle(replica: Replica) -> None:
    """Write the numbers of a replica again, if they were written for an earlier log dir."""
    if replica.is_displaced and not replica.is_incomplete:
        _write(replica, moved_since(replica), replica.host.dirs[replica.dir_id].whole_since)


def _write(replica: Replica, own_since: int, placed_since: int) -> None:
    numbers = own_since, placed_since, replica.dir_id
    if numbers != (replica.own_since, replica.placed_since, replica.placed_in):
        replica.own_since, replica.placed_since, replica.placed_in = numbers
        replica.write_own_since()
