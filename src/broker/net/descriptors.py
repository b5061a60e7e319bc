"""Let the process of a broker open as many files as the system allows, as the JVM does.

    soft limit -> raised to the hard limit; if that is still small, fewer files are cached

Only the command `logstore broker` changes the limit. If a program embeds a broker, its limit does
not change.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import NamedTuple

# Log dirs, listeners, libraries and at least a hundred clients need this many descriptors.
OTHER_FILES = 256
# Each written segment that waits for a flush has a descriptor, too.
# There are at most as many segments that wait for a flush as cached files.
FILES_PER_CACHED = 2
CACHED_MIN = 16
UNLIMITED_FILES = 1 << 30


class FileLimit(NamedTuple):
    """The number of files that the process may open.

    Attributes:
        cached_files_max: how many segment files the store may keep open.
        warning: a warning for the operator; "" if the limit is large enough.
    """

    limit: int
    cached_files_max: int
    warning: str


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard limit; return the limit that now applies."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # a container may forbid this
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return UNLIMITED_FILES if soft == resource.RLIM_INFINITY else soft


def fit(limit: int, max_open_files: int) -> FileLimit:
    """Decide how many segment files a process with this limit may cache.

    Args:
        limit: how many files the process may open.
        max_open_files: how many segment files the settings allow.
    """
    room = max((limit - OTHER_FILES) // FILES_PER_CACHED, CACHED_MIN)
    if room >= max_open_files:
        return FileLimit(limit, max_open_files, "")
    warning = (
        f"this process may open only {limit} files, so the store keeps {room} segment files open, "
        f"and not max_open_files={max_open_files}; with many partitions or clients, raise the hard "
        "limit (ulimit -Hn, or LimitNOFILE of systemd)"
    )
    return FileLimit(limit, room, warning)
