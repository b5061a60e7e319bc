"""Answer requests of clients about transactions; `broker.transactions` decides about each one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from broker.catalog.producer_ids import ProducerIds
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.group_logs import GroupLogs
from broker.transaction_coordinator.hosted_transaction import Attempt, Reply
from broker.transaction_coordinator.marker_writer import MarkerWriter
from broker.transaction_coordinator.transaction_shards import TransactionShards
from broker.transactions import steps
from broker.transactions.steps import Asker, Step
from broker.transactions.transaction import NO_ID, Place, Protocol, State, Transaction
from broker.wire.error_codes import ErrorCode
from logstore import LogStoreError

LOG = logging.getLogger("broker")
COMMIT_SECONDS = 5.0  # how long a request waits until its change is replicated
PATIENCE_SECONDS = 0.1  # how long a broker's request waits for a busy transactional id


class TransactionCoordinator(TransactionShards):
    """Coordinate all transactional ids of a broker.

    Threads: any thread may call any method.

    Args:
        topic, producer_ids, writer, ids_max, level: see `TransactionShards`.
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
        level: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(topic, producer_ids, writer, ids_max=ids_max, level=level, clock=clock)
        self._timeout_ms_max = timeout_ms_max
        self.commit_seconds = COMMIT_SECONDS

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
            new_id = self._new_id() if steps.needs_new_id(before, asker) else NO_ID
            return steps.init_producer(before, asker, timeout_ms, new_id, self.now().wall_ms)

        self.change(name, decide, reply, is_new=True)

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

        self.change(name, decide, reply)

    def add_for_client(
        self, name: str, asker: Asker, partitions: frozenset[Place], reply: Reply
    ) -> None:
        """Add partitions at the request of a broker, whose client uses the protocol RAISING.

        If the transactional id is busy, the request waits for a moment.

        Raises:
            CoordinatorError: the request is refused.
        """
        deadline = self._clock() + PATIENCE_SECONDS

        def decide(before: Transaction | None) -> Step:
            now_ms = self.now().wall_ms
            return steps.add_partitions(before, asker, partitions, now_ms, Protocol.RAISING)

        def attempt() -> None:
            is_patient = self._clock() < deadline
            self.change(name, decide, reply, Attempt(again) if is_patient else None, deadline)

        def again() -> None:
            try:
                attempt()
            except CoordinatorError as error:
                reply(error.code, None)
            except Exception:
                LOG.exception("no partition was added to %r", name)
                reply(ErrorCode.UNKNOWN_SERVER_ERROR, None)

        attempt()

    def end(self, name: str, asker: Asker, reply: Reply, *, is_commit: bool) -> None:
        """Commit or abort a transaction; see `init_producer`. The markers follow the answer."""

        def decide(before: Transaction | None) -> Step:
            now_ms = self.now().wall_ms
            return steps.end(before, asker, is_commit=is_commit, now_ms=now_ms)

        self.change(name, decide, reply)

    def end_raising(self, name: str, asker: Asker, reply: Reply, *, is_commit: bool) -> None:
        """Commit or abort a transaction, and raise the epoch; see `end`."""

        def decide(before: Transaction | None) -> Step:
            new_id = self._new_id() if steps.needs_next_id(before, asker) else NO_ID
            return steps.end_raising(
                before, asker, is_commit=is_commit, new_id=new_id, now_ms=self.now().wall_ms
            )

        self.change(name, decide, reply)

    def faults_of_batches(
        self, name: str, asker: Asker, places: Sequence[Place], *, is_adding: bool = False
    ) -> dict[Place, ErrorCode]:
        """Check whether batches of a producer may be appended to partitions (KIP-890).

        If `is_adding`, the partitions are added, and the call waits until the change is replicated.

        Raises:
            CoordinatorError: the transactional id is not available.
        """
        if is_adding:
            return dict.fromkeys(places, self._added(name, asker, frozenset(places)))
        with self.using(name) as (_, hosted):
            found = None if hosted is None else hosted.transaction
            return {place: steps.fault_of_batch(found, asker, place) for place in places}

    def _added(self, name: str, asker: Asker, places: frozenset[Place]) -> ErrorCode:
        """Add partitions, and wait for the answer."""
        said: list[ErrorCode] = []
        is_said = threading.Event()

        def reply(code: ErrorCode, _: Transaction | None) -> None:
            said.append(code)
            is_said.set()

        self.add_for_client(name, asker, places, reply)
        if not is_said.wait(self.commit_seconds):
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return said[0]

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
            self.change(name, decide, lambda *_: None)
        except CoordinatorError as error:
            LOG.debug("the transactional id %r was not changed: %s", name, error)
