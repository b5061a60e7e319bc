"""Print the warnings of a process that serves: each with its time, its level and its logger.

    2026-11-28T11:22:33.123Z WARNING cluster: ZooKeeper does not answer; ...

A command prints each warning once (`warnings_once`). A process that runs for weeks prints each
warning each time, because a disk may fail a second time for the same reason.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from logstore.cli import warnings_once


class _Lines(logging.Formatter):
    """Begin a line with the time in UTC."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


@contextmanager
def log_lines() -> Iterator[None]:
    """Print all warnings on stderr. Use this in a command that serves until a signal."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    with warnings_once.paused():
        root.addHandler(handler)
        try:
            yield
        finally:
            root.removeHandler(handler)
