"""Tell the slow disk from the others: it serves on, but new replicas go elsewhere (KIP-112).

A disk that is about to die, or is a RAID that rebuilds, answers everything, only late. No bound of
one's own tells that from an honest slow disk, so log dirs are compared with each other, by what
does not depend on how much each has to write: the probe, the same few small calls everywhere. The
median of a few is taken, of one's own and of the others', so that one hiccup says nothing; and the
way back is shorter than the way there, so that it does not flutter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logstore.disk.log_dir import LogDir
from logstore.disk.states import Event

# So often as long as the others' does the probe of a slow disk take, and at least so long.
FACTOR = 5.0
SECONDS_MIN = 0.1
# A slow disk is so no more below this part of either.
RETURN_PART = 0.5
PROBES_MIN = 3


def _median(values: Sequence[float]) -> float:
    """Give the middle of some values; NumPy's imports a package at its first call."""
    ordered, middle = sorted(values), len(values) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def judge(log_dir: LogDir, others: Iterable[LogDir]) -> None:
    """Let a log dir be slow, or be so no more, by its last probes and those of the others."""
    own = tuple(log_dir.probe_seconds)
    served = [tuple(one.probe_seconds) for one in others if not one.is_offline]
    theirs = [_median(taken) for taken in served if taken]
    if not theirs:  # nobody is left that it is slower than
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
