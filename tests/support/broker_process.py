"""Run a broker in a process of its own, to be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.places import environment

# How often a test kills; `make kill-broker` sets it.
KILLS = int(os.environ.get("LOGSTORE_BROKER_KILLS", "20"))
TOLD_EVERY = 50
SERVE = """
import sys
from broker import Broker
with Broker.start(sys.argv[1:]) as broker:
    print(broker.bootstrap_servers, flush=True)
    sys.stdin.read()
"""


def serve(paths: list[Path]) -> tuple[subprocess.Popen[str], str]:
    """Start a broker; returns its process, and its address once it serves."""
    child = subprocess.Popen(
        [sys.executable, "-c", SERVE, *map(str, paths)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True,
    )  # fmt: skip
    assert child.stdout is not None
    return child, child.stdout.readline().strip()


def tell(turn: int, seed: int, done: int) -> None:
    """Print how far a long run is."""
    if (turn + 1) % TOLD_EVERY == 0:
        print(f"{turn + 1} of {KILLS} kills, {done} acknowledged, seed {seed}", flush=True)


def processes_in(directory: Path) -> list[str]:
    """List the processes whose command line names a directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace")
        except OSError:
            continue  # it has ended
        if str(directory) in words:
            found.append(words)
    return found
