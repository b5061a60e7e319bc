"""Remember the latest offset of each key of a log, in a table of fixed size.

A key is represented by its fingerprint (see `fingerprints`): two unsigned 64-bit numbers, of which
at least one is not 0. The table uses open addressing: each fingerprint has its own sequence of
places, and is stored at the first free place of that sequence. NumPy handles all keys of one call
together, so the interpreter has no work for each key.

Memory: each place has 16 bytes for a fingerprint and 8 bytes for an offset. When the table is
sealed, each key takes another 8 bytes.
"""

from __future__ import annotations

import math
import secrets
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from logstore.log.compaction.fingerprints import Fingerprints

# The largest fraction of places in use. In a fuller table, some keys need many steps.
LOAD_FACTOR = 0.7
PLACE_BYTES = 24 + 8 * LOAD_FACTOR
# Most keys are at the first place of their sequence.
# For any other key, the first step compares the next 4 places, and each later step 16 places.
WIDTHS = (4, 16)
PLACES_MIN = 64
HALF = np.uint64(32)
LOW_HALF = np.uint64(2**32 - 1)

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]


class LatestOffsets:
    """Map the fingerprint of each key to the key's latest offset, for a range of offsets of a log.

    When all keys of the range have been inserted, the table is sealed, and can be queried. One
    thread uses a table at a time.

    Attributes:
        first_offset: where the range begins.
        end_offset: the table has the keys of all records of the range before this offset. The
            caller of `insert` sets this offset.
        seed: the seed of the keys' fingerprints.
        key_count: the number of keys in the table.
        key_count_max: the number of keys that the table can hold.
    """

    def __init__(
        self, first_offset: int, size_bytes: int, keys_expected: int | None = None
    ) -> None:
        """Create an empty table.

        Args:
            first_offset: where the range begins.
            size_bytes: the largest size of the table.
            keys_expected: the largest number of keys that the caller may insert. The table is not
                made larger than this number of keys needs.

        Raises:
            ValueError: the size is too small for a table.
        """
        self.first_offset = self.end_offset = first_offset
        self.seed = secrets.randbits(64)
        places = int(size_bytes / PLACE_BYTES)
        if keys_expected is not None:
            places = min(places, math.ceil(keys_expected / LOAD_FACTOR) + PLACES_MIN)
        if places < PLACES_MIN:
            raise ValueError(f"a table of {size_bytes} bytes has no room for keys")
        # The number of places is prime, so the sequence of each fingerprint visits every place.
        self._place_count = _prime_until(min(places, 2**32 - 1))
        self.key_count_max = max(int(self._place_count * LOAD_FACTOR), 1)
        self.key_count = 0
        self._held = np.zeros((self._place_count, 2), np.uint64)
        self._offsets = np.zeros(self._place_count, np.int64)
        self._sorted = np.empty(0, np.int64)
        # The factors are random, so that nobody can choose keys that all have the same place.
        self._factors = [np.uint64(secrets.randbits(64) | 1) for _ in range(3)]

    @property
    def size_bytes(self) -> int:
        """Memory of the table in bytes, including the sorted offsets."""
        return self._held.nbytes + self._offsets.nbytes + self._sorted.nbytes

    def insert(self, keys: Fingerprints, offsets: Numbers) -> int:
        """Store the offset of each key; return how many keys were stored before the table was full.

        Args:
            keys: shape (n, 2).
            offsets: the offset of each key: shape (n,), ascending, and higher than the offsets of
                earlier calls. If a key occurs several times, its last offset is stored.
        """
        done = 0
        while done < len(keys):
            rest, room = keys[done:], self.key_count_max - self.key_count
            count = len(rest)
            if count > room:
                new = np.flatnonzero(~self._find(rest)[1])
                if len(new) > room:  # a new key that occurs twice counts twice here
                    count = int(new[room])
            if not count:
                break
            # If several rows have the same place, NumPy keeps the offset of the last row.
            self._offsets[self._claim(rest[:count])] = offsets[done : done + count]
            done += count
        return done

    def seal(self) -> None:
        """Sort the offsets for `between`; after that, nothing may be inserted."""
        is_held = (self._held[:, 0] | self._held[:, 1]) != 0
        self._sorted = self._offsets[is_held]
        self._sorted.sort()

    def contains(self, keys: Fingerprints) -> Mask:
        """Report which keys are in the table: shape (n,)."""
        return self._find(keys)[1]

    def has_between(self, firsts: Numbers, ends: Numbers) -> Mask:
        """Report, for each range of offsets, whether it contains the latest offset of a key."""
        starts, stops = np.searchsorted(self._sorted, (firsts, ends))
        found: Mask = starts < stops
        return found

    def between(self, first: int, end: int) -> Numbers:
        """Return the keys' latest offsets that are in `first..end`, in ascending order."""
        start, stop = np.searchsorted(self._sorted, (first, end))
        return self._sorted[start:stop]

    def _find(self, keys: Fingerprints) -> tuple[Numbers, Mask]:
        """Return the place of each key, or a free place for it, and whether the key was found."""
        mixed = self._mix(keys)
        places = self._first_place(mixed)
        held = self._held.take(places, axis=0)
        is_free = (held[:, 0] | held[:, 1]) == 0
        held ^= keys
        is_found = (held[:, 0] | held[:, 1]) == 0
        going = np.flatnonzero(~(is_found | is_free))
        steps = self._steps(mixed[going])
        for width in chain(WIDTHS, repeat(WIDTHS[-1])):
            if not len(going):
                return places, is_found
            # The next places of each key: shape (rows, width).
            ahead = places[going, None] + steps[:, None] * np.arange(1, width + 1)
            ahead -= np.where(ahead >= self._place_count, self._place_count, 0)
            held = self._held.take(ahead, axis=0)
            is_end = (held[..., 0] | held[..., 1]) == 0
            held ^= keys[going, None]
            is_same = (held[..., 0] | held[..., 1]) == 0
            is_end |= is_same
            rows, first = np.arange(len(going)), is_end.argmax(axis=1)
            is_done = is_end[rows, first]
            first[~is_done] = width - 1
            places[going] = ahead[rows, first]
            is_found[going] = is_same[rows, first]
            going, steps = going[~is_done], steps[~is_done]
        raise AssertionError

    def _claim(self, keys: Fingerprints) -> Numbers:
        """Insert the new keys, and return the place of each key."""
        places, is_found = self._find(keys)
        new = np.flatnonzero(~is_found)
        while len(new):
            at, wanted = places[new], keys[new]
            # Several new keys may have the same free place, or one new key may occur several times.
            # NumPy keeps the row that it writes last.
            self._held[at] = wanted
            self._offsets[at] = new
            self.key_count += int(np.count_nonzero(self._offsets.take(at) == new))
            lost = new[(self._held.take(at, axis=0) != wanted).any(axis=1)]
            places[lost], is_found = self._find(keys[lost])
            new = lost[~is_found]
        return places

    def _mix(self, keys: Fingerprints) -> NDArray[np.uint64]:
        """Spread fingerprints evenly over 64 bits."""
        first, second, third = self._factors
        mixed = keys[:, 0] * first
        mixed += keys[:, 1] * second
        mixed ^= mixed >> HALF
        mixed *= third
        mixed ^= mixed >> np.uint64(29)
        return mixed

    def _first_place(self, mixed: NDArray[np.uint64]) -> Numbers:
        places = (mixed >> HALF) * np.uint64(self._place_count)
        return (places >> HALF).view(np.int64)

    def _steps(self, mixed: NDArray[np.uint64]) -> Numbers:
        """Return, for each key, the distance between the places that are tried for this key."""
        steps = (mixed & LOW_HALF) * np.uint64(self._place_count // WIDTHS[-1])
        return (steps >> HALF).view(np.int64) + 1


def _prime_until(number: int) -> int:
    """Return the largest prime that is not above a number; the number is at least 3."""
    while any(number % divisor == 0 for divisor in range(2, math.isqrt(number) + 1)):
        number -= 1
    return number
