"""The offsets of a log dir on the disk equal those in memory, or are unknown."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from logstore.disk import files
from logstore.disk.documents.checkpoint import LOG_START_OFFSETS, RECOVERY_POINTS
from logstore.disk.documents.offset_checkpoints import OffsetCheckpoints
from logstore.names import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def load(path: Path) -> tuple[OffsetCheckpoints, list[str]]:
    """Read the checkpoints from the disk."""
    checkpoints = OffsetCheckpoints(str(path))
    checkpoints.directory_id = "d" * 32
    return checkpoints, checkpoints.load()


def test_nothing_on_disk_is_unknown_and_no_warning(tmp_path: Path) -> None:
    """A new dir has no offsets, and causes no warning."""
    checkpoints, warnings = load(tmp_path)
    assert warnings == []
    assert checkpoints.recovery_point(A) is None
    assert checkpoints.log_start_offset(A) is None


def test_what_is_written_is_loaded_and_unchanged_is_not_written_again(tmp_path: Path) -> None:
    """A second write of the same offsets does nothing."""
    checkpoints, _ = load(tmp_path)
    assert checkpoints.write(RECOVERY_POINTS, lambda: {A: 5})
    assert not checkpoints.write(RECOVERY_POINTS, lambda: {A: 5})
    assert checkpoints.write(LOG_START_OFFSETS, lambda: {A: 2})
    again, _ = load(tmp_path)
    assert again.recovery_point(A) == 5
    assert again.log_start_offset(A) == 2
    assert not again.write(RECOVERY_POINTS, lambda: {A: 5})


@pytest.mark.parametrize("kind", [RECOVERY_POINTS, LOG_START_OFFSETS])
@pytest.mark.parametrize("garbage", [b"", b"\0" * 80, b"0\n1\norders 0 0\n"])
def test_garbage_is_unknown_and_a_warning(tmp_path: Path, kind: str, garbage: bytes) -> None:
    """A file with a wrong checksum gives no offset, and never zero."""
    checkpoints, _ = load(tmp_path)
    checkpoints.write(kind, lambda: {A: 5})
    (tmp_path / kind).write_bytes(garbage)
    again, warnings = load(tmp_path)
    assert again.recovery_point(A) is None
    assert again.log_start_offset(A) is None
    assert kind in warnings[0]


def test_the_two_files_swapped_say_nothing(tmp_path: Path) -> None:
    """A recovery point is never treated as a log start offset."""
    checkpoints, _ = load(tmp_path)
    checkpoints.write(RECOVERY_POINTS, lambda: {A: 500})
    checkpoints.write(LOG_START_OFFSETS, lambda: {A: 2})
    os.rename(tmp_path / RECOVERY_POINTS, tmp_path / "x")
    os.rename(tmp_path / LOG_START_OFFSETS, tmp_path / RECOVERY_POINTS)
    os.rename(tmp_path / "x", tmp_path / LOG_START_OFFSETS)
    again, warnings = load(tmp_path)
    assert again.log_start_offset(A) is None
    assert again.recovery_point(A) is None
    assert len(warnings) == 2


def test_a_forgotten_replica_is_forgotten_on_disk(tmp_path: Path) -> None:
    """The offsets of a deleted replica are removed before another replica takes its name."""
    checkpoints, _ = load(tmp_path)
    checkpoints.write(RECOVERY_POINTS, lambda: {A: 5, B: 6})
    checkpoints.write(LOG_START_OFFSETS, lambda: {A: 2})
    checkpoints.forget(A)
    again, _ = load(tmp_path)
    assert (again.recovery_point(A), again.recovery_point(B)) == (None, 6)
    assert again.log_start_offset(A) is None


def test_on_a_full_disk_the_file_goes_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown offset is always safe."""
    checkpoints, _ = load(tmp_path)
    checkpoints.write(RECOVERY_POINTS, lambda: {A: 5, B: 6})

    def fail(fd: int, buffers: object, position: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "pwritev", fail)
    checkpoints.forget(A)
    assert list(tmp_path.iterdir()) == []
    assert checkpoints.recovery_point(B) is None
