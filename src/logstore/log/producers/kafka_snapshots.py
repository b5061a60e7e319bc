"""Find the producers of a log that a broker or another process writes.

A replay of the log finds each producer that still has a batch in the log. If retention has deleted
all batches of a producer, the producer may still continue its sequence. Only a snapshot has a
producer without batches. A snapshot of Kafka has only one batch of each producer, and does not say
to which log it belongs. So if a producer is both in a replay and in Kafka's snapshot, the state
from the replay is used.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from logstore.disk import files
from logstore.errors import CorruptCheckpointError
from logstore.format import producer_file
from logstore.format.producer_file import FILE_BYTES_MAX, Rows, Snapshot
from logstore.log.producers import snapshot_files
from logstore.log.producers.rebuild import made
from logstore.log.producers.replay import replay, snapshot_offsets
from logstore.log.producers.walk import batches_of_producers

if TYPE_CHECKING:
    from logstore.log.replica import Replica

SUFFIX = ".snapshot"


def of_broker(state: Replica) -> Snapshot | None:
    """Return the producers at the end of a broker's log, if the broker's snapshot has any.

    If the broker's snapshot has no producer, the log is not read. Without producers in the
    snapshot, the store finds the producers when it opens the copy of the log.
    """
    theirs = _newest_of_kafka(state, files.names(state.directory), state.log_end_offset)
    return found(state) if theirs is not None and len(theirs) else None


def found(state: Replica) -> Snapshot | None:
    """Find the producers at the end of a log that a broker or another process writes.

    Batches that are appended during the search are ignored.

    Returns:
        None if there are no producers.

    Raises:
        CorruptRecordBatchError: a batch is damaged.
        OSError: the disk failed.
    """
    names, end = files.names(state.directory), state.log_end_offset
    ours = _newest_of_ours(state, names, end)
    producers = made(state, ours)
    start = producers.end_offset if ours is not None else state.log_start_offset
    batches = batches_of_producers(state, start, end)
    before = (one for one in batches if one[0].last_offset < end)
    replay(producers, before, state.environment.clock.now_ms())
    replayed = producers.snapshot(end)
    rows = producer_file.in_order(replayed.rows)
    theirs = None if ours is not None else _newest_of_kafka(state, names, end)
    if theirs is not None:
        rows = _with_missing(rows, theirs, state.environment.producers_max)
    return replayed._replace(rows=rows) if len(rows) else None


def _newest_of_ours(state: Replica, names: list[str], end: int) -> Snapshot | None:
    for offset in snapshot_offsets(names, end):
        found = snapshot_files.read(state.directory, offset, state.metadata, [])
        if found is not None:
            return found
    return None


def _newest_of_kafka(state: Replica, names: list[str], end: int) -> Rows | None:
    """Read the newest undamaged snapshot of a broker; `verify` reports damaged snapshots."""
    now_ms = state.environment.clock.now_ms()
    for offset in snapshot_offsets(names, end, SUFFIX):
        from logstore.format.kafka.snapshots import decode_snapshot

        path = os.path.join(state.directory, producer_file.name_of(offset, SUFFIX))
        try:
            return decode_snapshot(files.read_file(path, FILE_BYTES_MAX), path, offset, now_ms).rows
        except (CorruptCheckpointError, FileNotFoundError, files.UnfitError):
            continue
    return None


def _with_missing(rows: Rows, theirs: Rows, producers_max: int) -> Rows:
    """Add the producers that only the snapshot has, the most recently used first, up to a limit."""
    missing = theirs[~np.isin(theirs["producer_id"], rows["producer_id"])]
    newest_first = np.argsort(-missing["batches"]["last_offset"][:, 0], kind="stable")
    kept = missing[newest_first[: max(producers_max - len(rows), 0)]]
    return np.concatenate([rows, kept])
