"""Cut a range of a log into pieces, so that several readers share the work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import Log, LogConfig, LogStore
from logstore.log.read.split import bytes_between, split


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Return a log of 4 segments, 40 batches of 10 records each."""
    with LogStore.open(tmp_path, admin_socket=False) as store:
        config = LogConfig(segment_bytes=64 * 1024, index_interval_bytes=1024)
        log = store.create("t", 0, config=config)
        for _ in range(40):
            log.extend([bytes(512)] * 10)
        yield log


@pytest.mark.parametrize("piece_bytes", [1, 3000, 40_000, 64_000, 100_000, 10**9])
@pytest.mark.parametrize(("start", "end"), [(0, 400), (7, 8), (55, 301), (400, 400)])
def test_pieces_follow_one_another(log: Log, piece_bytes: int, start: int, end: int) -> None:
    """The pieces cover the range without a gap or an overlap, and no piece is empty."""
    pieces = split(log._state, start, end, piece_bytes)
    edges = [start, *(piece_end for _, piece_end in pieces)]
    assert [first for first, _ in pieces] == edges[:-1]
    assert edges[-1] == end and all(first < last for first, last in pieces)


def test_pieces_are_about_as_large_as_asked(log: Log) -> None:
    """No piece exceeds the requested size by more than an index interval and a batch."""
    for piece_bytes in (20_000, 50_000):
        pieces = split(log._state, 0, 400, piece_bytes)
        sizes = [bytes_between(log._state, *piece) for piece in pieces]
        assert max(sizes) <= piece_bytes + 8192
        assert len(sizes) <= 2 * log.size_bytes // piece_bytes + 1


def test_one_piece_where_there_is_little(log: Log) -> None:
    """A range that is smaller than a piece is not cut."""
    assert split(log._state, 3, 17, 10**9) == [(3, 17)]
    assert bytes_between(log._state, 0, 400) == log.size_bytes
