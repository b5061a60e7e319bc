"""Read a copy of a log that may not be whole; nothing in its directory is changed.

It is read as any log. A call that would write raises ReplicaIncompleteError, with what is known to
be missing, until the copy is promoted.
"""

from __future__ import annotations

from typing import NoReturn

from logstore.disk.log_dir import LogDir
from logstore.errors import ReplicaIncompleteError
from logstore.log.environment import LogEnvironment
from logstore.log.view import LogView, open_view


class IncompleteLog(LogView):
    """The log in a `.move` or `.delete` directory that has no live copy."""

    reason = ""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Refuse to write: records are missing, and their offsets would be given twice."""
        raise ReplicaIncompleteError(topic=self.topic, partition=self.partition, reason=self.reason)

    append = extend = append_arrow = appender = append_as_follower = append_encoded = _refuse
    flush = truncate_to = delete_records_before = repair = apply_retention = _set_config = _refuse


def open_incomplete(
    log_dir: LogDir, name: str, environment: LogEnvironment, reason: str
) -> IncompleteLog:
    """Open the log in the directory `name` for reading only; raises LogStoreError."""
    log = open_view(log_dir, name, environment, IncompleteLog)
    assert isinstance(log, IncompleteLog)
    log.reason = reason
    return log
