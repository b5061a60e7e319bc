"""Admit moves: reserve room for each one before its first byte is copied, or fail it.

A plan's moves wait while other moves are running, because those may free the room they need.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from logstore.disk.log_dir import LogDir
from logstore.errors import LogStoreError
from mover.errors import MoveError, TargetFullError
from mover.job import check_fit
from mover.move import Move
from mover.state import MoveState

if TYPE_CHECKING:
    from mover.mover import ReplicaMover

PURGE_SECONDS_MAX = 30.0


def admit(mover: ReplicaMover, move: Move, target: LogDir) -> None:
    """Queue a move, or fail it before its first byte."""
    try:
        check_fit(move, target)
        if not move.waits_for_room:
            _reserve(mover, move, target)
    except LogStoreError as error:
        refuse(mover, move, error)
    else:
        mover.enqueue(move)


def has_room(mover: ReplicaMover, move: Move) -> bool:
    """Reserve room for a move of a plan; fail it if no running move can free any more room."""
    is_last_try = not any(one.state.is_running for one in mover.moves())
    try:
        target = mover.host.dir_of(move.target_dir)
        try:
            _reserve(mover, move, target)
        except TargetFullError:
            if not is_last_try:
                return False
            mover.host.wait_purged(PURGE_SECONDS_MAX)  # the replicas moved away are being purged
            _reserve(mover, move, target)
    except LogStoreError as error:
        refuse(mover, move, error)
        return False
    return True


def _reserve(mover: ReplicaMover, move: Move, target: LogDir) -> None:
    """Reserve room for a move; release it again if the move is being cancelled meanwhile."""
    mover._reservations.reserve(move, target)
    if move.is_ending:
        mover._reservations.release(move)


def refuse(mover: ReplicaMover, move: Move, error: LogStoreError) -> None:
    """Fail a move that was not admitted, unless it is being cancelled or has ended."""
    with mover.changed:
        if move.is_idle and not move.state.is_end:
            mover._end(move, MoveState.FAILED, error)


@contextmanager
def letting_in(mover: ReplicaMover, move: Move) -> Iterator[None]:
    """Fail the move if admitting it raises, Ctrl-C included: no thread would ever run it."""
    try:
        yield
    except BaseException as error:
        reason = "it was interrupted while it was being requested"
        broken = MoveError(topic=move.topic, partition=move.partition, reason=reason)
        refuse(mover, move, error if isinstance(error, LogStoreError) else broken)
        raise
