"""The high watermark survives a close, a kill and a move, and never covers lost records."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import (
    CorruptionError,
    LogConfig,
    LogStore,
    StoreConfig,
    TopicPartition,
)
from logstore.disk import files
from logstore.disk.documents.checkpoint import HIGH_WATERMARKS, RECOVERY_POINTS
from logstore.disk.documents.offset_checkpoints import OffsetCheckpoints
from logstore.log import relocation
from logstore.log.metadata import FILE_NAME, HIGH_WATERMARK, PartitionMetadata
from mover import MoveState, ReplicaMover
from support.inside import abandon, keepers_of
from support.places import fast_directory

SLOW = StoreConfig(log_flush_scheduler_interval_ms=3_600_000)
SMALL = LogConfig(segment_bytes=1024)
KEY = TopicPartition("t", 0)


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


def opened(base: Path, disks: int = 1) -> LogStore:
    paths = [base / f"disk{number}" for number in range(disks)]
    return LogStore.open(paths, config=SLOW, admin_socket=False)


def checkpoint(store: LogStore) -> None:
    for keeper in keepers_of(store).values():
        keeper.run_one("checkpoint")


def flushed_to(base: Path) -> int:
    """Return the high watermark in the metadata, below which all records are flushed."""
    metadata = PartitionMetadata.read(str(base / "disk0" / "t-0"))
    assert metadata is not None
    at: int = metadata.extra[HIGH_WATERMARK]
    return at


def test_regression_a_change_after_a_kill_does_not_lower_it(base: Path) -> None:
    """The next start knew no recovery point, and so wrote a high watermark of 0."""
    store = opened(base)
    log = store.create("t", 0)
    log.extend([b"x"] * 10)
    log.flush()
    log.advance_high_watermark(6)
    store.set_config("t", 0, {"retention_ms": "9d"})
    abandon(store)
    assert flushed_to(base) == 6
    store = opened(base)
    assert store.log("t", 0).recovery_point < 6
    store.set_config("t", 0, {"retention_ms": "8d"})
    abandon(store)
    assert flushed_to(base) == 6
    with opened(base) as store:
        assert store.log("t", 0).high_watermark == 6


def test_regression_a_change_after_a_truncation_does_not_lower_it(base: Path) -> None:
    """It stayed at the offset of the truncation until the next checkpoint."""
    with opened(base) as store:
        log = store.create("t", 0)
        log.extend([b"x"] * 10)
        log.flush()
        log.advance_high_watermark(6)
        log.truncate_to(2)
        assert flushed_to(base) == 2
        log.extend([b"x"] * 10)
        log.flush()
        log.advance_high_watermark(9)
        store.set_config("t", 0, {"retention_ms": "9d"})
        assert flushed_to(base) == 9
        log.truncate_to(5)
        assert flushed_to(base) == 5


def test_it_outlives_a_close_a_kill_and_a_lost_file(base: Path) -> None:
    """The checkpoint has the whole high watermark; the metadata has it as far as it is flushed."""
    with opened(base) as store:
        log = store.create("t", 0)
        log.extend([b"x"] * 10)
        log.advance_high_watermark(6)
    store = opened(base)
    log = store.log("t", 0)
    assert log.high_watermark == 6
    log.extend([b"x"] * 10)
    log.advance_high_watermark(15)
    checkpoint(store)
    abandon(store)
    store = opened(base)
    log = store.log("t", 0)
    assert (log.high_watermark, log.log_end_offset) == (15, 20)
    log.flush()
    log.advance_high_watermark(18)
    store.set_config("t", 0, {"retention_ms": "9d"})
    abandon(store)
    os.unlink(base / "disk0" / HIGH_WATERMARKS)
    with opened(base) as store:
        assert store.log("t", 0).high_watermark == 18
    (base / "disk0" / "t-0" / FILE_NAME).write_bytes(b"")
    with opened(base) as store:
        log = store.log("t", 0)
        assert log.high_watermark == 18
        log.append(b"x")
        assert log.high_watermark == 18


def test_without_any_file_that_has_it_a_replicated_log_begins_at_its_start(base: Path) -> None:
    """The log is not treated as a log that is not replicated."""
    store = opened(base)
    log = store.create("t", 0)
    log.extend([b"x"] * 10)
    log.advance_high_watermark(7)
    abandon(store)
    with opened(base) as store:
        log = store.log("t", 0)
        assert (log.high_watermark, log.log_end_offset) == (0, 10)


def test_that_of_another_topic_or_log_dir_is_not_taken(base: Path) -> None:
    """The checkpoint has the id of its log dir, and the topic id of each row."""
    with opened(base, 2) as store:
        for number in range(2):
            log = store.create("t", number, log_dir=base / f"disk{number}")
            log.extend([b"x"] * 10)
            log.advance_high_watermark(7 + number)
    shutil.copy(base / "disk1" / HIGH_WATERMARKS, base / "disk0" / HIGH_WATERMARKS)
    with opened(base, 2) as store:
        assert any(HIGH_WATERMARKS in warning for warning in store.recovery_report.warnings)
        assert store.log("t", 0).high_watermark == 0
        store.delete("t", 1)
        log = store.create("t", 1, log_dir=base / "disk1")
        log.extend([b"y"] * 20)
        assert log.high_watermark == 20
    with opened(base, 2) as store:
        assert store.log("t", 1).high_watermark == 20
    checkpoints = OffsetCheckpoints(str(base / "disk1"))
    checkpoints.directory_id = store.host.replicas.dir_of(str(base / "disk1")).directory_id
    assert checkpoints.load() == []
    checkpoints.write(HIGH_WATERMARKS, lambda: {KEY: 5}, lambda: {KEY: b"b" * 16})
    assert checkpoints.high_watermark(KEY, b"b" * 16) == 5
    assert checkpoints.high_watermark(KEY, b"a" * 16) is None


def test_it_moves_with_its_log(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This also holds if the process is killed before the target's keeper writes a checkpoint."""
    monkeypatch.setattr(relocation, "settle", lambda _: None)  # the last write of a move
    store = opened(base, 2)
    log = store.create("t", 0, log_dir=base / "disk0")
    log.extend([b"x"] * 10)
    log.advance_high_watermark(6)
    with ReplicaMover(store) as mover:
        assert mover.move("t", 0, base / "disk1").wait(60) is MoveState.DONE
    assert log.high_watermark == 6
    abandon(store)
    with opened(base, 2) as store:
        log = store.log("t", 0)
        assert (log.log_dir, log.high_watermark) == (str(base / "disk1"), 6)


