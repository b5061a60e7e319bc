"""Choose the log dir for a new replica: the emptiest disk, and among equals the fewest partitions.

Disks are *equal* when their free bytes differ by no more than one step, 1 % of the disk, from the
freest one. The step is counted from the freest and not from zero, so that two equal disks never
fall on two sides of a boundary. A replica that is still empty is charged an allowance, else a
thousand new ones would go to the disk that was a byte ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

STEP_PERCENT = 1


class DirLoad(NamedTuple):
    """What placement looks at in one log dir."""

    total_bytes: int
    usable_bytes: int
    partition_count: int
    empty_count: int


def free_bytes(load: DirLoad, allowance_bytes: int) -> int:
    """Give the free bytes that count: less what the empty replicas will want."""
    return load.usable_bytes - load.empty_count * allowance_bytes


def choose(loads: Sequence[DirLoad], allowance_bytes: int) -> int:
    """Give the index of the log dir that takes the next replica; the first among equals.

    Raises:
        ValueError: there is no log dir to choose from.
    """
    best = max(free_bytes(load, allowance_bytes) for load in loads)
    chosen = -1
    for number, load in enumerate(loads):
        step = load.total_bytes * STEP_PERCENT // 100
        if free_bytes(load, allowance_bytes) < best - step:
            continue
        if chosen < 0 or load.partition_count < loads[chosen].partition_count:
            chosen = number
    return chosen
