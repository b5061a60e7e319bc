"""Admit moves: reserve room for each one before its first byte is copied, or fail it.

If a move of a plan has no room, it waits while other moves run, because these may free some room.
"""

from __future__ import annotations

from logstore.disk.log_dir import LogDir
from logstore.errors import LogStoreError
from mover.errors import TargetFullError
from mover.job import check_fit
from mover.move import Move
from mover.moves import Moves

PURGE_SECONDS_MAX = 30.0


def admit(moves: Moves, move: Move, target: LogDir) -> None:
    """Queue a move, or fail it before its first byte."""
    try:
        check_fit(move, target)
        if not move.waits_for_room:
            _reserve(moves, move, target)
    except LogStoreError as error:
        moves.refuse(move, error)
    else:
        moves.enqueue(move)


def has_room(moves: Moves, move: Move) -> bool:
    """Reserve room for a move of a plan; fail it if no running move can free any more room."""
    is_last_try = not any(one.state.is_running for one in moves.all())
    try:
        target = moves.host.dir_of(move.target_dir)
        try:
            _reserve(moves, move, target)
        except TargetFullError:
            if not is_last_try:
                return False
            moves.host.wait_purged(PURGE_SECONDS_MAX)  # old copies of moved replicas are purged now
            _reserve(moves, move, target)
    except LogStoreError as error:
        moves.refuse(move, error)
        return False
    return True


def _reserve(moves: Moves, move: Move, target: LogDir) -> None:
    """Reserve room for a move; give the room back if a caller cancels the move meanwhile."""
    moves.reservations.reserve(move, target)
    if move.is_ending:
        moves.reservations.release(move)