def test_what_a_truncation_dropped_is_not_called_replicated_after_a_kill(base: Path) -> None:
    """The checkpoint is lowered before other records get the offsets."""
    store = opened(base)
    log = store.create("t", 0)
    log.extend([b"x"] * 10)
    log.flush()
    log.advance_high_watermark(10)
    checkpoint(store)
    log.truncate_to(4)
    log.extend([b"y"] * 10)
    abandon(store)
    metadata = PartitionMetadata.read(str(base / "disk0" / "t-0"))
    assert metadata is not None and metadata.extra[HIGH_WATERMARK] <= 4
    with opened(base) as store:
        assert store.log("t", 0).high_watermark == 4


@pytest.mark.parametrize("is_full", [False, True])
def test_what_a_crash_took_is_not_called_replicated_after_the_next(
    base: Path, is_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a start finds the log shorter, it lowers the checkpoint before any append."""
    store = opened(base)
    logs = store.create_topic("t", 3)
    for log in logs:
        log.extend([b"x"] * 4)
        log.flush()
        log.extend([b"x"] * 6)
        log.advance_high_watermark(10)
    checkpoint(store)
    abandon(store)
    for number in range(2):
        path = base / "disk0" / f"t-{number}" / f"{0:020d}.log"
        os.truncate(path, path.stat().st_size // 2)
    written: list[str] = []
    replace = files.write_atomically

    def count(path: str, *arguments: object) -> None:
        if path.endswith(HIGH_WATERMARKS):
            written.append(path)
            if is_full:
                raise OSError(errno.ENOSPC, "full", path)
        replace(path, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_atomically", count)
        store = opened(base)
    assert len(written) == 1
    ends = [log.log_end_offset for log in map(store.log, "ttt", range(3))]
    assert ends == [4, 4, 10]
    for number, end in enumerate(ends):
        log = store.log("t", number)
        assert log.high_watermark == end
        log.extend([b"y"] * 20)
    abandon(store)
    with opened(base) as store:
        found = [store.log("t", number).high_watermark for number in range(3)]
        assert found == ([4, 4, 4] if is_full else [4, 4, 10])


def test_a_copy_that_lacks_replicated_records_has_a_lower_one(base: Path) -> None:
    """The user promoted the copy: its metadata no longer covers the lost records."""
    store = opened(base)
    log = store.create("t", 0)
    log.extend([b"x"] * 4)
    log.extend([b"x"] * 6)
    log.flush()
    log.advance_high_watermark(10)
    checkpoint(store)
    abandon(store)
    for name in (HIGH_WATERMARKS, RECOVERY_POINTS):
        os.unlink(base / "disk0" / name)
    path = base / "disk0" / "t-0" / f"{0:020d}.log"
    os.truncate(path, path.stat().st_size // 2)
    store = opened(base)
    log = store.log("t", 0)
    assert log.high_watermark == log.log_end_offset == 4
    log.extend([b"y"] * 20)
    abandon(store)
    with opened(base) as store:
        assert store.log("t", 0).high_watermark == 0  # of the rest nothing was flushed


def test_a_repair_leaves_it_within_the_log(base: Path) -> None:
    """A repaired log has the same start and end."""
    store = opened(base)
    log = store.create("t", 0, config=SMALL)
    for _ in range(40):
        log.append(bytes(100))
    log.advance_high_watermark(35)
    log.flush()
    checkpoint(store)
    abandon(store)
    path = base / "disk0" / "t-0" / f"{0:020d}.log"
    with path.open("r+b") as file:
        file.seek(300)
        file.write(b"\xff" * 8)
    with opened(base) as store:
        log = store.log("t", 0)
        with pytest.raises(CorruptionError):
            log.read(0, max_records=5) and log[1]
        assert store.repair("t", 0).lost
        assert (log.high_watermark, log.log_end_offset) == (35, 40)


def test_regression_a_view_follows_the_owners_high_watermark(base: Path) -> None:
    """The view read the checkpoint once, so it returned records that were not replicated."""
    with opened(base) as store:
        log = store.create("t", 0)
        log.extend([b"x"] * 100, durable=True)
        log.advance_high_watermark(100)
        checkpoint(store)
        with LogStore.open([base / "disk0"], read_only=True) as beside:
            view = beside.log("t", 0)

            def replicated() -> int:
                level = "read_replicated"
                return len(view.read(0, max_records=999, isolation_level=level))

            assert (replicated(), view.high_watermark) == (100, 100)
            log.truncate_to(50)
            log.extend([b"y"] * 70, durable=True)
            assert (replicated(), view.high_watermark) == (50, 50)
            log.advance_high_watermark(110)
            checkpoint(store)
            assert (replicated(), view.high_watermark) == (110, 110)
            os.unlink(base / "disk0" / HIGH_WATERMARKS)  # the metadata still has one
            assert replicated() >= 50
