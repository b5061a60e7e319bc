"""Hold back the answers of a group until all in-sync replicas have its records.

    append -> Write in `Hosted.writes` -> the wait is over -> apply, then send the answers

`append_all` appends records that may be too large for one batch.

A request that waits uses no thread. Any thread may report the end of a wait, even a thread that
holds the lock of a replica. This thread must not wait for the lock of a group, so it only submits a
task, and the task takes the lock of the group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from broker.catalog.client_appends import Wait
from broker.coordinator import group_kinds
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.group_kinds import Record
from broker.coordinator.hosted import Hosted, Write, refusal_of
from broker.coordinator.shard import Shard
from broker.groups.offsets import Key
from broker.machines.exchange import Scheduler
from broker.wire.error_codes import ErrorCode

LOG = logging.getLogger("broker")


class Replicated:
    """A wait that was over when it began: all in-sync replicas have the records."""

    is_over = True
    error = None

    def watch(self, wake: Callable[[], None]) -> None:
        """Do nothing, because the wait is already over."""

    def give_up(self) -> None:
        """Do nothing, because the wait is already over."""

    def close(self) -> None:
        """Do nothing, because no function is called."""


class Replication:
    """Track the records of all groups that other replicas do not have yet.

    Threads: any thread may call any method. The caller of `hold` and `limit` must hold the lock of
    the group.

    Args:
        seconds: after this time, a waiting request is answered with an error.
        clock: the clock of the scheduler.
    """

    def __init__(self, scheduler: Scheduler, seconds: float, clock: Callable[[], float]) -> None:
        self._scheduler, self._seconds, self._clock = scheduler, seconds, clock

    def hold(
        self,
        shard: Shard[Hosted],
        hosted: Hosted,
        wait: Wait | None,
        apply: Callable[[], None] = lambda: None,
        keys: Iterable[Key] = (),
    ) -> Write:
        """Add an append to `writes`; its answers are sent when its records are replicated.

        Args:
            wait: None if the records are already replicated, but an earlier append of the group is
                still in `writes`. The changes must be applied in the order of the log.
        """
        wait = wait or Replicated()
        write = Write(wait, apply, keys)
        hosted.writes.append(write)
        look = partial(self._scheduler.submit, partial(self._look, shard, hosted))
        wait.watch(look)
        if wait.is_over:  # the wait ended before `watch` was called
            look()
        return write

    def limit(self, hosted: Hosted) -> None:
        """Set a time limit for the waiting requests; after it, each request gets an error."""
        if hosted.writes and hosted.writes[-1].replies and hosted.writes[-1].timer is None:
            write = hosted.writes[-1]
            deadline = self._clock() + self._seconds
            write.timer = self._scheduler.call_at(deadline, partial(self._give_up, hosted, write))

    def _look(self, shard: Shard[Hosted], hosted: Hosted) -> None:
        """Send the answers whose records are replicated."""
        with hosted.lock:
            self._finish_all(shard, hosted)

    def _finish_all(self, shard: Shard[Hosted], hosted: Hosted) -> None:
        while hosted.writes and hosted.writes[0].wait.is_over:
            if not self._finish(shard, hosted):
                return

    def _finish(self, shard: Shard[Hosted], hosted: Hosted) -> bool:
        """Apply the first write, whose wait is over; return False if its wait had an error."""
        error = hosted.writes[0].wait.error
        if error is not None:
            if shard.has(hosted):
                shard.leave(str(error))  # the groups in memory may differ from the log
            for write in hosted.writes:
                self._scheduler.cancel(write.timer)
            hosted.drop_writes(ErrorCode.NOT_COORDINATOR)
            return False
        write = hosted.writes.popleft()
        write.wait.close()
        self._scheduler.cancel(write.timer)
        write.apply()
        for waiter, said in write.replies:
            waiter.put(said)
        return True

    def _give_up(self, hosted: Hosted, write: Write) -> None:
        """Answer with an error. If the records are replicated later, they still become valid.

        A SyncGroup request gets the same error as in Kafka. After this error, the member joins
        again.
        """
        with hosted.lock:
            write.timer = None
            replies, write.replies = write.replies, []
        for waiter, said in replies:
            code, code_of_sync = (
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.REBALANCE_IN_PROGRESS,
            )
            waiter.put(refusal_of(said, code, code_of_sync))


def append_all(
    shard: Shard[Hosted], rows: Sequence[Record], *, in_one_batch: bool = False
) -> list[Wait | None]:
    """Append records, in several batches if one batch would be too large; return all waits.

    Args:
        in_one_batch: whether the records must be in one batch, even if it is large.

    Raises:
        WriteRefusedError: no record is in the log.
        CoordinatorError: it is unknown which records are in the log. The groups are read again.
    """
    waits: list[Wait | None] = []
    for batch in [list(rows)] if in_one_batch else group_kinds.batches(list(rows)):
        try:
            waits.append(shard.append(*map(list, zip(*batch, strict=True))))
        except CoordinatorError as error:
            if not waits:
                raise
            shard.leave(str(error))  # the log has only a part of the change
            raise CoordinatorError(error.code, str(error)) from error
    return waits
