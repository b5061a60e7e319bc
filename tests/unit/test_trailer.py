"""The trailer of an index identifies its segment, and a damaged trailer is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logstore import LogConfig, LogStore
from logstore.errors import CorruptIndexError
from logstore.log.segments import trailer as trailers
from logstore.log.segments.index_files import write_index_files


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a partition of two segments, of which the first is sealed."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 3, config=LogConfig(segment_bytes=2048))
        while len(log._state.segments) < 2:
            log.append(b"x" * 50, timestamp=7)
    return tmp_path / "orders-3"


def first(directory: Path) -> tuple[Path, Path, Path]:
    """Return the first segment's log, index and time index."""
    log, index, time_index = (
        directory / f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")
    )
    return log, index, time_index


def test_a_trailer_says_which_segment_it_is_of(directory: Path) -> None:
    """The trailer has the partition, offsets, bytes, and the first and the last batch."""
    log, index, _ = first(directory)
    trailer = trailers.read_trailer(str(index), index.stat().st_size)
    assert trailer is not None
    data = log.read_bytes()
    assert (trailer.partition, trailer.base_offset, trailer.is_sealed) == (3, 0, 1)
    assert trailer.log_bytes == len(data) and trailer.max_timestamp == 7
    assert trailer.last_checksum == int.from_bytes(data[-8:], "big")
    assert trailers.parse(trailer.to_bytes()) == trailer
    assert len(trailer.to_bytes()) == trailers.TRAILER_BYTES


def test_no_flipped_bit_of_a_trailer_passes(directory: Path) -> None:
    """A trailer that is cut or longer is refused, too."""
    _, index, _ = first(directory)
    data = index.read_bytes()[-trailers.TRAILER_BYTES :]
    assert trailers.parse(data) is not None
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        assert trailers.parse(bytes(changed)) is None
    assert trailers.parse(data[:-1]) is None and trailers.parse(data + b"\0") is None


@pytest.mark.parametrize("size", [0, 7, 127, 129])
def test_an_index_of_another_size_has_no_trailer(directory: Path, size: int) -> None:
    """A crash during the write can leave such an index."""
    _, index, _ = first(directory)
    os.truncate(index, size)
    assert trailers.read_trailer(str(index), size) is None
    with pytest.raises(CorruptIndexError):
        trailers.read_index(str(index))


def test_entries_that_do_not_check_out_are_corrupt(directory: Path) -> None:
    """This holds for both indexes, even if the trailer is valid."""
    _, index, time_index = first(directory)
    _, trailer = trailers.read_index(str(index))
    data = bytearray(index.read_bytes())
    data[4] ^= 1
    index.write_bytes(data)
    assert trailers.read_trailer(str(index), len(data)) == trailer
    with pytest.raises(CorruptIndexError, match="entries"):
        trailers.read_index(str(index))
    time_index.write_bytes(time_index.read_bytes() + b"\0" * 12)
    with pytest.raises(CorruptIndexError):
        trailers.read_time_index(str(time_index), trailer)


def test_index_files_are_replaced_whole(directory: Path) -> None:
    """No half-written file is left beside the indexes."""
    _, index, time_index = first(directory)
    times, entries = time_index.read_bytes(), index.read_bytes()
    write_index_files(str(index), str(time_index), times, entries)
    assert (time_index.read_bytes(), index.read_bytes()) == (times, entries)
    assert not list(directory.glob("*.tmp"))
