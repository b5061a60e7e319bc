"""Kill a process in the middle of a move: a drawn sample, or every call with `make kill-moves`."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import environment, fast_directory

LOOP = Path(__file__).with_name("move_kills.py")
HOW = os.environ.get("LOGSTORE_MOVE_KILLS", "")  # "strace" or "itself": every call
SAMPLE = 40
CALLS_MIN = 200


def run(base: Path, *arguments: str) -> dict[str, int]:
    command = [sys.executable, str(LOOP), "--dir", str(base), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}{done.stderr}"
    result: dict[str, int] = json.loads(done.stdout)
    print(f"kill: moves: {arguments}: {result}")
    return result


@pytest.mark.timeout(3600 if HOW else 200)
def test_a_kill_anywhere_in_a_move_leaves_one_whole_log() -> None:
    """The next process finds every acknowledged record once, and the move ends or is gone."""
    with fast_directory() as base:
        if HOW:
            assert run(base, "--how", HOW)["kills"] >= CALLS_MIN
            return
        calls = run(base, "--how", "itself", "--at", "99999")["calls"]
        assert calls >= CALLS_MIN
        rng = random.Random(int(os.environ.get("LOGSTORE_SEED", "0")))
        points = sorted(rng.sample(range(1, calls + 1), SAMPLE))
        result = run(base, "--how", "itself", "--at", ",".join(map(str, points)))
        assert result["kills"] == SAMPLE
        assert result["resumed"] > SAMPLE // 4
