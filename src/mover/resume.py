"""Handle moves that no thread runs, at a start, and when a log dir answers again or returns.

The metadata of a live copy has the mark `moving`, which refers to an unfinished move of the
replica. What happens to the move depends on its `.move` copy:

| the `.move` copy | what is done |
|---|---|
| exists | the move is resumed |
| is in a log dir that does not work or is missing | the move is FAILED for that reason |
| does not exist, because it was not begun yet or was given up | the mark is cleared |
| is in a log dir that no longer belongs to the store | the mark is cleared |

If a move failed because its source or its target did not work, a new move continues with the copy.
The old move cannot continue, because its failure was already reported (KIP-113, section 3). If a
move failed for any other reason, it stays FAILED until its method `retry` is called. If a move was
cancelled while its source was unreachable, this module deletes the copy.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from logstore.disk.log_dir import LogDir
from logstore.errors import (
    LogDirOfflineError,
    LogDirSuspectError,
    LogStoreError,
    ReplicaOfflineError,
)
from logstore.log import relocation
from logstore.log.log import Log
from logstore.log.metadata import Moving
from logstore.names import TopicPartition, move_dir_name
from logstore.store.replicas import Replicas
from mover.admission import admit
from mover.copying.target import bytes_standing
from mover.job import unmark
from mover.move import Move
from mover.moves import Moves
from mover.rates.throttle import kept_rate
from mover.state import MoveState

AWAY = (LogDirOfflineError, LogDirSuspectError, ReplicaOfflineError)


class Left(NamedTuple):
    """Describe an unfinished move that has no thread; `target` is None if the target is missing."""

    key: TopicPartition
    log: Log
    source: LogDir
    mark: Moving
    target: LogDir | None


def resume_left(moves: Moves) -> None:
    """Resume the moves that are marked in live copies; remove the copies of cancelled moves."""
    replicas = moves.replicas
    for over in _unremoved(replicas, moves.all()):
        with suppress(LogStoreError), replicas.reserved(over.key):
            if over.key not in replicas.running_moves:
                moves.job_of(over).give_up(is_cancelled=True)
    resumed = []
    for left in _left_moves(replicas, moves.all()):
        path = left.mark.target_directory_id if left.target is None else left.target.path
        rate = kept_rate(relocation.rates_of(left.log), "move")
        throttle = moves.throttle.for_move((left.source.path, path), rate)
        move = Move(moves, left.key, left.source.path, path, throttle, left.log.size_bytes)
        move.move_id = left.mark.move_id
        moves.add(move)
        replicas.running_moves[left.key] = move
        resumed.append((move, left.target))
    for move, target in resumed:
        if target is None:
            reason = f"its target, the log dir with id {move.target_dir}, is not present"
            error = ReplicaOfflineError(topic=move.topic, partition=move.partition, reason=reason)
            moves.refuse(move, error)
        else:
            move.bytes_done = bytes_standing(target, move.key, move.move_id)
            admit(moves, move, target)


def _unremoved(replicas: Replicas, moves: Iterable[Move]) -> list[Move]:
    """List the cancelled moves whose copy still exists."""
    over = [move for move in moves if move.state is MoveState.CANCELLED]
    return [
        m
        for m in over
        if _path_of(m) in replicas.copies.begun and m.key not in replicas.copies.moves
    ]


def _path_of(move: Move) -> str:
    return os.path.join(move.target_dir, move_dir_name(*move.key, move.move_id))


def _left_moves(replicas: Replicas, moves: Iterable[Move]) -> Iterator[Left]:
    """Yield the moves to resume and the moves to fail, each while its replica is reserved."""
    errors = {move.move_id: move.error for move in moves if move.state is MoveState.FAILED}
    by_id = {log_dir.directory_id: log_dir for log_dir in replicas.log_dirs}
    for key, (log, source) in sorted(replicas.opened.items()):
        if relocation.moving_of(log) is None or source.is_refusing:
            continue
        with suppress(LogStoreError), replicas.reserved(key):
            relocation.segments_of(log)  # raises if the log cannot be used
            replica, mark = replicas.opened.get(key), relocation.moving_of(log)
            if replica is None or replica.log is not log or mark is None:
                continue
            target = by_id.get(mark.target_directory_id)
            if key in replicas.running_moves or target in replicas.returning:
                continue
            if target is None and mark.target_directory_id not in replicas.missing_ids:
                # The move was given up, or its target was removed, so it can never be completed.
                unmark(replicas, key)
            elif target is None or target.is_refusing:
                if mark.move_id not in errors:
                    yield Left(key, log, source, mark, target)
            elif not _stands(replicas, key, mark, target):
                unmark(replicas, key)
            elif mark.move_id not in errors or isinstance(errors[mark.move_id], AWAY):
                yield Left(key, log, source, mark, target)


def _stands(replicas: Replicas, key: TopicPartition, mark: Moving, target: LogDir) -> bool:
    """Report whether the `.move` copy of the move with this mark exists."""
    found = replicas.copies.moves.get(key)
    path = os.path.join(target.path, move_dir_name(*key, mark.move_id))
    return found is not None and found.path == path
