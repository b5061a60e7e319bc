"""Flip 8,000 random bits of a 64 KiB segment (`make media` flips all of them)."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from media.bit_flips import SEGMENT_BYTES, Flips
from support.places import fast_directory

FLIPS = 8_000
PARTS = 2  # so that no core waits for one that flips them all
OWNER_FLIPS = 600


@pytest.mark.timeout(120)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_flipped_bit_is_ever_served(part: int) -> None:
    """A reader finds every flipped bit, or the bit changes nothing that it gives."""
    seed = int(os.environ.get("LOGSTORE_SEED", random.SystemRandom().getrandbits(32)))
    outcomes = flip_at_random(seed + part, ["view"], FLIPS // PARTS)
    assert outcomes["view raised"] > 0.95 * FLIPS // PARTS


@pytest.mark.timeout(120)
@pytest.mark.parametrize("reader", ["stopped", "crashed"])
def test_no_flipped_bit_is_served_by_the_owner(reader: str) -> None:
    """After a clean stop and after a crash the owner finds it too, and cuts nothing."""
    seed = int(os.environ.get("LOGSTORE_SEED", random.SystemRandom().getrandbits(32)))
    outcomes = flip_at_random(seed, [reader], OWNER_FLIPS)
    assert outcomes[f"{reader} raised"] > 0.95 * OWNER_FLIPS


def flip_at_random(seed: int, readers: list[str], count: int) -> Counter[str]:
    """Flip bits drawn at random and give what came of each."""
    rng = random.Random(seed)
    with fast_directory() as base:
        flips = Flips(Path(base), seed % 97)
        assert len(flips.pristine) >= SEGMENT_BYTES
        print(f"media: LOGSTORE_SEED={seed}, {count} flips, {readers}")
        for _ in range(count):
            flips.flip(rng.randrange(8 * len(flips.pristine)), rng.choice(readers))
        print(f"media: {dict(flips.outcomes)}")
        return flips.outcomes
