"""Carry what all logs of one store share: the clock and the three caches."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol

from logstore.config import StoreConfig
from logstore.disk import files, mapped
from logstore.errors import LogClosedError
from logstore.log.segments.cache import Cache

View = Callable[[int, int, int], "bytes | memoryview"]


class Clock(Protocol):
    """Tell the time; tests give one that they turn by hand."""

    def now_ms(self) -> int:
        """Give the wall clock, ms since the epoch."""
        ...


class SystemClock:
    """Tell the time of the machine."""

    def now_ms(self) -> int:
        """Give the wall clock, ms since the epoch."""
        return time.time_ns() // 1_000_000


class LogEnvironment:
    """Share a clock and caches among the logs of a store.

    Attributes:
        handles: open segment files, at most `max_open_files` of them beside those in use.
        dirty: the logs with unflushed appends; each holds a descriptor that must stay open.
        indexes: index arrays of sealed segments, by bytes.
        blocks: decoded batches for point reads, by bytes.
        view: how bulk reads look at a file: through maps in the process that owns the store, and
            with `pread` in any other, because the owner may cut a file under its map.
        record_expansion_bytes_max: memory that one batch may need once it is decoded.
        owner_pid: the process that opened the store; a forked child is another one.
        owner: the store, which a log in use keeps open; None of one that only reads.
    """

    __slots__ = (
        "blocks",
        "clock",
        "dirty",
        "handles",
        "indexes",
        "owner",
        "owner_pid",
        "record_expansion_bytes_max",
        "view",
    )

    def __init__(
        self, config: StoreConfig, clock: Clock | None = None, *, read_only: bool = False
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.handles = Cache(config.max_open_files)
        self.dirty: set[object] = set()
        self.indexes = Cache(config.index_cache_bytes)
        self.blocks = Cache(config.read_cache_bytes)
        self.view: View = files.read_up_to if read_only else mapped.view
        self.record_expansion_bytes_max = config.record_expansion_bytes_max
        self.owner_pid = os.getpid()
        self.owner: object = None

    def check_process(self) -> None:
        """Refuse to work in a child forked from the owner (LogClosedError)."""
        if os.getpid() != self.owner_pid:
            raise LogClosedError(reason="the store was opened before this process was forked")
