"""New replicas go where there is room, evenly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.store.placement import DirLoad, choose

GIB = 1 << 30


def spread(dirs: int, replicas: int, size_bytes: int, *, is_filled: bool) -> list[int]:
    """Place replicas one by one on equal disks and count them."""
    total = 10_000 * GIB
    loads = [DirLoad(total, total, 0, 0) for _ in range(dirs)]
    for _ in range(replicas):
        number = choose(loads, GIB)
        load = loads[number]
        loads[number] = DirLoad(
            total,
            load.usable_bytes - (size_bytes if is_filled else 0),
            load.partition_count + 1,
            load.empty_count + (not is_filled),
        )
    return [load.partition_count for load in loads]


@pytest.mark.parametrize("is_filled", [False, True])
def test_ten_thousand_equal_replicas_are_spread_evenly(is_filled: bool) -> None:
    """Over 12 equal dirs the counts differ by at most one, filled or empty."""
    counts = spread(12, 10_000, 5 * GIB, is_filled=is_filled)
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == 10_000


@given(size=st.integers(0, 300 * GIB), dirs=st.integers(1, 12), replicas=st.integers(0, 60))
def test_equal_replicas_are_spread_evenly_whatever_their_size(
    size: int, dirs: int, replicas: int
) -> None:
    """There is no boundary at which one disk suddenly looks emptier than an equal one."""
    counts = spread(dirs, replicas, size, is_filled=True)
    assert max(counts) - min(counts) <= 1


def test_the_emptier_disk_is_chosen_over_the_one_with_fewer_partitions() -> None:
    """Bytes decide first, if they differ by more than one step of 1 %."""
    small = DirLoad(1000 * GIB, 100 * GIB, 1, 0)
    large = DirLoad(1000 * GIB, 900 * GIB, 50, 0)
    assert choose([small, large], GIB) == 1


def test_within_one_step_the_fewest_partitions_win() -> None:
    """Differences below 1 % do not count; among equal disks, the first is chosen."""
    a = DirLoad(1000 * GIB, 500 * GIB, 5, 0)
    b = DirLoad(1000 * GIB, 495 * GIB, 4, 0)
    assert choose([a, b], GIB) == 1
    assert choose([a, a], GIB) == 0


def test_empty_replicas_count_for_what_they_will_want() -> None:
    """A disk with many replicas that are still empty counts as full."""
    promised = DirLoad(1000 * GIB, 500 * GIB, 100, 100)
    filled = DirLoad(1000 * GIB, 450 * GIB, 200, 0)
    assert choose([promised, filled], GIB) == 1


def test_no_disk_is_an_error() -> None:
    """There must be a log dir to choose from."""
    with pytest.raises(ValueError, match="empty"):
        choose([], GIB)
