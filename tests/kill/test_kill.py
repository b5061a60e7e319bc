"""Kill -9 a writing process 1,000 times (set LOGSTORE_KILLS for more: `make kill` does 10,000)."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import environment, fast_directory

KILLS = int(os.environ.get("LOGSTORE_KILLS", "400"))
LOOP = Path(__file__).with_name("kill_loop.py")
PROCESSES = 2


@pytest.mark.timeout(60 + KILLS // 5)
def test_every_acknowledged_record_survives_a_kill_and_none_is_invented() -> None:
    """What a killed process acknowledged is there, and nothing that it did not append."""
    seeds = [random.SystemRandom().getrandbits(32) for _ in range(PROCESSES)]
    if "LOGSTORE_SEED" in os.environ:
        seeds = [int(os.environ["LOGSTORE_SEED"])]
    with fast_directory() as base:
        running = [
            subprocess.Popen(
                [sys.executable, str(LOOP), "--kills", str(-(-KILLS // len(seeds)))]
                + ["--seed", str(seed), "--dir", str(base / str(seed))],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment(),
            )
            for seed in seeds
        ]
        try:
            results = [process.communicate() for process in running]
        finally:
            for process in running:
                process.kill()
    for seed, process, (out, err) in zip(seeds, running, results, strict=True):
        print(f"kill: seed {seed}: {out.strip()}")
        assert process.returncode == 0, f"LOGSTORE_SEED={seed}: {out}{err}"
    figures = [json.loads(out) for out, _ in results]
    assert sum(figure["kills"] for figure in figures) >= KILLS
    assert sum(figure["operations"] for figure in figures) > 5 * KILLS
