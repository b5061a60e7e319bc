"""Have Spark and its Python workers on one machine talk over Unix sockets.

They carry records by a fifth faster than loopback does. Whoever reaches one is not asked for a
secret, so they stand in a directory that is this user's alone, one for each process.
"""

from __future__ import annotations

import atexit
import os
import time
from contextlib import suppress
from functools import cache

from logstore.disk import files
from logstore.store.admin_place import ADDRESS_BYTES_MAX, private_dir

PREFIX = "spark-"
NAME_BYTES = 48  # of the names that Spark gives to sockets
# A session that runs has sockets in its directory from its first second on.
EMPTY_SECONDS_MAX = 60


@cache
def unix_sockets() -> dict[str, str]:
    """Make a directory for sockets and give the settings with which Spark uses them.

    None where no directory can be made, or where its path would be too long for an address.
    """
    try:
        parent = private_dir()
        path = os.path.join(parent, f"{PREFIX}{os.urandom(6).hex()}")
        if len(os.fsencode(path)) + NAME_BYTES > ADDRESS_BYTES_MAX:
            return {}
        _sweep(parent)
        files.mkdir(path, 0o700)
    except OSError:
        return {}
    atexit.register(_remove, path, os.getpid())
    name = "spark.python.unix.domain.socket"
    return {
        f"{name}.enabled": "true",
        f"{name}.dir": path,
        "spark.python.daemon.module": "logstore.spark.daemon",
    }


def _sweep(parent: str) -> None:
    """Remove the empty directories that killed processes left; Spark's own end takes sockets."""
    old_ns = time.time_ns() - EMPTY_SECONDS_MAX * 1_000_000_000
    for entry in files.entries(parent):
        if entry.name.startswith(PREFIX) and entry.is_dir and entry.mtime_ns < old_ns:
            with suppress(OSError):
                files.rmdir(os.path.join(parent, entry.name))


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:  # and not a child that it forked
        with suppress(OSError):
            files.remove_tree(path)
