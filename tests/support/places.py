"""Give the suites a fast directory of their own and the environment of a child interpreter."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")


@contextlib.contextmanager
def fast_directory() -> Iterator[Path]:
    """Make a directory in memory where the machine has such a place, and remove it again."""
    parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="logstore-test-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def environment() -> dict[str, str]:
    """Give a child interpreter this one's import path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
