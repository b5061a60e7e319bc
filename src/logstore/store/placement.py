"""Choose a log dir for a new replica: by free space, and then by the number of partitions.

The emptiest disk is the disk with the most free bytes. A step is 1 % of a disk. A disk counts as
equal to the emptiest disk if it has at most one step fewer free bytes. The steps are counted down
from the emptiest disk, not up from zero. So a disk that is almost as empty as the emptiest disk
always counts as equal to the emptiest disk. For each replica that is still empty, an allowance is
first subtracted from the free bytes of its disk. Without allowances, a thousand new replicas would
all go to a disk that has one more free byte than the other disks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

STEP_PERCENT = 1


class DirLoad(NamedTuple):
    """The figures of one log dir that placement compares."""

    total_bytes: int
    usable_bytes: int
    partition_count: int
    empty_count: int


def free_bytes(load: DirLoad, allowance_bytes: int) -> int:
    """Return the usable bytes of a disk, minus the allowances of its empty replicas."""
    return load.usable_bytes - load.empty_count * allowance_bytes


def choose(loads: Sequence[DirLoad], allowance_bytes: int) -> int:
    """Return the index of the best log dir for the next replica; if several are equal, the first.

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
