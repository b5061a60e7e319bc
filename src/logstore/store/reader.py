"""Give the reading half of a store: look up, iterate, describe, measure, verify."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from logstore.arguments import callback, known_as, many, path_of, text, wrong
from logstore.disk import files
from logstore.disk.log_dir import LogDir
from logstore.errors import LogClosedError, LogDirError, LogStoreError
from logstore.log.log import Log
from logstore.names import TopicPartition, key_or_none, validate_partition, validate_topic
from logstore.store.state import StoreState

if TYPE_CHECKING:
    from logstore.store.describe import (
        DescribeDirsResponse,
        LogDirDescription,
        StoreMetrics,
    )
    from logstore.store.recovery_report import VerifiedLog, VerifyReport


@known_as("LogStore")
class StoreReader(StoreState):
    """The part of a store that its owner and its readers in other processes share."""

    def _check(self) -> None:
        """Raise LogClosedError if the store was closed, or opened before a fork."""
        if self._closed is not None:
            raise LogClosedError(reason=self._closed)
        self._environment.check_process()

    def _refresh(self) -> None:
        """Read what another process has changed; the owner knows it already."""

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The configured log dirs, resolved, offline ones included."""
        return tuple(log_dir.path for log_dir in self._replicas.log_dirs)

    # --- partitions -------------------------------------------------------------------------------

    def log(self, topic: str, partition: int) -> Log:
        """Find a partition's log.

        Raises:
            UnknownPartitionError: there is no such partition.
            LogDirOfflineError: its log dir is offline; or it was not found, and a log dir is
                offline.
            ReplicaOfflineError: its log dir is good, but this replica cannot be used.
        """
        self._check()
        return self._replicas.lookup(topic, partition).log

    def __getitem__(self, key: tuple[str, int]) -> Log:
        """Find a partition's log: `store["orders", 0]`."""
        if not isinstance(key, tuple | list) or len(key) != 2:
            raise wrong("the key of a partition", "a pair (topic, partition)", key)
        return self.log(*key)

    def __contains__(self, key: object) -> bool:
        """Check whether a partition is known, even if it is offline."""
        self._check()
        return key_or_none(key) in self._replicas

    def __len__(self) -> int:
        """Count the partitions, offline ones included."""
        self._check()
        self._refresh()
        return len(self._replicas)

    def _count(self) -> int:
        """Count the known partitions without touching the disks."""
        return len(self._replicas)

    def __bool__(self) -> bool:
        """Return True, also for an empty store."""
        return True

    def __iter__(self) -> Iterator[TopicPartition]:
        """Iterate over the partitions in order, offline ones included."""
        self._check()
        self._refresh()
        return iter(self._replicas.names())

    # --- figures, all from memory -----------------------------------------------------------------

    def describe_dirs(
        self, log_dirs: Collection[str | os.PathLike[str]] = (), topics: Collection[str] = ()
    ) -> DescribeDirsResponse:
        """Describe log dirs and their replicas as KIP-113's DescribeDirsRequest; empty: all.

        A path that is no log dir of the store gets an entry with an error.
        """
        from logstore.store.describe import DescribeDirsResponse, describe_stranger

        self._check()
        names = [path_of(one, "log_dirs") for one in many(log_dirs, "log_dirs", "paths")]
        topics = [text(one, "topics") for one in many(topics, "topics", "text")]
        names = names or list(self.log_dirs)
        found = [(name, self._find_dir(name)) for name in names]
        return DescribeDirsResponse(
            tuple(
                describe_stranger(name) if log_dir is None else self._describe(log_dir, topics)
                for name, log_dir in found
            )
        )

    def _dir_named(self, path: str | os.PathLike[str]) -> LogDir:
        """Find a log dir of this store by any path that leads to it."""
        name = path_of(path, "a log dir")
        found = self._find_dir(name)
        if found is None:
            reason = f"it is not one of the log dirs of this store: {', '.join(self.log_dirs)}"
            raise LogDirError(path=name, reason=reason)
        return found

    def _find_dir(self, name: str) -> LogDir | None:
        """Find a log dir; the disk is read only if the name may be a symlink to one."""
        found = self._replicas.find_dir(os.path.abspath(name))
        return found or self._replicas.find_dir(files.real_path(name))

    def _describe(self, log_dir: LogDir, topics: Collection[str]) -> LogDirDescription:
        from logstore.store.describe import describe_dir

        return describe_dir(self._replicas, log_dir, topics)

    def metrics(self) -> StoreMetrics:
        """Take a frozen snapshot of the gauges."""
        from logstore.store.describe import measure

        return measure(self._replicas, self.describe_dirs().log_dirs)

    # --- verification -----------------------------------------------------------------------------

    def verify(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        progress: Callable[[TopicPartition, int, int], None] | None = None,
    ) -> VerifyReport:
        """Read every batch of some or all logs and check it; changes nothing.

        Args:
            progress: called before each log with the log, its number, and the number of logs.
        """
        from logstore.store.recovery_report import VerifyReport

        topic = None if topic is None else validate_topic(topic)
        partition = None if partition is None else validate_partition(partition)
        callback(progress, "progress")
        self._check()
        self._refresh()
        keys = [
            key for key in self if topic in (None, key.topic) and partition in (None, key.partition)
        ]
        if not keys and topic is not None and partition is not None:
            self.log(topic, partition)
        return VerifyReport(tuple(self._verify(keys, progress)))

    def _verify(
        self,
        keys: Sequence[TopicPartition],
        progress: Callable[[TopicPartition, int, int], None] | None,
    ) -> Iterator[VerifiedLog]:
        from logstore.store.recovery_report import VerifiedLog

        for number, key in enumerate(keys):
            if progress is not None:
                progress(key, number, len(keys))
            log_dir = ""
            try:
                log = self.log(*key)
                log_dir = log.log_dir
                problems = tuple(log.verify())
                yield VerifiedLog(key, log_dir, problems, is_repairable=log.is_repairable)
            except LogStoreError as error:
                yield VerifiedLog(key, log_dir, (), error)
