"""Write markers into the logs of partitions that this broker leads.

append -> replicated -> in `__consumer_offsets`, the groups get the marker
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from broker.catalog.client_appends import Appends, Wait
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.offsets_topic import NAME as OFFSETS
from broker.coordinator.transactional_offsets import TransactionalOffsets
from broker.machines.exchange import Scheduler
from broker.transaction_coordinator.marker_routes import Fenced, MarkerRow, Result
from broker.wire.error_codes import ErrorCode
from logstore import (
    CoordinatorFencedError,
    LogStoreError,
    ProducerFencedError,
    UnknownPartitionError,
)

LOG = logging.getLogger("broker")
Done = Callable[[Result], object]


class MarkerAppends:
    """Append markers on this broker.

    Threads: any thread may call `append`.
    """

    def __init__(self, appends: Appends, offsets: TransactionalOffsets) -> None:
        self._appends, self._offsets = appends, offsets
        self._scheduler: Scheduler | None = None

    def start(self, scheduler: Scheduler) -> None:
        """Set the scheduler, which checks markers that wait for other replicas."""
        self._scheduler = scheduler

    def append_soon(
        self, row: MarkerRow, done: Done, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Append a marker in a separate thread, so that a hanging log does not delay other markers.

        Args: is_wanted: is called in that thread. If `is_wanted` returns False, nothing is
            appended, and `done` is not called.
        """

        def work() -> None:
            if is_wanted():
                self.append(row, done)

        assert self._scheduler is not None, "the markers were not started"
        self._scheduler.submit(work)

    def append(self, row: MarkerRow, done: Done) -> None:
        """Append a marker; call `done` when all in-sync replicas have it, or after an error."""
        code, wait = self._append(row)
        if wait is None:
            self._finish(row, done, code)
            return
        scheduler = self._scheduler
        assert scheduler is not None, "the markers were not started"
        pending = _Waiting(wait, partial(self._finish, row, done))
        # The thread that reports the end of the wait may hold the lock of a replica.
        wait.watch(partial(scheduler.submit, pending.look))
        if wait.is_over:
            scheduler.submit(pending.look)

    def _append(self, row: MarkerRow) -> tuple[Result, Wait | None]:
        topic, partition = row.place
        try:
            if topic == OFFSETS:
                self._offsets.check_loaded(partition)
            wait = self._appends.append_marker(
                topic, partition, row.producer_id, row.epoch,
                is_commit=row.is_commit, coordinator_epoch=row.coordinator_epoch,
                is_raised=row.is_raised,
            )  # fmt: skip
        except CoordinatorError as error:
            # The caller expects only one code of a coordinator: COORDINATOR_LOAD_IN_PROGRESS.
            is_known = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return (error.code if is_known else ErrorCode.NOT_LEADER_OR_FOLLOWER), None
        except ProducerFencedError:
            return ErrorCode.INVALID_PRODUCER_EPOCH, None
        except CoordinatorFencedError as error:
            return Fenced(error.current_epoch), None
        except UnknownPartitionError:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        except LogStoreError as error:
            code: ErrorCode = getattr(error, "code", ErrorCode.KAFKA_STORAGE_ERROR)
            LOG.debug("a marker for %s was not written: %s", row.place, error)
            return code, None
        except Exception:
            LOG.exception("a marker for %s was not written", row.place)
            return ErrorCode.UNKNOWN_SERVER_ERROR, None
        return ErrorCode.NONE, wait

    def _finish(self, row: MarkerRow, done: Done, code: Result) -> None:
        topic, partition = row.place
        if code or topic != OFFSETS:
            done(code)
            return
        epoch_limit = row.epoch if row.is_raised else row.epoch + 1
        self._offsets.ended(
            partition, row.producer_id, epoch_limit,
            is_commit=row.is_commit, then=lambda: done(code),
        )  # fmt: skip


class _Waiting:
    """A marker that waits for other replicas; `look` is called once or more."""

    def __init__(self, wait: Wait, done: Done) -> None:
        self._wait = wait
        self._done: list[Done] = [done]  # `pop` returns `done` to one thread only

    def look(self) -> None:
        if not self._wait.is_over:
            return
        try:
            done = self._done.pop()
        except IndexError:
            return
        error = self._wait.error
        self._wait.close()
        done(ErrorCode.NONE if error is None else error.code)
