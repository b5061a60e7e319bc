"""Read a store that another process may own, without a lock, a thread or a write.

    StoreView     finds the partitions and their logs; opens a log again if it was replaced
    StoreDirs     lists the log dirs of a store, and opens a log in them; `kafka/broker_view` does
                  the same for the log dirs of a Kafka broker

A view reads the replicas that the start-up table would open, but makes none of the table's changes.
The log dirs are listed again when a partition is not found, and when a caller iterates over the
store. So partitions appear and disappear as the owner creates and deletes them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol, cast

from logstore.arguments import StrPath
from logstore.config import StoreConfig
from logstore.disk import files
from logstore.disk.failures import reason_of
from logstore.disk.log_dir import LogDir
from logstore.errors import LogStoreError, UnknownPartitionError
from logstore.log import host
from logstore.log.environment import Clock, LogEnvironment
from logstore.log.log import Log
from logstore.log.metadata import FILE_NAME as METADATA_NAME
from logstore.log.recovery.report import REMEDIES, DamageName
from logstore.log.small_files import Checkpointed
from logstore.log.view import LogView
from logstore.log.view import open_view as open_log_view
from logstore.names import TopicPartition, key_or_none, partition_named
from logstore.store.admin.admin import Admin
from logstore.store.catalog import Catalog
from logstore.store.dirs.dir_failures import DirFailures, FailureCallback
from logstore.store.dirs.old_copies import REMEDY
from logstore.store.other_copies import MoveFound
from logstore.store.partitions import Partitions
from logstore.store.recovery_report import OfflineDir, OfflineEntry
from logstore.store.replicas import OfflineReplica, Replicas
from logstore.store.start import resurrected
from logstore.store.start.fork import watch
from logstore.store.start.identity import resolve
from logstore.store.start.listing import LISTINGS_MAX, list_at_rest, list_log_dir
from logstore.store.start.open_dirs import check_one_serves, view_log_dirs
from logstore.store.start.replica_facts import complete
from logstore.store.start.startup_table import Act, Decision, ReplicaFacts, decide
from logstore.store.state import CLOSED, StoreState, patience_of

Inode = tuple[int, int]


class Found(NamedTuple):
    """The result of a listing: the replicas that can be opened, and the offline replicas.

    Attributes:
        incomplete: the replicas of `seen` that may lack records, with the reason.
    """

    seen: dict[TopicPartition, ReplicaFacts]
    offline: dict[TopicPartition, OfflineReplica]
    incomplete: Sequence[OfflineEntry] = ()


class ViewedDirs(Protocol):
    """The log dirs that a view reads. Another process may write to these log dirs."""

    def look(self, before: Collection[ReplicaFacts]) -> Found:
        """List the log dirs; for an offline log dir, keep its replicas from `before`."""

    def open_log(self, log_dir: LogDir, facts: ReplicaFacts) -> Log:
        """Open one log; its owner may be writing it. Raises OSError, LogStoreError."""


class StoreView(Partitions):
    """The partitions that a reader finds in log dirs; another process may own these log dirs.

    Threads: the lock `_listing` is held while the log dirs are listed, and while a log is opened.
    `_seen` is replaced as a whole, so lookups take no lock.
    """

    def __init__(self, state: StoreState, dirs: ViewedDirs) -> None:
        super().__init__(state)
        self.state = state
        self._dirs = dirs
        self._replicas = state.replicas
        self._seen: dict[TopicPartition, ReplicaFacts] = {}
        self._incomplete: Sequence[OfflineEntry] = ()
        self._inodes: dict[TopicPartition, Inode] = {}
        self._listing = threading.Lock()

    def refresh(self) -> None:
        """List the log dirs again; forget each opened log that was removed or replaced."""
        self._state.check()
        with self._listing:
            self._take(self._dirs.look(self._seen.values()))

    def _take(self, found: Found) -> None:
        """Forget the opened logs that changed, and keep the new listing."""
        for key in list(self._replicas.opened):
            if found.seen.get(key) != self._seen.get(key):
                self._drop(key)
        self._seen, self._incomplete = found.seen, found.incomplete
        self._replicas.only_offline(found.offline)

    def report(self) -> None:
        """Add findings of the opening to the report: offline dirs, replicas, and lost metadata."""
        report = self.state.recovery_report
        report.listed_count = len(self._seen)
        name = DamageName.LOST_CONFIGURATION
        report.warnings += [
            f"{key}: {name} in {facts.path}/{METADATA_NAME}: this file is missing; "
            + REMEDIES[name].format(*key)
            for key, facts in sorted(self._seen.items())
            if facts.is_bare
        ]
        for log_dir in self._replicas.log_dirs:
            if log_dir.is_offline:
                report.offline_dirs.append(OfflineDir(log_dir.path, log_dir.offline_reason or ""))
        for key, replica in self._replicas.offline.items():
            report.offline.append(OfflineEntry(key, (replica.log_dir.path,), replica.error))
        report.incomplete += self._incomplete

    def _drop(self, key: TopicPartition) -> None:
        """Forget an opened log; its readers continue with the files that they have open."""
        self._replicas.remove(key)
        self._inodes.pop(key, None)

    def log(self, topic: str, partition: int) -> Log:
        """Find a partition's log, for reading."""
        self._state.check()
        key = partition_named(topic, partition)
        log = self._find(key)
        for _ in range(LISTINGS_MAX):
            if log is not None:
                return log
            self.refresh()
            log = self._find(key)
            if key not in self._seen:
                break  # a listed replica without a directory is being swapped, so list again
        if log is not None:
            return log
        return self._replicas.lookup(topic, partition).log

    def _find(self, key: TopicPartition) -> Log | None:
        """Return a replica's log, and open the log if needed; None if its directory is missing."""
        facts = self._seen.get(key)
        if facts is None:
            return None
        log_dir = self._replicas.dir_of(facts.log_dir)
        log_dir.check()
        path = os.path.join(facts.log_dir, facts.dir_name)
        try:
            stat = files.lstat(path)
        except FileNotFoundError:
            self._drop(key)
            return None
        except OSError as error:
            raise log_dir.failed(error, path, *key) from error
        inode = (stat.st_dev, stat.st_ino)
        with self._listing:
            replica = self._replicas.opened.get(key)
            is_closed = replica is not None and host.is_detached(replica.log)
            if replica is not None and self._inodes.get(key) == inode and not is_closed:
                return replica.log
            self._drop(key)
            try:
                log = self._dirs.open_log(log_dir, facts)
            except UnknownPartitionError:
                return None
            except OSError as error:
                raise log_dir.failed(error, path, *key) from error
            cast(LogView, log).find_anew_by(partial(self._log_if_there, key))
            self._replicas.add(key, log, log_dir)
            self._inodes[key] = inode
            return log

    def _log_if_there(self, key: TopicPartition) -> Log | None:
        """Find a log whose directory is missing; a move may have taken the log to another dir."""
        try:
            return self.log(*key)
        except UnknownPartitionError:
            return None

    def __contains__(self, key: object) -> bool:
        self._state.check()
        key = key_or_none(key)
        if key is None:
            return False
        if key in self._seen or key in self._replicas:
            return True
        self.refresh()
        return key in self._seen or key in self._replicas

    def known(self) -> list[TopicPartition]:
        """List all known partitions in order, even offline partitions. This uses no disk."""
        return sorted(self._known())

    def known_count(self) -> int:
        """Count the known partitions, without using the disks."""
        return len(self._known())

    def _known(self) -> set[TopicPartition]:
        return {*self._seen, *self._replicas.offline, *self._replicas.absent()}

    def _look_into(self, log_dir: LogDir) -> None:
        """Open the logs of a log dir for a description, because only an open log knows its size."""
        for key, facts in list(self._seen.items()):
            if facts.log_dir == log_dir.path and not log_dir.is_offline:
                try:
                    self._find(key)
                except LogStoreError as error:
                    self._replicas.found_offline(key, OfflineReplica(error, log_dir))

    def close(self, timeout: float | None) -> tuple[str, ...]:
        """Release all descriptors; this waits for nothing, because a view writes nothing."""
        if self._state.closed is None:
            self._state.closed = CLOSED
            self._state.failures.disarm()
            for replica in list(self._replicas.opened.values()):
                replica.log.close()
        return ()


