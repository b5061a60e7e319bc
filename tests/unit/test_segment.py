"""A segment knows its files and its verified batches, and opens only its own file."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import CorruptRecordBatchError, LogConfig, LogStore, StoreConfig
from logstore.log.environment import LogEnvironment
from logstore.log.segments.segment import SOUND_SPANS_MAX, Segment


@pytest.fixture
def environment() -> LogEnvironment:
    """Return the caches of a store."""
    return LogEnvironment(StoreConfig())


def test_files_are_named_by_the_base_offset(tmp_path: Path) -> None:
    """The indexes come first, in the order in which files are removed."""
    names = [os.path.basename(path) for path in Segment(str(tmp_path), 42).paths]
    assert names == [f"{42:020d}{suffix}" for suffix in (".index", ".timeindex", ".log")]


def test_each_batch_has_a_bit_of_its_own(tmp_path: Path) -> None:
    """This holds for the smallest batches; after the last bit, no batch counts as verified."""
    segment = Segment(str(tmp_path), 0)
    assert not segment.is_verified(0) and not segment.is_verified(1 << 30)
    positions = list(range(0, 20_000, 61 * 3)) + [10_000_001]
    for position in positions:
        assert not segment.is_verified(position)
        segment.mark_verified(position)
    assert all(segment.is_verified(position) for position in positions)
    assert not segment.is_verified(61) and not segment.is_verified(10_000_001 + 61)
    bits = segment.verified_up_to(30_000_000)
    assert len(bits) * 256 > 30_000_000 and segment.is_verified(10_000_001)
    assert segment.verified_up_to(5) is bits


def test_one_descriptor_serves_all_readers(tmp_path: Path, environment: LogEnvironment) -> None:
    """The descriptor is shared until it is forgotten; a reader that refers to it keeps it open."""
    segment = Segment(str(tmp_path), 0)
    Path(segment.log_path).write_bytes(b"data")
    handle = segment.handle(environment)
    assert segment.handle(environment) is handle
    segment.forget(environment)
    assert os.pread(handle.fd, 4, 0) == b"data"
    assert segment.handle(environment) is not handle


def test_a_dropped_segment_opens_nothing(tmp_path: Path, environment: LogEnvironment) -> None:
    """Another file may have the name of the segment."""
    segment = Segment(str(tmp_path), 0)
    Path(segment.log_path).write_bytes(b"data")
    segment.is_dropped = True
    with pytest.raises(FileNotFoundError):
        segment.handle(environment)
    assert not segment.cached


def test_a_reader_opens_only_the_file_that_was_listed(
    tmp_path: Path, environment: LogEnvironment
) -> None:
    """A file that replaced it has another inode number."""
    segment = Segment(str(tmp_path), 0)
    path = Path(segment.log_path)
    path.write_bytes(b"data")
    segment.inode = path.stat().st_ino
    segment.handle(environment)
    segment.forget(environment)
    other = tmp_path / "other"
    other.write_bytes(b"other")
    other.rename(path)
    with pytest.raises(FileNotFoundError, match="another file"):
        segment.handle(environment)


def test_a_sealed_segment_refuses_a_file_of_others(tmp_path: Path) -> None:
    """The file has whole batches, but not the batches that were sealed."""
    for name, value in (("a", b"1"), ("b", b"2")):
        with LogStore.open(tmp_path / name) as store:
            log = store.create("orders", 0, config=LogConfig(segment_bytes=1024))
            while len(log._state.segments) < 3:
                log.append(value * 50, timestamp=1)
    name = f"orders-0/{0:020d}.log"
    with LogStore.open(tmp_path / "a") as store:
        log = store.log("orders", 0)
        (tmp_path / "b" / name).rename(tmp_path / "a" / name)
        with pytest.raises(CorruptRecordBatchError, match="not the batch that was here"):
            log.read(0)
        assert log[log.log_end_offset - 1].value == b"1" * 50


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=30), st.integers(0, 60))
def test_sound_ranges_are_merged(ranges: list[tuple[int, int]], written_from: int) -> None:
    """From any position in a range, the result is the end of the adjacent ranges."""
    segment = Segment("/nowhere", 0)
    segment.sound_from = written_from
    sound = set(range(written_from, 200))
    for start, size in ranges:
        segment.mark_sound(start, start + size)
        sound |= set(range(start, start + size))
    spans = segment.sound_spans
    assert all(one[1] < two[0] for one, two in pairwise(spans))
    for position in range(60):
        end = position
        while end in sound:
            end += 1
        expected = 0 if end == position else end
        assert min(segment.sound_until(position), 200) == expected


def test_a_segment_that_is_read_here_and_there_forgets_the_first_ranges() -> None:
    """The forgotten ranges are verified again, and need no memory."""
    segment = Segment("/nowhere", 0)
    for number in range(SOUND_SPANS_MAX + 5):
        segment.mark_sound(number * 10, number * 10 + 5)
    assert len(segment.sound_spans) == SOUND_SPANS_MAX
    assert segment.sound_until(0) == 0 and segment.sound_until(50) == 55
