"""Reserve a replica for one thread, which may then create, delete, open or swap the replica."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakValueDictionary

from logstore.disk.log_dir import LogDir
from logstore.names import TopicPartition

# How long a call waits before it checks whether the reserving thread hangs in a disk.
WAIT_SECONDS = 0.25


class Reservation:
    """One thread's reservation of a replica; only a frame of that thread refers to this object."""

    def __init__(self, key: TopicPartition) -> None:
        self.key = key


class RunningMove(Protocol):
    """A move that has not ended, as the store sees it."""

    @property
    def target_dir(self) -> str:
        """Path of the log dir that the move copies to."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the copy."""

    @property
    def lag_bytes(self) -> int:
        """Bytes that the copy still misses."""

    def stop(self, reason: str) -> None:
        """Cancel the move, and return when nothing of the move is left."""


class OpenedReplica(Protocol):
    """An opened replica, as seen by a thread that waits for its reservation."""

    @property
    def log_dir(self) -> LogDir:
        """The log dir that the replica is in."""


class ReplicaReservations:
    """The part of a store's replicas that records which thread may change which replica."""

    log_dirs: tuple[LogDir, ...]
    opened: Mapping[TopicPartition, OpenedReplica]

    def __init__(self) -> None:
        # Moves that have not ended; their mover adds them. `_changes` guards these and the reserved
        # keys.
        self.running_moves: dict[TopicPartition, RunningMove] = {}
        # Entered directly, because Ctrl-C may interrupt the entering of a Condition.
        self._changing = threading.RLock()
        self._changes = threading.Condition(self._changing)
        # Weak references: a reservation ends when an interrupted thread drops its frames.
        self._reserved: WeakValueDictionary[TopicPartition, Reservation] = WeakValueDictionary()

    def _check_answers(self, key: TopicPartition) -> None:
        """Raise LogDirSuspectError if the thread that reserved a replica hangs in a log dir."""
        replica = self.opened.get(key)
        suspects = [log_dir for log_dir in self.log_dirs if log_dir.is_suspect]
        if key in self._reserved and suspects:
            if replica is None:
                raise suspects[0].suspect_error()
            replica.log_dir.check()

    @contextmanager
    def reserved_unmoved(self, key: TopicPartition, reason: str) -> Iterator[None]:
        """Reserve a replica as `reserved` does, and cancel any move of the replica before that."""
        while True:
            move = self.running_moves.get(key)
            if move is not None:
                move.stop(reason)
            with self.reserved(key):
                if key not in self.running_moves:
                    yield
                    return

    @contextmanager
    def reserved(self, key: TopicPartition) -> Iterator[Reservation]:
        """Reserve a replica: within the block, no other thread can reserve it."""
        mine = Reservation(key)
        with self._changing:
            self._wait_for(key)
            self._reserved[key] = mine
        try:
            yield mine
        finally:
            self.give_up(mine)

    def _wait_for(self, key: TopicPartition) -> None:
        while key in self._reserved:
            self._changes.wait(WAIT_SECONDS)
            self._check_answers(key)

    def give_up(self, reservation: Reservation) -> None:
        """Release a replica; its thread is done, or hangs and will not change it any more."""
        with self._changing:
            if self._reserved.get(reservation.key) is reservation:
                del self._reserved[reservation.key]
                self._changes.notify_all()
