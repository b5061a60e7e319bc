"""Keep the groups of one partition of `__consumer_offsets`.

    NEW       nothing was read yet, or the log failed: the next request begins the loading
    LOADING   a thread reads the log
    READY     requests are answered
    LEAVING   the log has failed: a thread ends the groups; then the shard is NEW

The groups in memory always agree with the log. If an append fails, the contents of the log are not
known. So the groups are read again as soon as the log can be read.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Sequence

from broker.coordinator.errors import CoordinatorError
from broker.coordinator.hosted import Hosted
from broker.coordinator.loading import load, mend
from broker.groups.exchange import Now
from broker.groups.group import Group, GroupSettings
from broker.wire.error_codes import ErrorCode
from logstore import Log, LogClosedError, LogDirFullError, LogStoreError, RecordTooLargeError

LOG = logging.getLogger("broker")
LOADING_SECONDS = 0.1  # how long a request waits for the loading; enough for a short log
RETRY_SECONDS = 1.0  # the shortest time between a failed loading and the next loading


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
        find_log: returns the log of this partition, or raises LogStoreError.
        draw_id: returns a new member id that begins with a given prefix.
        submit: calls a task in a thread.
        on_loaded: called with the groups that were loaded.
    """

    def __init__(
        self,
        find_log: Callable[[], Log],
        settings: GroupSettings,
        draw_id: Callable[[str], str],
        now: Callable[[], Now],
        submit: Callable[[Callable[[], None]], None],
        on_loaded: Callable[[Shard, Sequence[Hosted]], None],
    ) -> None:
        self._find_log = find_log
        self._settings = settings
        self._draw_id = draw_id
        self._now = now
        self._submit = submit
        self._on_loaded = on_loaded
        self._lock = threading.Lock()
        self._groups: dict[str, Hosted] = {}
        self._retry_at = 0.0
        self._log: Log | None = None
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
        self.begin_loading()
        self._loaded.wait(LOADING_SECONDS)
        if not self._is_ready:
            if self.phase is Phase.NEW:
                code, reason = ErrorCode.COORDINATOR_NOT_AVAILABLE, "the log cannot be read"
                raise CoordinatorError(code, reason)
            raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    @property
    def _is_ready(self) -> bool:
        return self.phase is Phase.READY

    def begin_loading(self) -> None:
        """Begin to load the groups, unless they are loaded, or a loading has just failed."""
        with self._lock:
            if self.phase is not Phase.NEW or self._now().seconds < self._retry_at:
                return
            self.phase = Phase.LOADING
            self._loaded.clear()
        self._submit(self._load)

    def _load(self) -> None:
        try:
            log = self._find_log()
            mend(log)
            groups = load(log, self._settings, self._draw_id, self._now)
        except Exception as error:  # if LOADING never ended, all clients would wait
            if not isinstance(error, LogStoreError):
                LOG.exception("groups could not be loaded")
            elif str(error) != self._complaint:  # a failed loading is tried again each second
                self._complaint = str(error)
                LOG.warning("groups could not be loaded: %s", error)
            with self._lock:
                self._retry_at = self._now().seconds + RETRY_SECONDS
                self.phase = Phase.NEW
        else:
            with self._lock:
                self._log, self._groups, self._complaint = log, groups, ""
                self.phase = Phase.READY
            self._on_loaded(self, list(groups.values()))
        finally:
            self._loaded.set()

    def check_log(self) -> None:
        """Raise CoordinatorError if the log does not serve; otherwise begin to load the groups."""
        try:
            self._find_log()
        except LogStoreError as error:
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        self.begin_loading()

    def append(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Append records as one batch: all of them or none.

        Raises:
            CoordinatorError: the append failed. If it is unknown whether the log contains the
                records, the groups are read again.
        """
        if self.phase is not Phase.READY:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR)
        try:
            log = self._find_log()
            if log is not self._log:  # its log dir has returned, and may have lost records
                raise LogClosedError(f"{log} was opened again")
            log.extend(values, keys=keys, timestamps=self._now().wall_ms)
        except RecordTooLargeError as error:
            raise CoordinatorError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, str(error)) from error
        except LogDirFullError as error:
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        except BaseException as error:
            self.leave(str(error))
            if not isinstance(error, LogStoreError):
                raise
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR, str(error)) from error

    def leave(self, reason: str) -> None:
        """Forget the groups; the next request reads them again."""
        with self._lock:
            if self.phase is not Phase.READY:
                return
            self.phase = Phase.LEAVING
            groups, self._groups = list(self._groups.values()), {}
        LOG.warning("groups are read again, because their log failed: %s", reason)
        self._submit(lambda: self._end(groups))

    def _end(self, groups: Sequence[Hosted]) -> None:
        late = [hosted for hosted in groups if not self._end_one(hosted, is_blocking=False)]
        for hosted in late:  # a thread that waits for a disk may hold the group's lock
            self._end_one(hosted, is_blocking=True)
        with self._lock:
            self.phase = Phase.NEW

    def _end_one(self, hosted: Hosted, *, is_blocking: bool) -> bool:
        if not hosted.lock.acquire(blocking=is_blocking):
            return False
        try:
            hosted.end(ErrorCode.NOT_COORDINATOR, self._now())
        finally:
            hosted.lock.release()
        return True
