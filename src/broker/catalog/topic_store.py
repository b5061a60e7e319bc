"""Keep the topics of a store in memory and in its embedded coordination store.

The coordination store has a journal in each log dir that works. If no disk can be read, or all
disks are full, the coordination store cannot be opened. Without the coordination store, the broker
serves the topics that it finds in the log dirs, and refuses changes of topics. While the process
runs, the topics in memory are valid. If the coordination store is opened again with other log dirs,
and then lacks some topics, the broker writes the missing topics.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypeVar

from broker.catalog.hosted_znodes import HostedZnodes, Znodes
from broker.catalog.reconciliation import Known
from broker.catalog.topic_znodes import (
    ALTERED,
    CONFIGS,
    DELETED,
    PARENTS,
    TOPICS,
    UNFINISHED,
    Alteration,
    TopicRecord,
    altered_path,
    config_path,
    deleted_path,
    encode_alteration,
    encode_topic,
    no_znodes_of,
    parse_alteration,
    parse_config,
    parse_topic,
    topic_path,
    unfinished_path,
    znodes_of,
)
from broker.config import KAFKA_LOG_CONFIG
from broker.coordination.errors import (
    CoordinationError,
    CopiesOfflineError,
    CopyFullError,
    LimitError,
    StoreClosedError,
)
from broker.coordination.shared_documents import SharedDocuments
from broker.coordination.tree import EmbeddedSettings
from broker.coordination.verbs import (
    OPERATION_BYTES,
    REQUEST_BYTES_MAX,
    Session,
)
from broker.security.user_settings import (
    USERS,
    Settings,
    parse_settings,
    user_of,
    user_znodes,
)
from logstore import LogStore, LogStoreError

LOG = logging.getLogger("broker")
SETTINGS = EmbeddedSettings(disk_seconds_max=2.0)
BUSY_SECONDS = 1.0  # a change waits this long for another change, whose disk may hang
Result = TypeVar("Result")
BATCH_BYTES = REQUEST_BYTES_MAX // 2  # a change that writes several topics has at most this size


class TopicLimitError(LogStoreError):
    """Report a change that would make too many topics, or a topic that is too large."""


class TopicStore:
    """The topics of one store. All brokers of a process share this object.

    Threads: any thread may call any method. `_writing` is held while the coordination store is
    changed or opened. The caller must let only one thread at a time change a topic. When a change
    is durable, the dicts change one entry at a time. A reader copies a dict before it iterates.

    Attributes:
        records: the topics by name.
        unfinished: if partitions of a topic are being created, the number of the first of them.
        alterations: for the name of a topic, the settings that some of its logs may not have yet.
        deleted: the topics that are being deleted; the key is the topic id.
        users: the settings of users by name, such as their SCRAM credentials.
        documents: small documents in the same coordination store.
    """

    def __init__(self, store: LogStore) -> None:
        """Use `TopicStore.of`."""
        self._store = store
        self._writing = threading.Lock()
        self._is_open = False
        self._is_read = False  # whether all topics of the coordination store are in memory
        self._hosted = HostedZnodes(store)
        self.records: dict[str, TopicRecord] = {}
        self.unfinished: dict[str, int] = {}
        self.alterations: dict[str, Alteration] = {}
        self.deleted: dict[bytes, TopicRecord] = {}
        self.users: dict[str, dict[str, str]] = {}
        self.documents = SharedDocuments(self.in_session, is_shared=False)
        self.share_count = 0
        self.leave_out = self._hosted.leave_out
        self.withdraw = store.on_close(self._close)

    @classmethod
    def of(cls, store: LogStore) -> TopicStore:
        """Return the topics of a store. The caller must call `release` later.

        Raises:
            LogStoreError: a copy of the coordination store is damaged, or belongs to another store.
        """
        with _sharing:
            topics = _shared.get(store) or _shared.setdefault(store, cls(store))
            topics.share_count += 1
        try:
            topics.open()
        except BaseException:
            topics.release()
            raise
        return topics

    def release(self) -> None:
        """Close the coordination store, if no other broker uses it."""
        with _sharing:
            self.share_count -= 1
            is_last = self.share_count == 0
            if is_last:
                _shared.pop(self._store, None)
        if is_last:
            self.withdraw()
            self._close()

    def open(self) -> None:
        """Read the topics. A second call does nothing."""
        with self._locked():
            if not self._is_open:
                self._connect(is_start=True)
                self._is_open = True

    def _close(self) -> None:
        """Close the files. If the disk of a running change hangs, do not wait for this change."""
        self._is_open = False
        is_idle = self._writing.acquire(timeout=BUSY_SECONDS)
        try:
            self._hosted.disconnect()
        finally:
            if is_idle:
                self._writing.release()

    # --- the coordination store -------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one thread change the coordination store. Other threads wait for a limited time."""
        if not self._writing.acquire(timeout=BUSY_SECONDS):
            raise LogStoreError(
                "another change of topics has not ended: a disk may hang; try again"
            )
        try:
            yield
        finally:
            self._writing.release()

    def refresh(self) -> None:
        """Use all log dirs that work now, including log dirs that have returned."""
        with self._locked():
            if self._is_open and not self._hosted.is_complete:
                self._hosted.disconnect()
                self._connect()

    def _connect(self, *, is_start: bool = False) -> None:
        """Open the coordination store in the log dirs that work, and read or complete it."""
        try:
            self._hosted.connect()
            self._hosted.write(dict.fromkeys((*PARENTS, USERS), b""), is_new=True)
            self._complete() if self._is_read else self._read()
            self._is_read = True
        except CoordinationError as error:
            self._hosted.disconnect()
            if is_start and not isinstance(error, CopyFullError | CopiesOfflineError):
                raise LogStoreError(f"the coordination store cannot be opened: {error}") from error
            LOG.warning("topics cannot be changed now: the coordination store: %s", error)

    def _read(self) -> None:
        """Read all topics into memory."""
        for name in self._hosted.names(TOPICS):
            path, data = config_path(name), self._hosted.data(config_path(name))
            config = KAFKA_LOG_CONFIG if data is None else parse_config(data, path)
            path = topic_path(name)
            self.records[name] = parse_topic(self._hosted.data(path) or b"", path, config, name)
        for name in self._hosted.names(UNFINISHED):
            self.unfinished[name] = int(self._hosted.data(unfinished_path(name)) or 0)
        for name in self._hosted.names(ALTERED):
            path = altered_path(name)
            alteration = parse_alteration(self._hosted.data(path) or b"", path)
            if name in self.records and self.records[name].id == alteration.topic_id:
                self.alterations[name] = alteration
        for name in self._hosted.names(DELETED):
            path = f"{DELETED}/{name}"
            record = parse_topic(self._hosted.data(path) or b"", path, KAFKA_LOG_CONFIG)
            self.deleted[record.id] = record
        for name in self._hosted.names(USERS):
            path = f"{USERS}/{name}"
            self.users[user_of(name)] = parse_settings(self._hosted.data(path) or b"", path)

    def _complete(self) -> None:
        """Make the coordination store equal to the topics in memory, one topic at a time."""
        parents = (TOPICS, CONFIGS, UNFINISHED, ALTERED)
        names = {name for one in parents for name in self._hosted.names(one)}
        for record in list(self.deleted.values()):
            gone = {} if record.name in self.records else no_znodes_of(record.name)
            self._hosted.write({**gone, deleted_path(record.id): self._encode_deleted(record)})
        for name in names - self.records.keys():
            self._hosted.write(no_znodes_of(name))
        for record in list(self.records.values()):
            self._hosted.write(self._znodes(record, self.unfinished.get(record.name)))
        kept = {deleted_path(topic_id) for topic_id in list(self.deleted)}
        for name in self._hosted.names(DELETED):
            if f"{DELETED}/{name}" not in kept:
                self._hosted.write({f"{DELETED}/{name}": None})
        gone_users = {f"{USERS}/{name}": None for name in self._hosted.names(USERS)}
        for path, data in {**gone_users, **user_znodes(self.users)}.items():
            self._hosted.write({path: data})

    def _change(self, wanted: Znodes) -> None:
        """Make a change durable. If all journals have failed, open the store again.

        Raises:
            TopicLimitError: the coordination store would be too large.
            LogStoreError: no log dir can store the change.
        """
        try:
            self._run(lambda: self._hosted.write(wanted))
        except LimitError as error:
            raise TopicLimitError(f"the coordination store is too small: {error}") from error
        except CoordinationError as error:
            raise LogStoreError(f"the coordination store refused a change: {error}") from error

    def _run(self, work: Callable[[], Result]) -> Result:
        """Use the coordination store. If all journals have failed, open the store again."""
        if self._hosted.is_connected:
            with suppress(CopiesOfflineError, StoreClosedError):
                return work()
        if not self._is_open:
            raise LogStoreError("no broker serves the store now, so topics cannot change")
        was_read = self._is_read
        self._hosted.disconnect()
        self._connect()
        if not self._hosted.is_connected:
            raise LogStoreError("no log dir can take a change of the topics; try again")
        if not was_read:  # when the caller decided, these topics were not read yet
            raise LogStoreError("the topics had not been read yet; now they are: try again")
        return work()

    def in_session(self, work: Callable[[Session], Result]) -> Result:
        """Do some work in a session of the coordination store. Raises CoordinationError."""
        try:
            with self._locked():
                return self._run(lambda: self._hosted.in_session(work))
        except LogStoreError as error:
            raise CoordinationError(str(error)) from error

    # --- topics -----------------------------------------------------------------------------------

    def known(self, name: str) -> Known:
        """Return what is known about the topics with this name."""
        deleted = [one for one in list(self.deleted.values()) if one.name == name]
        return Known(self.records.get(name), self.unfinished.get(name), deleted)

    def put(self, record: TopicRecord, unfinished_from: int | None = None) -> None:
        """Write a topic. Raises LogStoreError.

        Args:
            unfinished_from: the number of the first partition that will be created next.
        """
        with self._locked():
            self._change(self._znodes(record, unfinished_from))
            self._remember(record, unfinished_from)

    def alter(self, record: TopicRecord, alteration: Alteration) -> None:
        """Write a topic with settings that its logs do not have yet. Raises LogStoreError.

        `alterations` changes first, so a reader that finds the new record can find the alteration.
        """
        with self._locked():
            unfinished_from = self.unfinished.get(record.name)
            mark = {altered_path(record.name): encode_alteration(alteration)}
            self._change(self._znodes(record, unfinished_from) | mark)
            self.alterations[record.name] = alteration
            self._remember(record, unfinished_from)

    def end_alteration(self, name: str) -> None:
        """Forget a change of settings that all logs of a topic have. Raises LogStoreError."""
        with self._locked():
            self._change({altered_path(name): None})
            self.alterations.pop(name, None)

    def put_all(self, records: Iterable[TopicRecord]) -> None:
        """Write topics, with at most `BATCH_BYTES` in each change. Raises LogStoreError."""
        with self._locked():
            batch: list[TopicRecord] = []
            wanted: dict[str, bytes | None] = {}
            size_bytes = 0
            for record in records:
                znodes = self._znodes(record, self.unfinished.get(record.name))
                more = sum(
                    OPERATION_BYTES + len(path) + len(data or b"") for path, data in znodes.items()
                )
                if batch and size_bytes + more > BATCH_BYTES:
                    self._put_batch(batch, wanted)
                    batch, wanted, size_bytes = [], {}, 0
                batch.append(record)
                wanted |= znodes
                size_bytes += more
            self._put_batch(batch, wanted)

    def _put_batch(self, batch: list[TopicRecord], wanted: Znodes) -> None:
        if wanted:
            self._change(wanted)
        for record in batch:
            self._remember(record, self.unfinished.get(record.name))

    def _remember(self, record: TopicRecord, unfinished_from: int | None) -> None:
        self.records[record.name] = record
        if self._alteration_of(record) is None:
            self.alterations.pop(record.name, None)
        if unfinished_from is None:
            self.unfinished.pop(record.name, None)
        else:
            self.unfinished[record.name] = unfinished_from

    def _znodes(self, record: TopicRecord, unfinished_from: int | None) -> dict[str, bytes | None]:
        alteration = self._alteration_of(record)
        return znodes_of(record, self._store.broker_id, unfinished_from, alteration)

    def _alteration_of(self, record: TopicRecord) -> Alteration | None:
        """Return the alteration of a topic; None if it belongs to an older topic."""
        found = self.alterations.get(record.name)
        return found if found is not None and found.topic_id == record.id else None

    def _encode_deleted(self, record: TopicRecord) -> bytes:
        return encode_topic(record, self._store.broker_id, name=record.name)

    def forget(self, name: str) -> None:
        """Remove a topic that has no replicas. Raises LogStoreError."""
        with self._locked():
            self._change(no_znodes_of(name))
            self._drop(name)

    def begin_deletion(self, record: TopicRecord) -> None:
        """Remove a topic, and write down that its replicas are being deleted. Raises LogStoreError.

        The record may belong to an older topic, if another topic now has the same name.
        """
        with self._locked():
            now = self.records.get(record.name)
            is_current = now is None or now.id == record.id
            gone = no_znodes_of(record.name) if is_current else {}
            self._change({**gone, deleted_path(record.id): self._encode_deleted(record)})
            self.deleted[record.id] = record
            if is_current:
                self._drop(record.name)

    def end_deletion(self, record: TopicRecord) -> None:
        """Forget a topic, because all its replicas are deleted. Raises LogStoreError."""
        with self._locked():
            self._change({deleted_path(record.id): None})
            self.deleted.pop(record.id, None)

    # --- users ------------------------------------------------------------------------------------

    def change_users(self, changes: Mapping[str, Callable[[Settings], dict[str, str]]]) -> None:
        """Change the settings of users, all or none. Raises LogStoreError.

        Args:
            changes: for each user, a function that makes the new settings from the old settings. A
                user without settings is deleted.
        """
        with self._locked():
            changed = {name: change(self.users.get(name, {})) for name, change in changes.items()}
            self._change(user_znodes(changed))
            for name, settings in changed.items():
                if settings:
                    self.users[name] = settings
                else:
                    self.users.pop(name, None)

    def _drop(self, name: str) -> None:
        self.records.pop(name, None)
        self.unfinished.pop(name, None)
        self.alterations.pop(name, None)


_sharing = threading.Lock()  # guards `_shared` and `TopicStore.share_count`
_shared: dict[LogStore, TopicStore] = {}
