"""`Log.start_at` removes all records and begins at a later offset, as a follower needs."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from logstore import (
    Log,
    LogConfig,
    LogDirError,
    LogDirFullError,
    LogStore,
    LogStoreError,
    OffsetOutOfRangeError,
)
from logstore.disk import files
from support.hostile import column, columnar_batch
from support.inside import abandon

SMALL = LogConfig(segment_bytes=300)
VALUES = [b"value %d" % number for number in range(12)]


def filled(path: Path, config: LogConfig = SMALL) -> tuple[LogStore, Log]:
    """Open a store with a log of several segments and two leader epochs."""
    store = LogStore.open(path, admin_socket=False)
    log = store.create("t", 0, config=config)
    for number, value in enumerate(VALUES):
        log.leader_epoch = 2 + 3 * (number // 6)
        log.append(value)
    return store, log


def reopened(path: Path) -> tuple[LogStore, Log]:
    """Open the store again; its recovery finds no damage."""
    store = LogStore.open(path, admin_socket=False)
    assert store.recovery_report.is_sound, str(store.recovery_report)
    return store, store.log("t", 0)


def batch(offset: int, epoch: int) -> bytes:
    """Make a leader's batch of one record."""
    return columnar_batch(column([b"new"]), 1, base_offset=offset, leader_epoch=epoch)


@pytest.mark.parametrize("record_format", ["columnar", "kafka"])
@pytest.mark.parametrize(
    ("deleted", "offset"), [(0, 12), (1, 13), (5, 12), (5, 13), (11, 5000), (12, 13), (12, 5000)]
)
def test_a_log_begins_anew(tmp_path: Path, record_format: str, deleted: int, offset: int) -> None:
    """This holds for any log start; the log accepts a leader's records, even of an earlier epoch.

    The records that were removed may be of a leader epoch that its leader does not know.
    """
    store, log = filled(tmp_path, SMALL.replace(record_format=record_format))
    log.delete_records_before(deleted)
    assert log.start_at(offset) is None
    assert (log.log_start_offset, log.log_end_offset) == (offset, offset)
    assert (log.high_watermark, log.recovery_point, list(log)) == (offset, offset, [])
    assert log.leader_epochs == () and len(list(Path(log.directory).glob("*.log"))) == 1
    abandon(store)
    store, log = reopened(tmp_path)
    assert (log.log_start_offset, log.log_end_offset, log.leader_epochs) == (offset, offset, ())
    with store:
        assert log.append_as_follower(batch(offset, 3), leader_epoch=5) == range(offset, offset + 1)
        assert log.leader_epochs == ((3, offset),) and log.verify() == []


def test_an_offset_before_the_log_end_is_refused(tmp_path: Path) -> None:
    """Nothing is dropped: a caller that accepts the loss truncates first."""
    store, log = filled(tmp_path)
    with store, pytest.raises(OffsetOutOfRangeError, match=r"cannot begin at offset 11.*truncate"):
        log.start_at(11)
    store, log = reopened(tmp_path)
    with store:
        assert [record.value for record in log] == VALUES


def test_at_its_own_end_an_empty_log_is_unchanged(tmp_path: Path) -> None:
    """A repeated call does no harm."""
    store, log = filled(tmp_path)
    with store:
        log.start_at(20)
        before = sorted(Path(log.directory).iterdir())
        log.start_at(20)
        assert sorted(Path(log.directory).iterdir()) == before


def test_the_high_watermark_of_a_replicated_log_becomes_the_start(tmp_path: Path) -> None:
    """All earlier records were replicated and deleted; this survives a crash."""
    store, log = filled(tmp_path)
    log.advance_high_watermark(7)
    log.start_at(40)
    assert log.high_watermark == 40
    log.append(b"new")
    log.flush()
    assert log.high_watermark == 40
    abandon(store)
    store, log = reopened(tmp_path)
    with store:
        assert log.high_watermark == 40 and log[40].value == b"new"


def test_the_dropped_records_can_be_kept(tmp_path: Path) -> None:
    """The records are in a file beside the log, as after a truncation."""
    store, log = filled(tmp_path)
    with store:
        log.delete_records_before(3)
        path = Path(log.start_at(30, keep_lost=True) or "")
        assert f".{3:020}-{12:020}." in path.name
        other = store.create("other", 0)
        other.append_as_follower(path.read_bytes())
        assert [record.value for record in other][-9:] == VALUES[3:]
        assert log.start_at(31, keep_lost=True) is None


