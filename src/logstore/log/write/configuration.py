"""Change the configuration of a log that is in use: durable first, then in force.

Both locks of the log are held, so an append sees the old configuration or the new one. Only the
encoding of a batch happens before the lock; a batch that was encoded under the old configuration
is stored as it is (`LogWriter._append_payload`). The segments know their layout, so a change of
`record_format` begins a new one at the next append.
"""

from __future__ import annotations

from collections.abc import Callable

from logstore.config import LogConfig
from logstore.log.write.flush import set_metadata
from logstore.log.write.hung_locks import held
from logstore.log.write_state import NEVER, WriteState, require_layout


def set_config(log: WriteState, change: Callable[[LogConfig], LogConfig]) -> LogConfig:
    """Replace the configuration of a log durably, and put it in force; give the new one.

    Args:
        change: makes the new configuration from the old one, and raises if that is wrong.

    Raises:
        LogStoreError: the log takes no appends, or its disk failed; the old one is in force.
        UnsupportedFormatError: a library that the new one needs is not installed.
    """
    with log._flush_lock, log._lock, held(log, "_flush_lock", "_lock"):
        log._check_writable()
        old = log.config
        new = change(old)
        extra = log._metadata.with_config(new).extra
        if new == old and extra == log._metadata.extra:
            return old
        require_layout(new, log.directory)
        try:
            set_metadata(log, {"config": new, "extra": extra})
        finally:  # also if an interrupt came after it was written
            if log.config is new:
                _put_in_force(log, new)
    return new


def _put_in_force(log: WriteState, config: LogConfig) -> None:
    """Take what is derived from a configuration; both locks are held."""
    active, magic = log._active, log._foreign_magic or log._magic
    log._take_config(config)
    log._foreign_magic = magic if active.size_bytes and magic != log._magic else 0
    # Files of an interrupted write or roll go before anything is appended (see `roll`).
    log._room_bytes = 0 if log._half_made else log._room_in(active, log._foreign_magic)
    log._roll_at_ms = NEVER
    if active.size_bytes and log._segment_ms < NEVER:
        begun_ms = log._now_ms() if active.first_time_ms is None else active.first_time_ms
        log._roll_at_ms = begun_ms + log._segment_ms
    if log._flush_at:  # at 0, the next append flushes whatever the configuration says
        log._count_from_flushed()
