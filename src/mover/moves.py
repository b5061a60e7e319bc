"""Hold the moves of one mover, the queue of moves that wait for a thread, and the reserved room.

A `ReplicaMover` owns one `Moves`. The modules `admission` and `resume` take this `Moves` as an
argument. A `Moves` is also the controller of its moves: each `Move` calls the methods of its
controller.

Threads: `changed` guards the queue, `is_closed` and the state of every move. The list of all moves
only grows. A thread that walks over all moves first copies the list.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from logstore.errors import LogDirError, LogStoreError
from logstore.log import relocation
from logstore.names import TopicPartition
from logstore.store.host import StoreHost
from mover import job as jobs
from mover.errors import MoveError
from mover.move import Move
from mover.rates.throttle import Throttle
from mover.reservation import Reservations
from mover.state import MoveState


class Moves:
    """Queue, end and give up the moves of one mover.

    Args:
        changed: notified when the state of a move changes.
        wake_threads: makes the mover's threads check the queue; raises LogDirError if there is no
            thread and no thread can be started.
        is_verified: whether every batch is checked while it is copied.
    """

    def __init__(
        self,
        host: StoreHost,
        throttle: Throttle,
        changed: threading.Condition,
        wake_threads: Callable[[], None],
        *,
        is_verified: bool,
    ) -> None:
        self.host = host
        self.replicas = host.replicas
        self.throttle = throttle
        self.changed = changed
        self.is_closed = False
        self.reservations = Reservations()
        self._wake_threads = wake_threads
        self._is_verified = is_verified
        self._all: list[Move] = []
        self._newest: dict[TopicPartition, Move] = {}
        self._queue: list[Move] = []

    def all(self) -> list[Move]:
        """List the moves that were requested or resumed, including moves that have ended."""
        return list(self._all)

    def queued(self) -> list[Move]:
        """List the moves that wait for a thread, in the order in which they were queued."""
        with self.changed:
            return list(self._queue)

    def add(self, move: Move) -> None:
        """Add a requested or resumed move to the list of moves; do not queue the move."""
        self._all.append(move)
        self._newest[move.key] = move

    def newest(self, key: TopicPartition) -> Move | None:
        """Return the newest move of a partition, or None if the partition has no move."""
        return self._newest.get(key)

    def close(self) -> None:
        """Accept no more requests. From now on, unfinished moves belong to the next mover."""
        with self.changed:
            self.is_closed = True

    # --- what the moves request -------------------------------------------------------------------

    def enqueue(self, move: Move) -> None:
        """Queue a planned move."""
        with self.changed:
            if not move.is_idle:
                return  # the move has been cancelled already
            self.replicas.running_moves.setdefault(move.key, move)
            if move not in self._queue:
                self._queue.append(move)
        try:
            self._wake_threads()
        except LogDirError as error:  # no thread can run the move
            self.dequeue(move)
            self.refuse(move, error)

    def dequeue(self, move: Move) -> None:
        """Remove a move from the queue; if the move is not queued, do nothing."""
        with self.changed:
            if move in self._queue:
                self._queue.remove(move)

    def renew(self, move: Move) -> None:
        """Queue a move that is retried, or end the move if the replica is already at the target."""
        reason = f"a new move to {move.target_dir} replaces it"
        with self.letting_in(move), self.replicas.reserved_unmoved(move.key, reason):
            replica = self.replicas.opened.get(move.key)
            if replica is None or replica.log_dir.path != move.target_dir:
                self.enqueue(move)
            elif move.is_idle:
                self.end(move, MoveState.DONE, None)

    def holds(self, move: Move) -> bool:
        """Report whether a move belongs to this mover; after a close, the next mover owns it."""
        return not self.is_closed or self.replicas.running_moves.get(move.key) is move

    def wake(self) -> None:
        """Wake the moves that wait for a throttle, so that they notice a pause or a cancel."""
        self.throttle.wake()

    # --- admitting them ---------------------------------------------------------------------------

    @contextmanager
    def letting_in(self, move: Move) -> Iterator[None]:
        """Fail a move if an error or Ctrl-C stops its admission: no thread would run the move."""
        try:
            yield
        except BaseException as error:
            reason = "the request for the move was interrupted"
            broken = MoveError(topic=move.topic, partition=move.partition, reason=reason)
            self.refuse(move, error if isinstance(error, LogStoreError) else broken)
            raise

    def refuse(self, move: Move, error: LogStoreError) -> None:
        """Fail a move that was not admitted; do nothing if it is being cancelled or has ended."""
        with self.changed:
            if move.is_idle and not move.state.is_end:
                self.end(move, MoveState.FAILED, error)

    # --- ending them ------------------------------------------------------------------------------

    def job_of(self, move: Move) -> jobs.Job:
        """Make the job that runs a move or gives the move up.

        Raises:
            LogStoreError: the target is no longer a log dir, or the replica is not open.
        """
        target = self.replicas.dir_of(move.target_dir)
        return jobs.Job(move, self.replicas, target, self.host.purge, self._is_verified)

    def end(self, move: Move, state: MoveState, error: LogStoreError | None) -> None:
        """End or pause a move: release what the move no longer needs, then change its state."""
        if state.is_end:
            if state is not MoveState.FAILED:  # a failed move can be retried
                move.throttle.end()
            self.release(move)
        move.go(state, error)
        self.go_on()  # the log dir that hung may already answer again

    def release(self, move: Move) -> None:
        """Give back a move's room and its claim on the replica; a second call has no effect."""
        self.reservations.release(move)
        if self.replicas.running_moves.get(move.key) is move:
            del self.replicas.running_moves[move.key]

    def go_on(self) -> None:
        """Resume each move that was paused because a log dir hung, if its log dirs answer again."""
        hanging = {log_dir.path for log_dir in self.replicas.log_dirs if log_dir.is_suspect}
        for move in [move for move in self._all if move.is_held_up]:
            if not self.is_closed and hanging.isdisjoint((move.source_dir, move.target_dir)):
                move.go_on()

    def check_answers(self, move: Move) -> None:
        """Raise LogDirSuspectError if the source or the target of the move hangs."""
        for log_dir in self.replicas.log_dirs:
            if log_dir.is_suspect and log_dir.path in (move.source_dir, move.target_dir):
                raise log_dir.suspect_error()

    def discard(self, move: Move) -> None:
        """Cancel a move that no thread runs, and remove its copy."""
        self._give_up(move)
        self.end(move, MoveState.CANCELLED, jobs.cancelled(move))

    def abandon(self, move: Move) -> None:
        """Make sure that the copy of a failed move is never resumed."""
        with suppress(LogStoreError, KeyError), self.replicas.reserved(move.key):
            mark = relocation.moving_of(self.replicas.opened[move.key].log)
            is_run = self.is_closed or move.key in self.replicas.running_moves
            if mark is not None and not is_run:
                # A failed retry gave the move a new id. The mark and the copy have the old id.
                move.move_id = mark.move_id
                self._give_up(move)

    def _give_up(self, move: Move) -> None:
        try:
            self.job_of(move).give_up(is_cancelled=True)
        except LogStoreError:  # the target is no longer a log dir, or the replica is not open
            jobs.unmark(self.replicas, move.key)
