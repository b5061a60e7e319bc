"""A reserved descriptor makes a flush possible when no other descriptor is free."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from logstore import LogConfig, LogStore
from logstore.disk import files
from logstore.disk.spare import Spare
from support.hanging import QUIET
from support.inside import abandon
from support.shortage import no_descriptors


def open_one(path: Path) -> int:
    fd = os.open(path, os.O_RDONLY)
    os.close(fd)
    return fd


def test_it_is_used_only_when_it_is_needed(tmp_path: Path) -> None:
    """Work that needs a descriptor uses it, and afterwards it is in reserve again."""
    spare = Spare()
    spare.fill()
    with no_descriptors():
        for _ in range(2):
            with pytest.raises(OSError, match="Too many"):
                open_one(tmp_path)
            spare.use(lambda: open_one(tmp_path))
    spare.empty()
    spare.empty()


def test_a_failed_sync_is_never_tried_again() -> None:
    """The error of a sync is raised at once, whatever its errno."""
    calls = []

    def work() -> None:
        calls.append(1)
        raise files.SyncError(errno.EMFILE, "no descriptor")

    with pytest.raises(files.SyncError):
        Spare().use(work)
    assert len(calls) == 1


def test_regression_sealed_segments_are_flushed_without_a_descriptor(tmp_path: Path) -> None:
    """The flush needed one more descriptor, and kept the ones that it had, so it always failed."""
    with LogStore.open(tmp_path, config=QUIET) as store:
        log = store.create("orders", 0, config=LogConfig(segment_bytes=1024))
        for _ in range(30):
            log.append(bytes(300))
        assert log._state.unflushed and log._state.names_changed
        with no_descriptors():
            assert log.flush() == 30
        assert log.append(b"next", durable=True) == 30


def test_regression_a_recovered_log_is_flushed_without_a_descriptor(tmp_path: Path) -> None:
    """The earlier process's segment used the reserve, and the directory got no descriptor."""
    store = LogStore.open(tmp_path, config=QUIET)
    store.create("orders", 0, config=LogConfig(segment_bytes=1024)).extend([bytes(300)] * 3)
    store["orders", 0].append(bytes(900))
    abandon(store)
    with LogStore.open(tmp_path, config=QUIET) as store:
        log = store["orders", 0]
        state = log._state
        assert [handle for _, handle in state.unflushed] == [None, None] and state.names_changed
        with no_descriptors():
            assert log.flush() == 4
        assert not state.unflushed
        assert log.append(b"next", durable=True) == 4
