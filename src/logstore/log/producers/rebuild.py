"""Rebuild the producers of a log, in their state at any offset, from a snapshot and batches.

The newest undamaged snapshot is read, and the batch headers after the snapshot's offset are
replayed. A snapshot before the first segment is not read: the marker of a transaction that is open
in the snapshot may be among the records that were deleted. Then this transaction would stay open
for ever. If there is no other snapshot, all batch headers of the log are replayed. A log without
snapshots has no batch of a producer below its recovery point (see `log_producers`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from logstore.disk import files
from logstore.errors import CorruptRecordBatchError
from logstore.format.batch_parts import BatchHeader
from logstore.format.producer_file import in_order
from logstore.log.producers import snapshot_files
from logstore.log.producers.producer_state import Producers
from logstore.log.producers.replay import replay
from logstore.log.producers.walk import Found, batches_of_producers, first_offset
from logstore.log.recovery.report import Problem, RecoveryEntry
from logstore.log.write.hung_locks import held
from logstore.units import format_count

if TYPE_CHECKING:
    from logstore.format.producer_file import Snapshot
    from logstore.log.recovery.recovered import Recovered
    from logstore.log.replica import Replica
    from logstore.log.state import LogState


class Rebuilt(NamedTuple):
    """The producers of a log, in their state before an offset.

    Attributes:
        producers: the producers after the last batch that ends at or before the offset.
        cut: the header of the batch that contains the offset, shortened to the part before the
            offset; None if this batch has no producer, or no batch contains the offset.
    """

    producers: Producers
    cut: BatchHeader | None


def made(state: Replica, snapshot: Snapshot | None = None) -> Producers:
    """Make the `Producers` of a log, with the limits that its store sets."""
    environment = state.environment
    return Producers(
        snapshot,
        expiration_ms=environment.producer_expiration_ms,
        producers_max=environment.producers_max,
    )


def until(state: LogState, end: int, since: int) -> Rebuilt:
    """Rebuild the producers in their state before an offset.

    The log must not get shorter during the call. So the caller must hold one of the log's locks, or
    must be opening the log.

    Args:
        since: if the log has no snapshot, no batch before this offset has a producer.

    Raises:
        CorruptRecordBatchError: a batch is damaged.
        OSError: the disk failed.
    """
    snapshots, begin = state.producers.snapshots, first_offset(state)
    snapshot = None
    for offset in reversed(snapshots):
        if begin <= offset <= end and snapshot is None:
            warnings = state.recovery.warnings
            snapshot = snapshot_files.read(state.directory, offset, state.metadata, warnings)
    producers, cut = made(state, snapshot), []
    first = begin if snapshots else since
    start = producers.end_offset if snapshot is not None else first

    def whole() -> Iterator[Found]:
        for header, marker in batches_of_producers(state, start, end):
            if header.last_offset < end:
                yield header, marker
            else:
                cut.append(header._replace(last_offset=end - 1))

    replay(producers, whole(), state.now_ms())
    return Rebuilt(producers, cut[0] if cut else None)


def before(state: LogState, offset: int) -> Rebuilt:
    """Find the producers in their state before an offset: the new log end or the new log start.

    If a producer has no batch or marker at or after the offset, its state in memory is used. If
    batches of a producer were deleted, and no early snapshot is left, a replay would find less
    about this producer. The caller must hold one of the log's locks. Raises any error that `until`
    raises.
    """
    rebuilt, known = until(state, offset, state.recovery_point), state.producers.known
    if known is None or state.producers.is_torn:
        return rebuilt
    snapshot, now = rebuilt.producers.snapshot(), known.snapshot().rows
    latest = np.maximum(now["batches"]["last_offset"][:, 0], now["marker_offset"])
    idle = now[(now["producer_id"] >= 0) & (latest < offset)]
    others = in_order(snapshot.rows)
    others = others[~np.isin(others["producer_id"], idle["producer_id"])]
    rows = np.concatenate([others, idle])
    return rebuilt._replace(producers=made(state, snapshot._replace(rows=rows)))


def mend(state: LogState) -> None:
    """Rebuild the producers of a log after an interrupted append; the caller must hold `lock`.

    Raises:
        LogStoreError: the disk failed, or a batch is damaged.
    """
    producers = state.producers
    with held(state, "lock"):
        try:
            found = until(state, state.log_end_offset, state.recovery_point).producers
        except OSError as error:
            raise state.failed(error) from error
        producers.replace(found if len(found) or producers.snapshots else None)


def take_recovered(state: LogState, recovered: Recovered, entry: RecoveryEntry) -> None:
    """Set the producers of a log that is being opened. Raises OSError.

    If a batch is damaged, the report says so, as if recovery had found the damage.
    """
    producers, end = state.producers, state.log_end_offset
    producers.replace(None)
    producers.snapshots = ()
    if entry.problems:
        return
    poison = [offset for offset in recovered.snapshots if offset > end]
    if poison:
        snapshot_files.remove(state.directory, poison)
        files.sync_dir(state.directory)
        removed = format_count(len(poison), "producer snapshot")
        entry.warnings.append(f"removed {removed} with an offset after the log end")
    producers.snapshots = tuple(offset for offset in recovered.snapshots if offset <= end)
    since = recovered.producers_from
    if not producers.snapshots and since is None:
        return
    try:
        producers.replace(until(state, end, since or 0).producers)
    except CorruptRecordBatchError as error:
        place = error.path, error.position, error.position
        entry.problems.append(Problem(*place, error.reason, end, end))
