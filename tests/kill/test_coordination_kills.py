"""Kill -9 a process that writes to an embedded coordination store (LOGSTORE_COORDINATION_KILLS)."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import environment, fast_directory

KILLS = int(os.environ.get("LOGSTORE_COORDINATION_KILLS", "20"))
LOOP = Path(__file__).with_name("coordination_kills.py")


@pytest.mark.timeout(120 + KILLS)
def test_every_acknowledged_change_survives_a_kill() -> None:
    """Whole changes only, no ephemeral znode of a dead process, and a zxid that never falls."""
    seed = int(os.environ.get("LOGSTORE_SEED", random.SystemRandom().getrandbits(32)))
    with fast_directory() as base:
        done = subprocess.run(
            [sys.executable, str(LOOP), "--kills", str(KILLS), "--seed", str(seed)]
            + ["--dir", str(base / "store")],
            capture_output=True,
            text=True,
            env=environment(),
            check=False,
        )
    print(f"kill: coordination: {done.stdout.strip()}")
    assert done.returncode == 0, f"LOGSTORE_SEED={seed}: {done.stdout}{done.stderr}"
    found = json.loads(done.stdout)
    assert found["kills"] == KILLS
    assert found["changes"] > KILLS
