"""A partition's directory is listed as segments, leftovers and what does not belong there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logstore.log.segments.listing import list_partition
from logstore.names import segment_file_name


def put(directory: Path, base_offset: int, suffix: str, size: int) -> Path:
    """Make a file of a segment."""
    path = directory / segment_file_name(base_offset, suffix)
    path.write_bytes(bytes(size))
    return path


def test_segments_are_in_order_with_the_sizes_of_their_files(tmp_path: Path) -> None:
    """A missing file has -1 bytes, an empty file 0."""
    put(tmp_path, 500, ".log", 30)
    log = put(tmp_path, 0, ".log", 10)
    put(tmp_path, 0, ".index", 128)
    put(tmp_path, 0, ".timeindex", 0)
    listing = list_partition(str(tmp_path))
    assert [row[:4] for row in listing.segments] == [(0, 10, 128, 0), (500, 30, -1, -1)]
    facts = log.stat()
    assert listing.segments[0][4:] == (facts.st_ino, facts.st_mtime_ns)
    assert listing[1:] == ([], [], [], [], [])


def test_indexes_without_a_log_are_orphans(tmp_path: Path) -> None:
    """Such indexes belong to a segment that is gone."""
    put(tmp_path, 7, ".index", 128)
    listing = list_partition(str(tmp_path))
    assert not listing.segments
    assert [row[:4] for row in listing.orphans] == [(7, -1, 128, -1)]


def test_what_does_not_belong_there_is_named_and_not_taken(tmp_path: Path) -> None:
    """Foreign names are reported; the files of a repair, and half-written files, are known."""
    (tmp_path / "partition.metadata").touch()
    (tmp_path / "leader-epoch-checkpoint").touch()
    (tmp_path / f"{segment_file_name(0, '.index')}.tmp").touch()
    (tmp_path / f"{segment_file_name(0, '.log')}.quarantine").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / segment_file_name(1, ".index")).mkdir()
    os.symlink(tmp_path / "notes.txt", tmp_path / segment_file_name(2, ".index"))
    listing = list_partition(str(tmp_path))
    assert not listing.segments and not listing.orphans
    assert listing.temporary == [f"{segment_file_name(0, '.index')}.tmp"]
    texts = " | ".join(listing.warnings)
    assert len(listing.warnings) == 4
    for words in ("a repair kept", "this directory does", "this symlink does", "this file does"):
        assert words in texts


def test_a_directory_that_is_gone_is_an_error(tmp_path: Path) -> None:
    """An empty answer would mean that the log has no records."""
    with pytest.raises(FileNotFoundError):
        list_partition(str(tmp_path / "gone-0"))
