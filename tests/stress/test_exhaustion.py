"""Shortages at random, over every public operation: no disk is blamed, nothing hangs or is lost.

`make exhaustion` runs 4,000 programs, and every mutant.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

from support.places import environment

COUNT = os.environ.get("LOGSTORE_EXHAUSTIONS", "40")
IS_WHOLE = "LOGSTORE_EXHAUSTIONS" in os.environ
LOADED = """
import sys
from pathlib import Path
from stress.operations import Program
from support.places import fast_directory
# These come with the first use of each.
import logstore.format.kafka.markers, logstore.store.view, mover.mover

with fast_directory() as root:
    world = Program(root, 1)
    world.begin()
    before = set(sys.modules)
    for operation in world.operations() * 2:
        step = operation()
        step.work()
        step.settle()
        world.check(step, is_done=True)
    world.store.close()
print("late:", sorted(set(sys.modules) - before))
"""


def run(*arguments: str) -> str:
    """Run programs in processes of their own."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=7200 if IS_WHOLE else 300,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    return done.stdout


def test_a_shortage_breaks_no_promise() -> None:
    """What failed was not done, what was acknowledged stays, and the store works on."""
    seed = str(random.SystemRandom().randrange(2**31))
    output = run("-m", "stress.exhaustion", "--count", COUNT, "--seed", seed)
    print(*(line for line in output.splitlines() if line.startswith(("seed", COUNT))), sep="\n")


def test_a_changed_engine_is_noticed() -> None:
    """Each of some changes, of which two are made in a short run, breaks a promise soon."""
    count = ("--mutants", "--count", "2000") if IS_WHOLE else ("--mutants=2", "--count", "20")
    print(run("-m", "stress.exhaustion", *count).splitlines()[-1])


def test_an_open_store_imports_nothing_more() -> None:
    """An import opens files: in a process without descriptors it fails, whatever asked for it."""
    output = run("-c", LOADED)
    assert output.splitlines()[-1] == "late: []", output
