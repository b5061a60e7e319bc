"""The inner loop of scans accepts only whole, valid batches that follow one another."""

from __future__ import annotations

import itertools

import pytest

from logstore.format.columnar import record_batch as columnar
from logstore.format.sound import sound_header, sound_run

START = 4096  # where the buffer begins in its file
SIZES = (1, 100, 7, 1000, 0, 64)


def batches() -> list[bytes]:
    """Make batches of one record each, with offsets from 10 on."""
    return [columnar.frame_one(10 + n, 3, 5, bytes(size)) for n, size in enumerate(SIZES)]


def bits() -> bytearray:
    """Return the bits for a file without a verified batch."""
    return bytearray(128)


def test_a_run_is_all_batches_of_a_window() -> None:
    """The result has the start of each batch and of the next one; all bits are then set."""
    parts = batches()
    data, verified = b"".join(parts), bits()
    run, end, offset = sound_run(memoryview(data), 0, 10, 10, START, verified)
    starts = [0, *itertools.accumulate(map(len, parts))]
    assert [at for at, _ in run] == starts[:-1] and (end, offset) == (starts[-1], 16)
    for number, (at, header) in enumerate(run):
        assert header == columnar.read_header(data, at)
        assert header == sound_header(memoryview(data), at, len(data), 10 + number)
        position = START + at
        assert verified[position >> 8] >> (position >> 5 & 7) & 1
    assert sum(map(int.bit_count, verified)) == len(parts)


@pytest.mark.parametrize("cut", [1, 8, 79, 80, 150])
def test_it_ends_before_a_batch_that_is_not_whole(cut: int) -> None:
    """The result has the start of the incomplete batch."""
    parts = batches()
    data = b"".join(parts)
    run, end, offset = sound_run(memoryview(data[:-cut]), 0, 10, 10, START, bits())
    whole = len(run)
    assert whole < len(parts) and end == sum(map(len, parts[:whole])) and offset == 10 + whole


def test_it_ends_at_any_flipped_bit() -> None:
    """If a batch in the middle is damaged, those before it are returned, and its bit stays 0."""
    parts = batches()
    start, size = sum(map(len, parts[:2])), len(parts[2])
    for bit in range(size * 8):
        data, verified = bytearray(b"".join(parts)), bits()
        data[start + bit // 8] ^= 1 << bit % 8
        run, end, offset = sound_run(memoryview(data), 0, 10, 10, START, verified)
        assert (len(run), end, offset) == (2, start, 12)
        position = START + start
        assert not verified[position >> 8] >> (position >> 5 & 7) & 1


def test_what_was_checked_is_not_hashed_again_but_must_follow() -> None:
    """The bit is set, but the offset is still compared."""
    data, verified = bytearray(b"".join(batches())), bits()
    sound_run(memoryview(data), 0, 10, 10, START, verified)
    data[-1] ^= 1  # the last batch's checksum
    assert len(sound_run(memoryview(data), 0, 10, 10, START, verified)[0]) == len(SIZES)
    assert len(sound_run(memoryview(data), 0, 10, 10, START, bits())[0]) == len(SIZES) - 1
    assert sound_run(memoryview(data), 0, 11, 11, START, verified) == ([], 0, 11)


def test_it_ends_before_a_batch_that_nobody_wants() -> None:
    """A search for a later offset skips such a batch in another way."""
    data = b"".join(batches())
    assert sound_run(memoryview(data), 0, 10, 12, START, bits()) == ([], 0, 10)
