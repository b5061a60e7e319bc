"""Answer requests of clients about transactions.

For each request, the coordinator takes the lock of the transactional id and lets
`broker.transactions` decide. A change is first written to the log; then the request is answered,
and the markers are written. While a change is not replicated, other requests for the same
transactional id get CONCURRENT_TRANSACTIONS, and clients send them again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from broker.catalog.client_appends import Wait
from broker.catalog.producer_ids import ProducerIds
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.group_logs import GroupLogs
from broker.coordinator.shard import Kind, Shard
from broker.coordinator.shards import Shards
from broker.machines.exchange import Scheduler
from broker.transaction_coordinator.hosted_transaction import (
    HostedTransaction,
    Reply,
    Writing,
    load,
)
from broker.transaction_coordinator.marker_writer import Job, MarkerWriter
from broker.transactions import records, steps
from broker.transactions.steps import Asker, Step
from broker.transactions.transaction import PREPARED, Place, State, Transaction
from broker.wire.error_codes import ErrorCode
from logstore import LogStoreError

LOG = logging.getLogger("broker")
COMMIT_SECONDS = 5.0  # how long a request waits until its change is replicated
AGAIN_SECONDS = 1.0  # the time between two tries to complete a transaction
TITLE = "transactional ids"
Decide = Callable[[Transaction | None], Step]


class TransactionCoordinator(Shards[HostedTransaction]):
    """Coordinate all transactional ids of a broker.

    Threads: any thread may call any method.

    Args:
        topic: the partitions of `__transaction_state`.
        ids_max: the largest number of transactional ids that one partition keeps.
        timeout_ms_max: the longest timeout of a transaction that a client may ask for.
    """

    def __init__(
        self,
        topic: GroupLogs,
        producer_ids: ProducerIds,
        writer: MarkerWriter,
        *,
        ids_max: int,
        timeout_ms_max: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            topic, Kind(TITLE, load, HostedTransaction, ErrorCode.COORDINATOR_NOT_AVAILABLE), clock
        )
        self._producer_ids, self._writer = producer_ids, writer
        self._ids_max, self._timeout_ms_max = ids_max, timeout_ms_max
        self.commit_seconds = COMMIT_SECONDS

    def start(self, scheduler: Scheduler) -> None:
        """Begin to load the transactional ids, and to complete unfinished transactions."""
        self._writer.start(scheduler, self._clock)
        super().start(scheduler)

    def on_loaded(
        self, shard: Shard[HostedTransaction], entries: Sequence[HostedTransaction]
    ) -> None:
        """Write the markers that an earlier coordinator has not written."""
        for hosted in entries:
            with hosted.lock:
                transaction = hosted.transaction
                if transaction is not None:
                    self._producer_ids.skip(transaction.producer_id)
                if not hosted.has_ended:
                    self._write_markers(shard, hosted)

    # --- the protocol -----------------------------------------------------------------------------

    def init_producer(self, name: str, asker: Asker, timeout_ms: int, reply: Reply) -> None:
        """Give a client its producer id and epoch, and fence the earlier clients.

        Args:
            reply: called with the error, and the transaction with the producer id and the epoch.

        Raises:
            CoordinatorError: the request is refused.
        """
        if not 0 < timeout_ms <= self._timeout_ms_max:
            raise CoordinatorError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)

        def decide(before: Transaction | None) -> Step:
            new_id = self._new_id() if steps.needs_new_id(before, asker) else -1
            return steps.init_producer(before, asker, timeout_ms, new_id, self.now().wall_ms)

        self._change(name, decide, reply, is_new=True)

    def _new_id(self) -> int:
        try:
            return self._producer_ids.take()
        except LogStoreError as error:
            raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error

    def add_partitions(
        self, name: str, asker: Asker, partitions: frozenset[Place], reply: Reply
    ) -> None:
        """Add partitions to a transaction; see `init_producer`."""

        def decide(before: Transaction | None) -> Step:
            return steps.add_partitions(before, asker, partitions, self.now().wall_ms)

        self._change(name, decide, reply)

    def end(self, name: str, asker: Asker, reply: Reply, *, is_commit: bool) -> None:
        """Commit or abort a transaction; see `init_producer`. The markers follow the answer."""

        def decide(before: Transaction | None) -> Step:
            now_ms = self.now().wall_ms
            return steps.end(before, asker, is_commit=is_commit, now_ms=now_ms)

        self._change(name, decide, reply)

    def faults_of_batches(
        self, name: str, asker: Asker, places: Sequence[Place]
    ) -> dict[Place, ErrorCode]:
        """Check whether batches of a producer may be appended to partitions (KIP-890).

        Raises:
            CoordinatorError: the transactional id is not available.
        """
        with self._using(name) as (_, hosted):
            found = None if hosted is None else hosted.transaction
            return {place: steps.fault_of_batch(found, asker, place) for place in places}

    def describe(self, name: str) -> Transaction | None:
        """Return the transaction of a transactional id; None if the id does not exist.

        Raises:
            CoordinatorError: the transactional id is not available.
        """
        hosted = self.shard_of(name).get(name)
        return None if hosted is None else hosted.transaction

    def all(self) -> Iterator[tuple[str, Transaction]]:
        """Return all transactional ids that this broker coordinates.

        Raises:
            CoordinatorError: some transactional ids are still being loaded.
        """
        for shard in self.shards():
            for hosted in shard.all():
                transaction = hosted.transaction
                if transaction is not None:
                    yield hosted.name, transaction

    # --- upkeep -----------------------------------------------------------------------------------

    def scan(self, retention_ms: int | None) -> None:
        """Abort the transactions that have run longer than their timeout.

        Args:
            retention_ms: if given, also forget the transactional ids that were idle for this time.
        """
        for shard in self.shards():
            try:
                entries = shard.all()
            except CoordinatorError:
                continue
            for hosted in entries:
                self._scan_one(hosted.name, hosted.transaction, retention_ms)

    def _scan_one(self, name: str, found: Transaction | None, retention_ms: int | None) -> None:
        if found is None:
            return

        def decide(before: Transaction | None) -> Step:
            now_ms = self.now().wall_ms
            if before is not None and before.state is State.ONGOING:
                return steps.time_out(before, now_ms)
            if before is not None and retention_ms is not None:
                return steps.expire(before, retention_ms, now_ms)
            return Step(ErrorCode.NONE, before)

        if decide(found).after is found:  # skip most transactional ids without taking the lock
            return
        try:
            self._change(name, decide, lambda *_: None)
        except CoordinatorError as error:
            LOG.debug("the transactional id %r was not changed: %s", name, error)

    # --- changes ----------------------------------------------------------------------------------

    @contextmanager
    def _using(
        self, name: str, *, is_new: bool = False
    ) -> Iterator[tuple[Shard[HostedTransaction], HostedTransaction | None]]:
        """Hold the lock of a transactional id; yield None if the id does not exist.

        Raises:
            CoordinatorError: the transactional id is not available.
        """
        shard = self.shard_of(name)
        hosted = shard.get_or_add(name, self._ids_max) if is_new else shard.get(name)
        if hosted is None:
            yield shard, None
            return
        with self.locked(hosted):
            if hosted.has_ended:  # the id was forgotten just now
                raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            try:
                yield shard, hosted
            except CoordinatorError:
                raise
            except Exception:  # the memory may differ from the log
                shard.leave("an unexpected error")
                raise
            finally:
                if hosted.transaction is None and hosted.writing is None:
                    hosted.has_ended = True  # the id was made for this request
                    shard.discard(hosted)

    def _change(self, name: str, decide: Decide, reply: Reply, *, is_new: bool = False) -> None:
        """Decide, write the change to the log, and answer when all in-sync replicas have it."""
        with self._using(name, is_new=is_new) as (shard, hosted):
            if hosted is None:
                reply(decide(None).code, None)
            elif hosted.writing is not None:
                reply(ErrorCode.CONCURRENT_TRANSACTIONS, hosted.transaction)
            else:
                step = decide(hosted.transaction)
                if step.after is hosted.transaction:
                    reply(step.code, step.after)
                else:
                    self._write(shard, hosted, step, reply)

    def _write(
        self,
        shard: Shard[HostedTransaction],
        hosted: HostedTransaction,
        step: Step,
        reply: Reply,
    ) -> None:
        """Append a change to the log; the caller holds the lock."""
        assert step.after is not None
        wait = shard.append([records.key_of(hosted.name)], [records.value_of(step.after)])
        if wait is None:
            self._written(shard, hosted, step, reply)
            return
        hosted.writing = Writing(wait, step, reply)
        self._watch(shard, hosted, wait)

    def _watch(
        self, shard: Shard[HostedTransaction], hosted: HostedTransaction, wait: Wait
    ) -> None:
        scheduler = self._scheduler
        assert scheduler is not None
        # The end of the wait may be reported under the lock of a replica.
        look = partial(scheduler.submit, partial(self._look, shard, hosted, wait))
        wait.watch(look)
        if wait.is_over:
            look()

    def _look(self, shard: Shard[HostedTransaction], hosted: HostedTransaction, wait: Wait) -> None:
        with hosted.lock:
            writing = hosted.writing
            if writing is None or writing.wait is not wait or not wait.is_over:
                return
            if wait.error is not None:
                if shard.has(hosted):
                    shard.leave(str(wait.error))  # it is unknown whether the log has the change
                hosted.drop_writes(ErrorCode.NOT_COORDINATOR)
                return
            hosted.writing = None
            wait.close()
            self._written(shard, hosted, writing.step, writing.reply)

    def _written(
        self,
        shard: Shard[HostedTransaction],
        hosted: HostedTransaction,
        step: Step,
        reply: Reply,
    ) -> None:
        """Apply a replicated change, answer its request, and begin to write markers."""
        hosted.transaction = step.after
        reply(step.code, step.after)
        if step.after is not None and step.after.state is State.DEAD:
            hosted.has_ended = True
            shard.discard(hosted)
        self._write_markers(shard, hosted)

    # --- markers ----------------------------------------------------------------------------------

    def _write_markers(self, shard: Shard[HostedTransaction], hosted: HostedTransaction) -> None:
        transaction = hosted.transaction
        markers = None if transaction is None else steps.markers_of(transaction)
        if markers is None:
            return

        def is_wanted() -> bool:
            return not hosted.has_ended and hosted.transaction is transaction

        job = Job(markers, shard.epoch, is_wanted, partial(self._complete, shard, hosted))
        self._writer.write(job)

    def _complete(self, shard: Shard[HostedTransaction], hosted: HostedTransaction) -> None:
        """Complete a transaction whose markers are all written."""
        try:
            with hosted.lock:
                found = hosted.transaction
                is_prepared = found is not None and found.state in PREPARED
                if hosted.has_ended or hosted.writing is not None or not is_prepared:
                    return
                assert found is not None
                step = steps.complete(found, self.now().wall_ms)
                self._write(shard, hosted, step, lambda *_: None)
        except CoordinatorError as error:
            # If the shard was left in the meantime, this object has ended, and the next try notices
            # this.
            LOG.debug("%r is completed later: %s", hosted.name, error)
            assert self._scheduler is not None
            deadline = self._clock() + AGAIN_SECONDS
            self._scheduler.call_at(deadline, partial(self._complete, shard, hosted))
        except Exception:
            LOG.exception("%r was not completed", hosted.name)
            shard.leave("an unexpected error")
