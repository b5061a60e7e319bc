"""Run a broker in a process of its own, to be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.places import environment

# How often a test kills; `make kill-broker` sets it.
KILLS = int(os.environ.get("LOGSTORE_BROKER_KILLS", "6"))
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
