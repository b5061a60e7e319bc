"""Detect a slow disk by comparison: it still serves, but new replicas go elsewhere (KIP-112).

A disk that is about to die, or a RAID that rebuilds, answers every call, but late. A fixed bound
cannot distinguish that from a disk that is simply slow. So log dirs are compared with each other by
the probe: the same few small calls everywhere, which do not depend on how much each dir writes. The
median of the last few probes is compared, of the dir itself and of the others, so that a single
outlier has no effect. The bound for the return is lower, so that the state does not flutter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logstore.disk.log_dir import LogDir
from logstore.disk.states import Event

# A dir is slow if its probe takes this many times as long as the others', and at least this long.
FACTOR = 5.0
SECONDS_MIN = 0.1
# A slow dir is no longer slow below this fraction of both bounds.
RETURN_PART = 0.5
PROBES_MIN = 3


def _median(values: Sequence[float]) -> float:
    """Give the middle of some values; NumPy's imports a package at its first call."""
    ordered, middle = sorted(values), len(values) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def judge(log_dir: LogDir, others: Iterable[LogDir]) -> None:
    """Mark a log dir as slow, or as no longer slow, by its last probes and those of the others."""
    own = tuple(log_dir.probe_seconds)
    served = [tuple(one.probe_seconds) for one in others if not one.is_offline]
    theirs = [_median(taken) for taken in served if taken]
    if not theirs:  # there is no other log dir to compare it with
        log_dir.change(Event.KEPT_UP)
    if len(own) < PROBES_MIN or not theirs:
        return
    usual, its = _median(theirs), _median(own)
    part = RETURN_PART if log_dir.is_slow else 1.0
    if its < part * max(SECONDS_MIN, FACTOR * usual):
        log_dir.change(Event.KEPT_UP)
    else:
        reason = f"a probe takes {its * 1000:.0f} ms, on the other log dirs {usual * 1000:.0f} ms"
        log_dir.change(Event.SLOWED, reason)
