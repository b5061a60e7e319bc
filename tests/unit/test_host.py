"""Use stores and logs as higher packages do: through `LogStore.host` and `log/host`."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore import LogStore
from logstore.errors import LogClosedError, LogDirError
from logstore.log import host


def test_a_host_finds_log_dirs_by_any_path_that_leads_to_them(tmp_path: Path) -> None:
    """`dir_named` follows a symlink; `dir_of` accepts only a log dir's own path."""
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with LogStore.open([tmp_path / "a", tmp_path / "b"]) as store:
        first, second = store.host.log_dirs
        assert store.host.dir_named(tmp_path / "link") is first
        assert store.host.dir_of(second.path) is second
        for find in (store.host.dir_named, store.host.dir_of):
            with pytest.raises(LogDirError, match="no"):
                find(str(tmp_path / "c"))
        assert store.host.replicas.log_dirs == store.host.log_dirs


def test_a_host_calls_back_in_order_until_it_is_told_to_forget(tmp_path: Path) -> None:
    """A program on a store stops before the logs close, and is told when a dir answers."""
    heard: list[str] = []

    def closing() -> None:
        heard.append(f"closing at {store['t', 0].log_end_offset}")

    def answered() -> None:
        heard.append("answered")

    with LogStore.open(tmp_path / "a") as store:
        store.create("t", 0).append(b"one")
        store.host.before_close(closing)
        store.host.on_answer(answered)
        store.host.answered()
        store.host.forget(answered)
        store.host.forget(answered)
        store.host.answered()
    assert heard == ["answered", "closing at 1"]
    with pytest.raises(LogClosedError):
        store.host.check()


def test_a_host_has_directories_removed(tmp_path: Path) -> None:
    """After the host has waited, the directory is gone."""
    with LogStore.open(tmp_path / "a") as store:
        (doomed := tmp_path / "a" / "left-over").mkdir()
        store.host.purge(store.host.log_dirs[0], str(doomed))
        store.host.wait_purged(60)
        assert not doomed.exists()


def test_a_log_shows_its_parts_without_its_private_names(tmp_path: Path) -> None:
    """Segments, metadata and log dir are current; a change of the metadata is durable."""
    with LogStore.open(tmp_path / "a") as store:
        log = store.create("t", 0)
        log.extend([b"v"] * 10)
        assert host.log_dir_of(log) is store.host.log_dirs[0]
        assert [(one.base_offset, one.end_offset) for one in host.segments_of(log)] == [(0, 10)]
        assert host.writing_position(log) is None and not host.is_writing(log)
        assert not host.start_at(log, 11) and host.start_at(log, 4) and log.log_start_offset == 4
        generation = host.metadata_of(log).generation
        host.change_metadata(log, lambda metadata: {"generation": metadata.generation + 3})
        host.change_metadata(log, lambda metadata: None)
        assert host.metadata_of(log).generation == generation + 3
        with host.stopped(log):
            assert [record.offset for record in log.read(4)] == list(range(4, 10))
    assert host.is_detached(log)
    with pytest.raises(LogClosedError):
        host.check(log)
    with LogStore.open(tmp_path / "a") as store:
        assert host.metadata_of(store["t", 0]).generation == generation + 3
