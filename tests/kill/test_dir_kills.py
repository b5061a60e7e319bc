"""End a process at the changes it makes to its log dirs: a few, or with `make kill` all.

Where a crash is only an exception, `finally` and `except` still tidy up; here nothing does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kill.dir_victims import SCENARIOS
from support.places import environment, fast_directory

LOOP = Path(__file__).with_name("dir_kills.py")
EVERY = int(os.environ.get("LOGSTORE_DIR_KILLS_EVERY", "19"))
FIRST = 1 + int(os.environ.get("LOGSTORE_SEED", "4")) % EVERY


@pytest.mark.timeout(3600 if EVERY == 1 else 290)
def test_a_kill_in_any_change_of_the_log_dirs_loses_nothing() -> None:
    """In starts, creations, deletions, promotions, changes of log dirs: one copy, all of it."""
    with fast_directory() as base:
        command = [sys.executable, str(LOOP), "--dir", str(base)]
        command += ["--every", str(EVERY), "--first", str(FIRST)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment(), check=False
        )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    told = [json.loads(line) for line in done.stdout.splitlines()]
    print(f"kill: log dirs: {told}")
    assert [row["scenario"] for row in told] == [scenario.name for scenario in SCENARIOS]
    for row in told:
        assert row["kills"] == len(range(FIRST, row["changes"] + 1, EVERY)), row
