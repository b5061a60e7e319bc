"""Move replicas between the log dirs of an open store: `ReplicaMover`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from logstore.arguments import flag, instance, text, whole
from logstore.disk.log_dir import LogDir
from logstore.disk.uninterrupted import uninterruptible
from logstore.errors import LogDirError, LogStoreError, ReadOnlyStoreError
from logstore.log import relocation
from logstore.names import TopicPartition
from logstore.store.store import LogStore, StrPath
from logstore.store.view import LogStoreView
from mover import job as jobs
from mover.administration import commands_of
from mover.admission import admit, has_room, letting_in, refuse
from mover.errors import MoveError
from mover.move import Move
from mover.pool import ReplicaMoveThreadPool
from mover.rates.auto_rate import Pilot
from mover.rates.throttle import Rate, Throttle
from mover.reservation import Reservations
from mover.response import ChangeReplicaDirResponse, change_replica_dirs
from mover.resume import resume_left
from mover.state import MoveState

if TYPE_CHECKING:
    from mover.planning.plan import MovePlan

NUM_REPLICA_MOVE_THREADS = 2
ORDERS: dict[str, Callable[[Move], tuple[object, ...]]] = {
    "name": lambda move: move.key,
    "smallest": lambda move: (move.bytes_left, move.key),
}


class ReplicaMover:
    """Move replicas of one store in threads of its own; use it in a `with` block, or close it.

    Args:
        num_replica_move_threads: how many moves run at the same time.
        intra_broker_throttled_rate: bytes per second for all moves together.
        order: "name" (topic, then partition, as in KIP-113) or "smallest" first.
        moves_per_disk_max: how many moves may read from or write to one log dir at the same time.
        verify: check every batch while copying. If False, only the frames are checked, and a batch
            with a bad checksum is found when it is read.

    Unfinished moves of an earlier process are resumed at once. Closing the mover, or the store,
    pauses the running moves; the next mover resumes them.
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
        if isinstance(instance(store, LogStore, "store"), LogStoreView):
            raise ReadOnlyStoreError(path=store.log_dirs[0])
        if text(order, "order") not in ORDERS:
            raise ValueError(f"order {order!r} is none of {', '.join(ORDERS)}")
        if moves_per_disk_max is not None:
            moves_per_disk_max = whole(moves_per_disk_max, "moves_per_disk_max", 1)
        self.store = store
        self.changed = threading.Condition()
        self.is_closed = False
        self.throttle = Throttle(intra_broker_throttled_rate, pilot=Pilot(store))
        self._pid = os.getpid()
        self.host = store.host
        self._replicas = self.host.replicas
        self._order = ORDERS[order]
        self._moves_per_disk_max = moves_per_disk_max
        self._is_verified = flag(verify, "verify")
        self._reservations = Reservations()
        self._moves: list[Move] = []
        self._queue: list[Move] = []
        self._taking = threading.Lock()
        self._is_to_look = False  # whether a log dir answers again or was brought back
        self._pool: ReplicaMoveThreadPool[Move] = ReplicaMoveThreadPool(
            num_replica_move_threads,
            self._take,
            self._run,
            self.changed,
            self._broke,
            store.log_dirs[0],
        )
        self.host.check()
        self.host.before_close(self.close)
        self.host.on_answer(self._look_again)
        commands_of(store).mover = self
        resume_left(self)

    def __repr__(self) -> str:
        running = sum(not move.state.is_end for move in self._moves)
        return f"<ReplicaMover {running} of {len(self._moves)} moves under way>"

    # --- requesting moves -------------------------------------------------------------------------

    @uninterruptible
    def move(
        self, topic: str, partition: int, log_dir: StrPath, *, throttled_rate: Rate = None
    ) -> Move:
        """Move a replica to another log dir; a running move of it to elsewhere is cancelled first.

        If a disk refuses (the target is full, cordoned or offline), the move is FAILED and has the
        error. If the replica is already in the log dir, the move is DONE.

        Args:
            throttled_rate: bytes per second for this move alone.

        Raises:
            UnknownPartitionError, LogDirOfflineError, ReplicaOfflineError: there is no log to move.
            LogDirError: the store has no such log dir.
        """
        return self._submit(topic, partition, log_dir, throttled_rate, waits_for_room=False)

    @uninterruptible
    def execute(self, plan: MovePlan) -> list[Move]:
        """Run the moves of a plan in its order; each waits until earlier moves have freed its room.

        Raises:
            The errors of `move`; moves that were already begun continue.
        """
        from mover.planning.plan import MovePlan

        return [
            self._submit(one.topic, one.partition, one.target, None, waits_for_room=True)
            for one in instance(plan, MovePlan, "plan").moves
        ]

    @uninterruptible
    def change_replica_dirs(
        self, assignment: Mapping[StrPath, Iterable[tuple[str, int]]]
    ) -> ChangeReplicaDirResponse:
        """Carry out a ChangeReplicaDirRequest (KIP-113).

        If a source or target is offline, or a move is cancelled, that is the partition's result.
        If a partition does not exist yet, its log dir is remembered, as in `store.prefer_dir`.
        """
        return change_replica_dirs(self, assignment)

    @uninterruptible
    def set_throttled_rate(self, rate: Rate, log_dir: StrPath | None = None) -> None:
        """Limit all moves, or those from and to one log dir, to a rate; None removes the limit.

        Raises:
            LogDirError: the store has no such log dir.
        """
        path = None if log_dir is None else self.host.dir_named(log_dir).path
        self.throttle.set_rate(rate, path)

    def moves(self) -> list[Move]:
        """List the moves that were requested or resumed, including those that have ended."""
        return list(self._moves)

    def _submit(
        self, topic: str, partition: int, log_dir: StrPath, rate: Rate, *, waits_for_room: bool
    ) -> Move:
        self._check_open()
        log = self.store.log(topic, partition)
        target = self.host.dir_named(log_dir)
        key = TopicPartition(log.topic, log.partition)
        throttle = self.throttle.for_move((log.log_dir, target.path), rate)
        running = self._replicas.running_moves.get(key)
        if running is not None and running not in self._moves:
            reason = f"another mover moves {key} to {running.target_dir}"
            raise MoveError(topic=topic, partition=partition, reason=reason)
        if isinstance(running, Move) and running.target_dir == target.path:
            return running
        move = Move(self, key, log.log_dir, target.path, throttle, log.size_bytes)
        move.waits_for_room = waits_for_room
        with letting_in(self, move):
            with self._replicas.reserved_unmoved(key, f"a new move to {target.path} replaces it"):
                source = self._replicas.lookup(topic, partition).log_dir
                move.source_dir = source.path
                throttle.set_dirs((source.path, target.path))
                self._moves.append(move)
                if source is not target:
                    self._replicas.running_moves[key] = move
            if source is target:
                move.go(MoveState.DONE)
            else:
                admit(self, move, target)
        return move

    def _check_open(self) -> None:
        self.host.check()
        if self.is_closed:
            raise MoveError(reason="the mover was closed")

    # --- what the moves request -------------------------------------------------------------------

    def enqueue(self, move: Move) -> None:
        """Queue a planned move."""
        with self.changed:
            if not move.is_idle:
                return  # cancelled meanwhile
            self._replicas.running_moves.setdefault(move.key, move)
            if move not in self._queue:
                self._queue.append(move)
        try:
            self._pool.wake()
        except LogDirError as error:  # no thread can run it
            self._dequeue(move)
            refuse(self, move, error)

    def renew(self, move: Move) -> None:
        """Queue a move that is tried again, as its replica's only one; end it if it is there."""
        reason = f"a new move to {move.target_dir} replaces it"
        with letting_in(self, move), self._replicas.reserved_unmoved(move.key, reason):
            replica = self._replicas.opened.get(move.key)
            if replica is None or replica.log_dir.path != move.target_dir:
                self.enqueue(move)
            elif move.is_idle:
                self._end(move, MoveState.DONE, None)

    def holds(self, move: Move) -> bool:
        """Report whether a move is still this mover's; once closed, they belong to the next one."""
        return not self.is_closed or self._replicas.running_moves.get(move.key) is move

    def discard(self, move: Move) -> None:
        """Cancel a move that no thread runs, and remove its copy."""
        self._give_up(move)
        self._end(move, MoveState.CANCELLED, jobs.cancelled(move))

    def abandon(self, move: Move) -> None:
        """Make sure that what a failed move left is never resumed."""
        with suppress(LogStoreError, KeyError), self._replicas.reserved(move.key):
            mark = relocation.moving_of(self._replicas.opened[move.key].log)
            is_run = self.is_closed or move.key in self._replicas.running_moves
            if mark is not None and not is_run:
                move.move_id = mark.move_id  # the id before a retry that failed at once
                self._give_up(move)

    def _give_up(self, move: Move) -> None:
        try:
            self._job(move).give_up(is_cancelled=True)
        except LogStoreError:  # its target is no longer a log dir, or its replica is not open
            jobs.unmark(self._replicas, move.key)

    def wake(self) -> None:
        """Wake the moves that wait for their throttle, so that they see a pause or cancel."""
        self.throttle.wake()

    # --- running them -----------------------------------------------------------------------------

    def _take(self) -> Move | None:
        """Take the next move that may run, in order; moves of a plan wait until there is room."""
        with self._taking:
            if self._is_to_look and not self.is_closed:
                self._is_to_look = False
                resume_left(self)
            with self.changed:
                if self.is_closed:
                    return None
                own = [move for move in self._queue if not move.waits_for_room]
                queued = sorted(own, key=self._order)
                queued += [move for move in self._queue if move.waits_for_room]
            for move in queued:
                if not self._may_run(move):
                    continue
                if move.waits_for_room and not has_room(self, move):
                    return None
                self._dequeue(move)
                if move.try_begin():
                    return move
            return None

    def _dequeue(self, move: Move) -> None:
        with self.changed:
            if move in self._queue:
                self._queue.remove(move)

    def _may_run(self, move: Move) -> bool:
        if move.state is not MoveState.PLANNED:
            self._dequeue(move)
            return False
        limit = self._moves_per_disk_max
        if limit is None:
            return True
        busy = [
            path for m in self._moves if m.state.is_running for path in (m.source_dir, m.target_dir)
        ]
        return all(busy.count(path) < limit for path in (move.source_dir, move.target_dir))

    def _job(self, move: Move) -> jobs.Job:
        target = self._replicas.dir_of(move.target_dir)
        return jobs.Job(move, self._replicas, target, self._purge, self._is_verified)

    def _run(self, move: Move) -> None:
        """Run a move that a thread has taken."""
        try:
            job = self._job(move)
            self._reservations.reserve(move, self._replicas.dir_of(move.target_dir))
        except LogStoreError as error:
            self._end(move, MoveState.FAILED, error)
            return
        jobs.run(move, job, self._end)

    def _broke(self, move: Move, error: Exception) -> None:
        """Fail a move whose thread met an unexpected error; the error is logged and kept."""
        from logstore.store.upkeep.keeper import warn

        warn("the move of %s broke off", move.key, exc_info=True)
        if not move.state.is_end:
            reason = f"{type(error).__name__}: {error}"
            failure = MoveError(topic=move.topic, partition=move.partition, reason=reason)
            self._end(move, MoveState.FAILED, failure)

    def _end(self, move: Move, state: MoveState, error: LogStoreError | None) -> None:
        """Release what a move that has ended or paused no longer needs; then change its state."""
        if state.is_end:
            if state is not MoveState.FAILED:  # a failed move may be tried again
                move.throttle.end()
            self._reservations.release(move)
            if self._replicas.running_moves.get(move.key) is move:
                del self._replicas.running_moves[move.key]
        move.go(state, error)
        self._go_on()  # its log dir may have answered already

    def _go_on(self) -> None:
        """Resume the moves that were held up by log dirs, once none of these hangs any more."""
        hanging = {log_dir.path for log_dir in self._replicas.log_dirs if log_dir.is_suspect}
        for move in [move for move in self._moves if move.is_held_up]:
            if not self.is_closed and hanging.isdisjoint((move.source_dir, move.target_dir)):
                move.go_on()

    def _purge(self, log_dir: LogDir, path: str) -> None:
        """Have the directory that a swap left removed in the background."""
        self.host.purge(log_dir, path)

    # --- life -------------------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Resume the moves that had to wait for a log dir, now that it answers or is back."""
        self._go_on()
        self._is_to_look = True
        with suppress(LogDirError):  # no thread can be started; the next requested move looks
            self._pool.wake()

    @uninterruptible
    def close(self) -> None:
        """Pause the running moves and end the threads; the next mover resumes the moves.

        Calling it again has no effect.
        """
        if self._pid != os.getpid():
            return  # a forked child: the moves and the threads are its parent's
        with self.changed:
            self.is_closed = True
        for move in [move for move in self._moves if not move.state.is_end]:
            with suppress(MoveError):
                move.pause()
        self._pool.close()
        self.throttle.stop()
        for move in list(self._moves):  # includes those that were admitted meanwhile
            if self._replicas.running_moves.get(move.key) is move:
                del self._replicas.running_moves[move.key]
            self._reservations.release(move)
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
