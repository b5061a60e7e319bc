"""Stage by hand the states after a power cut that once went wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

from logstore import LogStore


def crashed(root: Path) -> Path:
    """Copy a store's directory as a crash would leave it."""
    copy = root.with_name(root.name + "-crashed")
    shutil.copytree(root, copy)
    return copy


def test_regression_a_log_without_any_segment_is_opened(tmp_path: Path) -> None:
    """A power cut in a truncation to the log start leaves no segment; the replica went offline."""
    with LogStore.open(tmp_path / "logs") as store:
        log = store.create("orders", 0)
        log.extend([b"a", b"b"], durable=True)
        log.truncate_to(0)
        root = crashed(tmp_path / "logs")
    for path in (root / "orders-0").glob("0*"):
        path.unlink()
    with LogStore.open(root) as store:
        assert store.recovery_report.is_sound, str(store.recovery_report)
        assert store.log("orders", 0).append(b"c", durable=True) == 0
    with LogStore.open(root) as store:
        assert [r.value for r in store.log("orders", 0)] == [b"c"]


def test_regression_deleted_and_lost_offsets_are_not_given_twice(tmp_path: Path) -> None:
    """What was deleted before it was flushed, and lost, had its offsets given once more."""
    with LogStore.open(tmp_path / "logs") as store:
        log = store.create("orders", 0)
        for number in range(10):
            log.append(b"%d" % number * 100, durable=number == 4)
        log.delete_records_before(10)
        root = crashed(tmp_path / "logs")
    path = root / "orders-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with LogStore.open(root) as store:
        log = store.log("orders", 0)
        assert (log.log_start_offset, log.log_end_offset) == (10, 10)
        assert log.append(b"next", durable=True) == 10
        assert log[10].value == b"next"
    with LogStore.open(root) as store:
        assert store.recovery_report.is_sound, str(store.recovery_report)
        assert [(r.offset, r.value) for r in store.log("orders", 0)] == [(10, b"next")]
