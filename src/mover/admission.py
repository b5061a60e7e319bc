"""Admit moves: reserve room for each move before its first byte is copied, or fail the move.

If there is no room for a move of a plan, the move waits while other moves run, because those moves
may free room.
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
    """Queue a move; if the target has no room or is unfit, fail the move before its first byte."""
    try:
        check_fit(move, target)
        if not move.waits_for_room:
            _reserve(moves, move, target)
    except LogStoreError as error:
        moves.refuse(move, error)
    else:
        moves.enqueue(move)


def has_room(moves: Moves, move: Move) -> bool:
    """Reserve room for a planned move; if there can never be enough room, fail the move."""
    is_last_try = not any(one.state.is_running for one in moves.all())
    try:
        target = moves.host.dir_of(move.target_dir)
        try:
            _reserve(moves, move, target)
        except TargetFullError:
            if not is_last_try:
                return False
            moves.host.wait_purged(PURGE_SECONDS_MAX)  # wait until old copies are purged
            _reserve(moves, move, target)
    except LogStoreError as error:
        moves.refuse(move, error)
        return False
    return True


def _reserve(moves: Moves, move: Move, target: LogDir) -> None:
    """Reserve room for a move; give the room back if a caller cancels the move at the same time."""
    moves.reservations.reserve(move, target)
    if move.is_ending:
        moves.reservations.release(move)
