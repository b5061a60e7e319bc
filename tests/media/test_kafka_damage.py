"""A drawn part of `kafka_damage.py`; `make kafka-damage` does 10,000."""

from __future__ import annotations

from pathlib import Path

import pytest

from media.kafka_damage import run


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(4))
def test_damage_in_kafkas_segments_is_told_or_harmless(tmp_path: Path, seed: int) -> None:
    """Flips, cuts and zeros in segments that Kafka wrote never give a wrong record."""
    outcomes = run(100, seed, tmp_path)
    assert outcomes["told"] > 50 and outcomes["cannot be told"] < 15
