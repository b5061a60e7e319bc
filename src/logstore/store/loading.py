"""Open what is in the log dirs: list, decide by the start-up table, recover in parallel per dir."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from logstore.disk.failures import reason_of
from logstore.disk.log_dir import LogDir
from logstore.errors import (
    LogDirOfflineError,
    LogStoreError,
    ReplicaOfflineError,
)
from logstore.log.environment import LogEnvironment
from logstore.log.log import Log
from logstore.names import TopicPartition
from logstore.store.creating import is_deleted, rename_away
from logstore.store.listing import Listing, list_log_dir, remove_leftovers, tell_apart
from logstore.store.parallel import run_all
from logstore.store.recovery_report import OfflineDir, OfflineEntry, RecoveryReport
from logstore.store.replicas import OfflineReplica, Replicas
from logstore.store.startup import Act, Decision, ReplicaFacts, decide


class RecoveryProgress(NamedTuple):
    """How far the opening of a store has come."""

    logs_done: int
    logs_total: int
    scanned_bytes: int
    log_dir: str
    topic_partition: TopicPartition


class Loader:
    """One opening of all logs of a store."""

    def __init__(
        self,
        replicas: Replicas,
        environment: LogEnvironment,
        report: RecoveryReport,
        *,
        threads_per_dir: int,
        progress: Callable[[RecoveryProgress], None] | None = None,
    ) -> None:
        self.replicas = replicas
        self.environment = environment
        self.report = report
        self.threads_per_dir = threads_per_dir
        self.progress = progress
        self.purges: list[tuple[LogDir, str]] = []
        self._lock = threading.Lock()
        self._is_stopped = False
        self._done = 0
        self._total = 0
        self._scanned_bytes = 0
        self._broken: BaseException | None = None

    def load(self) -> None:
        """Open everything that can be opened; what cannot is in the report."""
        listings: dict[str, Listing] = {}
        good = [log_dir for log_dir in self.replicas.log_dirs if not log_dir.is_offline]

        def list_one(log_dir: LogDir) -> None:
            try:
                listing = list_log_dir(log_dir)
                remove_leftovers(listing)
                log_dir.warnings += log_dir.checkpoints.load()
                listings[log_dir.path] = listing
            except OSError as error:
                log_dir.take_offline(f"it cannot be listed: {reason_of(error)}")

        run_all(good, list_one)
        found = [facts for listing in listings.values() for facts in listing.replicas]
        queues: dict[str, deque[ReplicaFacts]] = {log_dir.path: deque() for log_dir in good}
        for decision in decide(tell_apart(found), is_a_dir_bad=self.replicas.is_a_dir_bad()):
            self._act(decision, queues)
        self._total = sum(map(len, queues.values()))
        self._recover(good, queues)
        if self._broken is not None:
            raise self._broken
        for log_dir in good:
            listing = listings.get(log_dir.path)
            self.report.warnings += listing.warnings if listing else []
        self._finish()

    def _act(self, decision: Decision, queues: dict[str, deque[ReplicaFacts]]) -> None:
        """Take note of what one decision asks for."""
        first, paths = decision.replicas[0], decision.paths
        log_dir = self.replicas.dir_of(first.log_dir)
        if decision.act is Act.OPEN:
            queues[first.log_dir].append(first)
        elif decision.act is Act.OFFLINE:
            for facts in decision.replicas:
                self.replicas.dir_of(facts.log_dir).is_fully_loaded = False
            self._take_offline(decision.topic_partition, log_dir, decision.error(), paths)
        elif decision.act is Act.PURGE:
            self.purges.append((log_dir, paths[0]))
            self.report.warnings.append(f"{paths[0]}: {decision.reason}; it is purged")
        else:
            self.report.warnings.append(f"{paths[0]}: {decision.reason}")

    def _recover(self, good: list[LogDir], queues: dict[str, deque[ReplicaFacts]]) -> None:
        """Open the logs, several threads per dir; a dir that fails stops its own queue only."""
        # A clean dir is all Python and no disk: more threads would only wait for each other.
        lanes = [
            log_dir
            for log_dir in good
            for _ in range(1 if log_dir.was_clean else self.threads_per_dir)
            if queues[log_dir.path]
        ]
        if all(log_dir.was_clean for log_dir in good) and self._total < 64:
            for log_dir in dict.fromkeys(lanes):
                self._drain(log_dir, queues[log_dir.path])
            return
        run_all(
            lanes, lambda log_dir: self._drain(log_dir, queues[log_dir.path]), on_break=self._stop
        )

    def _stop(self) -> None:
        """Let every lane end after the log that it is at."""
        self._is_stopped = True

    def _drain(self, log_dir: LogDir, queue: deque[ReplicaFacts]) -> None:
        while not self._is_stopped:
            try:
                facts = queue.popleft()
            except IndexError:
                return
            key = TopicPartition(facts.topic, facts.partition)
            try:
                self._open(key, log_dir, facts)
            except LogStoreError as error:
                path = os.path.join(log_dir.path, facts.dir_name)
                self._take_offline(key, log_dir, error, [path])
                if error.retriable:
                    again = partial(self._open, key, log_dir, facts)
                    self.replicas.offline[key] = OfflineReplica(error, log_dir, again)

    def _open(self, key: TopicPartition, log_dir: LogDir, facts: ReplicaFacts) -> None:
        """Open one log, which recovers it."""
        log_dir.check()
        topic, partition = key
        try:
            log = Log.open(
                log_dir,
                facts.dir_name,
                self.environment,
                recovery_point=log_dir.checkpoints.recovery_point(key),
                log_start_offset=log_dir.checkpoints.log_start_offset(key),
                is_clean=log_dir.was_clean,
                progress=partial(self._advance, log_dir, key),
            )
        except OSError as error:
            raise log_dir.failed(error, facts.dir_name, topic, partition) from error
        except LogStoreError:
            raise
        except Exception as error:
            reason = f"opening it failed: {type(error).__name__}: {error}"
            raise ReplicaOfflineError(topic=topic, partition=partition, reason=reason) from error
        if is_deleted(log):
            path = rename_away(log, log_dir, key)
            with self._lock:
                self.purges.append((log_dir, path))
            return
        self.replicas.add(key, log, log_dir)
        if log.recovery.problems:
            log_dir.is_fully_loaded = False
        with self._lock:
            self._done += 1
            self.report.entries.append(log.recovery)
        self._advance(log_dir, key, 0)

    def _advance(self, log_dir: LogDir, key: TopicPartition, scanned_bytes: int) -> None:
        """Tell how far it has come; what the callback raises ends the opening."""
        with self._lock:
            self._scanned_bytes += scanned_bytes
            if self.progress is None or self._is_stopped:
                return
            try:
                self.progress(
                    RecoveryProgress(
                        self._done, self._total, self._scanned_bytes, log_dir.path, key
                    )
                )
            except BaseException as error:  # noqa: BLE001 - raised again at the end
                self._broken = error
                self._is_stopped = True

    def _take_offline(
        self, key: TopicPartition, log_dir: LogDir, error: LogStoreError, paths: Iterable[str]
    ) -> None:
        """Note that a replica is not served; its dir is not closed as clean because of it."""
        log_dir.is_fully_loaded = False
        self.replicas.offline[key] = OfflineReplica(error, log_dir)
        if not isinstance(error, LogDirOfflineError):
            with self._lock:
                self.report.offline.append(OfflineEntry(key, tuple(paths), error))

    def _finish(self) -> None:
        """Put the report in order."""
        self.progress = None
        self.report.entries.sort(key=lambda entry: (entry.topic, entry.partition))
        self.report.offline.sort(key=lambda entry: entry.topic_partition)
        for log_dir in self.replicas.log_dirs:
            self.report.warnings += log_dir.warnings
            if log_dir.is_offline:
                reason = log_dir.offline_reason or ""
                self.report.offline_dirs.append(OfflineDir(log_dir.path, reason))
            elif not log_dir.was_clean:
                self.report.was_clean = False
