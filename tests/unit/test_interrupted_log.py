"""After an interrupt (Ctrl-C) at any call, a log still keeps its guarantees."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from logstore import LogConfig, LogDirOfflineError, LogStore, LogStoreError
from logstore.disk import files
from logstore.log.metadata import PartitionMetadata
from logstore.log.removal import retention
from logstore.log.replica import Replica
from logstore.log.segments.segment import Segment
from support.hanging import QUIET
from support.inside import abandon
from support.interrupts import WRITING, InterruptAt, in_own_thread
from support.places import fast_directory

CONFIG = LogConfig(segment_bytes="1MiB", max_message_bytes="1MiB")


def interrupt(patch: pytest.MonkeyPatch, name: str, number: int, *, is_before: bool) -> None:
    """Let Ctrl-C come just before, or just after, the n-th call of a function."""
    real, calls = getattr(files, name), 0

    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and is_before:
            raise KeyboardInterrupt
        result = real(*arguments, **options)
        if calls == number:
            if name == "open_file":
                os.close(result)
            raise KeyboardInterrupt
        return result

    patch.setattr(files, name, call)


def test_regression_an_interrupted_flush_is_made_up_for(tmp_path: Path) -> None:
    """The next flush moved the recovery point without a sync."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        log.append(b"tea")
        with pytest.MonkeyPatch.context() as patch:
            interrupt(patch, "fdatasync", 1, is_before=True)
            with pytest.raises(KeyboardInterrupt):
                log.flush()
        synced: list[int] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "fdatasync", synced.append)
            assert log.flush() == 1
        assert len(synced) == 1


def test_regression_an_interrupted_append_leaves_nothing_behind(tmp_path: Path) -> None:
    """The batch stayed after the end of a segment, and the next batch overlapped it."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=CONFIG)
        log.append(b"first")
        with pytest.MonkeyPatch.context() as patch:
            interrupt(patch, "pwrite", 1, is_before=False)
            with pytest.raises(KeyboardInterrupt):
                log.append(b"never acknowledged")
        assert log.append(bytes(1_048_480)) == 1  # rolls
    with LogStore.open(tmp_path) as store:
        log = store.log("orders", 0)
        assert not log.recovery.problems
        assert log[1].value == bytes(1_048_480)
        assert log.append(b"next") == 2


def test_regression_an_interrupted_roll_can_be_made_again(tmp_path: Path) -> None:
    """The file of the interrupted roll prevented every later roll."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=CONFIG)
        log.append(bytes(1_000_000))
        with pytest.MonkeyPatch.context() as patch:
            interrupt(patch, "open_file", 1, is_before=False)
            with pytest.raises(KeyboardInterrupt):
                log.append(bytes(1_000_000))
        assert log.append(bytes(1_000_000)) == 1


def test_regression_a_roll_that_is_interrupted_twice_loses_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The empty file stayed, and the next start cut the records that were appended since."""

    def interrupted(path: str) -> None:
        raise KeyboardInterrupt

    store = LogStore.open(tmp_path, config=QUIET)
    log = store.create("orders", 0, config=CONFIG)
    log.append(bytes(1_000_000))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt(patch, "open_file", 1, is_before=False)
        patch.setattr(files, "unlink", interrupted)
        log.append(bytes(1_000_000))
    assert log.extend([b"small"] * 2, durable=True) == range(1, 3)
    abandon(store)  # as after a crash
    with LogStore.open(tmp_path, config=QUIET) as store:
        log = store.log("orders", 0)
        assert not log.recovery.problems
        assert log[2].value == b"small"
        assert log.append(bytes(1_000_000)) == 3


def test_regression_a_truncation_takes_the_file_of_an_interrupted_roll_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file stayed, and the next start found that a batch overlaps the empty file."""

    def interrupted(path: str) -> None:
        raise KeyboardInterrupt

    small = LogConfig(segment_bytes=1024, max_message_bytes=2048)
    store = LogStore.open(tmp_path, config=QUIET)
    log = store.create("orders", 0, config=small)
    log.extend([bytes(200)] * 4)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt(patch, "open_file", 1, is_before=False)
        patch.setattr(files, "unlink", interrupted)
        log.append(bytes(900))
    log.truncate_to(2)
    assert log.append(b"a") == 2
    assert log.extend([b"b", b"c", b"d"]) == range(3, 6)
    log.flush()
    abandon(store)  # as after a crash
    with LogStore.open(tmp_path, config=QUIET) as store:
        log = store.log("orders", 0)
        assert not log.recovery.problems
        assert [record.value for record in log[2:]] == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("is_closed", [True, False])
