"""Read from a disk that dies: a loop device whose backing file is cut under it, really."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.layers import demand
from support.loop_disk import kinds, loop_disk, why_not
from support.places import environment

PROGRAM = Path(__file__).with_name("disk_dies.py")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["records", "columns", "points", "raw", "verify"])
def test_a_disk_that_dies_mid_read_takes_its_log_dir_offline(how: str, tmp_path: Path) -> None:
    """The read raises LogDirOfflineError, the process lives, and the other log dir goes on."""
    demand("a dying disk", why_not())
    for kind in kinds():
        with loop_disk(kind) as disk:
            words = [str(disk.image), str(disk.mount / "logs"), str(tmp_path / kind), how]
            done = subprocess.run(
                [sys.executable, "-X", "faulthandler", str(PROGRAM), *words],
                capture_output=True,
                text=True,
                env=environment(),
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, f"{kind}: {done.returncode} {done.stdout}{done.stderr}"
            assert done.stdout.endswith("alive\n")
