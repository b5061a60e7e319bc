"""Change the settings of a topic as a whole: on all its partitions, or on none.

    record     the coordination store gets the new settings and an `Alteration`; from now on, the
               new settings count
    deliver    a thread for each log dir gives the new settings to the logs of the topic
    end        all logs have the new settings: the coordination store forgets the `Alteration`

If the process crashes before the first step, no log is changed. After a later crash, the next start
delivers the settings again. If a log dir fails or hangs, the other logs get the settings now. The
`Alteration` stays until the log dir returns. Then the logs in this log dir get the settings. In the
meantime, clients see the settings in the coordination store, and new partitions get them.

An alteration names the changed settings. The other settings of a log stay as they are, because a
program may have set them for this log alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple

from broker.catalog.setting_changes import NO_LIMIT
from broker.catalog.settings import InvalidSettingError
from broker.catalog.topic_store import TopicStore
from broker.catalog.topic_znodes import Alteration, TopicRecord
from logstore import Log, LogConfig, LogStore, LogStoreError, UnknownPartitionError
from logstore.log.write.rules import require_layout
from logstore.store.dirs.parallel import for_each

LOG = logging.getLogger("broker")
DELIVERY_SECONDS_MAX = 10.0  # how long an alteration waits for its threads


class Place(NamedTuple):
    """The logs of one topic in one log dir."""

    topic: str
    log_dir: str


class Alterations:
    """The settings of topics, and their changes.

    Threads: any thread may call `config_of`. Before any other call, the caller must begin the
    change of the topic. So no other thread changes the topic at the same time. At most one thread
    delivers settings to a place. If a disk hangs, its thread is abandoned: nothing waits for it any
    more. Before each log, an abandoned thread reads the settings again. If the settings have
    changed, the thread begins again with its first log.
    """

    def __init__(
        self,
        store: LogStore,
        topics: TopicStore,
        log_of: Callable[[str, int], Log],
        changing: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """Deliver nothing until `deliver_all`.

        Args:
            log_of: finds the log of a partition; raises LogStoreError.
            changing: begins and ends the change of a topic.
        """
        self._store, self._topics = store, topics
        self._log_of, self._changing = log_of, changing
        self._lock = threading.Lock()  # guards the next two fields
        self._busy: dict[Place, bool] = {}  # whether the thread of a place must begin again
        self._abandoned: set[Place] = set()
        self._missed: set[str] = set()  # topics whose settings are delivered after a running change

    # --- reading ----------------------------------------------------------------------------------

    def config_of(self, name: str, partitions: Iterable[int]) -> LogConfig:
        """Return the settings that apply to a topic.

        An alteration applies as soon as it is recorded. The other settings are read from the first
        partition whose log is open. If no log is open, the other settings are the recorded
        settings.

        Raises:
            LogStoreError: no log of the topic is open, and the topic is not recorded.
        """
        alteration = self._topics.alterations.get(name)
        record = self._topics.records.get(name)
        failure: LogStoreError | None = None
        for partition in partitions:
            try:
                config = self._log_of(name, partition).config
            except LogStoreError as error:
                failure = failure or error
                continue
            if alteration is None or record is None:
                return config
            return alteration.applied(record, config)
        if record is None:
            raise failure or UnknownPartitionError(topic=name, partition=0)
        return record.config

    # --- one alteration ---------------------------------------------------------------------------

    def alter(self, record: TopicRecord, config: LogConfig, changes: Mapping[str, Any]) -> None:
        """Change settings of a topic.

        Args:
            config: the present settings of the topic.
            changes: the new values, as `LogStore.set_config` takes them. No value is None.

        Raises:
            InvalidSettingError: a new value contradicts a setting of a log.
            LogStoreError: no log dir could record the new settings; nothing is changed.
        """
        new = record._replace(config=config.with_changes(changes, config))
        before = self._topics.alterations.get(record.name)
        fields = frozenset(changes) | (before.fields if before else frozenset())
        alteration = Alteration(record.id, fields)
        self._check(new, alteration)
        self._topics.alter(new, alteration)
        self.deliver(record.name)
        self.deliver_missed(record.name)

    def _check(self, record: TopicRecord, alteration: Alteration) -> None:
        """Raise an error if a log cannot have the new settings."""
        require_layout(record.config, record.name)
        for number in record.ids:
            with suppress(LogStoreError):
                config = self._log_of(record.name, number).config
                try:
                    alteration.apply(record, config)
                except (TypeError, ValueError) as error:
                    reason = f"partition {number} cannot have the new settings: {error}"
                    raise InvalidSettingError(reason) from error

    def deliver_all(self) -> None:
        """Deliver settings after a start, or after a log dir has returned.

        Before the call of `deliver_all`, the caller must end its own changes.
        """
        for name in list(self._topics.alterations):
            self._missed.add(name)
            try:
                with self._changing(name):
                    self.deliver_missed(name)
            except LogStoreError as error:
                LOG.warning("topic %r: its new settings are delivered later: %s", name, error)

    def deliver_missed(self, name: str) -> None:
        """Deliver the settings of a topic, if a change of the topic stopped `deliver_all`."""
        if name in self._missed:
            self._missed.discard(name)
            self.deliver(name)

    def deliver(self, name: str) -> None:
        """Give the logs of a topic its settings. If all logs have them now, end the alteration."""
        places = {Place(name, log.log_dir) for log in self._lacking(name)}
        begun = [place for place in sorted(places) if self._begin(place)]
        outcomes = for_each(
            begun,
            self._deliver,
            timeout=DELIVERY_SECONDS_MAX,
            name="topic-settings",
            is_given_up=self._is_given_up,
        )
        late = {one.item for one in outcomes if not one.is_finished}
        with self._lock:
            self._abandoned |= late & self._busy.keys()
        for one in outcomes:
            if one.error is not None:
                LOG.warning("topic %r: some logs get new settings later: %s", name, one.error)
        self._end_if_delivered(name)

    def _end_if_delivered(self, name: str) -> None:
        with self._lock:
            is_busy = any(place.topic == name for place in self._busy)
        if name not in self._topics.alterations or is_busy or not self._is_delivered(name):
            return
        try:
            self._topics.end_alteration(name)
        except LogStoreError as error:
            LOG.warning("topic %r: its settings are compared at the next start: %s", name, error)

    # --- the logs of a topic ----------------------------------------------------------------------

    def _changes(self, name: str, log: Log) -> dict[str, Any]:
        """Return the settings that a log lacks, as `LogStore.set_config` takes them."""
        alteration, record = self._topics.alterations.get(name), self._topics.records.get(name)
        if alteration is None or record is None:
            return {}
        config = log.config
        wanted = alteration.applied(record, config)
        values = {field: getattr(wanted, field) for field in alteration.fields}
        return {
            field: NO_LIMIT if value is None else value
            for field, value in values.items()
            if value != getattr(config, field)
        }

    def _logs(self, name: str) -> Iterable[Log]:
        """Find the open logs of a topic."""
        record = self._topics.records.get(name)
        for number in () if record is None else record.ids:
            with suppress(LogStoreError):
                yield self._log_of(name, number)

    def _lacking(self, name: str) -> Iterable[Log]:
        """Find a topic's logs that lack settings, or whose `Place` has a running thread."""
        for log in self._logs(name):
            if Place(name, log.log_dir) in self._busy or self._changes(name, log):
                yield log

    def _is_delivered(self, name: str) -> bool:
        """Check that all logs of a topic have its settings.

        A partition without a replica is ignored, because it will be created with the recorded
        settings.
        """
        record = self._topics.records[name]
        for number in record.ids:
            try:
                if self._changes(name, self._log_of(name, number)):
                    return False
            except UnknownPartitionError:
                continue
            except LogStoreError:
                return False
        return True

    # --- the threads ------------------------------------------------------------------------------

    def _begin(self, place: Place) -> bool:
        """Reserve a place for a new thread.

        If another thread has the place, let that thread begin again.
        """
        with self._lock:
            is_free = place not in self._busy
            self._busy[place] = not is_free
        return is_free

    def _is_given_up(self, place: Place) -> bool:
        try:
            return self._store.host.dir_of(place.log_dir).is_refusing
        except LogStoreError:  # the log dir was removed
            return True

    def _deliver(self, place: Place) -> None:
        """Give the logs of a place their settings. At the end, raise the first error."""
        failure: LogStoreError | None = None
        is_due = True
        try:
            while is_due:
                failure = self._deliver_once(place)
                with self._lock:
                    is_due, self._busy[place] = self._busy[place], False
                    if not is_due:
                        del self._busy[place]
        except BaseException:
            with self._lock:
                self._busy.pop(place, None)
            raise
        with self._lock:
            is_abandoned = place in self._abandoned
            self._abandoned.discard(place)
        if is_abandoned:
            with suppress(LogStoreError), self._changing(place.topic):
                self._end_if_delivered(place.topic)
        elif failure is not None:
            raise failure

    def _deliver_once(self, place: Place) -> LogStoreError | None:
        failure: LogStoreError | None = None
        for log in self._logs(place.topic):
            if log.log_dir != place.log_dir:
                continue
            try:
                while changes := self._changes(place.topic, log):
                    self._store.set_config(log.topic, log.partition, changes)
            except LogStoreError as error:  # other logs may still get their settings
                failure = failure or error
        return failure
