"""Change a log's configuration while the log is in use: first store it durably, then apply it.

Both locks of the log are held during the change. So an append that holds a lock sees either the old
or the new configuration. But an append encodes its batch before it takes a lock. If the
configuration changes after the encoding, the encoded batch is stored without a change
(`appending.append_payload`). A segment has batches of one layout. So after a change of
`record_format`, the next append begins a new segment.
"""

from __future__ import annotations

from collections.abc import Callable

from logstore.config import LogConfig
from logstore.log.state import LogState
from logstore.log.write.flush import set_metadata
from logstore.log.write.hung_locks import held
from logstore.log.write.rules import NEVER, AppendRules, require_layout


def set_config(state: LogState, change: Callable[[LogConfig], LogConfig]) -> LogConfig:
    """Replace the configuration of a log durably, apply the new configuration, and return it.

    Args:
        change: a function that gets the old configuration and returns the new configuration. If
            the new configuration is wrong, `change` raises an error.

    Raises:
        LogStoreError: the log refuses appends, or its disk failed. The old configuration stays in
            force.
        UnsupportedFormatError: a library that the new configuration needs is not installed.
    """
    with state.flush_lock, state.lock, held(state, "flush_lock", "lock"):
        state.check_writable()
        old = state.config
        new = change(old)
        extra = state.metadata.with_config(new).extra
        if new == old and extra == state.metadata.extra:
            return old
        require_layout(new, state.directory)
        try:
            set_metadata(state, config=new, extra=extra)
        finally:  # an interrupt may come after the file was written
            if state.config is new:
                _put_in_force(state, new)
    return new


def _put_in_force(state: LogState, config: LogConfig) -> None:
    """Set the fields that are derived from the configuration; the caller must hold both locks."""
    active, magic = state.active, state.foreign_magic or state.rules.magic
    state.rules = AppendRules(config, state.environment.record_expansion_bytes_max)
    state.foreign_magic = magic if active.size_bytes and magic != state.rules.magic else 0
    # The next append first removes the files of an interrupted write or roll (see `roll`).
    state.room_bytes = 0 if state.half_made else state.room_in(active, state.foreign_magic)
    state.roll_at_ms = NEVER
    if active.size_bytes:
        begun_ms = state.now_ms() if active.first_time_ms is None else active.first_time_ms
        state.roll_at_ms = state.roll_time(begun_ms)
    if state.flush_at:  # 0 means that the next append flushes
        state.count_from_flushed()
