"""Keep the groups, or the transactional ids, of one partition in memory.

    NEW       nothing was read yet, or the log failed: the next request begins a loading
    LOADING   a thread reads the log, after all its records are replicated
    READY     requests are answered
    LEAVING   the log failed, or another broker leads: a thread ends the entries; NEW follows

The entries (groups or transactional ids) in memory must always agree with the log. If the log
refuses records of an entry, it has not changed, so only this entry undoes its change. If it is not
known whether the log has the records, the log is read again as soon as possible.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, Protocol, TypeVar

from broker.catalog.client_appends import Wait
from broker.coordinator.errors import OF_PRODUCER, CoordinatorError, write_refusal
from broker.coordinator.group_logs import GroupLog
from broker.groups.exchange import Now
from broker.machines.exchange import Scheduler
from broker.wire.error_codes import ErrorCode
from logstore import Log, LogStoreError

LOG = logging.getLogger("broker")
LOADING_SECONDS = 0.1  # a request waits this long for the loading; enough for a short log
RETRY_SECONDS = 1.0  # the shortest time between a failed loading and the next loading
# The log is read only after all its records are replicated, which is checked at intervals.
# The first and the longest interval; each interval is twice as long as the previous interval.
SETTLE_SECONDS, SETTLE_SECONDS_MAX = 0.01, 0.5
NO_LONGER_LED = "this broker no longer leads the partition"


class Phase(enum.Enum):
    """The state of a shard."""

    NEW = enum.auto()
    LOADING = enum.auto()
    READY = enum.auto()
    LEAVING = enum.auto()


class Entry(Protocol):
    """A group or a transactional id, with its lock."""

    lock: threading.Lock

    @property
    def name(self) -> str:
        """The group id or the transactional id."""

    def end(self, code: ErrorCode, now: Now) -> None:
        """End the entry, with an error for waiting requests. The caller must hold the lock."""

    def drop_writes(self, code: ErrorCode) -> None:
        """Send an error to requests that wait for replicas; the caller must hold the lock."""


One = TypeVar("One", bound=Entry)


class Kind(NamedTuple, Generic[One]):
    """The settings and functions that differ between groups and transactional ids.

    Attributes:
        title: how messages call the entries.
        load: reads the entries of a log; raises LogStoreError.
        make: makes a new entry.
        too_many: the error if there are too many entries.
        too_large: the error if the records of an entry are too large for the log.
        producers_of: the ids of the producers whose open transactions change an entry.
    """

    title: str
    load: Callable[[Log], dict[str, One]]
    make: Callable[[str], One]
    too_many: ErrorCode
    too_large: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    producers_of: Callable[[One], Iterable[int]] = lambda entry: ()


class Shard(Generic[One]):
    """The entries of one partition.

    Threads: `_lock` guards the phase and the list of entries, and is held only for a short time. A
    thread that holds the lock of an entry may take `_lock`. A thread that holds `_lock` must not
    take the lock of an entry.

    Args:
        find_log: a function that finds this partition; see `GroupLogs.open`.
        on_loaded: this function gets the loaded entries.
    """

    def __init__(
        self,
        find_log: Callable[[], GroupLog],
        kind: Kind[One],
        now: Callable[[], Now],
        scheduler: Scheduler,
        on_loaded: Callable[[Shard[One], Sequence[One]], None],
    ) -> None:
        self._find_log = find_log
        self._kind = kind
        self._now = now
        self._scheduler = scheduler
        self._on_loaded = on_loaded
        self._lock = threading.Lock()
        self._entries: dict[str, One] = {}
        self._by_producer: dict[int, dict[str, One]] = {}  # a marker finds its entries in this dict
        self._retry_at = 0.0
        self._log: GroupLog | None = None
        self._settle_seconds = SETTLE_SECONDS
        self._complaint = ""  # the reason in the latest warning in the log
        self._loaded = threading.Event()  # this event is set while nothing is being loaded
        self.phase = Phase.NEW

    # --- entries --------------------------------------------------------------------------------

    def get(self, name: str) -> One | None:
        """Find an entry.

        Raises:
            CoordinatorError: the entries are not loaded.
        """
        self.require()
        with self._lock:
            return self._ready_entries().get(name)

    def get_or_add(self, name: str, entries_max: int) -> One:
        """Find an entry, or make a new entry.

        Raises:
            CoordinatorError: the entries are not loaded, or there are too many entries.
        """
        self.require()
        with self._lock:
            entries = self._ready_entries()
            found = entries.get(name)
            if found is None:
                if len(entries) >= entries_max:
                    raise CoordinatorError(self._kind.too_many, f"too many {self._kind.title}")
                found = entries[name] = self._kind.make(name)
            return found

    def discard(self, entry: One) -> None:
        """Forget an entry that has ended."""
        with self._lock:
            if self._entries.get(entry.name) is entry:
                del self._entries[entry.name]

    @property
    def count(self) -> int:
        """The number of loaded entries."""
        return len(self._entries)

    def loaded(self) -> list[One]:
        """Return the entries that are in memory now. This never waits."""
        return list(self._entries.copy().values())

    def all(self) -> list[One]:
        """Return the entries that are loaded.

        Raises:
            CoordinatorError: the entries are not loaded.
        """
        self.require()
        with self._lock:
            return list(self._ready_entries().values())

    def of_producer(self, producer_id: int) -> list[One]:
        """Return the entries that a producer's open transaction changes. Raises as `all` does."""
        self.require()
        with self._lock:
            self._ready_entries()
            return list(self._by_producer.get(producer_id, {}).values())

    def note_producer(self, entry: One, producer_id: int) -> None:
        """Remember whether an open transaction changes an entry. The caller locks the entry."""
        is_changed = producer_id in self._kind.producers_of(entry)
        with self._lock:
            if self._entries.get(entry.name) is not entry:
                return
            found = self._by_producer.setdefault(producer_id, {})
            found.pop(entry.name, None)
            if is_changed:
                found[entry.name] = entry
            if not found:
                del self._by_producer[producer_id]

    def _ready_entries(self) -> dict[str, One]:
        """Return the entries, or raise CoordinatorError. The caller must hold `_lock`."""
        if self.phase is not Phase.READY:
            raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self._entries

    def require(self) -> None:
        """If needed, load the entries; raise CoordinatorError if this takes too long."""
        if self.is_ready:
            return
        self.check_leader()
        self.begin_loading()
        self._loaded.wait(LOADING_SECONDS)
        if not self.is_ready:
            if self.phase is Phase.NEW:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                raise CoordinatorError(code, "the log cannot be read")
            raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    @property
    def is_ready(self) -> bool:
        """Whether the entries are loaded, and certainly no other broker coordinates them."""
        return self.phase is Phase.READY and self._log is not None and self._log.is_led

    def check_leader(self) -> None:
        """If another broker may coordinate the entries now, forget them.

        Raises:
            CoordinatorError: this broker does not lead the partition.
        """
        if self.phase is Phase.READY and not self.is_ready:
            self.leave(NO_LONGER_LED)
        with suppress(LogStoreError):  # the loading reports this error
            self._find_log()

    def begin_loading(self) -> None:
        """Begin to load the entries, unless they are loaded or a loading has just failed."""
        with self._lock:
            if self.phase is not Phase.NEW or self._now().seconds < self._retry_at:
                return
            self.phase = Phase.LOADING
            self._settle_seconds = SETTLE_SECONDS
            self._loaded.clear()
        self._scheduler.submit(self._load)

    def _load(self) -> None:
        """If all records of the log are replicated, read it; otherwise, check again soon."""
        entries: dict[str, One] = {}
        try:
            log = self._find_log()
            if not log.is_settled:
                self._load_later()
                return
            log.mend()
            entries = self._kind.load(log.log)
        except Exception as error:  # otherwise, LOADING would never end
            if not isinstance(error, CoordinatorError | LogStoreError):
                LOG.exception("%s could not be loaded", self._kind.title)
            self._postpone(error)
            is_loaded = False
        else:
            is_loaded = self._take(log, entries)
        if not is_loaded:
            with self._lock:
                self.phase = Phase.NEW
        self._loaded.set()
        if is_loaded:
            self._on_loaded(self, list(entries.values()))

    def _load_later(self) -> None:
        seconds = self._settle_seconds
        self._settle_seconds = min(2 * seconds, SETTLE_SECONDS_MAX)
        self._scheduler.call_at(self._now().seconds + seconds, self._load)

    def _postpone(self, error: Exception) -> None:
        """Try the next loading after a second. If the error is new, log a warning."""
        if isinstance(error, CoordinatorError):  # another broker leads now
            return
        self._retry_at = self._now().seconds + RETRY_SECONDS
        if isinstance(error, LogStoreError) and str(error) != self._complaint:
            self._complaint = str(error)
            LOG.warning("%s could not be loaded: %s", self._kind.title, error)

    def _take(self, log: GroupLog, entries: dict[str, One]) -> bool:
        """Use the loaded entries, unless this broker no longer leads.

        If this broker stops leading after this check, the change of its role calls `leave`.
        """
        by_producer: dict[int, dict[str, One]] = {}
        for entry in entries.values():
            for producer_id in self._kind.producers_of(entry):
                by_producer.setdefault(producer_id, {})[entry.name] = entry
        with self._lock:
            if not log.is_led:
                return False
            self._log, self._entries, self._complaint = log, entries, ""
            self._by_producer = by_producer
            self.phase = Phase.READY
            return True

    def check_log(self) -> None:
        """If the log cannot be used, raise CoordinatorError. Otherwise, begin to load."""
        try:
            self._find_log()
        except LogStoreError as error:
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        self.begin_loading()

    def append(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> Wait | None:
        """Append records as one batch: all of them or none.

        Returns:
            A wait, if other replicas do not have the records yet.

        Raises:
            WriteRefusedError: the log has not changed.
            CoordinatorError: it is unknown whether the log has the records, or this broker no
                longer leads. All entries are read again.
        """
        return self.write(lambda log: log.append(keys, values, self._now().wall_ms))

    def write(self, append: Callable[[GroupLog], Wait | None]) -> Wait | None:
        """Let a function append to the log; see `append`."""
        log = self._log
        if self.phase is not Phase.READY or log is None:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR)
        try:
            return append(log)
        except BaseException as error:
            if (refusal := write_refusal(error, self._kind.too_large)) is not None:
                raise refusal from error
            if isinstance(error, OF_PRODUCER):  # nothing was written
                raise
            self.leave(str(error))
            if not isinstance(error, LogStoreError):
                raise
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR, str(error)) from error

    @property
    def epoch(self) -> int:
        """The epoch in which this broker coordinates the partition, or -1."""
        log = self._log
        return -1 if log is None else log.epoch

    @property
    def log(self) -> Log:
        """The log of the partition.

        Raises:
            CoordinatorError: the entries are not loaded.
        """
        self.require()
        log = self._log
        if log is None:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR)
        return log.log

    def has(self, entry: One) -> bool:
        """Report whether an entry is loaded."""
        return self._entries.get(entry.name) is entry

    def role_changed(self) -> None:
        """If this broker no longer leads, forget the entries. If it now leads, load them.

        This method never waits for an entry or a disk.
        """
        if self.phase is Phase.READY and not self.is_ready:
            self.leave(NO_LONGER_LED)
        try:
            self._find_log()
        except (CoordinatorError, LogStoreError):
            return
        self.begin_loading()

    def leave(self, reason: str) -> None:
        """Forget the entries, so that the next request reads them again."""
        with self._lock:
            if self.phase is not Phase.READY:
                return
            self.phase = Phase.LEAVING
            entries, self._entries = list(self._entries.values()), {}
            self._by_producer = {}
        if entries:
            level = logging.INFO if reason == NO_LONGER_LED else logging.WARNING
            LOG.log(level, "%d %s are forgotten: %s", len(entries), self._kind.title, reason)
        self._scheduler.submit(lambda: self._end(entries, is_led=reason != NO_LONGER_LED))

    def _end(self, entries: Sequence[One], *, is_led: bool) -> None:
        late = [one for one in entries if not self._end_one(one, is_blocking=False)]
        for one in late:  # a thread that waits for a disk may hold the entry's lock
            self._end_one(one, is_blocking=True)
        with self._lock:
            self.phase = Phase.NEW
        if not is_led:  # this broker may lead again now
            self.role_changed()

    def _end_one(self, one: One, *, is_blocking: bool) -> bool:
        if not one.lock.acquire(blocking=is_blocking):
            return False
        try:
            one.end(ErrorCode.NOT_COORDINATOR, self._now())
            one.drop_writes(ErrorCode.NOT_COORDINATOR)
        finally:
            one.lock.release()
        return True