class StoreDirs:
    """A reader's view of the log dirs of a store: the replicas that a start would open.

    Threads: only the view calls this object, and only in one thread at a time.
    """

    def __init__(self, replicas: Replicas, environment: LogEnvironment) -> None:
        self._replicas = replicas
        self._environment = environment
        # The replicas for which the last listing found only one copy.
        self._alone: set[TopicPartition] = set()

    def look(self, before: Collection[ReplicaFacts]) -> Found:
        """List the log dirs; for an offline log dir, keep its replicas from `before`."""
        found = list_at_rest(self._replicas.log_dirs, partial(self._list_all, before))
        seen: dict[TopicPartition, ReplicaFacts] = {}
        offline: dict[TopicPartition, OfflineReplica] = {}
        moves: dict[TopicPartition, MoveFound] = {}
        alone: set[TopicPartition] = set()
        incomplete: list[OfflineEntry] = []
        self._look_for_absent()
        found = complete(found, self._replicas.log_dirs, self._environment)
        for decision in decide(found, is_a_dir_bad=self._replicas.is_a_dir_bad()):
            key, first = decision.topic_partition, decision.replicas[0]
            if decision.act in (Act.OPEN, Act.COMPLETE, Act.INCOMPLETE):
                seen[key] = first
                alone |= {key} if len(decision.replicas) == 1 else set()
                if decision.act is not Act.INCOMPLETE:
                    decision = self._doubted(decision)
                if decision.act is Act.INCOMPLETE:
                    incomplete.append(OfflineEntry(key, (first.path,), decision.error()))
            elif decision.act is Act.OFFLINE:
                log_dir, error = self._replicas.dir_of(first.log_dir), decision.error()
                if decision.is_dir_bad:
                    error = self._replicas.bad_dir_error(key)
                offline[key] = OfflineReplica(error, log_dir)
            elif decision.act is Act.RESUME:
                log_dir = self._replicas.dir_of(first.log_dir)
                moves[key] = MoveFound(log_dir, first.path, first.size_bytes)
        self._replicas.copies.moves, self._alone = moves, alone
        return Found(seen, offline, incomplete)

    def _doubted(self, decision: Decision) -> Decision:
        """If a log dir is an old copy, make its replicas that are in doubt INCOMPLETE."""
        log_dir = self._replicas.dir_of(decision.replicas[0].log_dir)
        if decision.topic_partition not in log_dir.generation.doubts:
            return decision
        reason = f"log dir {log_dir.path} is an old copy; {REMEDY}"
        return decision._replace(act=Act.INCOMPLETE, reason=reason)

    def _list_all(self, before: Collection[ReplicaFacts]) -> list[ReplicaFacts]:
        """List each log dir; for an offline log dir, return its replicas in `before`."""
        found: list[ReplicaFacts] = []
        for log_dir in self._replicas.log_dirs:
            if not log_dir.is_offline:
                try:
                    log_dir.check_place()
                    found += list_log_dir(log_dir).replicas
                    log_dir.checkpoints.load()
                    log_dir.generation.load()
                    log_dir.refresh_usage()
                    continue
                except OSError as error:
                    log_dir.take_offline(f"it cannot be listed: {reason_of(error)}")
            found += [facts for facts in before if facts.log_dir == log_dir.path]
        return found

    def _look_for_absent(self) -> None:
        """Read the catalogs of working log dirs, to find the replicas of the other log dirs."""
        self._replicas.catalog = Catalog()
        if self._replicas.is_a_dir_bad():
            good = [log_dir for log_dir in self._replicas.log_dirs if not log_dir.is_offline]
            self._replicas.catalog.load(good, is_a_dir_bad=True)
            self._replicas.catalog.is_known = False  # the owner's catalog file can be out of date

    def open_log(self, log_dir: LogDir, facts: ReplicaFacts) -> Log:
        """Open one log; its owner may be writing it. Raises OSError, LogStoreError."""
        checkpoints, key = log_dir.checkpoints, TopicPartition(facts.topic, facts.partition)
        # If `partition.metadata` is lost, the checkpoint still shows which records were deleted.
        start, topic_ids = checkpoints.log_start_offset(key), checkpoints.topic_ids(key)
        checkpointed = Checkpointed(None, start, topic_ids)
        log = open_log_view(log_dir, facts.dir_name, self._environment, checkpointed=checkpointed)
        if key in self._alone:
            resurrected.judge(self._replicas, key, cast(Log, log))
        return cast(Log, log)


def open_view(
    log_dirs: StrPath | Iterable[StrPath],
    config: StoreConfig,
    clock: Clock | None,
    on_log_dir_failure: FailureCallback | None,
) -> StoreView:
    """Read the log dirs of a store and list what is in them; see `LogStore.open`."""
    failures = DirFailures(on_log_dir_failure, {})
    opened = view_log_dirs(
        resolve(log_dirs, patience_of(config)),
        on_failure=failures.failed,
        patience_seconds=patience_of(config),
    )
    replicas = Replicas(opened.log_dirs, opened.missing_ids)
    environment = LogEnvironment(config, clock)
    state = StoreState(config, environment, replicas, failures, Admin(), {})
    state.broker_id = opened.broker_id
    watch(state)
    view = StoreView(state, StoreDirs(replicas, environment))
    for log_dir in opened.log_dirs:
        if not log_dir.is_offline:
            with suppress(OSError):  # `refresh` reports the same error
                log_dir.load_settings()
    view.refresh()
    check_one_serves(opened.log_dirs)
    state.recovery_report.warnings += opened.warnings
    view.report()
    failures.arm(replicas)
    return view
