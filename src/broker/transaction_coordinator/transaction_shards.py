"""Write the changes of transactional ids to their log, and the markers that follow.

For each request, the lock of the transactional id is taken, and `broker.transactions` decides. A
change is first written to the log; then the request is answered, and the markers are written. While
a change is not replicated, other requests for the same transactional id get
CONCURRENT_TRANSACTIONS, and clients send them again. But the request of a broker that adds a
partition for a client waits for a moment, because clients often begin their next transaction before
the markers of their previous transaction are written.
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
    Attempt,
    HostedTransaction,
    Reply,
    Writing,
    load,
)
from broker.transaction_coordinator.marker_writer import Job, MarkerWriter
from broker.transactions import records, steps
from broker.transactions.steps import Step
from broker.transactions.transaction import NO_ID, PREPARED, State, Transaction
from broker.wire.error_codes import ErrorCode

LOG = logging.getLogger("broker")
AGAIN_SECONDS = 1.0  # the time between two tries to complete a transaction
WAITING_MAX = 100  # how many requests wait for one transactional id
TITLE = "transactional ids"
Decide = Callable[[Transaction | None], Step]


class TransactionShards(Shards[HostedTransaction]):
    """Hold the transactional ids of a broker, and write their changes.

    Threads: any thread may call any method.

    Args:
        topic: the partitions of `__transaction_state`.
        ids_max: the largest number of transactional ids that one partition keeps.
        level: gives the level of the feature `transaction.version`.
    """

    def __init__(
        self,
        topic: GroupLogs,
        producer_ids: ProducerIds,
        writer: MarkerWriter,
        *,
        ids_max: int,
        level: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            topic, Kind(TITLE, load, HostedTransaction, ErrorCode.COORDINATOR_NOT_AVAILABLE), clock
        )
        self._producer_ids, self._writer = producer_ids, writer
        self._ids_max, self._level = ids_max, level

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
                    if transaction.next_id != NO_ID:
                        self._producer_ids.skip(transaction.next_id)
                if not hosted.has_ended:
                    self._write_markers(shard, hosted)

    # --- changes ----------------------------------------------------------------------------------

    @contextmanager
    def using(
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

    def change(
        self,
        name: str,
        decide: Decide,
        reply: Reply,
        attempt: Attempt | None = None,
        deadline: float = 0.0,
        *,
        is_new: bool = False,
    ) -> None:
        """Decide, write the change to the log, and answer when all in-sync replicas have it.

        Args:
            attempt: the call to repeat later, until `deadline`, if the transactional id is busy.
        """
        busy = ErrorCode.CONCURRENT_TRANSACTIONS
        with self.using(name, is_new=is_new) as (shard, hosted):
            if hosted is None:
                reply(decide(None).code, None)
                return
            before = hosted.transaction
            step = Step(busy, before) if hosted.writing is not None else decide(before)
            if step.after is not before:
                self._write(shard, hosted, step, reply)
            elif step.code is not busy or not self._is_later(hosted, attempt, deadline):
                reply(step.code, step.after)

    def _is_later(
        self, hosted: HostedTransaction, attempt: Attempt | None, deadline: float
    ) -> bool:
        """Let a request wait, unless too many wait; the caller holds the lock."""
        if attempt is None or self._scheduler is None:
            return False
        if len(hosted.waiting) >= WAITING_MAX:
            hosted.waiting = [one for one in hosted.waiting if one.is_waiting]
            if len(hosted.waiting) >= WAITING_MAX:
                return False
        hosted.waiting.append(attempt)
        self._scheduler.call_at(deadline, attempt.run)
        return True

    def _write(
        self,
        shard: Shard[HostedTransaction],
        hosted: HostedTransaction,
        step: Step,
        reply: Reply,
    ) -> None:
        """Append a change to the log; the caller holds the lock."""
        assert step.after is not None
        value = records.value_of(step.after, self._level())
        wait = shard.append([records.key_of(hosted.name)], [value])
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
        waiting, hosted.waiting = hosted.waiting, []
        if waiting:
            assert self._scheduler is not None
            for attempt in waiting:
                self._scheduler.submit(attempt.run)

    # --- markers ----------------------------------------------------------------------------------

    def _write_markers(self, shard: Shard[HostedTransaction], hosted: HostedTransaction) -> None:
        transaction = hosted.transaction
        markers = None if transaction is None else steps.markers_of(transaction)
        if markers is None:
            return

        def is_wanted() -> bool:
            return not hosted.has_ended and hosted.transaction is transaction

        complete = partial(self._complete, shard, hosted)
        if markers.partitions:
            job = Job(markers, shard.epoch, is_wanted, complete, lambda: shard.is_ready)
            self._writer.write(job)
        else:  # only Kafka prepares the abort of a transaction without partitions
            assert self._scheduler is not None
            self._scheduler.submit(complete)

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
            # If this broker no longer leads the partition, `hosted.has_ended` is set.
            # Then the next try does nothing.
            LOG.debug("%r is completed later: %s", hosted.name, error)
            assert self._scheduler is not None
            deadline = self._clock() + AGAIN_SECONDS
            self._scheduler.call_at(deadline, partial(self._complete, shard, hosted))
        except Exception:
            LOG.exception("%r was not completed", hosted.name)
            shard.leave("an unexpected error")
