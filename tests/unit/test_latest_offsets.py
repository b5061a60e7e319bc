"""Compare the table of latest offsets with a dictionary."""

from __future__ import annotations

import random

import numpy as np
import pytest

from logstore.format.steps import run
from logstore.log.compaction.fingerprints import Fingerprints, fingerprints
from logstore.log.compaction.latest_offsets import PLACE_BYTES, LatestOffsets


def prints_of(numbers: list[int], seed: int = 0) -> Fingerprints:
    """Return the fingerprints of keys that are numbers."""
    data = b"".join(b"%08d" % number for number in numbers) + bytes(16)
    starts = np.arange(len(numbers)) * 8
    return run(fingerprints(data, starts, np.full(len(numbers), 8), seed))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("fill", [0.1, 0.9, 1.0])
def test_it_agrees_with_a_dictionary(seed: int, fill: float) -> None:
    """In one call or in several, the last offset of each key counts."""
    rng = random.Random(seed)
    table = LatestOffsets(0, 3000 * int(PLACE_BYTES))
    numbers = range(int(table.key_count_max * fill))
    expected: dict[int, int] = {}
    offset = 0
    while len(expected) < len(numbers) * 0.95:
        rows = [rng.choice(numbers) for _ in range(rng.choice((1, 3, 100, 2000)))]
        offsets = np.cumsum([rng.randrange(1, 9) for _ in rows]) + offset
        offset = int(offsets[-1])
        assert table.insert(prints_of(rows), offsets) == len(rows)
        expected |= dict(zip(rows, offsets.tolist(), strict=True))
        assert table.key_count == len(expected)
    table.seal()
    assert table.between(0, offset + 1).tolist() == sorted(expected.values())
    middle = [one for one in sorted(expected.values()) if 50 <= one < 900]
    assert table.between(50, 900).tolist() == middle
    is_held = table.contains(prints_of(list(range(2 * len(numbers) + 9)))).tolist()
    assert [number for number, held in enumerate(is_held) if held] == sorted(expected)


def test_a_full_table_says_how_many_rows_it_took() -> None:
    """Rows with known keys are stored, up to the first new key that has no place."""
    table = LatestOffsets(0, 1 << 13)
    most = table.key_count_max
    assert table.insert(prints_of(list(range(most))), np.arange(most)) == most == table.key_count
    more = [3, 5, 7, most, 9]
    assert table.insert(prints_of(more), np.arange(most, most + 5)) == 3
    assert table.insert(prints_of([most]), np.array([most + 5])) == 0
    table.seal()
    assert table.between(most, most + 9).tolist() == [most, most + 1, most + 2]
    assert not table.contains(prints_of([most])).any()


def test_a_table_takes_at_least_one_key() -> None:
    """So every cleaning makes progress, even if only one key fits."""
    table = LatestOffsets(0, 1 << 13)
    table.key_count_max = 1
    assert table.insert(prints_of([4, 4, 5]), np.arange(3)) == 2
    assert table.insert(prints_of([5, 4]), np.arange(2, 4)) == 0
    assert table.key_count == 1


def test_its_size_is_bounded_and_fits_the_keys_expected() -> None:
    """A table is not larger than requested, and not larger than its keys need."""
    table = LatestOffsets(0, 1 << 20)
    table.insert(prints_of(list(range(table.key_count_max))), np.arange(table.key_count_max))
    table.seal()
    assert 0.95 * (1 << 20) < table.size_bytes <= 1 << 20
    assert table.key_count_max > (1 << 20) // 48
    small = LatestOffsets(0, 1 << 30, keys_expected=100)
    assert small.key_count_max >= 100 and small.size_bytes < 8192
    with pytest.raises(ValueError, match="no room"):
        LatestOffsets(0, 100)


def test_keys_that_share_all_places_are_told_apart() -> None:
    """Fingerprints that differ in any of their 128 bits are different keys."""
    keys = np.zeros((129, 2), np.uint64)
    for bit in range(128):
        keys[bit + 1, bit // 64] = np.uint64(1) << np.uint64(bit % 64)
    keys[:, 0] ^= np.uint64(0x5555555555555555)
    table = LatestOffsets(0, 1 << 14)
    assert table.insert(keys[::2], np.arange(65)) == 65
    assert table.contains(keys).tolist() == [number % 2 == 0 for number in range(129)]
