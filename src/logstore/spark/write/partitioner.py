"""Choose partitions as Kafka's producer does: by a column, by the hash of the key, or in turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

SEED, MULTIPLIER, SHIFT = 0x9747B28C, np.uint32(0x5BD1E995), np.uint32(24)

Numbers = NDArray[Any]


def murmur2(keys: pa.Array) -> Numbers:
    """Hash each key with Kafka's murmur2: shape (n,), uint32; the hash of a null has no meaning.

    Keys of the same length are hashed together: each step hashes one word of every key.
    """
    keys = keys.cast(pa.large_binary())
    starts = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset : keys.offset + len(keys) + 1]
    cells = keys.buffers()[2]
    data = np.frombuffer(b"" if cells is None else cells, np.uint8)
    lengths = np.diff(starts)
    hashes = np.zeros(len(keys), np.uint32)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        hashes[rows] = _murmur2(data[starts[rows][:, None] + np.arange(length)], length)
    return hashes


def _murmur2(octets: Numbers, length: int) -> Numbers:
    """Hash each row of `octets`, which has `length` bytes."""
    hashes = np.full(len(octets), SEED ^ length, np.uint32)
    whole = length & ~3
    words = np.ascontiguousarray(octets[:, :whole]).view("<u4")
    for number in range(words.shape[1]):
        word = words[:, number] * MULTIPLIER
        word = (word ^ (word >> SHIFT)) * MULTIPLIER
        hashes = (hashes * MULTIPLIER) ^ word
    if length & 3:
        for number in range(length - whole):
            hashes ^= octets[:, whole + number].astype(np.uint32) << np.uint32(8 * number)
        hashes = hashes * MULTIPLIER
    hashes = (hashes ^ (hashes >> np.uint32(13))) * MULTIPLIER
    return hashes ^ (hashes >> np.uint32(15))


def by_key(keys: pa.Array | None, partitions: list[int], rows_before: int, count: int) -> Numbers:
    """Choose the partition of each row by its key; distribute rows without a key evenly."""
    numbers = np.array(partitions, np.int64)
    turns = (rows_before + np.arange(count)) % len(numbers)
    if keys is None or keys.null_count == count:
        return numbers[turns]
    hashed = (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % len(numbers)
    if keys.null_count:
        hashed = np.where(pc.is_null(keys).to_numpy(zero_copy_only=False), turns, hashed)
    return numbers[hashed]
