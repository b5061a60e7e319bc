"""Free space on disks that are really full: whoever deletes must not be told that there is no room.

A close on a full disk, or a kill, left a store in which `delete_records_before`, retention and
`truncate_to` raised LogDirFullError: each first writes a small file.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from integration.full_disk import FREEING, PARTITION_BYTES
from logstore import LogConfig, LogDirFullError, LogStore
from logstore.disk import ballast
from support.layers import demand
from support.loop_disk import LoopDisk, command, kinds, loop_disk, why_not
from support.places import environment
from support.small_ballast import REAL_BLOCK_BYTES, REAL_BYTES

PROGRAM = Path(__file__).with_name("full_disk.py")


def step(disk: LoopDisk, other: Path, name: str, ending: str) -> str:
    """Run one step of the program on a disk; gives what it printed."""
    words = [str(disk.mount / "logs"), str(other), str(disk.mount / "taken"), name, ending]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *words],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{disk.kind}, {ending}: {name}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.timeout(120)
@pytest.mark.parametrize("ending", ["closed", "killed"])
def test_regression_what_frees_space_works_on_a_full_disk(ending: str, tmp_path: Path) -> None:
    """Each operation frees most of a partition, after every kind of end, and appends go on."""
    demand("a full disk", why_not())
    for kind in kinds():
        with loop_disk(kind) as disk:
            if kind == "ext4":  # this test may be root, and what root alone may use is not free
                command("tune2fs", "-m", "0", disk.device)
            (disk.mount / "logs").mkdir()
            other = tmp_path / kind
            step(disk, other, "fill", ending)
            for name in FREEING:
                printed, freed = step(disk, other, name, ending).split()
                assert printed == name
                assert int(freed) > PARTITION_BYTES // 2, f"{kind}, {ending}: {name}: {freed}"


@pytest.mark.timeout(120)
def test_a_log_under_pressure_goes_on_though_its_disk_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twice as much as the disk holds is appended: the oldest goes, and another log stays whole."""
    demand("a full disk", why_not())
    monkeypatch.setattr(ballast, "BALLAST_BYTES", REAL_BYTES)
    monkeypatch.setattr(ballast, "BLOCK_BYTES", REAL_BLOCK_BYTES)
    config = LogConfig(segment_bytes=512 << 10, retention_pressure=True)
    for kind in kinds():
        with loop_disk(kind) as disk, LogStore.open(disk.mount / "logs") as store:
            plain = store.create("plain", 0, config=LogConfig(segment_bytes=512 << 10))
            plain.extend([bytes([number % 251]) * 1000 for number in range(2000)])
            log, written = store.create("made", 0, config=config), 0
            room = shutil.disk_usage(disk.mount).free
            while written < 2 * room:
                value = written.to_bytes(8, "big") * 8000
                deadline = time.monotonic() + 20
                while True:
                    try:
                        log.append(value)
                        break
                    except LogDirFullError:
                        assert time.monotonic() < deadline, f"{kind}: no room was made"
                        threading.Event().wait(0.01)
                written += len(value)
            assert log.log_start_offset > 0, kind
            for record in log:
                assert record.value == (record.offset * 64000).to_bytes(8, "big") * 8000
            assert [record.offset for record in plain] == list(range(2000))
            assert store.close() == ()