def test_regression_a_write_that_is_interrupted_twice_is_cut_off_before_a_roll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    """The bytes stayed in the sealed segment, and the next start found a batch that is too long."""

    def interrupted(fd: int, size: int) -> None:
        raise KeyboardInterrupt

    small = LogConfig(segment_bytes=1024, max_message_bytes=2048)
    store = LogStore.open(tmp_path, config=QUIET)
    log = store.create("orders", 0, config=small)
    log.append(bytes(600))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt(patch, "write_fully", 1, is_before=False)
        patch.setattr(files, "ftruncate", interrupted)
        patch.setattr(Segment, "log_path", property(lambda _: interrupted(0, 0)))  # nor a call
        log.extend([b"never", b"acknowledged"])
    assert log.append(bytes(900)) == 1
    log.flush()
    store.close() if is_closed else abandon(store)
    with LogStore.open(tmp_path, config=QUIET) as store:
        log = store.log("orders", 0)
        assert not log.recovery.problems
        assert [len(record.value or b"") for record in log] == [600, 900]
        assert log.append(b"next") == 2


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("is_before", [True, False])
def test_regression_an_interrupted_truncation_loses_no_later_append(
    tmp_path: Path, number: int, is_before: bool
) -> None:
    """Later appends were written to files that had no name any more."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=CONFIG)
        for _ in range(30):
            log.append(bytes(100_000))
        log.flush()
        with pytest.MonkeyPatch.context() as patch:
            interrupt(patch, "fsync", number, is_before=is_before)
            with suppress(KeyboardInterrupt):
                log.truncate_to(5)
        assert 5 <= len(log) <= 30
        offset = log.append(b"acknowledged", durable=True)
        assert len(list(log)) == offset + 1
    with LogStore.open(tmp_path) as store:
        log = store.log("orders", 0)
        assert not log.recovery.problems
        assert log[-1].value == b"acknowledged" and log[-1].offset == offset


def test_regression_readers_end_when_a_truncation_fails(tmp_path: Path) -> None:
    """A reader looked for a dropped segment forever; `time` searches ran out of stack."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=CONFIG)
        for number in range(30):
            log.append(bytes(100_000), timestamp=number)
    with pytest.MonkeyPatch.context() as patch, LogStore.open(tmp_path) as store:
        log = store.log("orders", 0)
        may_fail, began = threading.Event(), threading.Event()
        found: list[object] = []

        def sync_names(fd: int) -> None:
            began.set()
            may_fail.wait(10)
            raise files.SyncError(5, "the disk is gone")

        def look(read: Any) -> None:
            try:
                found.append(read(15))
            except (LogStoreError, RecursionError) as error:
                found.append(type(error))

        def truncate() -> None:
            with pytest.raises(LogDirOfflineError):
                log.truncate_to(1)

        are_looking, looking, real = threading.Event(), set(), Replica.retry

        def retry(*arguments: Any) -> None:
            looking.add(threading.get_ident())
            if len(looking) == 3:
                are_looking.set()
            real(*arguments)

        patch.setattr(Replica, "retry", retry)
        patch.setattr(files, "sync_names", sync_names)
        patch.setattr(files, "write_atomically", lambda *arguments: None)
        threads = [threading.Thread(target=truncate)]
        threads[0].start()
        assert began.wait(10)
        for read in (log.record_at, log.read_raw, log.offset_for_timestamp):
            threads.append(threading.Thread(target=look, args=(read,), daemon=True))
            threads[-1].start()
        assert are_looking.wait(10)
        may_fail.set()
        for thread in threads:
            thread.join(10)
        assert found == [LogDirOfflineError] * 3


