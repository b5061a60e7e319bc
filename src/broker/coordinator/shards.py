"""Find the shards of a broker, for the coordinators of groups and of transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Generic

from broker.catalog.leadership import Node
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.group_logs import GroupLogs
from broker.coordinator.internal_topic import partition_of
from broker.coordinator.shard import Kind, One, Shard
from broker.groups.exchange import Now
from broker.listener_config import Endpoint
from broker.machines.exchange import Scheduler
from broker.wire.error_codes import ErrorCode
from logstore import LogStoreError

LOCK_SECONDS = 1.0  # a request waits this long for a lock, whose holder may wait for a disk


class Shards(Generic[One]):
    """The shards of a broker: one for each partition that the broker coordinates.

    Threads: any thread may call any method.

    Args:
        topic: the partitions of `__consumer_offsets` or `__transaction_state`.
        clock: the clock of the scheduler.
    """

    def __init__(
        self, topic: GroupLogs, kind: Kind[One], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.topic = topic
        self._kind = kind
        self._clock = clock
        self._shards: dict[int, Shard[One]] = {}
        self._scheduler: Scheduler | None = None

    def start(self, scheduler: Scheduler) -> None:
        """Begin to load all partitions that this broker coordinates."""
        self._scheduler = scheduler
        for shard in self.shards():
            shard.begin_loading()

    def now(self) -> Now:
        """Return the present time of both clocks."""
        return Now(self._clock(), time.time_ns() // 1_000_000)

    def on_loaded(self, shard: Shard[One], entries: Sequence[One]) -> None:
        """Continue the unfinished work of loaded entries. Subclasses implement this."""

    def on_held(self, entry: One) -> None:
        """Store that a request was refused because another thread holds the lock of an entry."""

    def shards(self) -> list[Shard[One]]:
        """Return a shard for each partition that this broker coordinates."""
        return [self.shard(number) for number in self.topic.own()]

    @property
    def count(self) -> int:
        """The number of loaded entries."""
        return sum(shard.count for shard in list(self._shards.values()))

    def loaded(self) -> list[One]:
        """Return the entries that are in memory now. This never waits."""
        return [entry for shard in self._shards.copy().values() for entry in shard.loaded()]

    def shard(self, number: int) -> Shard[One]:
        """Find the shard of a partition."""
        shard = self._shards.get(number)
        if shard is None:
            assert self._scheduler is not None, "the coordinator was not started"
            made = Shard(
                partial(self.topic.open, number), self._kind, self.now, self._scheduler,
                self.on_loaded,
            )  # fmt: skip
            # If another thread has already made this shard, use that shard.
            shard = self._shards.setdefault(number, made)
        return shard

    def shard_of(self, name: str) -> Shard[One]:
        """Find the shard of a group or a transactional id.

        Raises:
            CoordinatorError: the topic does not exist and cannot be created.
        """
        return self.shard(self.partition_of(name))

    def partition_of(self, name: str) -> int:
        """Find the partition of a group or a transactional id. Raises what `shard_of` raises."""
        try:
            return partition_of(name, self.topic.ensure())
        except LogStoreError as error:
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error

    def find(self, name: str, endpoint: Endpoint) -> Node | None:
        """Find the coordinator of a group or a transactional id; None means this broker.

        Args:
            endpoint: the listener that the client uses.

        Raises:
            CoordinatorError: no broker coordinates this name now.
        """
        number = self.partition_of(name)
        node = self.topic.find(number, endpoint)
        if node is None:
            self.shard(number).check_log()
        return node

    def role_changed(self, number: int) -> None:
        """Handle a change of this broker's role for a partition. This never waits."""
        self.shard(number).role_changed()

    def roles_changed(self) -> None:
        """Handle a possible change of this broker's role for all partitions."""
        for shard in list(self._shards.values()):
            shard.role_changed()

    @contextmanager
    def locked(self, entry: One) -> Iterator[None]:
        """Hold the lock of an entry.

        Raises:
            CoordinatorError: another thread holds the lock for too long.
        """
        if not entry.lock.acquire(timeout=LOCK_SECONDS):
            self.on_held(entry)
            reason = f"another thread still holds the lock of {entry.name!r}: the disk may hang"
            raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason)
        try:
            yield
        finally:
            entry.lock.release()
