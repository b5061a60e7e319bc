"""Run a command where an empty directory is at a path, in a mount namespace of its own."""

from __future__ import annotations

import os
from pathlib import Path


def hiding(path: Path, empty: Path) -> tuple[str, ...]:
    """Give a command that runs another one where an empty directory is at a path."""
    empty.mkdir()
    script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    flags = ("--mount",) if os.geteuid() == 0 else ("--map-root-user", "--mount")
    return ("unshare", *flags, "sh", "-c", script, "sh", str(empty), str(path))
