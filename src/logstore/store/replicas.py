"""Know where each replica is: opened, incomplete, offline in a good log dir, or in a bad log dir.

    opened        the log was opened; after that, its log dir may have gone offline
    incomplete    a copy of the replica is readable, but may lack records
    offline       the log dir works, but the replica in it cannot be opened
    absent        the catalog records the replica in a log dir that does not work

Only `Replicas` changes the first three kinds of records. A partition can have records of several
kinds: for example, it can be opened in an offline log dir, and incomplete in another log dir.

Threads: a dict changes entry by entry; only the thread that has reserved a replica changes its
entry. Lookups take no lock. A thread that iterates over all entries copies the keys first. A new
record is added before the old record is removed. So a lookup always finds a record.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from logstore.disk.log_dir import LogDir
from logstore.errors import LogDirError, LogDirOfflineError, LogStoreError, UnknownPartitionError
from logstore.log.log import Log
from logstore.names import TopicPartition, partition_named, validate_partition, validate_topic
from logstore.store.catalog import Catalog
from logstore.store.other_copies import Doomed, OtherCopies
from logstore.store.reservations import ReplicaReservations
from logstore.store.start.refusals import last_at, missing_remedy
from logstore.store.usage import DirFigures

if TYPE_CHECKING:
    from logstore.store.start.startup_table import ReplicaFacts


class Replica(NamedTuple):
    """An opened log and its log dir."""

    log: Log
    log_dir: LogDir


class OfflineReplica(NamedTuple):
    """A replica that could not be opened, the error for its users, and a function that tries again.

    Attributes:
        is_missing: True if the log dir is an old copy, and has no directory of the replica.
        paths: the directories of the replica if none could be chosen; the first is in `log_dir`.
    """

    error: LogStoreError
    log_dir: LogDir
    open_again: Callable[[], None] | None = None
    is_missing: bool = False
    paths: tuple[str, ...] = ()


class IncompleteReplica(NamedTuple):
    """A copy that may lack records, open only for reading. `others` describes the other copies."""

    log: Log
    log_dir: LogDir
    facts: ReplicaFacts
    others: tuple[ReplicaFacts, ...]


Record = Replica | IncompleteReplica | OfflineReplica


def _is_from_before(earlier: LogDir, now: LogDir) -> bool:
    """Check whether `now` is the same log dir as `earlier`, which failed and then returned."""
    return earlier.is_offline and earlier.path == now.path


def key_of(log: Log) -> TopicPartition:
    """Return the topic and partition of a log."""
    return TopicPartition(log.topic, log.partition)


def _why_bad(log_dir: LogDir) -> str:
    return (log_dir.is_away and log_dir.reason) or "it is being opened; try again"


class Replicas(ReplicaReservations):
    """The replicas of a store by topic and partition."""

    def __init__(self, log_dirs: Sequence[LogDir], missing_ids: Sequence[str]) -> None:
        super().__init__()
        self.log_dirs = tuple(log_dirs)
        self.missing_ids = tuple(missing_ids)
        self._opened: dict[TopicPartition, Replica] = {}
        self._incomplete: dict[TopicPartition, IncompleteReplica] = {}
        self._offline: dict[TopicPartition, OfflineReplica] = {}
        self.opened: Mapping[TopicPartition, Replica] = self._opened
        self.incomplete: Mapping[TopicPartition, IncompleteReplica] = self._incomplete
        self.offline: Mapping[TopicPartition, OfflineReplica] = self._offline
        self.copies = OtherCopies()
        # Log dirs that are being added, reopened or removed, and so get no new replicas.
        self.returning: set[LogDir] = set()
        self.purge: Callable[[Sequence[Doomed]], None] = lambda doomed: None
        # The topic ids that users chose for partitions whose creation is running.
        self.claimed_ids: list[tuple[bytes, TopicPartition]] = []
        # A function that is called after a move, with the replica, the old and the new log dir.
        self.on_move: Callable[[TopicPartition, str, str], None] = lambda key, source, target: None
        self.catalog = Catalog()
        self.figures = {log_dir.path: DirFigures(log_dir) for log_dir in log_dirs}
        self._on: dict[str, dict[TopicPartition, Log]] = {d.path: {} for d in log_dirs}
        # For each log dir path, the logs that arrived by a move, which are scrubbed first.
        self._arrived: dict[str, list[Log]] = {}

    def __len__(self) -> int:
        return len(self.opened) + len(self.incomplete) + len(self.offline) + len(self.absent())

    def is_found(self, key: object) -> bool:
        """Check whether a replica was found in a log dir, and not only in a catalog."""
        return key in self.opened or key in self.incomplete or key in self.offline

    def __contains__(self, key: object) -> bool:
        if self.is_found(key):
            return True
        return isinstance(key, tuple) and len(key) == 2 and self._absent_in(key) is not None

    def names(self) -> list[TopicPartition]:
        """List all known replicas in order, including offline replicas."""
        known = [*list(self.opened), *list(self.incomplete), *list(self.offline)]
        return sorted([*known, *self.absent()])

    def absent(self) -> list[TopicPartition]:
        """List the replicas that are in log dirs that do not work, according to the catalog."""
        told = [key for id_ in self.ids_away() for key in self.catalog.on(id_)]
        return [key for key in told if not self.is_found(key)]

    def _absent_in(self, key: tuple[str, int]) -> str | None:
        """Give the log dir id in the catalog for a replica, if the log dir does not work."""
        directory_id = self.catalog.directory_of(TopicPartition(*key))
        return directory_id if directory_id in self.ids_away() else None

    def ids_away(self) -> set[str]:
        """List the ids of the members that do not work, except members that were given up.

        A log dir that is being opened is in the list, because some of its replicas are not open
        yet.
        """
        bad = [d for d in self.log_dirs if d.is_offline or d in self.returning]
        offline = {log_dir.directory_id for log_dir in bad}
        return {*self.missing_ids, *offline} - {""}

    def put_dir(self, log_dir: LogDir) -> None:
        """Add a log dir; replace an offline log dir that has the same path.

        While the log dir is in `returning`, a replica that is not found may still be in it.
        """
        self.returning.add(log_dir)
        self.copies.forget_in(log_dir.path)  # the start-up table finds these copies again
        figures = DirFigures(log_dir)
        for log in self._on.setdefault(log_dir.path, {}).values():
            figures.add(log)
        self.figures[log_dir.path] = figures
        others = [log_dir if d.path == log_dir.path else d for d in self.log_dirs]
        self.log_dirs = tuple(others if log_dir in others else [*others, log_dir])

    def drop_dir(self, log_dir: LogDir) -> None:
        """Forget a log dir and the copies that were found in it."""
        self.copies.forget_in(log_dir.path)
        self.log_dirs = tuple(other for other in self.log_dirs if other is not log_dir)
        self.figures.pop(log_dir.path, None)

    def leave(self, key: TopicPartition, copies: Iterable[ReplicaFacts]) -> None:
        """Remember copies that stay as they are; a deletion of the replica removes them, too."""
        for facts in copies:
            if facts.kind in ("move", "delete") and not facts.is_deleted_by_user:
                self.copies.left[facts.path] = (key, self.dir_of(facts.log_dir))

    def dir_holding(self, key: TopicPartition) -> LogDir | None:
        """Return the log dir in which a replica was found; the log dir may be offline."""
        found = self.opened.get(key) or self.incomplete.get(key) or self.offline.get(key)
        return None if found is None else self.find_dir(found.log_dir.path)

    def on(self, log_dir: LogDir) -> list[Log]:
        """List the opened logs of one log dir."""
        return list(self._on.get(log_dir.path, {}).values())

    def add(self, key: TopicPartition, log: Log, log_dir: LogDir) -> None:
        """Add an opened log, and forget that its replica was offline or incomplete."""
        before = self._on[log_dir.path].get(key)
        if before is not None:  # `before` was opened before the dir went offline
            self.figures[log_dir.path].remove(before)
        self._on[log_dir.path][key] = log
        self.figures[log_dir.path].add(log)
        self._opened[key] = Replica(log, log_dir)
        self._offline.pop(key, None)
        self._incomplete.pop(key, None)
        self.catalog.note(key, log_dir.directory_id)

    def found_incomplete(self, key: TopicPartition, replica: IncompleteReplica) -> None:
        """Remember that a copy of a replica is readable, but may lack records."""
        self._incomplete[key] = replica
        self._offline.pop(key, None)
        if self._absent_in(key) is None:
            self.catalog.note(key, replica.log_dir.directory_id)
        self._keep_one(key, replica.log_dir)

    def found_offline(self, key: TopicPartition, replica: OfflineReplica) -> None:
        """Remember that a replica cannot be opened, although its log dir works."""
        self._offline[key] = replica
        earlier = self._incomplete.get(key)
        if earlier is not None and _is_from_before(earlier.log_dir, replica.log_dir):
            self._incomplete.pop(key, None)
        self._keep_one(key, replica.log_dir)

    def _keep_one(self, key: TopicPartition, log_dir: LogDir) -> None:
        """Keep only the `opened` record, if its log dir works; forget an outdated `opened` record.

        Two log dirs can come back at the same time. `add` adds the `opened` record first, and then
        removes other records. So only the `opened` record remains, in whatever order the threads
        run.
        """
        replica = self.opened.get(key)
        if replica is not None and not replica.log_dir.is_offline:
            self._offline.pop(key, None)
            self._incomplete.pop(key, None)
        elif replica is not None and _is_from_before(replica.log_dir, log_dir):
            self.forget_opened(key)

    def only_offline(self, found: dict[TopicPartition, OfflineReplica]) -> None:
        """Replace all records of offline replicas, after all log dirs were listed."""
        self.offline = self._offline = found

    def remove(self, key: TopicPartition) -> None:
        """Forget all records of a replica."""
        self.forget_opened(key)
        self._incomplete.pop(key, None)
        self._offline.pop(key, None)

    def records_of(self, log_dir: LogDir) -> list[tuple[TopicPartition, Record]]:
        """List all records of a log dir's replicas, even those that it had when it failed."""
        known: list[Mapping[TopicPartition, Record]] = [self.opened, self.incomplete, self.offline]
        return [
            (key, record)
            for records in known
            for key, record in list(records.items())
            if record.log_dir.path == log_dir.path
        ]

    def forget_record(self, key: TopicPartition, record: Record) -> None:
        """Forget one record, unless another record has replaced it."""
        if self.opened.get(key) is record:
            self.forget_opened(key)
        for records in (self._incomplete, self._offline):
            if records.get(key) is record:
                records.pop(key, None)

    def forget_opened(self, key: TopicPartition) -> None:
        """Forget that a replica is open; keep its other records."""
        replica = self._opened.pop(key, None)
        if replica is not None:
            log = self._on[replica.log_dir.path].pop(key)
            self.figures[replica.log_dir.path].remove(log)

    def moved(self, key: TopicPartition, log_dir: LogDir) -> None:
        """Remember that a log is now in another log dir. The caller must have reserved the key."""
        log, old_dir = self.opened[key]
        self._on[log_dir.path][key] = log
        self.figures[log_dir.path].add(log)
        self._opened[key] = Replica(log, log_dir)
        self.catalog.note(key, log_dir.directory_id)
        del self._on[old_dir.path][key]
        self.figures[old_dir.path].remove(log)
        self._arrived.setdefault(log_dir.path, []).append(log)
        self.on_move(key, old_dir.path, log_dir.path)
        if log_dir.is_offline:  # the log dir failed before the log arrived in it
            log.detach(log_dir.offline_error(), of=log_dir)

    def take_arrived(self, log_dir: LogDir) -> list[Log]:
        """Return the logs that arrived in a log dir by moves since the last call of this method."""
        return self._arrived.pop(log_dir.path, [])

    def take_offline(self, key: TopicPartition, error: LogStoreError) -> None:
        """Stop serving an opened or incomplete replica, although its log dir still works."""
        log_dir = (self.opened.get(key) or self.incomplete[key]).log_dir
        self._offline[key] = OfflineReplica(error, log_dir)
        self.forget_opened(key)
        self._incomplete.pop(key, None)
        log_dir.not_loaded.add(key)

    def offline_count(self) -> int:
        """Count the replicas that cannot be used, including absent replicas."""
        dirs = [replica.log_dir for replica in list(self.opened.values())]
        dirs += [replica.log_dir for replica in list(self.incomplete.values())]
        dark = sum(log_dir.is_offline for log_dir in dirs)
        return dark + len(self.offline) + len(self.absent())

    def lookup(self, topic: str, partition: int) -> Replica:
        """Find an opened replica.

        Raises:
            LogDirOfflineError: the replica is, or may be, in an offline log dir.
            ReplicaOfflineError: the replica could not be opened.
            UnknownPartitionError: there is no such replica.
        """
        key = partition_named(topic, partition)
        replica = self.opened.get(key)
        if replica is not None:
            if replica.log_dir.is_offline:
                raise replica.log_dir.offline_error()
            return replica
        incomplete = self.incomplete.get(key)
        if incomplete is not None:
            incomplete.log_dir.check()
            return Replica(incomplete.log, incomplete.log_dir)
        offline = self.offline.get(key)
        if offline is not None:
            return self._lookup_offline(key, offline)
        validate_topic(topic)
        validate_partition(partition)
        self.check_not_absent(key)
        if not self.catalog.is_known or self.catalog.unsure_ids:
            self.check_no_dir_is_bad(key)
        raise UnknownPartitionError(topic=topic, partition=partition)

    def check_not_absent(self, key: TopicPartition) -> None:
        """Raise LogDirOfflineError for a replica that is known to be on a bad log dir."""
        if self._absent_in(key) is not None:
            raise self.bad_dir_error(key)

    def _absent_error(
        self, key: TopicPartition, directory_id: str, bad: Sequence[LogDir]
    ) -> LogDirError:
        may_be = [d for d in bad if d.directory_id == directory_id]
        may_be = may_be or [d for d in bad if not d.directory_id]
        path = may_be[0].path if may_be else directory_id
        why = f"{path}: {_why_bad(may_be[0])}" if may_be else missing_remedy(directory_id)
        told = directory_id + ("" if may_be else last_at(self.last_path_of(directory_id)))
        reason = f"{key} is in the log dir with id {told}, which does not serve: {why}"
        return LogDirOfflineError(path=path, reason=reason)

    def _lookup_offline(self, key: TopicPartition, offline: OfflineReplica) -> Replica:
        """If a replica did not open for lack of a resource, try again, or raise its error."""
        offline.log_dir.check()
        if offline.open_again is None:
            raise copy.copy(offline.error)
        with self.reserved(key):
            if key in self.offline:
                offline.open_again()
                self._offline.pop(key, None)
            replica = self.opened.get(key)
            incomplete = self.incomplete.get(key)
        if replica is None and incomplete is not None:
            replica = Replica(incomplete.log, incomplete.log_dir)
        if replica is None:
            raise UnknownPartitionError(topic=key.topic, partition=key.partition)
        return replica

    def check_no_dir_is_bad(self, key: TopicPartition, advice: str = "") -> None:
        """Raise LogDirError if a replica that is not found may be on a bad log dir."""
        if self.returning or self.is_a_dir_bad():
            raise self.bad_dir_error(key, advice)

    def bad_dir_error(self, key: TopicPartition, advice: str = "") -> LogDirError:
        """Make an error that names the bad log dirs which contain, or may contain, a replica."""
        bad = [d for d in self.log_dirs if d.is_offline or d in self.returning]
        directory_id = self._absent_in(key)
        if directory_id is not None:
            return self._absent_error(key, directory_id, bad)
        old = [d for d in self.log_dirs if d.is_outdated and d not in bad]
        names = [f"{d.path} ({_why_bad(d)})" for d in [*bad, *old]]
        if len(self.missing_ids) > len(bad):
            paths = [(id_, last_at(self.last_path_of(id_))) for id_ in self.missing_ids]
            names += [f"the log dir with id {id_}{p} ({missing_remedy(id_)})" for id_, p in paths]
        path, *_ = [*(d.path for d in [*bad, *old]), *self.missing_ids, self.log_dirs[0].path]
        reason = f"{key} is on no log dir that serves; it may be on: {', '.join(names)}"
        kind = LogDirOfflineError if bad or self.missing_ids else LogDirError
        return kind(path=path, reason=reason + advice)

    def last_path_of(self, directory_id: str) -> str | None:
        """Return the last path of a missing log dir; return None if no log dir has recorded it."""
        told = (log_dir.generation.paths.get(directory_id) for log_dir in self.log_dirs)
        return next((path for path in told if path is not None), None)

    def is_a_dir_bad(self) -> bool:
        """Check whether a log dir is missing, OFFLINE or OUTDATED, so its contents are unknown."""
        return bool(self.missing_ids) or any(log_dir.is_away for log_dir in self.log_dirs)

    def is_a_dir_in_doubt(self) -> bool:
        """Check whether a log dir is missing, OFFLINE, OUTDATED or SUSPECT.

        The copies in a bad log dir may be lost, so they are no reason to purge another copy.
        """
        return self.is_a_dir_bad() or any(log_dir.is_suspect for log_dir in self.log_dirs)

    def find_dir(self, path: str) -> LogDir | None:
        """Find a log dir by its resolved path."""
        return next((log_dir for log_dir in self.log_dirs if log_dir.path == path), None)

    def dir_of(self, path: str) -> LogDir:
        """Find a log dir by its own `path`. Raises LogDirError if it was removed."""
        log_dir = self.find_dir(path)
        if log_dir is None:
            raise LogDirError(path=path, reason="the path is no longer a log dir of this store")
        return log_dir
