"""A disk that hangs at the start keeps no other one from serving."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore import LogDirOfflineError, LogStore
from support.bad_disk import fill
from support.hanging import QUIET, hang

CONFIG = QUIET.replace(log_dir_suspect_ms=1000)


@pytest.mark.parametrize("name", ["read_file", "flock", "fsync", "scandir", "statvfs", "pread"])
def test_the_others_start_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Wherever it hangs it is offline after the bound, and whole once the disk is back."""
    dirs = [str(tmp_path / f"disk{number}") for number in range(3)]
    fill(dirs)
    with hang(monkeypatch, dirs[1], name) as disk, LogStore.open(dirs, config=CONFIG) as store:
        assert disk.began.is_set()
        assert [row.is_live for row in store.describe_dirs().log_dirs] == [True, False, True]
        assert store["orders", 0].append(b"x") == store["orders", 2].append(b"x") == 10
        with pytest.raises(LogDirOfflineError):
            store.log("orders", 1)
        disk.released.set()
    with LogStore.open(dirs) as store:
        assert [len(store["orders", number]) for number in range(3)] == [11, 10, 11]
