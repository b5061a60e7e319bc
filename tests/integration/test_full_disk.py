"""Free space on disks that are really full: whoever deletes must not be told that there is no room.

A close on a full disk, or a kill, left a store in which `delete_records_before`, retention and
`truncate_to` raised LogDirFullError: each first writes a small file.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from integration.full_disk import FREEING, PARTITION_BYTES
from support.layers import demand
from support.loop_disk import LoopDisk, command, kinds, loop_disk, why_not
from support.places import environment

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
