"""Ctrl-C at random, over every public operation: no disk is blamed, nothing hangs, nothing is lost.

`make interrupts` runs 10,000 of them, and every mutant.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

from support.places import environment

COUNT = os.environ.get("LOGSTORE_INTERRUPTS", "600")
IS_WHOLE = "LOGSTORE_INTERRUPTS" in os.environ


def run(*arguments: str) -> str:
    """Run the programs in a process of their own, whose timer and signals are theirs."""
    done = subprocess.run(
        [sys.executable, "-m", "stress.interrupts", *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=3600 if IS_WHOLE else 240,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    return done.stdout


def test_interrupted_operations_keep_every_promise() -> None:
    """Each is done or not, the store is closed in order, and every log is what the model has."""
    output = run("--count", COUNT, "--seed", str(random.SystemRandom().randrange(2**31)))
    print(*(line for line in output.splitlines() if line.startswith(("seed", COUNT))), sep="\n")


def test_a_changed_engine_is_noticed() -> None:
    """Each of some changes, of which two are made in a short run, breaks a promise soon."""
    count = ("--mutants", "--count", COUNT) if IS_WHOLE else ("--mutants=2", "--count", "400")
    print(run(*count).splitlines()[-1])
