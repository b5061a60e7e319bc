"""Test that partitions that are far behind share an answer, and delay no others."""

from __future__ import annotations

from cluster.fetches.shares import FetchShares
from cluster.wire.follower_fetches import FetchLimits, PartitionId

LIMITS = FetchLimits(bytes_max=1000, partition_bytes_max=100)
A, B, C, D = [("a", 0), ("b", 0), ("b", 1), ("c", 0)]


def answered(shares: FetchShares, *asked: PartitionId, **sizes: int) -> list[PartitionId]:
    """Divide a fetch, and pass an answer with these sizes; return the order of the request."""
    divided = shares.divide(asked)
    shares.note(divided, {key: sizes.get(f"{key[0]}{key[1]}", 0) for key in asked})
    return list(divided)


def test_at_first_each_partition_gets_its_limit() -> None:
    """The partitions are in the order of their names."""
    assert FetchShares(LIMITS).divide([C, A, B]) == {A: 100, B: 100, C: 100}


def test_a_partition_that_is_far_behind_gets_the_whole_answer() -> None:
    """This begins after an answer with half of the requested bytes, and ends with a smaller one."""
    shares = FetchShares(LIMITS)
    answered(shares, A, a0=50)
    assert shares.divide([A]) == {A: 1000}
    answered(shares, A, a0=500)
    assert shares.divide([A]) == {A: 1000}
    answered(shares, A, a0=499)
    assert shares.divide([A]) == {A: 100}


def test_a_partition_that_is_far_behind_lets_others_wait_less() -> None:
    """It comes last, and gets a quarter of the answer."""
    shares = FetchShares(LIMITS)
    answered(shares, A, B, a0=50, b0=49)
    assert list(shares.divide([A, B]).items()) == [(B, 100), (A, 250)]
    answered(shares, A, B, a0=125)
    assert shares.divide([A, B]) == {B: 100, A: 250}
    answered(shares, A, B, a0=124)
    assert shares.divide([A, B]) == {A: 100, B: 100}


def test_many_partitions_that_are_far_behind_share_the_answer() -> None:
    """No partition gets less than its ordinary limit."""
    shares = FetchShares(LIMITS)
    answered(shares, A, B, C, D, a0=100, b0=100, b1=100, c0=60)
    assert shares.divide([A, B, C, D]) == {A: 250, B: 250, C: 250, D: 250}
    many = [("m", number) for number in range(20)]
    shares.note(shares.divide(many), dict.fromkeys(many, 100))
    assert set(shares.divide(many).values()) == {100}


def test_they_take_turns() -> None:
    """A partition without room in the answer is the first in the next fetch."""
    shares = FetchShares(FetchLimits(bytes_max=200, partition_bytes_max=100))
    answered(shares, A, B, C, a0=100, b0=100, b1=100)
    assert answered(shares, A, B, C, a0=100, b0=100) == [A, B, C]
    assert answered(shares, A, B, C, D, b1=100, a0=100) == [D, C, A, B]
    assert answered(shares, A, B, C, D, b0=100, b1=100) == [D, B, C, A]


def test_a_partition_that_is_not_asked_for_is_forgotten() -> None:
    """A replica that was moved, or leads now, is no longer far behind."""
    shares = FetchShares(LIMITS)
    answered(shares, A, B, a0=100)
    shares.divide([B])
    assert shares.divide([A, B]) == {A: 100, B: 100}
    answered(shares, A, B, a0=100)
    shares.note(shares.divide([A, B]), {})  # both were refused
    assert shares.divide([A, B]) == {A: 100, B: 100}


def test_regression_a_partition_with_a_large_batch_gets_its_turn() -> None:
    """A leader sends a batch above the limit only if no earlier partition has records."""
    shares = FetchShares(LIMITS)
    assert answered(shares, A, B, C, a0=10, b0=10) == [A, B, C]
    assert answered(shares, A, B, C, a0=10, b0=10) == [C, A, B]
    assert answered(shares, A, B, C, b1=300) == [C, A, B]
    assert answered(shares, A, B, C, a0=10, b0=10) == [A, B, C]  # C is far behind now


def test_regression_a_partition_far_behind_with_a_large_batch_gets_its_turn() -> None:
    """Others with new records all the time do not stop it."""
    shares = FetchShares(LIMITS)
    answered(shares, A, B, a0=90)
    assert answered(shares, A, B, b0=49) == [B, A]
    assert answered(shares, A, B, a0=90) == [A, B]
    shares = FetchShares(FetchLimits(bytes_max=100, partition_bytes_max=40))
    answered(shares, A, B, a0=40)
    assert answered(shares, A, B, b0=40) == [B, A]  # there was no room for A
    assert answered(shares, A, B) == [A, B]
