"""Move replicas between the log dirs of an open store (`ReplicaMover`)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from logstore.arguments import StrPath, flag, instance, text, whole
from logstore.disk.uninterrupted import uninterruptible
from logstore.errors import LogDirError, LogStoreError
from logstore.names import TopicPartition, partition_named
from logstore.store.store import LogStore
from mover import job as jobs
from mover.administration import commands_of
from mover.admission import admit, has_room
from mover.errors import MoveError
from mover.move import Move
from mover.moves import Moves
from mover.planning.plan import MovePlan
from mover.pool import NUM_REPLICA_MOVE_THREADS, ReplicaMoveThreadPool
from mover.rates.auto_rate import Pilot
from mover.rates.throttle import Rate, Throttle
from mover.response import ChangeReplicaDirResponse, change_replica_dirs
from mover.resume import resume_left
from mover.state import MoveState

ORDERS: dict[str, Callable[[Move], tuple[object, ...]]] = {
    "name": lambda move: move.key,
    "smallest": lambda move: (move.bytes_left, move.key),
}


class ReplicaMover:
    """Move replicas of one store in background threads; use a mover in `with`, or close it.

    Args:
        num_replica_move_threads: how many moves run at the same time.
        intra_broker_throttled_rate: bytes per second for all moves together.
        order: "name" runs moves by topic, then by partition, as in KIP-113. "smallest" runs the
            move with the fewest bytes left first.
        moves_per_disk_max: how many moves are allowed to use one log dir, as source or target, at
            the same time.
        verify: whether every batch is checked while it is copied. If `verify` is False, only the
            headers of the batches are checked. Without `verify`, a batch with a wrong checksum is
            found only when the batch is read.

    A new mover immediately resumes the unfinished moves of an earlier process. If the mover or the
    store is closed, the running moves are paused, and the next mover resumes them.
    """

    def __init__(
        self,
        store: LogStore,
        num_replica_move_threads: int = NUM_REPLICA_MOVE_THREADS,
        intra_broker_throttled_rate: Rate = None,
        *,
        order: str = "name",
        moves_per_disk_max: int | None = None,
        verify: bool = True,
    ) -> None:
        instance(store, LogStore, "store").host.check_owner()
        if text(order, "order") not in ORDERS:
            raise ValueError(f"order {order!r} is not one of {', '.join(ORDERS)}")
        if moves_per_disk_max is not None:
            moves_per_disk_max = whole(moves_per_disk_max, "moves_per_disk_max", 1)
        self.store = store
        self.changed = threading.Condition()
        self.host = store.host
        self._pid = os.getpid()
        self._replicas = self.host.replicas
        self._order = ORDERS[order]
        self._moves_per_disk_max = moves_per_disk_max
        self._taking = threading.Lock()
        self._is_to_look = False  # whether `_take` must look for moves that can be resumed
        self._pool: ReplicaMoveThreadPool[Move] = ReplicaMoveThreadPool(
            num_replica_move_threads,
            self._take,
            self._run,
            self.changed,
            self._broke,
            store.log_dirs[0],
        )
        self._moves = Moves(
            self.host,
            Throttle(intra_broker_throttled_rate, pilot=Pilot(store)),
            self.changed,
            self._pool.wake,
            is_verified=flag(verify, "verify"),
        )
        self._begin()

    @classmethod
    def of(cls, store: LogStore, num_replica_move_threads: int | None = None) -> Self:
        """Return the mover that all users of a store share; if there is none, make a mover.

        A new mover gets the rate that was set last. When the store is closed, its mover is closed.

        Args:
            num_replica_move_threads: the number of threads of a new mover; an existing mover keeps
                its number.
        """
        if num_replica_move_threads is not None:
            whole(num_replica_move_threads, "num_replica_move_threads", 1)
        instance(store, LogStore, "store").host.check_owner()
        found = commands_of(store, cls).running(num_replica_move_threads)
        assert isinstance(found, cls)
        return found

    @uninterruptible
    def _begin(self) -> None:
        """Register with the store, and resume the moves that an earlier process left unfinished."""
        self.host.check()
        self.host.before_close(self.close)
        self.host.on_answer(self._look_again)
        commands_of(self.store, ReplicaMover).mover = self
        resume_left(self._moves)

    def __repr__(self) -> str:
        moves = self.moves()
        running = sum(not move.state.is_end for move in moves)
        return f"<ReplicaMover {running} of {len(moves)} moves under way>"

    @property
    def is_closed(self) -> bool:
        """Whether the mover was closed; a closed mover runs no moves."""
        return self._moves.is_closed

    @property
    def throttle(self) -> Throttle:
        """The rates of all moves and of each log dir."""
        return self._moves.throttle

    # --- requesting moves -------------------------------------------------------------------------

    @uninterruptible
    def move(
        self, topic: str, partition: int, log_dir: StrPath, *, throttled_rate: Rate = None
    ) -> Move:
        """Move a replica to a log dir; first cancel a running move of it to another log dir.

        If the target is full, cordoned or offline, the move is FAILED, and `Move.error` has the
        reason. If the replica is already in the log dir, the move is DONE.

        Args:
            throttled_rate: bytes per second for this move alone.

        Raises:
            UnknownPartitionError: the partition does not exist.
            LogDirOfflineError, ReplicaOfflineError: the partition's log cannot be read.
            LogDirError: the store has no such log dir.
        """
        return self._submit(topic, partition, log_dir, throttled_rate, waits_for_room=False)

    @uninterruptible
    def execute(self, plan: MovePlan) -> list[Move]:
        """Run the moves of a plan in order; a move waits until earlier moves have made enough room.

        Raises:
            The errors that `move` raises. Moves that were already requested continue.
        """
        return [
            self._submit(one.topic, one.partition, one.target, None, waits_for_room=True)
            for one in instance(plan, MovePlan, "plan").moves
        ]

    @uninterruptible
    def change_replica_dirs(
        self, assignment: Mapping[StrPath, Iterable[tuple[str, int]]]
    ) -> ChangeReplicaDirResponse:
        """Carry out a ChangeReplicaDirRequest (KIP-113).

        If a source or target is offline, or a move is cancelled, the partition's result is an
        error. If a partition does not exist yet, its log dir is remembered, as in
        `store.prefer_dir`.
        """
        return change_replica_dirs(assignment, self.move, self.host.prefer)

    @uninterruptible
    def set_throttled_rate(self, rate: Rate, log_dir: StrPath | None = None) -> None:
        """Limit all moves, or the moves from and to one log dir; None removes the limit.

        Raises:
            LogDirError: the store has no such log dir.
        """
        path = None if log_dir is None else self.host.dir_named(log_dir).path
        self.throttle.set_rate(rate, path)

    def moves(self) -> list[Move]:
        """List the moves that were requested or resumed, including moves that have ended."""
        return self._moves.all()

    def move_of(self, topic: str, partition: int) -> Move | None:
        """Return the newest move of a partition; None if this mover has no move of the partition.

        The move may have ended: see `Move.state`.
        """
        return self._moves.newest(partition_named(topic, partition))

    def _submit(
        self, topic: str, partition: int, log_dir: StrPath, rate: Rate, *, waits_for_room: bool
    ) -> Move:
        self._check_open()
        log = self.store.log(topic, partition)
        target = self.host.dir_named(log_dir)
        key = TopicPartition(log.topic, log.partition)
        throttle = self.throttle.for_move((log.log_dir, target.path), rate)
        running = self._replicas.running_moves.get(key)
        if running is not None and running not in self.moves():
            reason = f"another mover moves {key} to {running.target_dir}"
            raise MoveError(topic=topic, partition=partition, reason=reason)
        if isinstance(running, Move) and running.target_dir == target.path:
            return running
        move = Move(self._moves, key, log.log_dir, target.path, throttle, log.size_bytes)
        move.waits_for_room = waits_for_room
        with self._moves.letting_in(move):
            with self._replicas.reserved_unmoved(key, f"a new move to {target.path} replaces it"):
                source = self._replicas.lookup(topic, partition).log_dir
                move.source_dir = source.path
                throttle.set_dirs((source.path, target.path))
                self._moves.add(move)
                if source is not target:
                    self._replicas.running_moves[key] = move
            if source is target:
                move.go(MoveState.DONE)
            else:
                admit(self._moves, move, target)
        return move

    def _check_open(self) -> None:
        self.host.check()
        if self.is_closed:
            raise MoveError(reason="the mover was closed")

    # --- running them -----------------------------------------------------------------------------

    def _take(self) -> Move | None:
        """Take the next move that is allowed to run: first requested moves, then moves of plans."""
        with self._taking:
            if self._is_to_look and not self.is_closed:
                self._is_to_look = False
                resume_left(self._moves)
            with self.changed:
                if self.is_closed:
                    return None
                waiting = self._moves.queued()
                own = [move for move in waiting if not move.waits_for_room]
                queued = sorted(own, key=self._order)
                queued += [move for move in waiting if move.waits_for_room]
            for move in queued:
                if not self._may_run(move):
                    continue
                if move.waits_for_room and not has_room(self._moves, move):
                    return None
                self._moves.dequeue(move)
                if move.try_begin():
                    return move
            return None

    def _may_run(self, move: Move) -> bool:
        if move.state is not MoveState.PLANNED:
            self._moves.dequeue(move)
            return False
        limit = self._moves_per_disk_max
        if limit is None:
            return True
        busy = [
            path
            for m in self.moves()
            if m.state.is_running
            for path in (m.source_dir, m.target_dir)
        ]
        return all(busy.count(path) < limit for path in (move.source_dir, move.target_dir))

    def _run(self, move: Move) -> None:
        """Run a move that a thread has taken."""
        try:
            job = self._moves.job_of(move)
            self._moves.reservations.reserve(move, self._replicas.dir_of(move.target_dir))
        except LogStoreError as error:
            self._moves.end(move, MoveState.FAILED, error)
            return
        jobs.run(move, job, self._moves.end)

    def _broke(self, move: Move, error: Exception) -> None:
        """Fail a move whose thread got an unexpected error; log and store the error."""
        from logstore.store.upkeep.keeper import warn

        warn("the move of %s failed", move.key, exc_info=True)
        if not move.state.is_end:
            reason = f"{type(error).__name__}: {error}"
            failure = MoveError(topic=move.topic, partition=move.partition, reason=reason)
            self._moves.end(move, MoveState.FAILED, failure)

    # --- life -------------------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Resume the moves that waited for a log dir which now answers again or has returned."""
        self._moves.go_on()
        self._is_to_look = True
        with suppress(LogDirError):  # no thread can be started; the next requested move tries again
            self._pool.wake()

    @uninterruptible
    def close(self) -> None:
        """Pause the running moves and end the threads; the next mover resumes the moves.

        A second call has no effect.
        """
        if self._pid != os.getpid():
            return  # this is a forked child: the moves and the threads belong to its parent
        self._moves.close()
        for move in [move for move in self.moves() if not move.state.is_end]:
            with suppress(MoveError):
                move.pause()
        self._pool.close()
        self.throttle.stop()
        for move in self.moves():  # this includes moves that were admitted during the close
            self._moves.release(move)
        self.host.forget(self.close)
        self.host.forget(self._look_again)
        with self.changed:
            self.changed.notify_all()

    def __enter__(self) -> Self:
        """Return the mover itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the mover."""
        self.close()
