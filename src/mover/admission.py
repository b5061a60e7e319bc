"""Let moves in: room for each is held before its first byte, and whoever is not let in has failed.

A plan's moves wait for the room that those before them make, for as long as any of them runs.
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
    """Hold room for a move of a plan; one that nothing will make room for any more fails."""
    is_last_try = not any(one.state.is_running for one in mover.moves())
    try:
        target = mover.host.dir_of(move.target_dir)
        try:
            _reserve(mover, move, target)
        except TargetFullError:
            if not is_last_try:
                return False
            mover.host.wait_purged(PURGE_SECONDS_MAX)  # what was moved away is being purged
            _reserve(mover, move, target)
    except LogStoreError as error:
        refuse(mover, move, error)
        return False
    return True


def _reserve(mover: ReplicaMover, move: Move, target: LogDir) -> None:
    """Hold room for a move that somebody may be cancelling, and may have."""
    mover._reservations.reserve(move, target)
    if move.is_ending:
        mover._reservations.release(move)


def refuse(mover: ReplicaMover, move: Move, error: LogStoreError) -> None:
    """Let a move that waits to be let in fail, unless somebody is cancelling it, or has."""
    with mover.changed:
        if move.is_idle and not move.state.is_end:
            mover._end(move, MoveState.FAILED, error)


@contextmanager
def letting_in(mover: ReplicaMover, move: Move) -> Iterator[None]:
    """Fail a move that is not let in for what is raised, Ctrl-C too: no thread will ever run it."""
    try:
        yield
    except BaseException as error:
        reason = "it was interrupted as it was asked for"
        broken = MoveError(topic=move.topic, partition=move.partition, reason=reason)
        refuse(mover, move, error if isinstance(error, LogStoreError) else broken)
        raise
