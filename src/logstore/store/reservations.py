"""Reserve a replica for one thread: only this thread may create, delete, open or swap it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakValueDictionary

from logstore.disk.log_dir import LogDir
from logstore.names import TopicPartition

# A call waits this long for a reservation.
# Then the call checks whether the thread with the reservation hangs in a disk call.
WAIT_SECONDS = 0.25


class Reservation:
    """One thread's reservation of a replica; only stack frames of this thread refer to it."""

    def __init__(self, key: TopicPartition) -> None:
        self.key = key


class RunningMove(Protocol):
    """The part of a running move that the store uses."""

    @property
    def target_dir(self) -> str:
        """The path of the log dir that the move copies to."""

    @property
    def size_bytes(self) -> int:
        """The size of the copy, in bytes."""

    @property
    def lag_bytes(self) -> int:
        """The number of bytes that the copy still lacks."""

    def stop(self, reason: str) -> None:
        """Cancel the move; return after its copy is removed and its threads have ended.

        Raises:
            LogDirSuspectError: a disk of the move hangs. The move ends when the disk answers.
        """


class OpenedReplica(Protocol):
    """The part of an opened replica that `ReplicaReservations` uses."""

    @property
    def log_dir(self) -> LogDir:
        """The log dir that has the replica."""


class ReplicaReservations:
    """The part of `Replicas` that knows which thread may change which replica."""

    log_dirs: tuple[LogDir, ...]
    opened: Mapping[TopicPartition, OpenedReplica]

    def __init__(self) -> None:
        # The moves that have not ended; the mover adds moves.
        # `_changes` guards the running moves and the reserved keys.
        self.running_moves: dict[TopicPartition, RunningMove] = {}
        # Threads acquire this lock, not the Condition.
        # The reason is that Ctrl-C could interrupt the Condition's `__enter__`.
        self._changing = threading.RLock()
        self._changes = threading.Condition(self._changing)
        # The references are weak.
        # If a thread is interrupted, its reservation ends when its stack frames are dropped.
        self._reserved: WeakValueDictionary[TopicPartition, Reservation] = WeakValueDictionary()

    def _check_answers(self, key: TopicPartition) -> None:
        """Raise LogDirSuspectError if the thread that reserved a replica may hang in a log dir."""
        replica = self.opened.get(key)
        suspects = [log_dir for log_dir in self.log_dirs if log_dir.is_suspect]
        if key in self._reserved and suspects:
            if replica is None:
                raise suspects[0].suspect_error()
            replica.log_dir.check()

    @contextmanager
    def reserved_unmoved(self, key: TopicPartition, reason: str) -> Iterator[None]:
        """Cancel any move of a replica, then reserve the replica like `reserved`."""
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
        """Reserve a replica: inside the `with` block, no other thread can reserve this replica."""
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
        """End a reservation; its thread is done, or hangs and will never change the replica."""
        with self._changing:
            if self._reserved.get(reservation.key) is reservation:
                del self._reserved[reservation.key]
                self._changes.notify_all()
