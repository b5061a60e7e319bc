"""Check that fingerprints are equal only if the keys are."""

from __future__ import annotations

import itertools
import random

import numpy as np

from logstore.format.steps import run
from logstore.log.compaction.fingerprints import SHORT_BYTES_MAX, fingerprints


def prints(keys: list[bytes], seed: int = 1) -> list[tuple[int, int]]:
    """Return the fingerprints of keys that are in a buffer in any order, with gaps."""
    starts, data = [], b""
    for key in keys:
        data += b"\xff" * (len(key) % 3)
        starts.append(len(data))
        data += key
    sizes = np.array([len(key) for key in keys])
    found = run(fingerprints(data + b"\xff" * 16, np.array(starts), sizes, seed))
    assert found.shape == (len(keys), 2)
    return [(row[0], row[1]) for row in found.tolist()]


def test_different_keys_have_different_fingerprints() -> None:
    """This holds for keys of all sizes, for prefixes of each other, and with zeros at the end."""
    rng = random.Random(3)
    keys = [b"\0" * size for size in range(40)] + [b"\xff" * size for size in range(1, 40)]
    keys += [b"k" + b"\0" * size for size in range(40)]
    keys += [rng.randbytes(size) for size in range(3, 300) for _ in range(3)]
    rng.shuffle(keys)
    found = prints(keys)
    assert len(set(found)) == len(keys) and (0, 0) not in found
    assert found == prints(keys) and sorted(found) == sorted(prints(keys[::-1]))


def test_a_short_key_is_its_own_fingerprint() -> None:
    """Keys of up to 14 bytes are distinguished exactly, with any seed."""
    keys = [bytes(row) for size in range(4) for row in itertools.product((0, 1, 255), repeat=size)]
    keys += [b"x" * SHORT_BYTES_MAX, b"x" * SHORT_BYTES_MAX + b"y"]
    first, second = prints(keys, 1), prints(keys, 2)
    assert first[:-1] == second[:-1] and first[-1] != second[-1]
    for key, (low, high) in zip(keys[:-1], first, strict=False):
        octets = low.to_bytes(8, "little") + high.to_bytes(8, "little")
        assert octets == key.ljust(15, b"\0") + bytes([len(key) + 1])


def test_long_keys_depend_on_the_seed_and_never_look_short() -> None:
    """The highest bit is set; keys of one size and of many have the same fingerprints."""
    keys = [random.Random(n).randbytes(36) for n in range(1500)]
    found = prints(keys, 9)
    assert all(high >> 63 for _, high in found)
    assert prints([*keys, b"y" * 50], 9)[:-1] == found
    assert not set(found) & set(prints(keys, 10))
