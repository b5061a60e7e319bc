"""See to the moves that nobody runs: at a start, and when a log dir answers or is back.

| what a live copy names | what is done |
|---|---|
| a copy that stands | it is gone on with |
| one in a log dir that does not serve, or is not there | a move that has FAILED for that |
| one that does not stand: it was not begun yet, or it was given up | it is forgotten |

A move that failed because its source or its target did not serve is gone on with as a new one: the
old one was told to have failed (KIP-113, section 3). One that failed for another reason waits for
its `retry`. Of one that was cancelled while its source could not be told, the copy goes now.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from logstore.disk.log_dir import LogDir
from logstore.errors import (
    LogDirOfflineError,
    LogDirSuspectError,
    LogStoreError,
    ReplicaOfflineError,
)
from logstore.log import moving
from logstore.log.log import Log
from logstore.log.metadata import Moving
from logstore.names import TopicPartition, move_dir_name
from logstore.store.replicas import Replicas
from mover.admission import admit, refuse
from mover.job import unmark
from mover.move import Move
from mover.state import MoveState
from mover.target import bytes_standing
from mover.throttle import kept_rate

if TYPE_CHECKING:
    from mover.mover import ReplicaMover

AWAY = (LogDirOfflineError, LogDirSuspectError, ReplicaOfflineError)


class Left(NamedTuple):
    """A move that a live copy names and nobody runs; without a target its log dir is not there."""

    key: TopicPartition
    log: Log
    source: LogDir
    mark: Moving
    target: LogDir | None


def resume_left(mover: ReplicaMover) -> None:
    """Go on with the moves that the live copies name, and remove what was cancelled."""
    replicas = mover.host.replicas
    for over in _unremoved(replicas, mover.moves()):
        with suppress(LogStoreError), replicas.reserved(over.key):
            if over.key not in replicas.running_moves:
                mover._job(over).give_up(is_cancelled=True)
    resumed = []
    for left in _left_moves(replicas, mover.moves()):
        path = left.mark.target_directory_id if left.target is None else left.target.path
        rate = kept_rate(moving.rates_of(left.log), "move")
        throttle = mover.throttle.for_move((left.source.path, path), rate)
        move = Move(mover, left.key, left.source.path, path, throttle, left.log.size_bytes)
        move.move_id = left.mark.move_id
        mover._moves.append(move)
        replicas.running_moves[left.key] = move
        resumed.append((move, left.target))
    for move, target in resumed:
        if target is None:
            reason = f"its target, the log dir with id {move.target_dir}, is not there"
            error = ReplicaOfflineError(topic=move.topic, partition=move.partition, reason=reason)
            refuse(mover, move, error)
        else:
            move.bytes_done = bytes_standing(target, move.key, move.move_id)
            admit(mover, move, target)


def _unremoved(replicas: Replicas, moves: Iterable[Move]) -> list[Move]:
    """List the cancelled moves of which the copy stands still."""
    over = [move for move in moves if move.state is MoveState.CANCELLED]
    return [m for m in over if _path_of(m) in replicas.begun and m.key not in replicas.moves]


def _path_of(move: Move) -> str:
    return os.path.join(move.target_dir, move_dir_name(*move.key, move.move_id))


def _left_moves(replicas: Replicas, moves: Iterable[Move]) -> Iterator[Left]:
    """Find what is to be gone on with, or to be told; its replica is reserved until the next."""
    errors = {move.move_id: move.error for move in moves if move.state is MoveState.FAILED}
    by_id = {log_dir.directory_id: log_dir for log_dir in replicas.log_dirs}
    for key, (log, source) in sorted(replicas.opened.items()):
        if moving.moving_of(log) is None or source.is_refusing:
            continue
        with suppress(LogStoreError), replicas.reserved(key):
            moving.segments_of(log)  # raises where it does not serve, whatever its log dir does
            replica, mark = replicas.opened.get(key), moving.moving_of(log)
            if replica is None or replica.log is not log or mark is None:
                continue
            target = by_id.get(mark.target_directory_id)
            if key in replicas.running_moves or target in replicas.returning:
                continue
            if target is None or target.is_refusing:
                if mark.move_id not in errors:
                    yield Left(key, log, source, mark, target)
            elif not _stands(replicas, key, mark, target):
                unmark(replicas, key)
            elif mark.move_id not in errors or isinstance(errors[mark.move_id], AWAY):
                yield Left(key, log, source, mark, target)


def _stands(replicas: Replicas, key: TopicPartition, mark: Moving, target: LogDir) -> bool:
    """Tell whether the copy that a live one names is there."""
    found = replicas.moves.get(key)
    path = os.path.join(target.path, move_dir_name(*key, mark.move_id))
    return found is not None and found.path == path
