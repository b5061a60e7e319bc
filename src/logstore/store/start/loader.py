"""Open the logs in the log dirs: decide about each directory, then recover logs in parallel.

`reconcile` lists the directories and carries out the decisions of the start-up table. After that,
this module opens the logs. If a log dir returns to a running store, the steps are the same.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import cast

from logstore.disk.calls import SYNCING, call
from logstore.disk.log_dir import LogDir
from logstore.errors import LogDirOfflineError, LogStoreError
from logstore.log.environment import LogEnvironment
from logstore.log.log import Log
from logstore.log.recovery.open_log import open_log
from logstore.names import TopicPartition
from logstore.store.creation import is_deleted, rename_away
from logstore.store.dirs import old_copies
from logstore.store.dirs.parallel import TURN_SECONDS, for_each
from logstore.store.doubts import decisions as doubts
from logstore.store.other_copies import Doomed, MoveFound
from logstore.store.recovery_report import (
    OfflineDir,
    OfflineEntry,
    RecoveryProgress,
    RecoveryReport,
)
from logstore.store.replicas import IncompleteReplica, OfflineReplica, Replica, Replicas
from logstore.store.reservations import Reservation
from logstore.store.start.dir_actions import lower_high_watermarks, make_live
from logstore.store.start.reconcile import Settled, settle, settle_again
from logstore.store.start.replica_facts import only_this, was_deleted
from logstore.store.start.startup_table import Act, Decision, ReplicaFacts
from logstore.store.upkeep.purge import doomed, forget_purged


class Loader:
    """Opens all logs of a store, or all logs of one log dir that came back.

    Attributes:
        purges: lists of directories to remove in the background, each in the order of removal.
    """

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
        self.purges: list[list[Doomed]] = []
        self._lock = threading.Lock()
        self._is_stopped = False
        self._done = 0
        self._total = 0
        self._scanned_bytes = 0
        self._broken: BaseException | None = None
        self._is_serving = False
        # The logs that the recovery threads (lanes) are opening. Only the lanes change `_underway`.
        # Other threads copy it.
        self._underway: set[ReplicaFacts] = set()
        self._reserved: dict[ReplicaFacts, Reservation] = {}
        # The logs that were open in a log dir before it went offline.
        self._held: dict[TopicPartition, Log] = {}

    def load(self) -> None:
        """Open every log that can be opened; the report lists the logs that cannot be opened."""
        catalog = self.replicas.catalog
        good = [log_dir for log_dir in self.replicas.log_dirs if not log_dir.is_offline]
        is_bad = self.replicas.is_a_dir_bad()
        self.report.warnings += catalog.load(good, is_a_dir_bad=is_bad)
        said = {key: log_dir for log_dir in good for key in catalog.on(log_dir.directory_id)}
        self._load(settle(self.replicas, self.environment))
        self._conclude(said, good)
        for log_dir in self.replicas.log_dirs:
            self.report.warnings += log_dir.warnings
            if log_dir.is_offline:
                reason = log_dir.offline_reason or ""
                self.report.offline_dirs.append(OfflineDir(log_dir.path, reason))
            elif not log_dir.was_clean:
                self.report.was_clean = False

    def load_dir(self, log_dir: LogDir) -> None:
        """Open the logs of a returned log dir, and replicas that were undecided without this dir.

        The dir is locked, probed and in `replicas` already. A log that is open in another log dir
        stays open. If a copy in the returned dir outranks an open log, the report has a
        DuplicateLogError.
        """
        known = self.replicas.records_of(log_dir)
        self._is_serving = True
        if log_dir.generation.is_known_to_process:
            self._held = {key: record.log for key, record in known if isinstance(record, Replica)}
        is_bad, turn = self.replicas.is_a_dir_bad(), partial(time.sleep, TURN_SECONDS)
        catalog = self.replicas.catalog
        self.report.warnings += catalog.load([log_dir], is_a_dir_bad=is_bad, turn=turn)
        said = dict.fromkeys(catalog.on(log_dir.directory_id), log_dir)
        self._load(settle_again(self.replicas, self.environment, log_dir))
        # This dir may lack a replica that it once had.
        # For example, a deletion renamed the directory, and then failed.
        for key, record in known:
            if isinstance(record, Replica) or not log_dir.is_offline:
                self.replicas.forget_record(key, record)
        self._conclude(said, [log_dir])
        self.report.warnings += log_dir.warnings
        self.report.was_clean = log_dir.was_clean

    def load_again(self, keys: Iterable[TopicPartition]) -> None:
        """Open the replicas in `keys`, and all undecided replicas, if they can be opened now."""
        self._is_serving = True
        self._load(settle_again(self.replicas, self.environment, None, keys))

    def _conclude(self, said: Mapping[TopicPartition, LogDir], loaded: list[LogDir]) -> None:
        """Compare the contents of log dirs with the catalog's entries, and detect old copies."""
        replicas, report = self.replicas, self.report
        for decision in doubts.close_opened(replicas):
            self._take(decision, {})
        report.entries = [e for e in report.entries if (e.topic, e.partition) in replicas.opened]
        loaded = doubts.with_newly_old(replicas, loaded)
        for key, log_dir, error in doubts.note_missing(replicas, said, loaded):
            report.offline.append(OfflineEntry(key, (log_dir.path,), error))
        if not self._is_serving:
            report.warnings += doubts.disagreements(replicas, said)
        report.warnings += doubts.tell(loaded)
        old_copies.conclude(replicas, loaded, is_start=not self._is_serving)

    def _load(self, settled: Settled) -> None:
        before = dict(self.replicas.offline)
        good = [log_dir for log_dir in self.replicas.log_dirs if not log_dir.is_offline]
        queues: dict[str, deque[ReplicaFacts]] = {log_dir.path: deque() for log_dir in good}
        self.report.warnings += settled.warnings
        for decision in settled.decisions:
            self._take(decision, queues)
        for decision, error in settled.failures:
            key, first = decision.topic_partition, decision.replicas[0]
            log_dir = self.replicas.dir_of(first.log_dir)
            again = partial(self._complete, key, log_dir, first)
            self._take_offline(key, log_dir, error, decision.paths, again)
        self._total = sum(map(len, queues.values()))
        self._recover(good, queues)
        forget_purged(self.replicas, settled.decisions, before)
        self.progress = None
        if self._broken is not None:
            raise self._broken
        self.report.entries.sort(key=lambda entry: (entry.topic, entry.partition))
        self.report.offline.sort(key=lambda entry: entry.topic_partition)

    def _take(self, decision: Decision, queues: dict[str, deque[ReplicaFacts]]) -> None:
        """Apply one decision in memory; the changes on the disks are already made."""
        act, key, first = decision.act, decision.topic_partition, decision.replicas[0]
        log_dir, paths = self.replicas.dir_of(first.log_dir), decision.paths
        self.replicas.copies.forget_move(key, paths)
        if act is Act.OPEN:
            if not first.is_open and first.log_dir in queues:
                queues[first.log_dir].append(first)
        elif act is Act.OFFLINE:
            for facts in decision.replicas:
                self.replicas.dir_of(facts.log_dir).not_loaded.add(key)
            error = decision.error()
            if decision.is_dir_bad and self.replicas.is_a_dir_bad():
                error = self.replicas.bad_dir_error(key)
            self._take_offline(key, log_dir, error, paths)
        elif act is Act.INCOMPLETE:
            again = partial(self._open_incomplete, decision, log_dir)
            try:
                again()
            except LogStoreError as failure:
                self._take_offline(key, log_dir, failure, paths, again)
        elif act is Act.CONFLICT:
            self.report.offline.append(OfflineEntry(key, tuple(paths), decision.error()))
            self.replicas.copies.rivals[first.path] = (key, log_dir)
            log_dir.not_loaded.add(key)
        elif act is Act.RESUME:
            self.replicas.copies.moves[key] = MoveFound(log_dir, first.path, first.size_bytes)
        elif act is Act.PURGE:
            self.purges.append(doomed(self.replicas, decision.replicas))
            self.report.warnings += [f"{path}: {decision.reason}; it is purged" for path in paths]
        else:
            if act is Act.PURGE_COVERED:
                self.replicas.copies.superseded[first.path] = first
            self.replicas.leave(key, decision.replicas)
            self.report.warnings.append(f"{paths[0]}: {decision.reason}; it was not changed")

    def _complete(self, key: TopicPartition, log_dir: LogDir, facts: ReplicaFacts) -> None:
        """Retry the failed rename that completes a swap, and open the log."""
        log_dir.check()
        try:
            with call(log_dir.path, SYNCING):
                live = make_live(log_dir, facts)
        except OSError as error:
            raise log_dir.failed(error, facts.path, *key) from error
        self._open(key, log_dir, live)

    def _open_incomplete(self, decision: Decision, log_dir: LogDir) -> None:
        """Open a copy that may lack records, for reading only. Raises the errors of an opening."""
        from logstore.log.view import open_view

        key, facts = decision.topic_partition, decision.replicas[0]
        opened: list[Log] = []

        def open_it(log_dir: LogDir) -> None:
            with call(log_dir.path, SYNCING), only_this(*key):
                log = open_view(log_dir, facts.dir_name, self.environment, missing=decision.reason)
                opened.append(cast(Log, log))

        (outcome,) = for_each([log_dir], open_it, is_given_up=lambda log_dir: log_dir.is_suspect)
        error = outcome.error
        if opened:
            decision = doubts.with_what_is_missing(decision, log_dir, opened[0])
        if not outcome.is_finished:
            error = log_dir.take_offline(f"it hangs during the start: {log_dir.reason}")
        if error is not None:
            raise error
        others = decision.replicas[1:]
        incomplete = IncompleteReplica(opened[0], log_dir, facts, others)
        self.replicas.found_incomplete(key, incomplete)
        entry = OfflineEntry(key, tuple(decision.paths), decision.error())
        self.report.incomplete.append(entry)

    def _recover(self, good: list[LogDir], queues: dict[str, deque[ReplicaFacts]]) -> None:
        """Open the logs in several threads per dir. If a dir fails, only its own queue stops."""
        # After a clean close, opening a log is Python code that does not wait for the disk.
        # Several threads would only wait for each other.
        # In an open store, they would also take the interpreter's lock, and slow down callers.
        lanes = [
            log_dir
            for log_dir in good
            for _ in range(1 if log_dir.was_clean or self._is_serving else self.threads_per_dir)
            if queues[log_dir.path]
        ]
        if not self._is_serving:
            for log_dir in good:
                log_dir.checkpoints.gather_lowered()
        outcomes = for_each(
            lanes,
            lambda log_dir: self._drain(log_dir, queues[log_dir.path]),
            on_break=self._stop,
            is_given_up=lambda log_dir: log_dir.is_suspect,
        )
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
            if not outcome.is_finished:
                self._leave_hanging(outcome.item, queues[outcome.item.path])
        if not self._is_serving:
            for log_dir in good:
                lower_high_watermarks(log_dir)

    def _leave_hanging(self, log_dir: LogDir, queue: deque[ReplicaFacts]) -> None:
        """Take a hanging log dir offline, and list its logs that are not open yet as offline."""
        log_dir.take_offline(f"it hangs during the start: {log_dir.reason}")
        underway = [facts for facts in self._underway.copy() if facts.log_dir == log_dir.path]
        for facts in [*underway, *queue]:
            key = TopicPartition(facts.topic, facts.partition)
            path = os.path.join(log_dir.path, facts.dir_name)
            self._take_offline(key, log_dir, log_dir.offline_error(), [path])
            reservation = self._reserved.pop(facts, None)
            if reservation is not None:
                self.replicas.give_up(reservation)
        queue.clear()

    def _stop(self) -> None:
        """Stop each recovery thread (lane) after its current log."""
        self._is_stopped = True

    def _drain(self, log_dir: LogDir, queue: deque[ReplicaFacts]) -> None:
        while not self._is_stopped:
            try:
                facts = queue.popleft()
            except IndexError:
                return
            key = TopicPartition(facts.topic, facts.partition)
            self._underway.add(facts)
            try:
                if self._is_serving:
                    self._open_beside_callers(key, log_dir, facts)
                else:
                    with call(log_dir.path, SYNCING) as work:
                        self._open(key, log_dir, facts, work)
            except LogStoreError as error:
                if self.replicas.find_dir(log_dir.path) is not log_dir:
                    return  # another `LogDir` object has replaced `log_dir`
                path = os.path.join(log_dir.path, facts.dir_name)
                again = partial(self._open, key, log_dir, facts)
                self._take_offline(key, log_dir, error, [path], again)
            finally:
                self._underway.discard(facts)
            if self._is_serving:
                time.sleep(TURN_SECONDS)

    def _open_beside_callers(
        self, key: TopicPartition, log_dir: LogDir, facts: ReplicaFacts
    ) -> None:
        """In an open store, open one log, unless a caller has opened it already."""
        with self.replicas.reserved(key) as self._reserved[facts]:
            replica = self.replicas.opened.get(key)
            if replica is not None and not replica.log_dir.is_offline:
                return
            with call(log_dir.path, SYNCING) as work:
                if not was_deleted(self.replicas, log_dir, facts):
                    self._open(key, log_dir, facts, work)

    def _open(
        self, key: TopicPartition, log_dir: LogDir, facts: ReplicaFacts, work: call | None = None
    ) -> None:
        """Open one log, with its recovery."""
        log_dir.check()
        with only_this(*key):
            self._open_checked(key, log_dir, facts, work)

    def _open_checked(
        self, key: TopicPartition, log_dir: LogDir, facts: ReplicaFacts, work: call | None
    ) -> None:
        try:
            state = open_log(
                *(log_dir, facts.dir_name, self.environment),
                log_dir.checkpoints.recovery_point(key),
                log_dir.checkpoints.log_start_offset(key),
                log_dir.was_clean,
                partial(self._advance, log_dir, key, work=work),
                log_dir.checkpoints.topic_ids(key),
            )
        except OSError as error:
            raise log_dir.failed(error, facts.dir_name, *key) from error
        log = Log(state)
        if log_dir.is_offline:  # the dir hung, so no thread waits for the log any more
            log.detach(log_dir.offline_error())
            raise log_dir.offline_error()
        short = doubts.judge(self.replicas, log_dir, facts, log, self._held.get(key))
        if short is not None:
            log.detach(short.error())
            self._open_incomplete(short, log_dir)
            return
        if is_deleted(log):
            path = rename_away(log, log_dir, key)
            with self._lock:
                self.purges.append([Doomed(log_dir, path, is_deletion=True)])
            return
        self.replicas.add(key, log, log_dir)
        (log_dir.not_loaded.add if log.recovery.problems else log_dir.not_loaded.discard)(key)
        with self._lock:
            self._done += 1
            self.report.entries.append(log.recovery)
        self._advance(log_dir, key, 0)

    def _advance(
        self, log_dir: LogDir, key: TopicPartition, scanned_bytes: int, work: call | None = None
    ) -> None:
        """Report the progress; if the callback raises an error, the opening ends."""
        if work is not None:
            work.beat()
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
        self,
        key: TopicPartition,
        log_dir: LogDir,
        error: LogStoreError,
        paths: Iterable[str],
        again: Callable[[], None] | None = None,
    ) -> None:
        """Remember that a replica is offline. So a close will not mark its log dir as clean.

        Args:
            again: a function that opens the replica. If the error is retriable, `again` is called
                when a caller requests the replica.
        """
        log_dir.not_loaded.add(key)
        again = again if error.retriable else None
        paths = tuple(paths)
        self.replicas.found_offline(key, OfflineReplica(error, log_dir, again, paths=paths))
        if not isinstance(error, LogDirOfflineError):
            with self._lock:
                self.report.offline.append(OfflineEntry(key, paths, error))
