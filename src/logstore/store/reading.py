"""Give the reading half of a store: look up, iterate, describe, measure, verify."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from logstore.disk import files
from logstore.disk.log_dir import LogDir
from logstore.errors import LogClosedError, LogDirError, LogStoreError
from logstore.log.environment import LogEnvironment
from logstore.log.log import Log
from logstore.names import TopicPartition
from logstore.store.replicas import Replicas

if TYPE_CHECKING:
    from logstore.store.describe import (
        DescribeDirsResponse,
        LogDirDescription,
        StoreMetrics,
    )
    from logstore.store.recovery_report import RecoveryReport, VerifiedLog, VerifyReport


class StoreReader:
    """The part of a store that its owner and its readers in other processes share.

    Attributes:
        recovery_report: what opening the store found and did.
    """

    recovery_report: RecoveryReport
    _replicas: Replicas
    _environment: LogEnvironment
    _closed: str | None = None

    def _check(self) -> None:
        """Raise LogClosedError when the store was closed, or opened before a fork."""
        if self._closed is not None:
            raise LogClosedError(reason=self._closed)
        self._environment.check_process()

    def _refresh(self) -> None:
        """Look for what another process has changed; the owner knows already."""

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The configured log dirs, resolved, offline ones included."""
        return tuple(log_dir.path for log_dir in self._replicas.log_dirs)

    # --- partitions -------------------------------------------------------------------------------

    def log(self, topic: str, partition: int) -> Log:
        """Find a partition's log.

        Raises:
            UnknownPartitionError: there is no such partition.
            LogDirOfflineError: its log dir is offline, or it is not found while one is.
            ReplicaOfflineError: its log dir is good, but this replica cannot be used.
        """
        self._check()
        return self._replicas.lookup(topic, partition).log

    def __getitem__(self, key: tuple[str, int]) -> Log:
        """Find a partition's log: `store["orders", 0]`."""
        topic, partition = key
        return self.log(topic, partition)

    def __contains__(self, key: object) -> bool:
        """Tell whether a partition is known, be it offline or not."""
        self._check()
        return key in self._replicas

    def __len__(self) -> int:
        """Count the partitions, offline ones included."""
        self._check()
        self._refresh()
        return len(self._replicas)

    def __bool__(self) -> bool:
        """Be true, also when empty."""
        return True

    def __iter__(self) -> Iterator[TopicPartition]:
        """Go through the partitions in order, offline ones included."""
        self._check()
        self._refresh()
        return iter(self._replicas.names())

    # --- figures, all from memory -----------------------------------------------------------------

    def describe_dirs(
        self, log_dirs: Collection[str | os.PathLike[str]] = (), topics: Collection[str] = ()
    ) -> DescribeDirsResponse:
        """Describe log dirs and what is in them, as KIP-113's DescribeDirsRequest; empty: all."""
        from logstore.store.describe import DescribeDirsResponse

        self._check()
        wanted = [self._dir_named(path) for path in log_dirs] or self._replicas.log_dirs
        return DescribeDirsResponse(tuple(self._describe(log_dir, topics) for log_dir in wanted))

    def _dir_named(self, path: str | os.PathLike[str]) -> LogDir:
        """Find a log dir of this store by whatever name leads to it."""
        name = os.fspath(path)
        found = self._replicas.find_dir(os.path.abspath(name))
        if found is None:
            found = self._replicas.find_dir(files.real_path(name))
        if found is None:
            raise LogDirError(path=name, reason="it is not one of the log dirs of this store")
        return found

    def _describe(self, log_dir: LogDir, topics: Collection[str]) -> LogDirDescription:
        from logstore.store.describe import LogDirDescription, PartitionDescription

        partitions = [
            PartitionDescription(log.topic, log.partition, log.size_bytes, False, 0)
            for log in self._replicas.on(log_dir)
            if not topics or log.topic in topics
        ]
        partitions += [
            PartitionDescription(key.topic, key.partition, 0, False, 0)
            for key, replica in list(self._replicas.offline.items())
            if replica.log_dir is log_dir and (not topics or key.topic in topics)
        ]
        return LogDirDescription(
            log_dir.path,
            not log_dir.is_offline,
            log_dir.offline_reason,
            log_dir.state.value,
            log_dir.usage.total_bytes,
            log_dir.usage.usable_bytes,
            tuple(sorted(partitions)),
        )

    def metrics(self) -> StoreMetrics:
        """Take a frozen snapshot of the gauges."""
        from logstore.store.describe import LogDirMetrics, StoreMetrics

        rows = tuple(
            LogDirMetrics(
                row.path,
                row.state,
                len(row.partitions),
                sum(partition.size for partition in row.partitions),
                row.total_bytes,
                row.usable_bytes,
            )
            for row in self.describe_dirs().log_dirs
        )
        # A dir of the roster that was not configured is as offline as one that failed.
        bad = sum(log_dir.is_offline for log_dir in self._replicas.log_dirs)
        return StoreMetrics(
            max(bad, len(self._replicas.missing_ids)),
            self._replicas.offline_count(),
            len(self._replicas),
            sum(row.size_bytes for row in rows),
            rows,
        )

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
            progress: called before each log with it, its number, and how many there are.
        """
        from logstore.store.recovery_report import VerifyReport

        self._check()
        self._refresh()
        keys = [
            key
            for key in self._replicas.names()
            if topic in (None, key.topic) and partition in (None, key.partition)
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
                yield VerifiedLog(key, log_dir, tuple(log.verify()))
            except LogStoreError as error:
                yield VerifiedLog(key, log_dir, (), error)
