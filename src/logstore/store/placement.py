"""Choose the log dir for a new replica: the emptiest disk; among equals the fewest partitions.

Disks are *equal* if their free bytes differ by no more than one step, 1 % of the disk, from the
disk with the most free bytes. The step is counted from that disk and not from zero, so two equal
disks never fall on two sides of a boundary. A replica that is still empty is charged an allowance.
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
    """Give the free bytes that count: without those that the empty replicas will need."""
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
