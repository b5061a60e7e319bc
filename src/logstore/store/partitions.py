"""Look up the partitions of a store: find a log, iterate, describe, measure, verify.

`Partitions` is for the owner, and has the list of partitions in memory. `store/view.StoreView` is
for other processes, and reads the log dirs to find the partitions. All other methods are the same
for the owner and for other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from logstore.arguments import StrPath, callback, many, path_of, text
from logstore.disk.log_dir import LogDir
from logstore.errors import LogStoreError
from logstore.log.log import Log
from logstore.names import TopicPartition, key_or_none, validate_partition, validate_topic
from logstore.store.state import StoreState

if TYPE_CHECKING:
    from logstore.store.describe import (
        DescribeDirsResponse,
        StoreMetrics,
    )
    from logstore.store.recovery_report import VerifiedLog, VerifyReport

Progress = Callable[[TopicPartition, int, int], None]


class Partitions:
    """The partitions of a store, for the process that owns it.

    If the store is closed, every call raises LogClosedError, except `known` and `known_count`.
    """

    def __init__(self, state: StoreState) -> None:
        self._state = state

    def refresh(self) -> None:
        """Read the changes that another process made; the owner itself has nothing to read."""
        self._state.check()

    def log(self, topic: str, partition: int) -> Log:
        """Find a partition's log; see `LogStore.log`."""
        self._state.check()
        return self._state.replicas.lookup(topic, partition).log

    def __contains__(self, key: object) -> bool:
        self._state.check()
        return key_or_none(key) in self._state.replicas

    def __len__(self) -> int:
        self.refresh()
        return self.known_count()

    def __iter__(self) -> Iterator[TopicPartition]:
        self.refresh()
        return iter(self.known())

    def known(self) -> list[TopicPartition]:
        """List all known partitions in order, even offline partitions. This uses no disk."""
        return self._state.replicas.names()

    def known_count(self) -> int:
        """Count the known partitions; this uses no disk."""
        return len(self._state.replicas)

    # --- figures, all from memory -----------------------------------------------------------------

    def describe_dirs(
        self, log_dirs: Collection[StrPath] = (), topics: Collection[str] = ()
    ) -> DescribeDirsResponse:
        """Describe log dirs and their replicas; see `LogStore.describe_dirs`."""
        from logstore.store.describe import DescribeDirsResponse, Whereabouts, describe_stranger

        self._state.check()
        names = [path_of(one, "log_dirs") for one in many(log_dirs, "log_dirs", "paths")]
        topics = [text(one, "topics") for one in many(topics, "topics", "text")]
        names = names or list(self._state.log_dirs)
        found = [(name, self._state.find_dir(name)) for name in names]
        for _, log_dir in found:
            if log_dir is not None:
                self._look_into(log_dir)
        now = Whereabouts(self._state.replicas)
        return DescribeDirsResponse(
            tuple(
                describe_stranger(name) if log_dir is None else now.describe(log_dir, topics)
                for name, log_dir in found
            )
        )

    def _look_into(self, log_dir: LogDir) -> None:
        """Open the logs of a log dir before it is described; the owner has already opened them."""

    def metrics(self) -> StoreMetrics:
        """Take a frozen snapshot of the gauges."""
        from logstore.store.describe import measure

        return measure(self._state.replicas, self.describe_dirs().log_dirs)

    # --- verification -----------------------------------------------------------------------------

    def verify(
        self, topic: str | None, partition: int | None, progress: Progress | None
    ) -> VerifyReport:
        """Read and check every batch of some or all logs; see `LogStore.verify`."""
        from logstore.store.recovery_report import VerifyReport

        topic = None if topic is None else validate_topic(topic)
        partition = None if partition is None else validate_partition(partition)
        callback(progress, "progress")
        keys = [
            key for key in self if topic in (None, key.topic) and partition in (None, key.partition)
        ]
        if not keys and topic is not None and partition is not None:
            self.log(topic, partition)
        return VerifyReport(tuple(self._verify(keys, progress)))

    def _verify(
        self, keys: Sequence[TopicPartition], progress: Progress | None
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