def test_a_full_disk_drops_nothing(tmp_path: Path) -> None:
    """This holds if the disk has no room for the records that must be kept."""
    store, log = filled(tmp_path)
    full = OSError(errno.ENOSPC, "no space")
    with store:
        with patch.object(files, "sendfile", side_effect=full), pytest.raises(LogDirFullError):
            log.start_at(30, keep_lost=True)
        assert [record.value for record in log] == VALUES
        assert log.start_at(30, keep_lost=True) and log.log_start_offset == 30


def test_a_reader_that_waits_hears_of_the_new_start(tmp_path: Path) -> None:
    """The offset for which the reader waits no longer exists."""
    store, log = filled(tmp_path)
    events: list[object] = []
    with store:
        subscription = log.subscribe(events.append)
        log.start_at(30)
        assert [str(event) for event in events][-1:] == ["LogEvent.START_MOVED"]
        with pytest.raises(OffsetOutOfRangeError):
            log.read(12)
        subscription.close()


@pytest.mark.parametrize("deleted", [0, 5])
def test_each_failing_call_leaves_all_records_or_none(tmp_path: Path, deleted: int) -> None:
    """The disk fails at any call, and then the store is restarted."""
    calls = ("open_file", "replace_file", "rename", "sync_file", "sync_dir", "sync_names")
    outcomes = set()
    for name in (*calls, "remove_if_there"):
        for number in range(12):
            path = tmp_path / f"{name} {number}"
            store, log = filled(path)
            log.flush()
            log.delete_records_before(deleted)
            real, left = getattr(files, name), [number]

            def fail(
                *args: object, real: Any = real, left: list[int] = left, **more: object
            ) -> object:
                left[0] -= 1
                if left[0] < 0:
                    raise OSError(errno.EIO, "broken")
                return real(*args, **more)

            is_failed = False
            with patch.object(files, name, fail):
                try:
                    log.start_at(30)
                except LogDirError:
                    is_failed = True
            abandon(store)
            store, log = reopened(path)
            with store:
                values = [record.value for record in log]
                assert values in ([], VALUES[deleted:]) or is_prefix(values, deleted)
                assert is_failed or (log.log_start_offset, values) == (30, [])
                log.start_at(max(30, log.log_end_offset))
                assert log.append_as_follower(batch(30, 3), leader_epoch=6) == range(30, 31)
                assert log.verify() == []
            outcomes.add((is_failed, log.log_start_offset if not values else "kept"))
            if not is_failed:
                break
    assert {is_failed for is_failed, _ in outcomes} == {True, False}


def is_prefix(values: list[bytes | None], deleted: int) -> bool:
    """Check that a failed removal left the first records, as a truncation may do."""
    return values == VALUES[deleted : deleted + len(values)]


@pytest.mark.parametrize("is_killed", [False, True])
def test_without_descriptors_the_log_goes_on_later(tmp_path: Path, is_killed: bool) -> None:
    """The new start is on the disk, but neither its segment nor the old start can be written.

    The log corrects the start before its next append. If it is killed before, it begins at the new
    one: it has no records.
    """
    store, log = filled(tmp_path)
    create, failing = files.open_file, list[str]()

    def fail(path: str, *args: Any) -> int:
        if failing or path.endswith(f"{40:020}.log"):
            failing.append(path)
            raise OSError(errno.EMFILE, "too many open files")
        return create(path, *args)

    replace = files.replace_file

    def fail_too(path: str, *args: Any) -> int:
        if failing:
            raise OSError(errno.EMFILE, "too many open files")
        return replace(path, *args)

    with (
        patch.object(files, "open_file", fail),
        patch.object(files, "replace_file", fail_too),
    ):
        with pytest.raises(LogStoreError):
            log.start_at(40)
        with pytest.raises(LogStoreError):
            log.append(b"too early")
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    if is_killed:
        abandon(store)
        store, log = reopened(tmp_path)
        assert (log.log_start_offset, log.log_end_offset) == (40, 40)
    else:
        assert log.append(b"later", durable=True) == 0
        abandon(store)
        store, log = reopened(tmp_path)
        assert [record.value for record in log] == [b"later"]
    with store:
        log.start_at(50)
        assert log.append(b"new") == 50
