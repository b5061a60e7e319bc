"""A scan walks a file of batches to its end or to damage, and continues after damage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore.format.columnar import record_batch as columnar
from logstore.log.segments import scan as scans
from logstore.log.segments.offset_index import OffsetIndex
from logstore.log.segments.scan import Scan, find_batch
from logstore.log.segments.time_index import TimeIndex

COUNT, VALUE_BYTES = 40, 200


def batch(offset: int, epoch: int = 1) -> bytes:
    """Make a batch of one record, whose timestamp is its offset."""
    return columnar.frame_one(offset, epoch, offset, bytes(VALUE_BYTES))


SIZE = len(batch(0))


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    """Return a file of batches with offsets from 100 on; the epoch changes in the middle."""
    path = tmp_path / "batches"
    path.write_bytes(b"".join(batch(100 + n, 1 if n < COUNT // 2 else 4) for n in range(COUNT)))
    fd = os.open(path, os.O_RDWR)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("window", [SIZE // 2, SIZE + 5, 4 * SIZE, 1 << 20])
def test_a_whole_file_is_walked_to_its_end(
    fd: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for any window: smaller than a batch, or larger than the file."""
    monkeypatch.setattr(scans, "WINDOW_BYTES", window)
    seen: list[int] = []
    scan = Scan(100)
    assert scan.run(fd, COUNT * SIZE, seen.append) is None
    assert (scan.position, scan.good_end, scan.offset) == (COUNT * SIZE, COUNT * SIZE, 100 + COUNT)
    assert (scan.batches, scan.records, scan.max_timestamp) == (COUNT, COUNT, 99 + COUNT)
    assert scan.epochs == [(1, 100), (4, 100 + COUNT // 2)] and scan.last_epoch == 4
    assert scan.last_position == (COUNT - 1) * SIZE
    assert sum(seen) == COUNT * SIZE


def facts(scan: Scan, fd: int, end: int) -> tuple[object, ...]:
    """Return all that a walk to the end finds."""
    reason = scan.run(fd, end)
    assert scan.index is not None and scan.time_index is not None
    entries = [*zip(scan.index.offsets, scan.index.positions, strict=True)]
    times = [*zip(scan.time_index.offsets, scan.time_index.timestamps, strict=True)]
    frame = (scan.position, scan.good_end, scan.offset, scan.last_position, scan.batches)
    return reason, frame, scan.records, scan.epochs, scan.max_timestamp, entries, times


@pytest.mark.parametrize("limit_offset", [2**63, 120])
@pytest.mark.parametrize("garbage_at", [None, 7 * SIZE, COUNT * SIZE - SIZE // 2])
@pytest.mark.parametrize("end", [COUNT * SIZE, COUNT * SIZE - 3])
def test_frames_tell_the_same_by_themselves(
    fd: int, monkeypatch: pytest.MonkeyPatch, end: int, garbage_at: int | None, limit_offset: int
) -> None:
    """A walk without checks finds the same as a walk through all bytes."""
    if garbage_at is not None:
        os.pwrite(fd, b"garbage of more bytes than a frame's first fields have", garbage_at)
    found = []
    for stride in (1, 2**63):
        monkeypatch.setattr(scans, "STRIDE_BYTES", stride)
        scan = Scan(100, interval_bytes=4 * SIZE, limit_offset=limit_offset)
        scan.index, scan.time_index, scan.is_checked = OffsetIndex(), TimeIndex(), False
        found.append(facts(scan, fd, end))
    assert found[0] == found[1]


def test_indexes_are_made_on_the_way(fd: int) -> None:
    """Entries have the same distance in bytes, from 0 on; the time index has no entry at 0."""
    index, time_index = OffsetIndex(), TimeIndex()
    scan = Scan(100, index=index, time_index=time_index, interval_bytes=4 * SIZE)
    scan.run(fd, COUNT * SIZE)
    assert list(index.offsets) == list(range(0, COUNT, 4))
    assert list(index.positions) == [n * SIZE for n in range(0, COUNT, 4)]
    assert list(time_index.offsets) == list(range(4, COUNT, 4))
    assert list(time_index.timestamps) == [99 + n for n in range(4, COUNT, 4)]


def test_damage_is_told_and_stepped_over(fd: int) -> None:
    """The walk reports the bytes and the lost offsets, and continues at the next whole batch."""
    os.pwrite(fd, b"garbage", 7 * SIZE + 100)
    scan = Scan(100)
    reason = scan.run(fd, COUNT * SIZE)
    assert reason is not None and scan.offset == 107 and scan.good_end == 7 * SIZE
    damage = scan.skip_damage(fd, COUNT * SIZE, reason)
    assert damage == (7 * SIZE, 8 * SIZE, 107, 108, reason, None)
    assert scan.run(fd, COUNT * SIZE) is None
    assert scan.offset == 100 + COUNT and scan.records == COUNT - 1


def test_damage_at_the_end_has_nothing_behind_it(fd: int) -> None:
    """The end offset of the damage is unknown."""
    end = COUNT * SIZE - 3
    scan = Scan(100)
    reason = scan.run(fd, end)
    assert reason is not None
    damage = scan.skip_damage(fd, end, reason)
    assert damage == ((COUNT - 1) * SIZE, end, 99 + COUNT, None, reason, None)
    assert scan.position == end and scan.good_end == (COUNT - 1) * SIZE
    assert scan.run(fd, end) is None


def test_a_batch_that_reaches_into_the_next_segment_is_damage(fd: int) -> None:
    """Its offsets belong to the next segment."""
    scan = Scan(100, limit_offset=110)
    reason = scan.run(fd, COUNT * SIZE)
    assert reason is not None and "next segment, which begins at 110" in reason
    assert scan.offset == 110


def test_a_file_that_is_shorter_than_it_was_is_said_so(fd: int) -> None:
    """The walk does not loop forever."""
    scan = Scan(100)
    assert scan.run(fd, (COUNT + 2) * SIZE) == "the file is shorter than it was"
    assert scan.offset == 100 + COUNT


def test_the_next_whole_batch_is_found_from_anywhere(
    fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search across the end of a window finds it, too; after the last batch there is none."""
    monkeypatch.setattr(scans, "WINDOW_BYTES", 1024)
    for position in (0, 1, SIZE, SIZE + 8, 3 * SIZE - 8, 17 * SIZE + 16):
        number = -(-position // SIZE)
        assert find_batch(fd, position, COUNT * SIZE) == (number * SIZE, 100 + number)
    assert find_batch(fd, (COUNT - 1) * SIZE + 8, COUNT * SIZE) is None
    assert find_batch(fd, (COUNT - 1) * SIZE, COUNT * SIZE - 1) is None


@pytest.mark.parametrize("inner_offset", [100, 101, 103, 500])
def test_a_batch_inside_a_damaged_ones_value_is_never_taken_for_one(
    tmp_path: Path, inner_offset: int
) -> None:
    """Whatever bit of a batch is flipped, the walk continues after it, not inside its values."""
    inner = columnar.frame_one(inner_offset, 1, 5, b"of another log")
    outer = columnar.frame_one(101, 1, 5, inner + b"more" * 8)
    whole = batch(100) + outer + batch(102)
    path = tmp_path / "batches"
    path.write_bytes(whole)
    fd = os.open(path, os.O_RDWR)
    try:
        for bit in range(SIZE * 8, (SIZE + len(outer)) * 8):
            flipped = whole[bit // 8] ^ 1 << bit % 8
            os.pwrite(fd, bytes([flipped]), bit // 8)
            index, time_index = OffsetIndex(), TimeIndex()
            scan = Scan(100, index=index, time_index=time_index, interval_bytes=1)
            while (reason := scan.run(fd, len(whole))) is not None:
                scan.skip_damage(fd, len(whole), reason)
            assert list(index.positions) == [0, SIZE + len(outer)], f"bit {bit}"
            os.pwrite(fd, whole[bit // 8 : bit // 8 + 1], bit // 8)
        for cut in range(SIZE + columnar.HEADER_BYTES, SIZE + len(outer)):
            assert find_batch(fd, SIZE, cut) is None, f"cut at {cut}"
    finally:
        os.close(fd)
