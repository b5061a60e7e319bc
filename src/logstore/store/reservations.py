"""Reserve a replica: who creates, deletes, opens or swaps one keeps others from it meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakValueDictionary

from logstore.disk.log_dir import LogDir
from logstore.names import TopicPartition

# So long does a call wait before it looks whether the one it waits for hangs in a disk.
WAIT_SECONDS = 0.25


class Reservation:
    """A replica that one thread keeps others from creating or deleting; held by its frame alone."""

    def __init__(self, key: TopicPartition) -> None:
        self.key = key


class RunningMove(Protocol):
    """A move that has not ended, as the store sees it."""

    @property
    def target_dir(self) -> str:
        """Path of the log dir that it copies to."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the copy."""

    @property
    def lag_bytes(self) -> int:
        """Bytes that the copy still misses."""

    def stop(self, reason: str) -> None:
        """Cancel it, and return when nothing of it is left."""


class OpenedReplica(Protocol):
    """An opened replica, as a thread sees it that waits for its reservation."""

    @property
    def log_dir(self) -> LogDir:
        """The log dir that it is in."""


class ReplicaReservations:
    """The part of a store's replicas that says who may change which."""

    log_dirs: tuple[LogDir, ...]
    opened: Mapping[TopicPartition, OpenedReplica]

    def __init__(self) -> None:
        # Moves that have not ended, by whoever runs them; under `_changes`, as the reserved keys.
        self.running_moves: dict[TopicPartition, RunningMove] = {}
        self._changing = threading.RLock()  # taken by itself: Ctrl-C may come inside a Condition's
        self._changes = threading.Condition(self._changing)
        # Weak, as the calls under way: who was interrupted on his way in or out is in nobody's way.
        self._reserved: WeakValueDictionary[TopicPartition, Reservation] = WeakValueDictionary()

    def _check_answers(self, key: TopicPartition) -> None:
        """Raise LogDirSuspectError when whoever reserved a replica hangs in its log dir."""
        replica = self.opened.get(key)
        suspects = [log_dir for log_dir in self.log_dirs if log_dir.is_suspect]
        if key in self._reserved and suspects:
            if replica is None:
                raise suspects[0].suspect_error()
            replica.log_dir.check()

    @contextmanager
    def reserved_unmoved(self, key: TopicPartition, reason: str) -> Iterator[None]:
        """Reserve a replica as `reserved` does, and cancel a move of it before."""
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
        """Keep others from creating or deleting the same replica meanwhile."""
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
        """Let others have a replica: who reserved it is done, or hangs and changes nothing more."""
        with self._changing:
            if self._reserved.get(reservation.key) is reservation:
                del self._reserved[reservation.key]
                self._changes.notify_all()
