"""The figures for placement follow creations, appends and deletions."""

from __future__ import annotations

from pathlib import Path

from logstore.disk.log_dir import LogDir
from logstore.store.usage import ALLOWANCE_BYTES_MIN, DirFigures, allowance_bytes, choose_dir


class FakeLog:
    """A log of a size."""

    def __init__(self, size_bytes: int = 0) -> None:
        self.size_bytes = size_bytes


def test_a_replica_counts_as_empty_until_a_refresh_finds_records(tmp_path: Path) -> None:
    """Free bytes and empty replicas are counted at the same moment."""
    figures = DirFigures(LogDir(str(tmp_path)))
    log, other = FakeLog(), FakeLog()
    figures.add(log)
    figures.add(other)
    log.size_bytes = 100
    assert figures.load().empty_count == 2
    figures.refresh([log, other])
    assert figures.load().empty_count == 1
    assert figures.load().partition_count == 2
    assert figures.load().total_bytes > 0
    figures.remove(other)
    assert figures.load() == figures.load()._replace(partition_count=1, empty_count=0)


def test_the_allowance_is_what_the_others_have(tmp_path: Path) -> None:
    """The allowance is the mean size of the filled replicas; without any, a default."""
    figures = DirFigures(LogDir(str(tmp_path)))
    assert allowance_bytes([figures], 7) == 7
    figures.refresh([FakeLog(10 << 20), FakeLog(30 << 20), FakeLog()])
    assert allowance_bytes([figures, figures], 7) == 20 << 20
    figures.refresh([FakeLog(1)])
    assert allowance_bytes([figures], 7) == ALLOWANCE_BYTES_MIN


def test_the_dir_with_fewer_replicas_is_chosen(tmp_path: Path) -> None:
    """Two log dirs on one disk differ only in their replicas."""
    one, two = DirFigures(LogDir(str(tmp_path))), DirFigures(LogDir(str(tmp_path)))
    one.add(FakeLog())
    assert choose_dir([one, two], 1) is two.log_dir
