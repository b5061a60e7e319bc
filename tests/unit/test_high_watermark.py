"""The high watermark limits the reads that ask for it, and is kept."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import (
    Log,
    LogConfig,
    LogDirError,
    LogEvent,
    LogStore,
    OffsetOutOfRangeError,
    ReadOnlyStoreError,
    StoreConfig,
    TopicPartition,
)
from logstore.disk import files
from logstore.disk.documents.checkpoint import HIGH_WATERMARKS
from support.inside import keepers_of
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


def values(log: Log, level: str) -> list[bytes | None]:
    return [record.value for record in log.read(log.log_start_offset, isolation_level=level)]


def test_a_log_that_nobody_replicates_is_unbounded_and_leaves_no_file(base: Path) -> None:
    """The high watermark is always the log end, and nothing is written for it."""
    with opened(base) as store:
        log = store.create("t", 0)
        for end in range(3):
            assert log.high_watermark == log.last_stable_offset == end == log.log_end_offset
            log.append(b"x")
        log.truncate_to(1)
        checkpoint(store)
        assert (log.high_watermark, values(log, "read_replicated")) == (1, [b"x"])
    assert not (base / "disk0" / HIGH_WATERMARKS).exists()
    with opened(base) as store:
        assert store.log("t", 0).high_watermark == 1


def test_it_rises_within_the_log_and_falls_by_a_truncation_alone(base: Path) -> None:
    """The first call limits the log; an offset that is not higher changes nothing."""
    with opened(base) as store:
        log = store.create("t", 0)
        log.extend([b"%d" % number for number in range(10)])
        assert log.advance_high_watermark(4) == log.high_watermark == 4
        log.extend([b"x"] * 10)
        assert log.high_watermark == 4
        assert log.advance_high_watermark(3) == 4
        assert log.advance_high_watermark(99) == log.high_watermark == 20
        log.truncate_to(15)
        assert log.high_watermark == 15
        log.extend([b"y"] * 5)
        assert log.high_watermark == 15
        for wrong in (-1, 2.5, None):
            with pytest.raises((TypeError, ValueError)):
                log.advance_high_watermark(wrong)  # type: ignore[arg-type]
        log.truncate_to(0)
        assert log.high_watermark == 0
    with opened(base) as store:
        log = store.log("t", 0)
        store.take_offline(base / "disk0")
        with pytest.raises(LogDirError):
            log.advance_high_watermark(1)


def test_readers_end_at_it_if_they_ask(base: Path) -> None:
    """Each way to read accepts the isolation level; by default, the whole log is read."""
    with opened(base) as store:
        log = store.create("t", 0)
        for number in range(10):
            log.append(b"%d" % number)
        log.advance_high_watermark(4)
        for level, end in (("read_uncommitted", 10), ("read_replicated", 4), ("read_committed", 4)):
            expected = [b"%d" % number for number in range(end)]
            assert values(log, level) == expected
            batches = list(log.read_batches(isolation_level=level))
            assert [v for batch in batches for v in batch.values.to_list()] == expected
            found = log.tail("start", timeout=0, isolation_level=level)
            assert [record.value for record in found] == expected
            assert log.read(end, isolation_level=level) == []
            assert log.read(10, isolation_level=level) == []
            with pytest.raises(OffsetOutOfRangeError):
                log.read(11, isolation_level=level)
        assert [r.value for r in log[: log.high_watermark]] == [b"0", b"1", b"2", b"3"]
        asked = log.read_batches(2, end_offset=9, isolation_level="read_replicated")
        assert sum(batch.count for batch in asked) == 2
        with pytest.raises(ValueError, match="read_replicated"):
            log.read(0, isolation_level="replicated")
        with pytest.raises(ValueError, match="read_replicated"):
            log.tail(isolation_level="replicated")


def test_regression_a_truncation_during_a_read_ends_it_at_the_lower_high_watermark(
    base: Path,
) -> None:
    """The records that follow the cut are not replicated yet."""
    with LogStore.open(base, admin_socket=False) as store:
        log = store.create("t", 0)
        for number in range(20):
            log.append(b"old %d" % number)
        log.advance_high_watermark(20)
        batches = log.read_batches(isolation_level="read_replicated")
        values = next(batches).values.to_list()
        log.truncate_to(10)
        for number in range(20):
            log.append(b"new %d" % number)
        log.advance_high_watermark(12)
        values += [value for each in batches for value in each.values.to_list()]
    old, new = [b"old %d" % number for number in range(10)], [b"new 0", b"new 1"]
    assert values == [*old, *new]


def test_a_tail_waits_until_records_are_replicated(base: Path) -> None:
    """The tail waits for the high watermark; an append alone does not end its wait."""
    with opened(base) as store:
        log = store.create("t", 0)
        log.advance_high_watermark(0)
        log.append(b"x")
        tail = log.tail(isolation_level="read_replicated", timeout=60)
        found: list[bytes | None] = []
        waiting = threading.Thread(target=lambda: found.append(next(tail).value))
        waiting.start()
        while not log._state.waiters:
            pass
        assert not log.wait_for(0, 0, "read_replicated") and log.wait_for(0, 0)
        log.advance_high_watermark(1)
        waiting.join(60)
        assert found == [b"x"]


def test_subscribers_hear_that_it_rose(base: Path) -> None:
    """Each rise causes one event, after the rise; a log that is not replicated has none."""
    with opened(base) as store:
        log = store.create("t", 0)
        heard: list[tuple[LogEvent, int]] = []
        with log.subscribe(lambda event: heard.append((event, log.high_watermark))):
            log.append(b"x")
            log.advance_high_watermark(0)
            log.advance_high_watermark(1)
            log.advance_high_watermark(1)
            log.append(b"y")
            log.advance_high_watermark(7)
        rose = LogEvent.HIGH_WATERMARK_ROSE
        assert heard == [
            (LogEvent.APPENDED, 1), (rose, 1), (LogEvent.APPENDED, 1), (rose, 2),
        ]  # fmt: skip


def test_what_is_not_replicated_is_not_retained_away(base: Path) -> None:
    """Neither retention nor a deletion goes beyond the high watermark."""
    with opened(base) as store:
        config = LogConfig(segment_bytes=1024, retention_bytes=0)
        log = store.create("t", 0, config=config)
        for _ in range(50):
            log.append(bytes(100))
        log.advance_high_watermark(12)
        log.apply_retention()
        first = log.log_start_offset
        assert 0 < first <= 12
        with pytest.raises(OffsetOutOfRangeError):
            log.delete_records_before(13)
        log.delete_records_before(12)
        log.advance_high_watermark(50)
        log.apply_retention()
        assert log.log_start_offset > 12
        log.delete_records_before(50)
        assert log.high_watermark == log.log_start_offset == 50


def test_it_is_never_before_the_log_start(base: Path) -> None:
    """The log of an empty follower begins where its leader's log begins."""
    with opened(base) as store:
        source, log = store.create("s", 0), store.create("t", 0)
        source.extend([b"x"] * 10)
        source.extend([b"y"] * 10)
        log.advance_high_watermark(0)
        log.append_as_follower(source.read_raw(10))
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (10, 10, 20)


def test_a_full_disk_refuses_the_first_call_and_changes_nothing(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the log is limited, it is durably recorded as replicated."""
    with opened(base) as store:
        log = store.create("t", 0)
        log.extend([b"x"] * 10)

        def fail(fd: int, buffers: object, position: int) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            patched.setattr(files, "pwritev", fail)
            with pytest.raises(LogDirError):
                log.advance_high_watermark(5)
        assert log.high_watermark == 10
        assert log.advance_high_watermark(5) == 5


def test_another_process_sees_what_was_written_and_changes_nothing(base: Path) -> None:
    """The reader stops where the last checkpoint of the owner allows."""
    with opened(base) as store:
        log = store.create("t", 0)
        log.extend([b"x"] * 10)
        log.advance_high_watermark(6)
        checkpoint(store)
        with LogStore.open(base / "disk0", read_only=True) as reader:
            view = reader.log("t", 0)
            assert view.high_watermark == 6
            assert len(view.read(0, isolation_level="read_replicated")) == 6
            assert len(list(view.tail("start", timeout=0, isolation_level="read_replicated"))) == 6
            with pytest.raises(ReadOnlyStoreError):
                view.advance_high_watermark(7)
