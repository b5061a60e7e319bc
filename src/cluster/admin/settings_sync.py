"""Apply the settings of topics in the coordination store to the logs of this broker.

Each change of settings creates a notice in `/config/changes`, as in Kafka. Each broker watches only
this znode, so the work does not grow with the number of topics. In three cases, a broker reads the
settings of all its topics: at its start, after a log dir has returned, and if a notice was deleted
before the broker read it.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from broker.catalog.setting_changes import NO_LIMIT
from broker.catalog.settings import KEYS, field_of
from broker.coordination.errors import CoordinationError, NoNodeError
from broker.coordination.verbs import Session
from cluster import znodes
from cluster.admin.setting_texts import Usable, usable
from cluster.disks.dir_workers import DirWorkers
from cluster.errors import BadZnodeError
from logstore import (
    Log,
    LogClosedError,
    LogConfig,
    LogStore,
    LogStoreError,
    StoreEvent,
    StoreEventKind,
    UnknownPartitionError,
)

LOG = logging.getLogger("cluster")
NOTICES_KEPT = 1000
RETRY_SECONDS = 1.0
CLOSE_SECONDS = 5.0
POLICY, LIMITS = "cleanup.policy", ("retention.bytes", "retention.ms")
REPLICA_IS_NEW = StoreEventKind.REPLICA_CREATED, StoreEventKind.REPLICA_MOVED
DIR_IS_GONE = StoreEventKind.LOG_DIR_OFFLINE, StoreEventKind.LOG_DIR_REMOVED
AGAIN_SECONDS = 30.0  # if a change of a log's settings fails, it is tried again after this time


def drop_old_notices(session: Session) -> None:
    """Delete the oldest notices; at most `NOTICES_KEPT` notices stay."""
    for name in session.children(znodes.SETTING_NOTICES)[:-NOTICES_KEPT]:
        with suppress(NoNodeError):  # another broker has just deleted the notice
            session.delete(f"{znodes.SETTING_NOTICES}/{name}")


OnTexts = Callable[[str, Mapping[str, str]], object]


class Place(NamedTuple):
    """A replica in one log dir. A replica that is created again elsewhere has another place."""

    log_dir: str
    topic_id: bytes
    topic: str
    partition: int


class Task:
    """The newest settings that the thread of a log dir has to apply to a log."""

    __slots__ = ("wanted",)

    def __init__(self, wanted: Usable) -> None:
        self.wanted = wanted


class SettingsSync:
    """Watch the settings of topics for the logs of one broker.

    Threads: any thread may call any method. One thread reads the store. Each log dir has a thread
    that changes the logs in this log dir. So if a disk hangs, only the logs on this disk wait. If
    the log dir fails or is removed, its tasks are dropped, because its thread may hang for ever.

    Attributes:
        on_texts: this function gets the settings of a topic, as texts, when they have been read.
            The caller must set it before `start`.
        on_all_read: this function is called when the settings of all topics have been read.
    """

    def __init__(self, session: Session, store: LogStore, defaults: LogConfig) -> None:
        """Do nothing until `start`.

        Args:
            defaults: this broker's values of the settings that a topic does not set.
        """
        self.on_texts: OnTexts = lambda name, texts: None
        self.on_all_read: Callable[[], object] = lambda: None
        self._session, self._store, self._defaults = session, store, defaults
        self._workers = DirWorkers()
        self._bell = threading.Event()
        self._lock = threading.Lock()  # guards the next five fields
        # what the threads of the log dirs have not applied yet
        self._tasks: dict[Place, Task] = {}
        self._due: set[str] = set()
        self._is_all_due = True
        self._failed: set[str] = set()
        self._is_watching = False
        self._seen: str | None = None  # the newest notice that was read
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="topic-settings", daemon=True)

    def start(self) -> None:
        """Start the thread. Before this call, the cluster's znodes must exist."""
        self._store.add_listener(self._on_event)
        self._thread.start()

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Stop. If a thread waits for the store or for a disk, do not wait for this thread."""
        self._store.remove_listener(self._on_event)
        self._is_closed = True
        self._bell.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        self._workers.close()

    def config_of(self, name: str) -> LogConfig:
        """Return the configuration for the log of a new replica.

        If the settings cannot be read, the log deletes nothing by time or size, because the topic
        may have no limit. If this replica deleted such records and later became the leader, all
        replicas would delete them. The settings are read again after the replica was created.
        """
        try:
            found = self._read(name)
        except CoordinationError as error:
            LOG.warning("the settings of topic %s cannot be read now: %s", name, error)
            found = None
        if found is None:
            LOG.warning("topic %s is created here without limits of time and size at first", name)
            return _without_limits(self._defaults, {POLICY})
        return _without_limits(found.config, found.faults)

    def _read(self, name: str) -> Usable | None:
        """Read the settings of a topic; None if the store has no readable settings."""
        path = znodes.config_path(name)
        try:
            texts = znodes.parse_config(self._session.get(path).data, path)
        except NoNodeError:
            return None
        except BadZnodeError as error:
            LOG.warning("topic %s keeps its present settings: %s", name, error)
            return None
        self.on_texts(name, texts)
        found = usable(texts, self._defaults)
        for fault in found.faults.values():
            LOG.warning("topic %s: a setting is not used: %s", name, fault)
        return found

    # --- what has to be read ----------------------------------------------------------------------

    def _on_event(self, event: StoreEvent) -> None:
        if event.kind in REPLICA_IS_NEW and event.topic is not None:
            # The settings may have changed after they were read and before the replica was created.
            # After a move, the thread of the source log dir may hang.
            # Then this thread may not have applied the settings.
            self._is_due(event.topic)
        elif event.kind in DIR_IS_GONE and event.log_dir is not None:
            self._drop(event.log_dir)
        elif event.kind in (StoreEventKind.LOG_DIR_RETURNED, StoreEventKind.LOG_DIR_ADDED):
            with self._lock:
                self._is_all_due = True
            self._bell.set()

    def _drop(self, log_dir: str) -> None:
        """Forget the tasks of a log dir. If the log dir returns, all topics are read again."""
        with self._lock:
            for place in tuple(self._tasks):
                self._drop_if_in(log_dir, place)
        self._workers.abandon(log_dir)

    def _drop_if_in(self, log_dir: str, place: Place) -> None:
        if place.log_dir == log_dir:
            del self._tasks[place]

    def _is_due(self, *names: str) -> None:
        with self._lock:
            self._due.update(names)
        self._bell.set()

    def watch_again(self, _: object) -> None:
        """Watch in a new session, and read the notices that were written meanwhile."""
        self._on_notice(None)

    def _on_notice(self, _: object) -> None:
        with self._lock:
            self._is_watching = False
        self._bell.set()

    def _read_notices(self) -> None:
        """Find the topics whose settings have changed, and watch for the next change."""
        with self._lock:
            if self._is_watching:
                return
            self._is_watching = True
        try:
            self._read_new_notices()
        except BaseException:  # topics that were not read are read in the next round
            with self._lock:
                self._is_watching = False
            raise

    def _read_new_notices(self) -> None:
        names = self._session.watch_children(znodes.SETTING_NOTICES, self._on_notice)
        seen = self._seen
        if seen is None:  # at the start, read all topics
            self._seen = names[-1] if names else ""
            return
        new = [name for name in names if name > seen]
        is_lost = len(new) >= NOTICES_KEPT
        found = set()
        for name in new:
            try:
                data = self._session.get(f"{znodes.SETTING_NOTICES}/{name}").data
            except NoNodeError:  # the notice was deleted just now
                is_lost = True
                continue
            topic = znodes.parse_setting_notice(data)
            if topic is not None:
                found.add(topic)
        with self._lock:
            self._due |= found
            self._is_all_due |= is_lost
        self._seen = new[-1] if new else seen

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closed:
            try:
                self._bell.clear()
                self._round()
                seconds = AGAIN_SECONDS
            except CoordinationError as error:
                LOG.info("the settings of topics cannot be read now: %s", error)
                seconds = RETRY_SECONDS
            except Exception:
                LOG.exception("the settings of topics are read again")
                seconds = RETRY_SECONDS
            if not self._bell.wait(seconds):
                with self._lock:
                    self._due |= self._failed
                    self._failed = set()

    def _round(self) -> None:
        self._read_notices()
        with self._lock:
            due, self._due = self._due, set()
            is_all, self._is_all_due = self._is_all_due, False
        places: dict[str, list[int]] = defaultdict(list)
        try:
            replicas = tuple(self._store)
        except LogClosedError:  # the store was closed, so the thread ends
            self._is_closed = True
            return
        for topic, number in replicas:
            if is_all or topic in due:
                places[topic].append(number)
        left = set(places)
        try:
            for topic, numbers in places.items():
                if self._is_closed:
                    return
                self._apply(topic, numbers)
                left.discard(topic)
        finally:
            with self._lock:
                self._due |= left
        if is_all:
            self.on_all_read()

    def _apply(self, name: str, numbers: list[int]) -> None:
        """Apply the settings of a topic to its logs.

        If a topic has no settings in the store, its logs keep their settings. If missing settings
        meant default settings, a broker that uses the wrong store would delete records by the
        default retention.
        """
        found = self._read(name)
        if found is None:
            return
        for number in numbers:
            try:
                log = self._store.log(name, number)
            except LogStoreError:  # the settings are read again when the log dir returns
                continue
            place = place_of(log)
            with self._lock:
                # While a thread changes a log, it is not known which settings the log has.
                task = self._tasks.get(place)
                if task is not None:
                    task.wanted = found
                    continue
                if not _changes(log.config, found):
                    continue
                task = self._tasks[place] = Task(found)
            self._workers.submit(place.log_dir, partial(self._do, place, task))

    def _do(self, place: Place, task: Task) -> None:
        """Apply the newest settings to a log. Repeat this until there are no newer settings."""
        while True:
            with self._lock:
                if self._tasks.get(place) is not task:
                    break
                found = task.wanted
            self._set(place, found)
            with self._lock:
                if self._tasks.get(place) is task and task.wanted is found:
                    del self._tasks[place]
                    return
        # The log dir has failed, and may have returned.
        # Then another thread may also have changed the log.
        # So the settings of the log are compared again.
        self._is_due(place.topic)

    def _set(self, place: Place, wanted: Usable) -> None:
        key = place.topic, place.partition
        try:
            log = self._store.log(*key)
            if place_of(log) != place:  # the thread of another log dir changes this log
                return
            changes = _changes(log.config, wanted)
            if changes:
                self._store.set_config(*key, changes)
            if place_of(self._store.log(*key)) != place:  # the log was moved just now
                self._is_due(place.topic)
            return
        except UnknownPartitionError:  # the partition was deleted just now
            return
        except LogStoreError as error:
            LOG.warning("%s-%d cannot take its settings now: %s", *key, error)
        except Exception:
            LOG.exception("%s-%d could not take its settings", *key)
        with self._lock:
            self._failed.add(place.topic)


def place_of(log: Log) -> Place:
    """Return the present place of a log."""
    return Place(log.log_dir, log.topic_id, log.topic, log.partition)


def _without_limits(config: LogConfig, faults: Collection[str]) -> LogConfig:
    """Remove a limit whose setting cannot be read, so that a new log deletes nothing."""
    unread = _unread(faults)
    changes: dict[str, Any] = {field_of(key): None for key in LIMITS if key in unread}
    if POLICY in unread:
        changes[field_of(POLICY)] = "delete"
    return config.replace(**changes)


def _unread(faults: Collection[str]) -> set[str]:
    """Return the keys of unreadable settings.

    If the cleanup policy cannot be read, return the keys of all limits, too.
    """
    return {*faults, *LIMITS} if POLICY in faults else {*faults}


def _changes(config: LogConfig, wanted: Usable) -> dict[str, Any]:
    """Return the settings of a log that must change. Unreadable settings stay as they are."""
    changes, unread = {}, _unread(wanted.faults)
    for key in KEYS:
        field = field_of(key)
        value = getattr(wanted.config, field)
        if value != getattr(config, field) and key not in unread:
            changes[field] = NO_LIMIT if value is None else value
    return changes
