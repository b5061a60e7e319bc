"""Answer a ChangeReplicaDirRequest (KIP-113), partition by partition as the moves end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from logstore.arguments import StrPath, many, path_of, timeout_of, wrong
from logstore.errors import LogDirError, LogDirOfflineError, LogStoreError, UnknownPartitionError
from logstore.names import TopicPartition, partition_named
from mover.errors import TargetUnfitError
from mover.move import Move

# Kafka's error codes for the result of a partition.
NONE, UNKNOWN, UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, LOG_DIR_NOT_FOUND = 0, -1, 3, 56, 57
INVALID_REPLICA_ASSIGNMENT = 39


def error_code(error: LogStoreError | None) -> int:
    """Return Kafka's error code for a result."""
    if error is None:
        return NONE
    if isinstance(error, UnknownPartitionError):
        return UNKNOWN_TOPIC_OR_PARTITION
    if isinstance(error, TargetUnfitError):
        return INVALID_REPLICA_ASSIGNMENT
    if isinstance(error, LogDirOfflineError):
        return KAFKA_STORAGE_ERROR
    return LOG_DIR_NOT_FOUND if isinstance(error, LogDirError) else UNKNOWN


def partitions_of(
    assignment: Mapping[StrPath, Iterable[tuple[str, int]]],
) -> list[tuple[str, list[TopicPartition]]]:
    """Check a whole request before any move is begun; raise TypeError or ValueError."""
    if not isinstance(assignment, Mapping):
        raise wrong("assignment", "a mapping of log dirs to pairs (topic, partition)", assignment)
    found = []
    for log_dir, keys in assignment.items():
        partitions = []
        for key in many(keys, "each of assignment", "pairs (topic, partition)"):
            if not isinstance(key, tuple | list) or len(key) != 2:
                raise wrong("a partition of assignment", "a pair (topic, partition)", key)
            partitions.append(partition_named(*key))
        found.append((path_of(log_dir, "a log dir of assignment"), partitions))
    return found


class ChangeReplicaDirResponse:
    """Hold the results of a request; some results may still be unknown.

    Attributes:
        moves: the move of each partition whose move was begun; some of these moves may still run.
    """

    def __init__(
        self,
        moves: Mapping[TopicPartition, Move],
        results: Mapping[TopicPartition, LogStoreError | None],
    ) -> None:
        self.moves = dict(moves)
        self._results = dict(results)

    def __repr__(self) -> str:
        count = len(self.moves) + len(self._results)
        return f"<ChangeReplicaDirResponse {len(self.results)} of {count} partitions>"

    @property
    def results(self) -> dict[tuple[str, int], LogStoreError | None]:
        """The known result of each partition: None for a success, an error for a failure."""
        known: dict[tuple[str, int], LogStoreError | None] = dict(self._results.items())
        for key, move in self.moves.items():
            if move.state.is_end:
                known[key] = move.error
        return known

    @property
    def is_complete(self) -> bool:
        """Whether the result of every partition is known."""
        return all(move.state.is_end for move in self.moves.values())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every result is known; return False if the timeout comes first."""
        timeout = timeout_of(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        for move in self.moves.values():
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            move.wait(left)
        return self.is_complete

    def to_dict(self) -> dict[str, Any]:
        """Build KIP-113's ChangeReplicaDirResponse."""
        rows = [
            {"topic": topic, "partition": partition, "error_code": error_code(error)}
            for (topic, partition), error in sorted(self.results.items())
        ]
        return {"error_code": NONE, "partitions": rows}


def change_replica_dirs(
    assignment: Mapping[StrPath, Iterable[tuple[str, int]]],
    begin: Callable[[str, int, StrPath], Move],
    prefer: Callable[[Sequence[TopicPartition], StrPath], Mapping[TopicPartition, LogStoreError]],
) -> ChangeReplicaDirResponse:
    """Carry out a request; see `ReplicaMover.change_replica_dirs`.

    Args:
        begin: a function that begins the move of a partition to a log dir.
        prefer: a function that stores the log dirs for partitions that do not exist yet, with one
            write.
    """
    moves: dict[TopicPartition, Move] = {}
    results: dict[TopicPartition, LogStoreError | None] = {}
    for log_dir, keys in partitions_of(assignment):
        unknown = []
        for key in keys:
            try:
                moves[key] = begin(*key, log_dir)
            except UnknownPartitionError as error:
                results[key] = error
                unknown.append(key)
            except LogStoreError as error:
                results[key] = error
        if unknown:
            try:
                results.update(prefer(unknown, log_dir))
            except LogStoreError as refusal:
                results.update(dict.fromkeys(unknown, refusal))
    return ChangeReplicaDirResponse(moves, results)
