"""If a change fails or is interrupted, the old or the new configuration is in force."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore import LogConfig, LogStore, StoreConfig
from logstore.disk import files
from logstore.disk.states import Event
from logstore.errors import LogDirFullError, LogDirOfflineError, LogDirSuspectError
from logstore.log import host
from logstore.log.metadata import PartitionMetadata
from support.crashing import CHANGES, CrashError, crash_at
from support.faulty import MORE_FAULTS, FaultyFiles
from support.inside import abandon


def stored(directory: str) -> LogConfig:
    """Return the configuration on the disk."""
    metadata = PartitionMetadata.read(directory)
    assert metadata is not None
    return metadata.config


@pytest.mark.parametrize("number", range(8))
def test_a_crash_at_any_call_leaves_the_old_or_the_new(tmp_path: Path, number: int) -> None:
    """The file is replaced as a whole, and memory has only what is durable."""
    store = LogStore.open(tmp_path)
    log = store.create("orders", 0)
    log.append(b"a")
    new = LogConfig(retention_ms=5, segment_bytes=512)
    with pytest.MonkeyPatch.context() as patch:
        calls = crash_at(patch, number, CHANGES)
        changes = {"retention_ms": 5, "segment_bytes": 512}
        try:
            store.set_config("orders", 0, changes)
            is_done = True
        except CrashError:
            is_done = False
        assert is_done or log.config == LogConfig()
        assert is_done == (len(calls) < number) or len(calls) == number
    abandon(store)
    with LogStore.open(tmp_path) as store:
        assert store.recovery_report.is_sound
        log = store.log("orders", 0)
        assert log.config == new if is_done else log.config in (LogConfig(), new)
        assert [record.value for record in log] == [b"a"]


def test_a_disk_that_fails_keeps_the_old_one(tmp_path: Path) -> None:
    """A full disk can be retried; after a failed sync, the log dir is OFFLINE, as for an append."""
    (tmp_path / "a").mkdir()
    with LogStore.open([tmp_path / "a", tmp_path / "b"], config=StoreConfig()) as store:
        log = store.create("orders", 0, log_dir=tmp_path / "a")
        full = next(fault for fault in MORE_FAULTS if fault.name == "ENOSPC for good")
        with FaultyFiles(log.directory, full, 1), pytest.raises(LogDirFullError):
            store.set_config("orders", 0, {"segment_bytes": 512})
        assert log.config == LogConfig()
        assert store.set_config("orders", 0, {"segment_bytes": 512}).segment_bytes == 512
        store.take_offline(tmp_path / "a")
        with pytest.raises(LogDirOfflineError):
            store.set_config("orders", 0, {"segment_bytes": 1024})


def test_a_suspect_log_dir_refuses_it(tmp_path: Path) -> None:
    """As for an append, the error is retriable, and nothing was written."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        (log_dir,) = store.host.replicas.log_dirs
        log_dir.change(Event.STUCK, "a call hangs")
        try:
            with pytest.raises(LogDirSuspectError) as caught:
                store.set_config("orders", 0, {"segment_bytes": 512})
            assert caught.value.retriable
            assert stored(log.directory) == LogConfig()
        finally:
            log_dir.change(Event.ANSWERED)


def test_a_write_that_a_hung_roll_left_is_tidied_first(tmp_path: Path) -> None:
    """A change permits no append to an active segment that ends in wrong bytes."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        log.append(b"a")
        path = host.segments_of(log)[-1].log_path
        with Path(path).open("ab") as file:
            file.write(b"torn")
        log._state.half_made, log._state.room_bytes = ("",), 0
        store.set_config("orders", 0, {"segment_bytes": "1MiB"})
        assert log._state.room_bytes == 0
        log.append(b"b")
        assert [record.value for record in log] == [b"a", b"b"]
        assert log.verify() == []
    assert files.exists(path)
