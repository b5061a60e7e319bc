"""Detect a disk that is slower than the other disks, so that it gets no new replicas (KIP-112).

A disk may answer every call, but late. For example, the disk is about to die, or a RAID is being
rebuilt. A fixed bound cannot distinguish a disk that became slow from a disk that is always slow.
So the time of a log dir's probes is compared with the times of the other log dirs. A probe makes
the same few small calls in every log dir, whatever else the log dir writes. Medians of the last few
probes are compared, so a single outlier has no effect. A SLOW log dir stays SLOW until it is
clearly faster, so that the state does not change repeatedly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logstore.disk.log_dir import LogDir
from logstore.disk.states import Event

# The probe of a slow dir takes FACTOR times as long as the probes of the other dirs.
# It also takes at least SECONDS_MIN.
FACTOR = 5.0
SECONDS_MIN = 0.1
# A SLOW dir is no longer SLOW when its probe takes less than this fraction of the bound.
RETURN_PART = 0.5
PROBES_MIN = 3


def _median(values: Sequence[float]) -> float:
    """Return the median of some values; NumPy's `median` would import another package."""
    ordered, middle = sorted(values), len(values) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def judge(log_dir: LogDir, others: Iterable[LogDir]) -> None:
    """Compare a log dir's probes with the other dirs' probes, and mark it as slow or not slow."""
    own = tuple(log_dir.probe_seconds)
    served = [tuple(one.probe_seconds) for one in others if not one.is_offline]
    theirs = [_median(taken) for taken in served if taken]
    if not theirs:  # no other log dir has probes to compare with
        log_dir.change(Event.KEPT_UP)
    if len(own) < PROBES_MIN or not theirs:
        return
    usual, its = _median(theirs), _median(own)
    part = RETURN_PART if log_dir.is_slow else 1.0
    if its < part * max(SECONDS_MIN, FACTOR * usual):
        log_dir.change(Event.KEPT_UP)
    else:
        reason = f"a probe takes {its * 1000:.0f} ms, but {usual * 1000:.0f} ms on other log dirs"
        log_dir.change(Event.SLOWED, reason)
