"""The recovery report tells people what opening a store found."""

from __future__ import annotations

import os
from pathlib import Path

from logstore.store.store import LogStore
from support.inside import abandon


def test_a_torn_tail_is_cut_and_told(tmp_path: Path) -> None:
    """The report has the number of bytes, the log, and the reason."""
    store = LogStore.open(tmp_path)
    store.create("orders", 0).extend([b"x"] * 10)
    abandon(store)
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(path.read_bytes()[: whole // 2])
    with LogStore.open(tmp_path) as store:
        report = store.recovery_report
        assert report.cut_bytes == whole // 2
        assert f"a torn tail of {whole // 2:,} bytes was cut" in str(report)
        assert report.is_sound
        assert len(store["orders", 0]) == 10
        assert "1 log," in repr(report)
        assert str(report).startswith("1 log opened")


def test_regression_a_dir_that_was_taken_offline_had_no_crash(tmp_path: Path) -> None:
    """Its return, and the next start, only report that there was no clean close."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    with LogStore.open(dirs) as store:
        store.take_offline(dirs[1])
        report = str(store.reopen_dir(dirs[1]))
        assert "without a clean close" in report and "crash" not in report


def test_damage_is_told_and_not_cut(tmp_path: Path) -> None:
    """The log is readable, the report has the place of the damage, a repair makes it writable."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        for _ in range(5):
            log.extend([b"x" * 100] * 10)
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    size = path.stat().st_size
    data = bytearray(path.read_bytes())
    data[size // 2] ^= 1
    path.write_bytes(bytes(data))
    os.unlink(path.with_suffix(".index"))
    with LogStore.open(tmp_path) as store:
        report = store.recovery_report
        assert not report.is_sound
        assert len(report.problems) == 1
        assert f"damage in {path}" in str(report)
        assert path.stat().st_size == size
        assert not store.verify().is_sound
        assert str(path) in str(store.verify())
    with LogStore.open(tmp_path) as store:
        assert not store.recovery_report.is_sound
        store.repair("orders", 0)
        assert store["orders", 0].append(b"y") == 50
        assert store.verify().is_sound
    with LogStore.open(tmp_path) as store:
        assert store.recovery_report.is_sound
        assert store["orders", 0][50].value == b"y"
