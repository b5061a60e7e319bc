"""Commit offsets of groups in transactions; a commit marker makes them valid.

    TxnOffsetCommit -> PendingOffsets, and a batch of the transaction in the group's log
    marker          -> commit: the offsets become valid; abort: they are forgotten

The pending offsets are stored in memory before the batch is appended. So a marker that follows the
batch in the log finds the pending offsets in memory. If there are two commits of an offset, the
later commit in the log is valid, even if its transaction ends first. So if the log is loaded later,
the result is the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from broker.coordinator.errors import OF_PRODUCER, CoordinatorError
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.group_logs import Producer
from broker.coordinator.hosted import Hosted, PendingOffsets
from broker.coordinator.offsets_topic import NAME as OFFSETS
from broker.coordinator.shard import Phase, Shard
from broker.groups import records
from broker.groups.offsets import Committed, Key
from broker.machines.exchange import Scheduler
from broker.wire.error_codes import ErrorCode
from logstore import ProducerFencedError, UnknownPartitionError

LOG = logging.getLogger("broker")
AGAIN_SECONDS = 0.005  # the time between two tries to change a group


class TransactionalOffsets:
    """The offsets that transactions commit to the groups of a broker.

    Threads: any thread may call any method.
    """

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups
        self._scheduler: Scheduler | None = None

    def start(self, scheduler: Scheduler) -> None:
        """Set the scheduler.

        If a group cannot be changed now, the scheduler repeats the change later.
        """
        self._scheduler = scheduler

    def token(self, name: str, producer_id: int, epoch: int) -> tuple[int, int]:
        """Return the partition of a group, and a token for a batch (`Log.transaction_token`).

        Raises:
            CoordinatorError: the groups are not loaded.
            LogStoreError: the log cannot be used now.
        """
        number = self._groups.partition_of(name)
        log = self._groups.shard(number).log
        return number, log.transaction_token(producer_id, epoch, -1)

    def commit(
        self,
        name: str,
        member: tuple[str, str | None, int],
        producer: Producer,
        offsets: dict[Key, Committed],
        waiter: Any,
    ) -> ErrorCode | None:
        """Write offsets as a part of a transaction.

        Args:
            member: the member id, the instance id and the generation of the consumer.

        Returns:
            None if other replicas do not have the offsets yet, and `waiter` gets the result later.

        Raises:
            CoordinatorError: the offsets could not be written.
        """
        with self._groups.using(name, is_new=member[2] < 0) as (shard, hosted):
            fault = hosted.group.fault_of_transaction(*member)
            if fault or not offsets:
                return fault
            pending = PendingOffsets(producer.id, offsets, producer.epoch)
            hosted.pending.append(pending)
            shard.note_producer(hosted, producer.id)
            try:
                wait = shard.write(
                    lambda log: log.append_of(
                        producer,
                        [records.offset_key(name, *key) for key in offsets],
                        [records.offset_value(one) for one in offsets.values()],
                        self._groups.now().wall_ms,
                    )
                )
            except OF_PRODUCER as error:
                is_fenced = isinstance(error, ProducerFencedError)
                _withdraw(shard, hosted, pending)
                return (
                    ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.INVALID_TXN_STATE
                )
            except BaseException:
                _withdraw(shard, hosted, pending)
                raise
            hosted.is_recorded = True
            _merge(hosted, pending)
            if wait is not None:
                self._groups.hold(shard, hosted, wait, lambda: None, offsets, waiter)
                return None
        return ErrorCode.NONE

    def check_loaded(self, partition: int) -> None:
        """Raise CoordinatorError if the groups of a partition are not loaded.

        While groups are being loaded, no marker may be appended, because the loading might miss it.
        A shard is never deleted, so only existing partitions of the topic get a shard.

        Raises:
            UnknownPartitionError: the topic has no such partition.
        """
        if not 0 <= partition < self._groups.topic.partition_count:
            raise UnknownPartitionError(topic=OFFSETS, partition=partition)
        self._groups.shard(partition).require()

    def ended(
        self,
        partition: int,
        producer_id: int,
        epoch_limit: int,
        *,
        is_commit: bool,
        then: Callable[[], object],
    ) -> None:
        """Make the offsets of a transaction valid, or forget them.

        Before this call, the marker must be appended. This method never waits for a disk.

        Args:
            epoch_limit: the marker ends only offsets of epochs below this limit. If each end of a
                transaction raises the epoch, the limit is the epoch of the marker, because offsets
                with this epoch belong to the next transaction.
            then: this function is called when the transaction has no pending offsets in any group.
                The caller must complete the transaction only after the call of `then`. If the
                caller completed the transaction earlier, the producer could begin its next
                transaction, and this method could end the offsets of the next transaction.
        """
        shard = self._groups.shard(partition)
        marker = producer_id, epoch_limit
        again = partial(self.ended, partition, *marker, is_commit=is_commit, then=then)
        try:
            entries: Sequence[Hosted] = shard.of_producer(producer_id)
        except CoordinatorError:
            if shard.phase is Phase.LOADING:
                self._later(again)
            else:  # a later loading reads the marker
                then()
            return
        is_late = False
        for hosted in entries:
            if any(one.is_ended_by(*marker) for one in tuple(hosted.pending)):
                is_late |= not self._end_one(shard, hosted, marker, is_commit=is_commit)
        if is_late:
            self._later(again)
        else:
            then()

    def _later(self, task: Callable[[], None]) -> None:
        if self._scheduler is not None:
            self._scheduler.call_at(self._groups.now().seconds + AGAIN_SECONDS, task)

    def _end_one(
        self, shard: Shard[Hosted], hosted: Hosted, marker: tuple[int, int], *, is_commit: bool
    ) -> bool:
        """End the offsets of one group; return False if another thread holds the lock."""
        if not hosted.lock.acquire(blocking=False):
            return False
        try:
            ending = [
                one for one in hosted.pending
                if one.is_ended_by(*marker) and not one.is_ending
            ]  # fmt: skip
            for one in ending:
                one.is_ending = True
            apply = _both(
                partial(_apply, hosted, ending, is_commit=is_commit),
                partial(shard.note_producer, hosted, marker[0]),
            )
            if hosted.writes:  # some replicas do not have the group's earlier records yet
                write = hosted.writes[-1]
                write.apply = _both(write.apply, apply)
            else:
                apply()
        finally:
            hosted.lock.release()
        return True


def _withdraw(shard: Shard[Hosted], hosted: Hosted, pending: PendingOffsets) -> None:
    """Forget offsets that were not written."""
    hosted.pending.remove(pending)
    shard.note_producer(hosted, pending.producer_id)


def _merge(hosted: Hosted, pending: PendingOffsets) -> None:
    """Forget earlier commits of the same transaction for the same partitions."""
    for one in tuple(hosted.pending):
        if one.producer_id == pending.producer_id and not one.is_ending and one is not pending:
            for key in pending.offsets:
                one.offsets.pop(key, None)
            if not one.offsets:
                hosted.pending.remove(one)


def _apply(hosted: Hosted, ending: Sequence[PendingOffsets], *, is_commit: bool) -> None:
    for one in ending:
        number = hosted.pending.index(one)
        del hosted.pending[number]
        if is_commit:
            decided = {key: value for key, value in one.offsets.items() if value is not None}
            hosted.offsets.update(decided)
            for earlier in hosted.pending[:number]:
                earlier.replace(decided)


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        first()
        second()

    return run
