"""Damage that version 0.1.0 may have left is found at open and by `verify`, and goes with `repair`.

Holes between segments: a truncation made the rewritten segment durable, and a power cut took
segments before it that were not flushed. The records that are left are known from outside.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from logstore import CorruptRecordBatchError, LogConfig, LogStore

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=256)
COUNT = 40


def make(base: Path) -> tuple[Path, dict[int, bytes], list[int]]:
    """Make a log of many segments; gives its directory, its records and where segments begin."""
    values = {offset: b"%d:" % offset + b"v" * 60 for offset in range(COUNT)}
    with LogStore.open(base, admin_socket=False) as store:
        log = store.create("t", 0, config=CONFIG)
        for value in values.values():
            log.append(value)
    directory = base / "t-0"
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    assert len(bases) > 6
    return directory, values, bases


def remove_segment(directory: Path, base_offset: int) -> None:
    """Take all files of a segment away, as a power cut takes what was never flushed."""
    for path in directory.glob(f"{base_offset:020}.*"):
        path.unlink()


def check(base: Path, values: dict[int, bytes], lost: set[int]) -> None:
    """The damage is named at each open and by verify, and repair leaves all that was left."""
    kept = {offset: value for offset, value in values.items() if offset not in lost}
    for _ in range(2):
        with LogStore.open(base, admin_socket=False) as store:
            problems = store.recovery_report.problems
            named = {o for one in problems for o in range(one.offset, one.end_offset)}
            assert named == lost, str(store.recovery_report)
            assert "missing" in str(store.recovery_report)
            found = {
                o for one in store.verify().problems for o in range(one.offset, one.end_offset)
            }
            assert found == lost
            log = store.log("t", 0)
            assert {offset: log[offset].value for offset in kept} == kept
            with pytest.raises(CorruptRecordBatchError):
                list(log)
    with LogStore.open(base, admin_socket=False) as store:
        report = store.repair("t", 0)
        assert {offset for offsets in report.lost for offset in offsets} == lost
        assert store.log("t", 0).append(b"next") == COUNT
    with LogStore.open(base, admin_socket=False) as store:
        assert store.recovery_report.is_sound, str(store.recovery_report)
        assert store.verify().is_sound
        left = {record.offset: record.value for record in store.log("t", 0)}
        assert left == {**kept, COUNT: b"next"}


def test_a_hole_between_segments_is_named_and_repaired(tmp_path: Path) -> None:
    """A truncation of version 0.1.0 did not make the segment durable."""
    directory, values, bases = make(tmp_path)
    remove_segment(directory, bases[3])
    check(tmp_path, values, set(range(bases[3], bases[4])))


@pytest.mark.parametrize("seed", range(8))
def test_any_holes_are_named_and_repaired(tmp_path: Path, seed: int) -> None:
    """Several segments are missing, the first among them, one by one or side by side."""
    rng = random.Random(seed)
    print(f"seed {seed}")
    directory, values, bases = make(tmp_path)
    lost: set[int] = set()
    for number in rng.sample(range(len(bases) - 1), rng.randrange(2, len(bases) - 2)):
        remove_segment(directory, bases[number])
        lost |= set(range(bases[number], bases[number + 1]))
    check(tmp_path, values, lost)
