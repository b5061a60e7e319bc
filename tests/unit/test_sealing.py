"""Test when a segment is vouched for on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore import LogConfig, LogStore
from logstore.log import sealing


def index_files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.index"))


def test_a_checkpoint_describes_what_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index file of the active segment appears once all of it is flushed, not before."""
    monkeypatch.setattr(sealing, "CHECKPOINT_BYTES", 1)
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
    """Bytes that recovery found may be in memory alone: no checkpoint describes them unsynced."""
    monkeypatch.setattr(sealing, "CHECKPOINT_BYTES", 1)
    store = LogStore.open(tmp_path)
    log = store.create("orders", 0, config=LogConfig(segment_bytes="1MiB"))
    log.extend([b"x" * 100] * 1000)
    log.close(flush=False)
    from logstore.log.log import Log

    again = Log.open(
        log._log_dir, "orders-0", log._environment,
        recovery_point=0, log_start_offset=0, is_clean=False,
    )  # fmt: skip
    again.checkpoint()
    assert index_files(tmp_path / "orders-0") == []
    again.flush()
    again.checkpoint()
    assert index_files(tmp_path / "orders-0") == ["00000000000000000000.index"]
    again.close()
    store.close()
