"""Choose the log dir for a new replica: the emptiest disk; among equals the fewest partitions.

A disk is *equal* to the disk with the most free bytes if it has at most one step fewer. A step is
1 % of the disk. Steps are counted down from the emptiest disk, not up from zero, so no boundary
falls between two almost equal disks. Each replica that is still empty is charged an allowance.
Otherwise a thousand new replicas would all go to a disk that has one free byte more.
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
    """Give the usable bytes of a disk, less the allowances of its empty replicas."""
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
