"""Read a copy of a log that may not be whole; nothing in its directory is changed.

It is read as any log. A call that would write raises ReplicaIncompleteError, with what is known to
be missing, until the copy is promoted.
"""

from __future__ import annotations

from logstore.disk.log_dir import LogDir
from logstore.log.environment import LogEnvironment
from logstore.log.view import LogView, open_view


def open_incomplete(
    log_dir: LogDir, name: str, environment: LogEnvironment, reason: str
) -> LogView:
    """Open the log in the directory `name` for reading only; raises LogStoreError."""
    return open_view(log_dir, name, environment, missing=reason)
