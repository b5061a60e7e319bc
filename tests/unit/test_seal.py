"""Test when the index files show that a segment is flushed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logstore import LogStore, StoreConfig
from logstore.log.write import seal


def index_files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.index"))


def test_a_checkpoint_describes_what_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The active segment gets an index file after all of it is flushed, not before."""
    monkeypatch.setattr(seal, "CHECKPOINT_BYTES", 1)
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        log.append(b"a value")
        log.checkpoint()
        assert index_files(tmp_path / "orders-0") == []
        log.flush()
        log.checkpoint()
        assert index_files(tmp_path / "orders-0") == ["00000000000000000000.index"]


def test_regression_nothing_found_after_a_crash_is_vouched_for_before_a_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that recovery found may be only in memory: no checkpoint describes them unsynced."""
    monkeypatch.setattr(seal, "CHECKPOINT_BYTES", 1)
    quiet = StoreConfig(log_flush_scheduler_interval_ms=3_600_000)
    with LogStore.open(tmp_path / "live", config=quiet) as store:
        store.create("orders", 0).extend([b"x" * 100] * 1000)
        shutil.copytree(tmp_path / "live", tmp_path / "crashed")
    with LogStore.open(tmp_path / "crashed", config=quiet) as store:
        log = store.log("orders", 0)
        assert log.recovery.scanned_batches == 1
        log.checkpoint()
        assert index_files(tmp_path / "crashed" / "orders-0") == []
        log.flush()
        log.checkpoint()
        assert len(index_files(tmp_path / "crashed" / "orders-0")) == 1
