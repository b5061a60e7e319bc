"""Keep the groups of one partition of `__consumer_offsets`.

    NEW       nothing was read yet, or the log failed: the next request begins the loading
    LOADING   a thread reads the log, after all its records are replicated
    READY     requests are answered
    LEAVING   the log has failed, or another broker leads: a thread ends the groups; then it is NEW

The groups in memory always agree with the log. If an append fails, the contents of the log are not
known. So the groups are read again as soon as the log can be read.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from broker.catalog.client_appends import Wait
from broker.catalog.leadership import NotServedError
from broker.consumer_groups.exchange import ConsumerSettings
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.group_logs import GroupLog
from broker.coordinator.hosted import Hosted
from broker.coordinator.loading import load
from broker.groups.exchange import Now
from broker.groups.group import Group, GroupSettings
from broker.machines.exchange import Scheduler
from broker.wire.error_codes import ErrorCode
from logstore import LogDirFullError, LogStoreError, RecordTooLargeError

LOG = logging.getLogger("broker")
LOADING_SECONDS = 0.1  # how long a request waits for the loading; enough for a short log
RETRY_SECONDS = 1.0  # the shortest time between a failed loading and the next loading
# How long a loading waits between two looks whether all records are replicated; each wait doubles.
SETTLE_SECONDS, SETTLE_SECONDS_MAX = 0.01, 0.5
NO_LONGER_LED = "this broker does not lead the partition any more"


class Phase(enum.Enum):
    """The state of a shard."""

    NEW = enum.auto()
    LOADING = enum.auto()
    READY = enum.auto()
    LEAVING = enum.auto()


class Shard:
    """The groups of one partition.

    Threads: `_lock` guards the phase and the list of groups, and is held only briefly. A thread may
    take `_lock` while it holds the lock of a group, but not the other way round.

    Args:
        find_log: finds this partition; see `GroupLogs.open`.
        draw_id: returns a new member id that begins with a given prefix.
        on_loaded: called with the groups that were loaded.
    """

    def __init__(
        self,
        find_log: Callable[[], GroupLog],
        settings: GroupSettings,
        draw_id: Callable[[str], str],
        now: Callable[[], Now],
        scheduler: Scheduler,
        on_loaded: Callable[[Shard, Sequence[Hosted]], None],
        consumers: ConsumerSettings,
    ) -> None:
        self._find_log = find_log
        self._settings = settings
        self._draw_id = draw_id
        self._now = now
        self._scheduler = scheduler
        self._on_loaded = on_loaded
        self._consumers = consumers
        self._lock = threading.Lock()
        self._groups: dict[str, Hosted] = {}
        self._retry_at = 0.0
        self._log: GroupLog | None = None
        self._settle_seconds = SETTLE_SECONDS
        self._complaint = ""  # the reason in the last warning that the log cannot be read
        self._loaded = threading.Event()  # set while nothing is being loaded
        self.phase = Phase.NEW

    # --- groups ---------------------------------------------------------------------------------

    def get(self, name: str) -> Hosted | None:
        """Find a group.

        Raises:
            CoordinatorError: the groups are not loaded.
        """
        self.require()
        with self._lock:
            return self._ready_groups().get(name)

    def get_or_add(self, name: str, groups_max: int) -> Hosted:
        """Find a group, or create a group without members.

        Raises:
            CoordinatorError: the groups are not loaded, or there are too many groups.
        """
        self.require()
        with self._lock:
            groups = self._ready_groups()
            hosted = groups.get(name)
            if hosted is None:
                if len(groups) >= groups_max:
                    raise CoordinatorError(ErrorCode.GROUP_MAX_SIZE_REACHED, "too many groups")
                hosted = Hosted(Group(name, self._settings, self._draw_id, self._now()))
                groups[name] = hosted
            return hosted

    def discard(self, hosted: Hosted) -> None:
        """Forget a group that has ended."""
        with self._lock:
            if self._groups.get(hosted.group.name) is hosted:
                del self._groups[hosted.group.name]

    @property
    def count(self) -> int:
        """How many groups are loaded."""
        return len(self._groups)

    def loaded(self) -> list[Hosted]:
        """Return the groups that are in memory now; this never waits."""
        return list(self._groups.copy().values())

    def all(self) -> list[Hosted]:
        """Return the groups that are loaded.

        Raises:
            CoordinatorError: the groups are not loaded.
        """
        self.require()
        with self._lock:
            return list(self._ready_groups().values())

    def _ready_groups(self) -> dict[str, Hosted]:
        """Return the groups, or raise CoordinatorError; the caller holds `_lock`."""
        if self.phase is not Phase.READY:
            raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self._groups

    # --- the log --------------------------------------------------------------------------------

    def require(self) -> None:
        """Load the groups if needed; raise CoordinatorError if they are not loaded soon."""
        if self._is_ready:
            return
        self.check_leader()
        self.begin_loading()
        self._loaded.wait(LOADING_SECONDS)
        if not self._is_ready:
            if self.phase is Phase.NEW:
                code, reason = ErrorCode.COORDINATOR_NOT_AVAILABLE, "the log cannot be read"
                raise CoordinatorError(code, reason)
            raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    @property
    def _is_ready(self) -> bool:
        return self.phase is Phase.READY and self._log is not None and self._log.is_led

    def check_leader(self) -> None:
        """Forget the groups if another broker may coordinate them now.

        Raises:
            CoordinatorError: this broker does not lead the partition.
        """
        if self.phase is Phase.READY and not self._is_ready:
            self.leave(NO_LONGER_LED)
        with suppress(LogStoreError):  # the loading reports this error
            self._find_log()

    def begin_loading(self) -> None:
        """Begin to load the groups, unless they are loaded, or a loading has just failed."""
        with self._lock:
            if self.phase is not Phase.NEW or self._now().seconds < self._retry_at:
                return
            self.phase = Phase.LOADING
            self._settle_seconds = SETTLE_SECONDS
            self._loaded.clear()
        self._scheduler.submit(self._load)

    def _load(self) -> None:
        """Read the log, or look again soon if records of it may still be lost."""
        groups: dict[str, Hosted] = {}
        try:
            log = self._find_log()
            if not log.is_settled:
                self._load_later()
                return
            log.mend()
            groups = load(log.log, self._settings, self._draw_id, self._now, self._consumers)
        except Exception as error:  # if LOADING never ended, all clients would wait
            if not isinstance(error, CoordinatorError | LogStoreError):
                LOG.exception("groups could not be loaded")
            self._postpone(error)
            is_loaded = False
        else:
            is_loaded = self._take(log, groups)
        if not is_loaded:
            with self._lock:
                self.phase = Phase.NEW
        self._loaded.set()
        if is_loaded:
            self._on_loaded(self, list(groups.values()))

    def _load_later(self) -> None:
        seconds = self._settle_seconds
        self._settle_seconds = min(2 * seconds, SETTLE_SECONDS_MAX)
        self._scheduler.call_at(self._now().seconds + seconds, self._load)

    def _postpone(self, error: Exception) -> None:
        """Try the next loading after a second; report an error of the log if it is a new one."""
        if isinstance(error, CoordinatorError):  # another broker leads, and loads the groups
            return
        self._retry_at = self._now().seconds + RETRY_SECONDS
        if isinstance(error, LogStoreError) and str(error) != self._complaint:
            self._complaint = str(error)
            LOG.warning("groups could not be loaded: %s", error)

    def _take(self, log: GroupLog, groups: dict[str, Hosted]) -> bool:
        """Use the groups that were loaded, unless this broker stopped leading meanwhile.

        If it stops after this look, the change of its role calls `leave`.
        """
        with self._lock:
            if not log.is_led:
                return False
            self._log, self._groups, self._complaint = log, groups, ""
            self.phase = Phase.READY
            return True

    def check_log(self) -> None:
        """Raise CoordinatorError if the log does not serve; otherwise begin to load the groups."""
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
            CoordinatorError: the append failed. If it is unknown whether the log contains the
                records, the groups are read again.
        """
        log = self._log
        if self.phase is not Phase.READY or log is None:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR)
        try:
            return log.append(keys, values, self._now().wall_ms)
        except RecordTooLargeError as error:
            raise CoordinatorError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, str(error)) from error
        except LogDirFullError as error:
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        except BaseException as error:
            if _is_refused(error):
                raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
            self.leave(str(error))
            if not isinstance(error, LogStoreError):
                raise
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR, str(error)) from error

    def has(self, hosted: Hosted) -> bool:
        """Report whether a group is one of those that are loaded."""
        return self._groups.get(hosted.group.name) is hosted

    def role_changed(self) -> None:
        """Forget the groups if this broker stopped leading, and load them if it began to lead.

        This method never waits for a group or a disk.
        """
        if self.phase is Phase.READY and not self._is_ready:
            self.leave(NO_LONGER_LED)
        try:
            self._find_log()
        except (CoordinatorError, LogStoreError):
            return
        self.begin_loading()

    def leave(self, reason: str) -> None:
        """Forget the groups; the next request reads them again."""
        with self._lock:
            if self.phase is not Phase.READY:
                return
            self.phase = Phase.LEAVING
            groups, self._groups = list(self._groups.values()), {}
        if groups:
            level = logging.INFO if reason == NO_LONGER_LED else logging.WARNING
            LOG.log(level, "%d groups are forgotten: %s", len(groups), reason)
        self._scheduler.submit(lambda: self._end(groups, is_led=reason != NO_LONGER_LED))

    def _end(self, groups: Sequence[Hosted], *, is_led: bool) -> None:
        late = [hosted for hosted in groups if not self._end_one(hosted, is_blocking=False)]
        for hosted in late:  # a thread that waits for a disk may hold the group's lock
            self._end_one(hosted, is_blocking=True)
        with self._lock:
            self.phase = Phase.NEW
        if not is_led:  # it may lead again by now
            self.role_changed()

    def _end_one(self, hosted: Hosted, *, is_blocking: bool) -> bool:
        if not hosted.lock.acquire(blocking=is_blocking):
            return False
        try:
            hosted.end(ErrorCode.NOT_COORDINATOR, self._now())
            hosted.drop_writes(ErrorCode.NOT_COORDINATOR)
        finally:
            hosted.lock.release()
        return True


def _is_refused(error: BaseException) -> bool:
    """Report whether nothing was written, because too few replicas are in sync."""
    return isinstance(error, NotServedError) and error.code is ErrorCode.NOT_ENOUGH_REPLICAS
