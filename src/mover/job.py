"""Run one move in a thread: set marks, copy, catch up, swap; or give the move up.

marks     first the field `moving` in the live copy's metadata, then the `.move` directory with its
          record of the move
give up   the mark in the live copy is cleared, then the `.move` directory is removed. If the
          source's disk is full and the mark stays, the directory first gets a move id that no mark
          has. The directory is kept while its copy may be better than the source: if the source's
          disk failed, or if a swap stopped halfway. If the move failed, the live copy keeps the
          mark, and the move is resumed when the source is back. If the move was cancelled, the
          directory gets a move id that no mark has, and the next start removes the directory
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from logstore.disk.log_dir import LogDir
from logstore.errors import (
    LogClosedError,
    LogDirFullError,
    LogDirSuspectError,
    LogStoreError,
    UnknownPartitionError,
)
from logstore.log import relocation
from logstore.log.log import Log
from logstore.log.metadata import Moving
from logstore.names import TopicPartition
from logstore.store.other_copies import MoveFound
from logstore.store.replicas import Replicas
from mover.copying.catch_up import copy_all
from mover.copying.copy_segments import Ends, StoppedError
from mover.copying.target import Target
from mover.errors import MoveCancelledError, TargetUnfitError
from mover.move import Move, Wanted
from mover.state import MoveState
from mover.swap import LOCKED_BYTES_MAX, Swap


def check_fit(move: Move, target: LogDir) -> None:
    """Check that the target of a move accepts new replicas now.

    Raises:
        LogDirOfflineError, LogDirSuspectError, LogDirFullError: the target is OFFLINE, SUSPECT or
            full.
        LogDirError: the target is an old copy of the log dir.
        TargetUnfitError: the target is cordoned.
    """
    target.check_current()
    if target.is_full:
        raise LogDirFullError(path=target.path)
    if target.is_cordoned:
        raise TargetUnfitError(
            topic=move.topic, partition=move.partition, path=target.path, reason="it is cordoned"
        )


class Job:
    """Run a move once, from its first byte or from where the last run stopped.

    Args:
        purge: removes a directory; its arguments are the log dir and the path of the directory.
    """

    def __init__(
        self,
        move: Move,
        replicas: Replicas,
        target: LogDir,
        purge: Callable[[LogDir, str], None],
        is_verified: bool,
    ) -> None:
        self.move = move
        self.replicas = replicas
        self.purge = purge
        replica = replicas.opened.get(move.key)
        if replica is None:
            raise UnknownPartitionError(topic=move.topic, partition=move.partition)
        self.log: Log = replica.log
        self.source = replica.log_dir
        move.source_dir = self.source.path
        move.throttle.set_dirs((self.source.path, target.path))
        move.measure(lambda: self.log.size_bytes)
        self.ends = Ends(self.source, target, move.throttle, move.is_stopped, move.advance)
        self.ends.is_verified = is_verified
        self.target = Target(
            self.ends, move.key, move.move_id, self.log.config.index_interval_bytes
        )
        self._swap: Swap | None = None

    # --- running ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Move the replica.

        Raises:
            StoppedError: a caller paused or cancelled the move.
            LogStoreError: the move failed.
        """
        self.begin()
        self.copy()
        while not self.swap():
            self.catch_up()

    def begin(self) -> None:
        """Set the marks of the move; if an earlier run left a copy, continue that copy."""
        self.ends.check()
        check_fit(self.move, self.ends.target)
        self.target.check_vacant()
        self._claim()
        self._forget_left()
        # From now on, a deletion of the replica must also delete this copy.
        # This rule ends when the copy is removed, or becomes the live replica.
        self.replicas.copies.begun[self.target.path] = (self.move.key, self.ends.target)
        self.target.begin(relocation.metadata_of(self.log))
        self._count()

    def _claim(self) -> None:
        mark = Moving(self.move.move_id, self.ends.target.directory_id)
        rates = self.move.throttle.rates_to_keep(relocation.rates_of(self.log))
        relocation.set_moving(self.log, mark, rates)

    def note_rates(self) -> None:
        """Update the rates that are stored with the mark `moving`; without the mark, do nothing."""
        mark = relocation.moving_of(self.log)
        if mark is not None and mark.move_id == self.move.move_id:
            with suppress(LogStoreError):
                self._claim()

    def _forget_left(self) -> None:
        """Purge copies that earlier moves left, except the copy that this move continues."""
        copies, key = self.replicas.copies, self.move.key
        left = copies.moves.pop(key, None)
        others = {} if left is None else {left.path: left.log_dir}
        others |= {p: d for p, (of, d) in list(copies.begun.items()) if of == key}
        others.pop(self.target.path, None)
        for path, log_dir in others.items():
            copies.begun.pop(path, None)
            self.purge(log_dir, path)

    def _count(self) -> None:
        self.move.bytes_done = self.target.copied_bytes

    def copy(self) -> None:
        """Copy the segments that exist now."""
        copy_all(self.log, self.target, self.ends)
        self._count()
        self.move.go(MoveState.CATCHING_UP)

    def catch_up(self) -> None:
        """Copy the records that were appended meanwhile, until the copy lacks only a few bytes."""
        while True:
            # A truncation of the log clears the mark `moving`.
            # After a truncation, `copy_all` truncates the copy, too, and `_claim` sets the mark
            # again.
            missing = copy_all(self.log, self.target, self.ends)
            self.target.sync()
            self._claim()
            self._count()
            if missing <= LOCKED_BYTES_MAX:
                return

    def swap(self) -> bool:
        """Put the copy in the source's place; return False if the copy must catch up again."""
        self.move.go(MoveState.SWAPPING)
        self._swap = Swap(self.log, self.target, self.ends, self.move.key)
        try:
            with self.replicas.reserved(self.move.key):
                if not self._swap.run():
                    self.move.go(MoveState.CATCHING_UP)
                    return False
                self.replicas.moved(self.move.key, self.ends.target)
                self.replicas.copies.begun.pop(self.target.path, None)
        finally:
            relocation.tell_end(self.log)
        self._count()
        self.target.let_go()
        # Marks that remain do no harm: the next change of the metadata removes them.
        with suppress(LogStoreError):
            relocation.settle(self.log)
        self.purge(self.source, self._swap.doomed_path)
        return True

    # --- giving up --------------------------------------------------------------------------------

    def give_up(self, *, is_cancelled: bool) -> None:
        """Remove the copy and its marks, if the removal is safe and the disks allow it."""
        self.target.let_go()
        if self._swap is not None and self._swap.is_undecided:
            return
        try:
            relocation.set_moving(self.log, None)
        except LogDirFullError:  # the log can still be used, but the mark cannot be cleared
            with suppress(LogStoreError):
                self.target.disown()
        except LogStoreError:
            if is_cancelled:
                self._keep_for_nobody()
            else:
                self.leave()
            return
        self._forget_left()
        with suppress(LogStoreError):
            self.target.remove()
            self.replicas.copies.begun.pop(self.target.path, None)
        self.move.bytes_done = 0

    def _keep_for_nobody(self) -> None:
        """Keep the copy, because it may be better than the source; let no move resume the copy."""
        with suppress(LogStoreError):
            self.target.disown()
        self.replicas.copies.moves.pop(self.move.key, None)
        self.replicas.copies.begun[self.target.path] = (self.move.key, self.ends.target)

    def leave(self) -> None:
        """Keep the copy, so that a later run can resume it."""
        self.target.let_go()
        path = self.target.path
        if path in self.replicas.copies.begun:
            left = MoveFound(self.ends.target, path, self.move.bytes_done)
            self.replicas.copies.moves[self.move.key] = left


