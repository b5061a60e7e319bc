"""Define the methods of `LogStore` that the owner of a store and its readers share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from logstore.arguments import StrPath, known_as, timeout_of, wrong
from logstore.errors import LogStoreError
from logstore.log.log import Log
from logstore.names import TopicPartition

if TYPE_CHECKING:
    from logstore.disk.documents.facts import Facts
    from logstore.store.describe import DescribeDirsResponse, StoreMetrics
    from logstore.store.dirs.dropped_store import Dropping
    from logstore.store.partitions import Partitions, Progress
    from logstore.store.recovery_report import VerifyReport
    from logstore.store.state import StoreState

Close = Callable[[float | None], tuple[str, ...]]


@known_as("LogStore")
class StoreReader:
    """The methods of every open store: look up, iterate, describe, measure, verify, close.

    Args:
        close: a function that closes the whole store cleanly. The method `close` passes its timeout
            to this function.
    """

    def __init__(self, state: StoreState, partitions: Partitions, close: Close) -> None:
        """Make a store from its parts; users call `LogStore.open` instead."""
        self._state = state
        self._partitions = partitions
        self._close = close
        self._dropping: Dropping | None = None  # None in a view, or if the opening failed
        self.config = state.config
        self.admin = state.admin
        self.host = state.host
        self.recovery_report = state.recovery_report

    def __repr__(self) -> str:
        """Show the log dirs, and the number of partitions in them."""
        state = ", closed" if self._state.closed else ""
        count = self._partitions.known_count()
        return f"<LogStore {count} partitions in {list(self.log_dirs)}{state}>"

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The resolved paths of the configured log dirs, including offline log dirs."""
        return self._state.log_dirs

    @property
    def cluster_id(self) -> str:
        """The id of 32 hex digits that all log dirs of this store have."""
        return next((d.cluster_id for d in self._state.replicas.log_dirs if d.cluster_id), "")

    @property
    def broker_id(self) -> int:
        """The broker id of this store in its cluster, as the log dirs record it."""
        return self._state.broker_id

    # --- partitions -------------------------------------------------------------------------------

    def log(self, topic: str, partition: int) -> Log:
        """Find a partition's log.

        Raises:
            UnknownPartitionError: there is no such partition.
            LogDirOfflineError: the partition is on an offline log dir, or may be on an offline log
                dir because no working log dir has it.
            ReplicaOfflineError: the log dir works, but the replica in it cannot be used.
        """
        return self._partitions.log(topic, partition)

    def __getitem__(self, key: tuple[str, int]) -> Log:
        """Find a partition's log, as in `store["orders", 0]`."""
        if not isinstance(key, tuple | list) or len(key) != 2:
            raise wrong("the key of a partition", "a pair (topic, partition)", key)
        return self.log(*key)

    def __contains__(self, key: object) -> bool:
        """Check whether a partition is known, even if it is offline."""
        return key in self._partitions

    def __len__(self) -> int:
        """Count the partitions, including offline partitions."""
        return len(self._partitions)

    def __bool__(self) -> bool:
        """Return True, so that an empty store counts as true, too."""
        return True

    def __iter__(self) -> Iterator[TopicPartition]:
        """Iterate over the partitions in order, including offline partitions."""
        return iter(self._partitions)

    # --- figures, all from memory -----------------------------------------------------------------

    def describe_dirs(
        self, log_dirs: Collection[StrPath] = (), topics: Collection[str] = ()
    ) -> DescribeDirsResponse:
        """Describe log dirs and their replicas, like the answer to KIP-113's DescribeDirsRequest.

        If an argument is empty, all log dirs or all topics are described. A path that is not a log
        dir of the store gets an entry with an error.
        """
        return self._partitions.describe_dirs(log_dirs, topics)

    def metrics(self) -> StoreMetrics:
        """Take a frozen snapshot of the gauges."""
        return self._partitions.metrics()

    def facts(self, log_dir: StrPath) -> Facts:
        """Return a mapping of small values that a program stores durably in a log dir.

        If the log dir goes offline and returns, the same mapping works again.

        Raises:
            LogDirError: the path is not a log dir of this store.
        """
        from logstore.disk.documents.facts import DirFacts, Facts, facts_of

        def current() -> DirFacts:
            self._state.check()
            return facts_of(self._state.dir_named(log_dir))

        current()
        return Facts(lambda: current().read(), lambda change: current().replace(change))

    # --- verification -----------------------------------------------------------------------------

    def verify(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        progress: Progress | None = None,
    ) -> VerifyReport:
        """Read and check every batch of some or all logs; change nothing.

        Args:
            progress: a function that is called before each log is read. The arguments of `progress`
                are the log's topic and partition, the number of logs before this log, and the
                number of all logs.
        """
        return self._partitions.verify(topic, partition, progress)

    # --- the end ----------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> tuple[str, ...]:
        """Flush and close all logs, then close the log dirs; a second call is allowed.

        Returns the paths of the log dirs that were not closed cleanly. A log dir is not closed
        cleanly if it is offline or SUSPECT, has failed, or still hangs after `timeout` seconds. The
        next start recovers the logs of a log dir that was not closed cleanly. If Ctrl-C interrupted
        a close, a second call completes the close. After a complete close, a second call only
        returns the same paths.

        Raises:
            LogDirOfflineError: a log dir failed in this call; other log dirs are closed cleanly.
                Only the first call of `close` raises this error.
        """
        from logstore.store.state import CLOSED

        timeout = timeout_of(timeout)
        # If the opening failed, nothing is open.
        # In a forked child, everything belongs to the parent.
        return self._close(timeout) if self._state.closed in (None, CLOSED) else ()

    def __enter__(self) -> Self:
        """Return the store. Raises LogClosedError if the store is closed."""
        self._state.check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the store; if the `with` block raised an error, only log an error of the close."""
        try:
            self.close()
        except LogStoreError as failure:
            if error is None:
                raise
            from logstore.store.upkeep.keeper import warn

            warn("closing the store failed: %s", failure)

    def __del__(self, _is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        """Release a store that was not closed; if the process is ending, give only a warning."""
        dropping = getattr(self, "_dropping", None)
        if dropping is not None and self._state.closed is None:
            dropping.dropped(is_exiting=_is_exiting())
