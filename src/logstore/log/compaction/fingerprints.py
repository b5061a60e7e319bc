"""Represent keys of any size as two 64-bit numbers: equal numbers mean equal keys.

A key of up to 14 bytes is represented by its own bytes and its size, so different short keys have
different numbers. A longer key is represented by 127 bits of its xxh3-128. The seed of the hash is
random and used for one cleaning only, so nobody can prepare different keys with equal numbers. The
highest bit distinguishes long keys from short keys.
"""

from __future__ import annotations

from itertools import repeat

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

from logstore.format.steps import STEP_CELLS, Steps

Numbers = NDArray[np.int64]
Fingerprints = NDArray[np.uint64]  # shape (n, 2)

FINGERPRINT_BYTES = 16
SHORT_BYTES_MAX = 14
LONG = np.uint64(1 << 63)


def _masks() -> Fingerprints:
    """Build a mask for each size of a short key; the mask selects the bytes of the key."""
    kept = np.arange(FINGERPRINT_BYTES) < np.arange(SHORT_BYTES_MAX + 1)[:, None]
    return np.where(kept, 0xFF, 0).astype(np.uint8).view(np.uint64)


MASKS = _masks()
# The last byte has the size plus one, so that the fingerprint of the empty key is not 0.
SIZES = np.arange(1, SHORT_BYTES_MAX + 2, dtype=np.uint64) << np.uint64(56)


def fingerprints(data: bytes, starts: Numbers, sizes: Numbers, seed: int) -> Steps[Fingerprints]:
    """Return the fingerprints of keys.

    Args:
        data: contains the keys, and has at least 16 bytes after the start of the last key.
        starts, sizes: where each key begins, and its size; no size is negative.
        seed: 64 random bits, the same for all keys that are compared.
    """
    is_long = sizes > SHORT_BYTES_MAX
    if not is_long.any():
        return _short(data, starts, sizes)
    if is_long.all():
        return (yield from _long(data, starts, sizes, seed))
    found = np.empty((len(sizes), 2), np.uint64)
    found[~is_long] = _short(data, starts[~is_long], sizes[~is_long])
    found[is_long] = yield from _long(data, starts[is_long], sizes[is_long], seed)
    return found


def _short(data: bytes, starts: Numbers, sizes: Numbers) -> Fingerprints:
    # An array with one item for each place at which a key could begin.
    places = np.ndarray((len(data) - FINGERPRINT_BYTES + 1,), "V16", data, 0, (1,))
    found = places[starts].view(np.uint64).reshape(-1, 2)  # `places.take` would copy all places
    found &= MASKS.take(sizes, axis=0)
    found[:, 1] |= SIZES.take(sizes)
    return found


def _long(data: bytes, starts: Numbers, sizes: Numbers, seed: int) -> Steps[Fingerprints]:
    size = int(sizes[0])
    is_one_size = bool((sizes == size).all())
    places = np.ndarray((len(data) - size + 1,), f"V{size}", data, 0, (1,))
    digests = bytearray()
    for first in range(0, len(starts), STEP_CELLS):
        rows = slice(first, first + STEP_CELLS)
        if is_one_size:
            keys = places[starts[rows]].tolist()
        else:
            ends = (starts[rows] + sizes[rows]).tolist()
            keys = [data[a:b] for a, b in zip(starts[rows].tolist(), ends, strict=True)]
        digests += b"".join(map(xxh3_128_digest, keys, repeat(seed)))
        yield
    found = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    found[:, 1] |= LONG
    return found
