"""Read one piece of a partition in a task, even if the partition's replica has moved.

A task finds the replica by the partition's name. When a move swaps the directories of a replica,
the replica is missing for a short time. So the task tries again. If a read fails, the task
continues after the last batch that it returned, so no batch is returned twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from logstore.errors import (
    LogDirError,
    LogStoreError,
    OffsetOutOfRangeError,
    ReplicaOfflineError,
    UnknownPartitionError,
)
from logstore.format.batch import RecordBatch
from logstore.log import host
from logstore.log.log import Log
from logstore.log.read.transactions import is_aborted
from logstore.names import TopicPartition
from logstore.spark.options import ReadOptions
from logstore.spark.read.read_plan import Piece, lost
from logstore.spark.read.views import (
    PAUSE_SECONDS,
    SWAP_SECONDS_MAX,
    check_all_serve,
    forget,
    host_named,
    settle_in,
    view_of,
)

if TYPE_CHECKING:
    import pyarrow as pa


def read_piece(piece: Piece, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield a piece's records as Arrow batches; every stored batch is verified.

    Raises:
        OffsetOutOfRangeError: records of the piece are gone, and `failOnDataLoss` is set.
        LogDirOfflineError: this process cannot use a log dir that may hold the partition.
        CorruptRecordBatchError: a batch is damaged; the batches before it were yielded.
    """
    from logstore.spark.read.columns import ArrowColumns

    settle_in()
    columns = ArrowColumns(piece.topic, piece.partition, options.columns)
    batches = _batches(piece, options)
    kept = (each for each in batches if not is_aborted(piece.aborted, each.header))
    try:
        with host_named(is_read=True):
            yield from columns.stream(kept)
    except (LogDirError, ReplicaOfflineError):
        if options.fails_on_data_loss:
            # If the options accept data loss, partitions that this host does not see are skipped.
            raise


def _batches(piece: Piece, options: ReadOptions) -> Iterator[RecordBatch]:
    key = TopicPartition(piece.topic, piece.partition)
    offset, deadline, is_first = piece.start, time.monotonic() + SWAP_SECONDS_MAX, True
    while offset < piece.end:
        try:
            log = _find(piece, options)
            if log is None:
                return
            start, end = _what_is_left(key, log, offset, piece.end, options)
            for batch in log.read_batches(start, end_offset=end):
                if log.topic_id != piece.topic_id:  # the partition belongs to a new topic now
                    break
                yield batch
                offset = batch.last_offset + 1
            else:
                return
        except UnknownPartitionError as error:
            if time.monotonic() > deadline:
                _give_up(piece, offset, options, error)
                return
            time.sleep(PAUSE_SECONDS)
        except OffsetOutOfRangeError as error:
            # The log lost records during the read. Check again which records the log still has.
            if options.fails_on_data_loss and error.offset < error.log_start_offset:
                raise lost(
                    key, offset, error.log_start_offset, error.log_end_offset, "a task"
                ) from error
            if time.monotonic() > deadline:
                raise
        except (LogDirError, ReplicaOfflineError):
            if not is_first:
                raise
            is_first = False
            forget(options.place)  # a new view sees a disk that came back or a replica that moved


def _give_up(piece: Piece, offset: int, options: ReadOptions, error: UnknownPartitionError) -> None:
    """Raise an error for a deleted partition, unless the options accept the loss of records."""
    if options.fails_on_data_loss:
        check_all_serve(view_of(options.place))
        raise _gone(piece, offset, "it was deleted") from error


def _find(piece: Piece, options: ReadOptions) -> Log | None:
    """Find the log, or return None if its topic was created again and data loss is accepted."""
    store = view_of(options.place)
    log = store.log(piece.topic, piece.partition)
    host.refresh(log)
    if log.topic_id == piece.topic_id:
        return log
    if options.fails_on_data_loss:
        raise _gone(piece, piece.start, "the topic was deleted and created again")
    return None


def _what_is_left(
    key: TopicPartition, log: Log, start: int, end: int, options: ReadOptions
) -> tuple[int, int]:
    """Return the part of a range of offsets that is still in the log."""
    first, last = log.log_start_offset, log.log_end_offset
    if first <= start and end <= last:
        return start, end
    if options.fails_on_data_loss:
        raise lost(key, start if start < first else end, first, last, "a task")
    return min(max(start, first), last), min(max(end, first), last)


def _gone(piece: Piece, offset: int, why: str) -> LogStoreError:
    return LogStoreError(
        f"{piece.topic}-{piece.partition}: offsets {offset}..{piece.end} were planned, and {why}. "
        "Call load() again, or set failOnDataLoss=false to continue without them"
    )
