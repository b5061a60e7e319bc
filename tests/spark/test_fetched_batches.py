"""What is taken from a Fetch response: whole, sound batches in a range, without aborted ones."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from cluster.spark.fetched_batches import FetchedBatches
from logstore.errors import UnsupportedFormatError
from support.compacting import NOW, batch_of, marker

TRANSACTIONAL = 0x10


class Row(NamedTuple):
    """An aborted transaction, as a response has it."""

    producer_id: int
    first_offset: int


def batch(base: int, count: int = 5, layout: str = "kafka") -> bytes:
    """Make a batch without a producer."""
    return batch_of(layout, base, [(b"k", b"v", NOW)] * count)


def part_of_transaction(base: int, producer_id: int) -> bytes:
    """Make a batch of one record that belongs to a transaction."""
    rows = [(b"k", b"v", NOW)]
    return batch_of(
        "kafka", base, rows, producer=(producer_id, 0, 0), attributes=TRANSACTIONAL
    )  # fmt: skip


def offsets(found: FetchedBatches) -> list[int]:
    return [offset for batch in found.batches() for offset in batch.offsets.tolist()]


def test_only_the_range_is_taken() -> None:
    """The first and the last batch are cut; `offset` is where the next fetch continues."""
    data = batch(0) + batch(5) + batch(10) + batch(15)
    found = FetchedBatches(data, (), 7, 12)
    assert offsets(found) == [7, 8, 9, 10, 11] and found.offset == 12
    found = FetchedBatches(data[:-1], (), 0, 100)
    assert offsets(found) == list(range(15)) and found.offset == 15
    found = FetchedBatches(batch(0), (), 7, 12)
    assert offsets(found) == [] and found.offset == 7


def test_a_gap_before_the_end_is_the_end() -> None:
    """If the next batch begins after the range, compaction removed the rest of the range."""
    found = FetchedBatches(batch(0) + batch(50), (), 0, 20)
    assert offsets(found) == list(range(5)) and found.offset == 20
    found = FetchedBatches(batch(50), (), 5, 20)
    assert offsets(found) == [] and found.offset == 20


def test_aborted_transactions_are_left_out_up_to_their_marker() -> None:
    """Another producer, and the next transaction of the same producer, are not concerned."""
    data = b"".join(
        [
            part_of_transaction(0, 7),
            part_of_transaction(1, 8),
            batch(2, 1),
            part_of_transaction(3, 7),
            marker(4, 7, commit=False),
            part_of_transaction(5, 7),
            marker(6, 8, commit=True),
            marker(7, 7, commit=True),
        ]
    )
    found = FetchedBatches(data, [Row(7, 0)], 0, 8)
    assert offsets(found) == [1, 2, 5] and found.offset == 8
    assert offsets(FetchedBatches(data, (), 0, 8)) == [0, 1, 2, 3, 5]
    twice = data + part_of_transaction(8, 7) + marker(9, 7, commit=False)
    assert offsets(FetchedBatches(twice, [Row(7, 8), Row(7, 0)], 0, 10)) == [1, 2, 5]
    assert offsets(FetchedBatches(twice, [Row(7, 8), Row(7, 0)], 3, 10)) == [5]


def test_nothing_of_a_damaged_answer_is_taken() -> None:
    """A flipped bit, an offset that comes twice, and a foreign layout are errors."""
    damaged = bytearray(batch(0) + batch(5))
    damaged[-1] ^= 1
    with pytest.raises(ValueError, match="checksum"):
        offsets(FetchedBatches(bytes(damaged), (), 0, 10))
    with pytest.raises(ValueError, match="begins before offset 5"):
        offsets(FetchedBatches(batch(0) + batch(3), (), 0, 10))
    with pytest.raises(UnsupportedFormatError):
        offsets(FetchedBatches(batch(0, layout="columnar"), (), 0, 10))