def unmark(replicas: Replicas, key: TopicPartition) -> None:
    """Clear the mark `moving` from the live copy, if the replica has a live copy."""
    replica = replicas.opened.get(key)
    if replica is not None:
        with suppress(LogStoreError):
            relocation.set_moving(replica.log, None)


End = Callable[[Move, MoveState, "LogStoreError | None"], None]


def run(move: Move, job: Job, end: End) -> None:
    """Run a move in the calling thread, then call `end` with the resulting state."""
    state: MoveState = MoveState.DONE
    error: LogStoreError | None = None
    try:
        job.run()
    except StoppedError:
        if move.wanted is Wanted.CANCEL:
            job.give_up(is_cancelled=True)
            state, error = MoveState.CANCELLED, cancelled(move)
        else:
            job.leave()
            job.note_rates()
            state = MoveState.PAUSED
    except LogClosedError:  # the store was closed; the next mover resumes the move
        job.leave()
        state = MoveState.PAUSED
    except LogDirSuspectError:  # a disk of the move hangs: the move resumes when the disk answers
        job.leave()
        state, move.is_held_up = MoveState.PAUSED, True
    except LogStoreError as failure:
        job.give_up(is_cancelled=False)
        state, error = MoveState.FAILED, without_frames(failure)
    except BaseException:
        job.leave()
        raise
    size_bytes = job.log.size_bytes
    move.measure(lambda: size_bytes)
    end(move, state, error)


def without_frames(error: LogStoreError) -> LogStoreError:
    """Drop the stack frames of a stored error, which can keep a dead disk's descriptors open."""
    links: list[BaseException | None] = [error]
    while links:
        link = links.pop()
        if link is not None and link.__traceback__ is not None:
            link.__traceback__ = None
            links += [link.__cause__, link.__context__]
    return error


def cancelled(move: Move) -> MoveCancelledError:
    """Create the error of a move that was cancelled."""
    return MoveCancelledError(topic=move.topic, partition=move.partition, reason=move.cancel_reason)
