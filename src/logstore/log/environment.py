"""Hold the objects that all logs of one store share: the clock and the three caches."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol

from logstore.arguments import whole, wrong
from logstore.config import StoreConfig
from logstore.disk import files, mapped, spare
from logstore.errors import LogClosedError
from logstore.log.segments.cache import Cache

# `NOW_MS` names a clock's result in error messages. Every timestamp is less than `NOW_MS_END`.
NOW_MS = "the result of the clock's now_ms(), in ms since the epoch,"
NOW_MS_END = 2**63 - 1

View = Callable[[int, int, int], "bytes | memoryview"]


class Clock(Protocol):
    """Gives the time; tests use a clock that advances only when the test says so."""

    def now_ms(self) -> int:
        """Return the wall-clock time, in ms since the epoch."""
        ...


class SystemClock:
    """Gives the time of the machine's clock."""

    def now_ms(self) -> int:
        """Return the wall-clock time, in ms since the epoch."""
        return time.time_ns() // 1_000_000


class CheckedClock:
    """Checks each time that a user's clock returns, before a record or a file gets this time.

    The store's own clock is not checked, so that appends do not pay for the check.
    """

    def __init__(self, clock: Clock) -> None:
        self._now_ms = clock.now_ms

    def now_ms(self) -> int:
        """Return the wall-clock time, in ms since the epoch. Raises TypeError, ValueError."""
        ms = self._now_ms()
        if type(ms) is int and 0 <= ms < NOW_MS_END:
            return ms
        ms = whole(ms, NOW_MS, 0)
        if ms >= NOW_MS_END:
            raise ValueError(f"{NOW_MS} {ms} is not in 0..{NOW_MS_END - 1} ms since the epoch")
        return ms


def check_clock(clock: Clock) -> None:
    """Raise an error if an object is not a clock; the check calls `now_ms` once.

    A store calls this function before it opens any file.

    Raises:
        TypeError, ValueError: the object has no `now_ms`, or `now_ms` returns no whole number of
            ms.
    """
    if not callable(getattr(clock, "now_ms", None)):
        raise wrong("clock", "an object whose now_ms() gives ms since the epoch", clock)
    CheckedClock(clock).now_ms()


class LogEnvironment:
    """Shares a clock and caches among the logs of a store.

    Attributes:
        handles: open segment files; at most `max_open_files` unused files stay open.
        dirty: the logs with unflushed appends; each of these logs has a descriptor that must stay
            open.
        indexes: index arrays of sealed segments; their total size in bytes is limited.
        blocks: decoded batches for reads of single records; their total size in bytes is limited.
        view: a function that returns the bytes of a file for a large read. The process that owns
            the store maps files. A process that is not the owner uses `pread`, because the owner
            may shorten a file while the file is mapped.
        record_expansion_bytes_max: the most memory that a decoded batch is allowed to need.
        producer_expiration_ms: a log forgets a producer that was not used for this time.
        producers_max: how many producers one log remembers.
        keeps_deletions: whether compaction of a partition must keep all tombstones and markers,
            even if their delete horizon has passed. A cluster sets this function.
        owner_pid: the process that opened the store; a child made by a fork has another pid.
        owner: the store. A log in use refers to the store, and so keeps the store open. If the
            store only reads, the field `owner` is None.
    """

    __slots__ = (
        "blocks",
        "clock",
        "dirty",
        "handles",
        "indexes",
        "keeps_deletions",
        "owner",
        "owner_pid",
        "producer_expiration_ms",
        "producers_max",
        "record_expansion_bytes_max",
        "view",
    )

    def __init__(
        self, config: StoreConfig, clock: Clock | None = None, *, read_only: bool = False
    ) -> None:
        self.clock: Clock = SystemClock() if clock is None else CheckedClock(clock)
        self.handles = Cache(config.max_open_files)
        spare.share(self.handles)
        self.dirty: set[object] = set()
        self.indexes = Cache(config.index_cache_bytes)
        self.blocks = Cache(config.read_cache_bytes)
        self.view: View = files.read_up_to if read_only else mapped.view
        self.record_expansion_bytes_max = config.record_expansion_bytes_max
        self.producer_expiration_ms = config.producer_id_expiration_ms
        self.producers_max = config.producers_max
        self.keeps_deletions: Callable[[str, int], bool] = lambda topic, partition: False
        self.owner_pid = os.getpid()
        self.owner: object = None

    def check_process(self) -> None:
        """Raise LogClosedError in a process that was forked from the owner."""
        if os.getpid() != self.owner_pid:
            raise LogClosedError(reason="the store was opened before this process was forked")
