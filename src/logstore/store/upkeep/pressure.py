"""Make room on a full disk: drop the oldest segments of the logs that allow this.

The setting `retention_pressure` of a log allows its segments to be dropped. The age of a segment is
the age of its newest record. The oldest segment of all logs with this setting is dropped first.
When the log dir accepts records again, no more segments are dropped.
"""

from __future__ import annotations

from logstore.disk.calls import call
from logstore.disk.log_dir import LogDir
from logstore.errors import LogStoreError
from logstore.log import host
from logstore.log.log import Log
from logstore.store.replicas import Replicas
from logstore.units import format_count


def relieve(log_dir: LogDir, replicas: Replicas) -> int:
    """Drop segments until a full log dir has room again; return the number of dropped segments.

    Raises:
        OSError: the disk failed. LogStoreError: a log could not drop its segment.
    """
    dropped = 0
    if not log_dir.is_full or log_dir.is_outdated:
        return dropped
    _look_again(log_dir)
    while log_dir.is_full and (log := _with_oldest(replicas.on(log_dir))) is not None:
        if not host.drop_oldest(log):
            break  # the log changed meanwhile: the next turn tries again
        dropped += 1
        _look_again(log_dir)
    if dropped:
        import logging

        text = "%s was full: dropped %s of logs with retention_pressure"
        what = format_count(dropped, "segment")
        logging.getLogger("logstore").warning(text, log_dir.path, what)
    return dropped


def _look_again(log_dir: LogDir) -> None:
    with call(log_dir.path):
        log_dir.refresh_usage()


def _with_oldest(logs: list[Log]) -> Log | None:
    """Find the log with the oldest segment that may be dropped."""
    found: tuple[int, Log] | None = None
    for log in logs:
        try:
            oldest_ms = host.oldest_under_pressure(log)
        except LogStoreError:
            continue  # the log cannot be used now
        if oldest_ms is not None and (found is None or oldest_ms < found[0]):
            found = oldest_ms, log
    return None if found is None else found[1]
