"""A full disk drops the oldest segments of logs that allow this, and no more than needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from logstore import Log, LogConfig, LogStore
from logstore.disk import files
from logstore.disk.states import LogDirState
from logstore.errors import ReplicaOfflineError
from logstore.log import host
from support.hanging import QUIET
from support.inside import keepers_of, state_of

BLOCK = 4096
MADE = LogConfig(segment_bytes=8192, retention_pressure=True)


class Disk:
    """A disk of `blocks` blocks, of which the segments use some."""

    def __init__(self, root: Path, blocks: int) -> None:
        self.root, self.blocks = root, blocks

    def used(self) -> int:
        sizes = [path.stat().st_size for path in self.root.glob("*-*/*.log")]
        return sum(-(-size // BLOCK) for size in sizes)

    def statvfs(self, path: str) -> SimpleNamespace:
        free = max(self.blocks - self.used(), 0)
        return SimpleNamespace(
            f_blocks=self.blocks, f_frsize=BLOCK, f_bavail=free, f_bfree=free, f_favail=1, f_files=0
        )


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path, 10**6)


@pytest.fixture
def store(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogStore]:
    monkeypatch.setattr(files, "statvfs", disk.statvfs)
    with LogStore.open(disk.root, config=QUIET) as store:
        state_of(store).events.on_full = None  # the tests say when the keeper makes room
        yield store


def filled(store: LogStore, topic: str, config: LogConfig, timestamp: int, count: int = 8) -> Log:
    """Make a log of this many segments, each with one record, 10 ms later than the previous."""
    log = store.create(topic, 0, config=config)
    for number in range(count):
        log.append(os.urandom(7000), timestamp=timestamp + 10 * number)
    log.flush()
    return log


def fill_up(store: LogStore, disk: Disk, lacking: int = 0) -> None:
    """Leave no free block on the disk, and let the keeper notice this."""
    disk.blocks = disk.used() - lacking
    (keeper,) = keepers_of(store).values()
    keeper.run_one("usage")
    (log_dir,) = store.host.replicas.log_dirs
    assert log_dir.is_full
    assert LogDirState.READ_ONLY.value == store.describe_dirs().log_dirs[0].state
    keeper.run_one("pressure")


def test_the_oldest_segments_of_all_logs_go_until_there_is_room(
    store: LogStore, disk: Disk
) -> None:
    """A segment has two blocks, and two more blocks than missing are wanted."""
    later, sooner = filled(store, "later", MADE, 1000), filled(store, "sooner", MADE, 500)
    fill_up(store, disk, lacking=4)
    assert (sooner.log_start_offset, later.log_start_offset) == (3, 0)
    assert not store.host.replicas.log_dirs[0].is_full
    assert [record.offset for record in sooner] == [3, 4, 5, 6, 7]
    assert sooner.append(b"goes on", durable=True) == 8


def test_nothing_is_dropped_without_need_or_leave(store: LogStore, disk: Disk) -> None:
    """Nothing is dropped if the disk has room, or if the log does not allow a drop."""
    plain = filled(store, "plain", LogConfig(segment_bytes=8192), 0)
    log = filled(store, "made", MADE, 500)
    (keeper,) = keepers_of(store).values()
    keeper.run_one("pressure")
    assert log.log_start_offset == 0
    fill_up(store, disk, lacking=100)
    assert (plain.log_start_offset, log.log_start_offset) == (0, 7)
    assert store.host.replicas.log_dirs[0].is_full  # only active segments are left


def test_what_is_not_replicated_stays(store: LogStore, disk: Disk) -> None:
    """A leader drops no record that a follower may still need."""
    log = filled(store, "made", MADE, 0)
    log.advance_high_watermark(2)
    fill_up(store, disk, lacking=100)
    assert log.log_start_offset == 2


def test_a_log_that_does_not_serve_is_passed_over(
    store: LogStore, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other logs make the room."""
    bad, good = filled(store, "bad", MADE, 0), filled(store, "good", MADE, 500)
    real: Callable[[Log], int | None] = host.oldest_under_pressure

    def oldest(log: Log) -> int | None:
        if log is bad:
            raise ReplicaOfflineError(topic="bad", partition=0, reason="its disk is gone")
        return real(log)

    monkeypatch.setattr(host, "oldest_under_pressure", oldest)
    fill_up(store, disk)
    assert (bad.log_start_offset, good.log_start_offset) == (0, 1)


def test_a_full_disk_has_room_made_at_once(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call waits for the keeper, whose next look would be after ten seconds."""
    monkeypatch.setattr(files, "statvfs", disk.statvfs)
    with LogStore.open(disk.root, config=QUIET) as store:
        log = filled(store, "made", MADE, 0)
        disk.blocks = disk.used()
        dropped = threading.Event()
        subscription = log.subscribe(lambda event: dropped.set())
        store.host.replicas.log_dirs[0].refresh_usage()
        assert dropped.wait(5)
        subscription.close()
        assert log.log_start_offset == 1


def test_it_does_not_fit_compaction_alone() -> None:
    """A compacted log keeps the latest record of each key, however full the disk is."""
    with pytest.raises(ValueError, match="retention_pressure=True drops whole segments"):
        LogConfig(cleanup_policy="compact", retention_pressure=True)
    assert LogConfig(cleanup_policy="compact,delete", retention_pressure=True).is_compacted
