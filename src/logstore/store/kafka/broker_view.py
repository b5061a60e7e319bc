"""Read the log dirs of a Kafka broker in place, as a store, without writing or locking.

If a replica has two live directories, the replica is offline, and the error contains both paths. (A
broker refuses to start with two live directories.) If only the unfinished copy of a move exists,
the replica is offline too, because that copy lacks records.

To swap a replica, a broker renames the copy to the live name, syncs, and only then renames the
source. So if a replica is found twice while the broker may be running, the dirs are listed
repeatedly, for a limited time.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from time import monotonic, sleep
from typing import cast

from logstore.arguments import StrPath
from logstore.config import StoreConfig
from logstore.disk.failures import reason_of
from logstore.disk.log_dir import LogDir
from logstore.errors import (
    DuplicateLogError,
    LogDirIdentityError,
    LogStoreError,
    ReplicaIncompleteError,
    UnknownPartitionError,
)
from logstore.log.environment import LogEnvironment
from logstore.log.kafka.partition_view import open_kafka_view, read_topic_id
from logstore.log.log import Log
from logstore.log.metadata import PartitionMetadata
from logstore.names import TopicPartition
from logstore.store.admin.admin import Admin
from logstore.store.dirs.dir_failures import DirFailures
from logstore.store.kafka.broker import missing_dirs
from logstore.store.kafka.broker_listing import (
    KafkaListing,
    KafkaMeta,
    KafkaReplica,
    list_kafka_dir,
    read_meta,
)
from logstore.store.replicas import OfflineReplica, Replicas
from logstore.store.start.fork import watch
from logstore.store.start.identity import resolve
from logstore.store.start.listing import list_at_rest
from logstore.store.start.open_dirs import check_one_serves
from logstore.store.start.startup_table import ReplicaFacts
from logstore.store.state import StoreState
from logstore.store.view import Found, StoreView

# Between the two renames of a swap, a directory is synced.
# The sync takes milliseconds, or longer on a busy disk.
SWAP_SECONDS_MAX = 1.0
PAUSE_SECONDS = 0.02


class BrokerDirs:
    """The log dirs of a Kafka broker, as a reader sees them.

    Threads: only the view calls this object, and only in one thread at a time.

    Attributes:
        listings: the newest listing of each log dir; the key is the path of the log dir.
    """

    def __init__(self, replicas: Replicas, environment: LogEnvironment) -> None:
        self.listings: dict[str, KafkaListing] = {}
        self._replicas = replicas
        self._environment = environment
        self._twice: set[TopicPartition] = set()

    def look(self, before: Collection[ReplicaFacts]) -> Found:
        """List the log dirs that can be listed, and choose the replicas that can be opened."""
        replicas: dict[TopicPartition, list[KafkaReplica]] = defaultdict(list)
        for listing in self._list_swapped():
            for replica in listing.replicas:
                replicas[replica.key].append(replica)
        found = Found({}, {})
        for key, copies in replicas.items():
            self._decide(key, copies, found)
        return found

    def _list_swapped(self) -> list[KafkaListing]:
        """List the log dirs repeatedly while a swap may run; wait only once per replica."""
        deadline = monotonic() + SWAP_SECONDS_MAX
        while True:
            found = list_at_rest(self._replicas.log_dirs, self._list_dirs)
            keys = [each.key for row in found for each in row.replicas if each.kind == "live"]
            twice = {key for key, count in Counter(keys).items() if count > 1}
            is_stopped = all(listing.was_stopped for listing in found)
            if is_stopped or twice <= self._twice or monotonic() > deadline:
                self._twice = twice
                return found
            sleep(PAUSE_SECONDS)

    def _list_dirs(self) -> list[KafkaListing]:
        """List the working log dirs; if a log dir cannot be listed, take it offline."""
        found = []
        for log_dir in self._replicas.log_dirs:
            if log_dir.is_offline:
                continue
            try:
                listing = list_kafka_dir(log_dir.path)
                log_dir.refresh_usage()
            except OSError as error:
                log_dir.take_offline(f"it cannot be listed: {reason_of(error)}")
                continue
            self.listings[log_dir.path] = listing
            found.append(listing)
        return found

    def _decide(self, key: TopicPartition, replicas: Sequence[KafkaReplica], found: Found) -> None:
        """Choose a replica's only live directory, or record why no directory can be chosen.

        A replica that has only deleted and stray directories is left out.
        """
        live = [replica.path for replica in replicas if replica.kind == "live"]
        future = [replica.path for replica in replicas if replica.kind == "future"]
        error: LogStoreError
        if len(live) == 1:
            parent, name = os.path.split(live[0])
            found.seen[key] = ReplicaFacts(parent, name, *key, "live")
            return
        if live:
            error = DuplicateLogError(path=live[0], paths=live, **key._asdict())
        elif future:
            reason = f"only the unfinished copy of a move is here: {future[0]}"
            error = ReplicaIncompleteError(reason=reason, **key._asdict())
        else:
            return
        log_dir = self._replicas.dir_of(os.path.dirname((live or future)[0]))
        found.offline[key] = OfflineReplica(error, log_dir)

    def open_log(self, log_dir: LogDir, facts: ReplicaFacts) -> Log:
        """Open one log in place. Raises OSError, LogStoreError."""
        directory = os.path.join(log_dir.path, facts.dir_name)
        key = TopicPartition(facts.topic, facts.partition)
        listing = self.listings[log_dir.path]
        try:
            view = open_kafka_view(
                log_dir,
                directory,
                PartitionMetadata(*key, read_topic_id(directory)),
                self._environment,
                was_stopped=listing.was_stopped,
                known_start=listing.start_offsets.get(key, 0),
                known_end=listing.known_ends.get(key, (0, "")),
            )
        except FileNotFoundError as error:
            raise UnknownPartitionError(**key._asdict()) from error
        return cast(Log, view)


def open_broker_view(log_dirs: StrPath | Iterable[StrPath], config: StoreConfig) -> StoreView:
    """Check that log dirs belong to one broker, and open its logs; see `LogStore.open_kafka`."""
    failures = DirFailures(None, {})
    environment = LogEnvironment(config, read_only=True)
    opened, metas = [], {}
    for path in resolve(log_dirs).paths:
        log_dir = LogDir(path, read_only=True)
        opened.append(log_dir)
        try:
            metas[path] = read_meta(path)
        except OSError as error:
            log_dir.take_offline(f"it cannot be read: {reason_of(error)}")
    check_one_serves(opened)
    for log_dir in opened:
        log_dir.report_to(failures.failed)
        meta = metas.get(log_dir.path)
        if meta is not None:
            log_dir.belong(meta.cluster_id, meta.directory_id)
    warnings = check_one_broker(metas)
    replicas = Replicas(opened, ())
    state = StoreState(config, environment, replicas, failures, Admin(), {})
    watch(state)
    dirs = BrokerDirs(replicas, environment)
    view = StoreView(state, dirs)
    view.refresh()
    for listing in dirs.listings.values():
        warnings += listing.warnings
        state.recovery_report.damaged_files += listing.damage
    known = [meta for meta in metas.values() if meta is not None]
    if known:
        ids = {meta.directory_id for meta in known}
        warnings += missing_dirs(view, ids, max(meta.node_id for meta in known))
    state.recovery_report.warnings += warnings
    view.report()
    failures.arm(replicas)
    return view


def check_one_broker(metas: dict[str, KafkaMeta | None]) -> list[str]:
    """Check that all log dirs belong to one broker; warn about each dir of an unknown broker.

    Raises:
        LogDirIdentityError: the log dirs belong to several brokers.
    """
    warnings = [
        f"{path}: there is no meta.properties, so its broker is unknown"
        for path, meta in metas.items()
        if meta is None
    ]
    known = {path: meta for path, meta in metas.items() if meta is not None}
    for what in ("cluster_id", "node_id"):
        values = {getattr(meta, what): path for path, meta in known.items() if getattr(meta, what)}
        if len(values) > 1:
            named = ", ".join(
                f"{path} belongs to {value}" for value, path in sorted(values.items())
            )
            reason = f"the log dirs belong to several brokers ({what.replace('_', '.')}): {named}"
            raise LogDirIdentityError(path=next(iter(values.values())), reason=reason)
    return warnings