def test_an_interrupt_on_top_of_a_failed_sync_hides_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Ctrl-C comes while the error of a sync is handled, the log dir is still OFFLINE."""

    def fails(fd: int) -> None:
        try:
            raise OSError(errno.EIO, "the disk is gone")
        except OSError:
            raise KeyboardInterrupt from None  # the context stays, as the interpreter leaves it

    store = LogStore.open(tmp_path)
    log = store.create("orders", 0)
    log.append(b"a value")
    monkeypatch.setattr(files, "fdatasync", fails)
    with pytest.raises(KeyboardInterrupt):
        log.flush()
    monkeypatch.undo()
    with pytest.raises(LogDirOfflineError):
        log.append(b"another", durable=True)
    with suppress(LogDirOfflineError):
        store.close()


def test_regression_an_interrupted_deletion_is_done_or_not() -> None:
    """Until the next start, the disk had a later log start than the owner."""
    with fast_directory() as tmp_path:
        small, number, was_hit, starts = LogConfig(segment_bytes=1024), 0, True, set()
        with LogStore.open(tmp_path, config=QUIET) as store:
            while was_hit:
                log = store.create("orders", number, config=small)
                for _ in range(12):
                    log.append(bytes(100))
                log.flush()
                number += 1
                with (
                    suppress(KeyboardInterrupt),
                    in_own_thread(),
                    InterruptAt(number, retention, *WRITING, files) as it,
                ):
                    log.delete_records_before(8)
                was_hit, start = it.was_hit, log.log_start_offset
                starts.add(start)
                metadata = PartitionMetadata.read(log.directory)
                assert metadata is not None and metadata.log_start_offset == start
                assert [record.offset for record in log] == list(range(start, 12))
                names = {name for name in os.listdir(log.directory) if name.endswith(".log")}
                assert names == {os.path.basename(one.log_path) for one in log._state.segments}
                log.delete_records_before(9)
                assert log.append(b"next") == 12
        assert starts == {0, 8}
        with LogStore.open(tmp_path, config=QUIET) as store:
            for key in store:
                log = store[key]
                assert (log.log_start_offset, log[12].value) == (9, b"next")
                assert not log.recovery.problems


@pytest.mark.parametrize("fails", [False, True])
def test_regression_no_file_goes_before_a_deletion_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Ctrl-C came at the sync of the new log start: a power cut kept the old one, without files."""
    calls: list[str] = []
    sync, rename, unlink = files.fsync, files.rename, files.unlink

    def fsync(fd: int) -> None:
        is_first = (
            calls[-1:] == ["rename"] and calls.count("rename") == 2
        )  # of the metadata, behind what confirms it
        calls.append("fsync")
        if is_first and fails:
            try:
                raise OSError(errno.EIO, "the disk is gone")
            except OSError as error:
                try:
                    raise files.SyncError.of(error) from error
                except OSError:
                    raise KeyboardInterrupt from None
        if is_first:
            calls[-1] = "interrupted"
            raise KeyboardInterrupt
        sync(fd)

    def noted(name: str, work: Callable[..., None]) -> Callable[..., None]:
        def call(*paths: str) -> None:
            calls.append(name)
            work(*paths)

        return call

    store = LogStore.open(tmp_path, config=QUIET)
    log = store.create("orders", 0, config=LogConfig(segment_bytes=1024))
    for _ in range(12):
        log.append(bytes(100))
    log.flush()
    monkeypatch.setattr(files, "fsync", fsync)
    monkeypatch.setattr(files, "rename", noted("rename", rename))
    monkeypatch.setattr(files, "unlink", noted("unlink", unlink))
    with pytest.raises(KeyboardInterrupt):
        log.delete_records_before(8)
    monkeypatch.undo()
    if fails:
        assert "unlink" not in calls
        with pytest.raises(LogDirOfflineError):
            log.append(b"another")
    else:
        before = calls[: calls.index("unlink")]
        assert before.index("interrupted") < len(before) - 2
        assert before[-2:] == ["rename", "fsync"]
        assert (log.log_start_offset, log.append(b"next")) == (8, 12)
    with suppress(LogDirOfflineError):
        store.close()
