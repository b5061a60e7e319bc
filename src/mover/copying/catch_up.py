"""Bring a copy up to date: remove copies of old segments, copy new bytes, seal finished copies.

Each pass reads the log's list of segments once, at its beginning and without a lock. Later changes
of the log are found by the next pass, or by `is_caught_up` under the lock. After a truncation, a
repair or a compaction of a segment, the list has a new object for the segment. A segment that
retention removed is no longer in the list.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore.errors import CorruptRecordBatchError
from logstore.log import relocation
from logstore.log.log import Log
from logstore.log.segments.segment import Segment
from mover.copying.copy_segments import Ends, SegmentCopy, SourceChangedError
from mover.copying.target import Target


def copy_all(log: Log, target: Target, ends: Ends, *, is_throttled: bool = True) -> int:
    """Make one pass over the log; return how many bytes the copy missed before the pass.

    Raises:
        StoppedError: a caller paused or cancelled the move.
        CorruptRecordBatchError: the log has a damaged batch, or offsets are missing.
        LogStoreError: a disk failed, the target is full, or the log was closed or deleted.
    """
    while True:
        ends.check()
        try:
            return _copy_once(log, target, ends, is_throttled)
        except SourceChangedError:
            continue


def _copy_once(log: Log, target: Target, ends: Ends, is_throttled: bool) -> int:
    segments = relocation.segments_of(log)
    target.follow_start(relocation.metadata_of(log))
    target.drop_others(segments)
    missing = 0
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        known = target.copies.get(segment.base_offset)
        if known is not None and known.is_sealed and known.source is segment:
            continue
        source = _open(log, segment, ends)
        copy = target.copy_of(segment, source.fd)
        # `size_bytes` counts the bytes that the log has published so far.
        # Only the active segment still grows.
        end = segment.size_bytes
        missing += end - copy.position
        copy.copy_to(end, source.fd, ends, is_throttled=is_throttled)
        if not is_last:
            _seal(log, copy, segment, segments[number + 1], end, ends)
    return missing


def _open(log: Log, segment: Segment, ends: Ends) -> relocation.Handle:
    try:
        return relocation.open_segment(log, segment)
    except FileNotFoundError as error:
        if segment.is_dropped:
            raise SourceChangedError from error
        raise ends.source.failed(error, segment.log_path, log.topic, log.partition) from error
    except OSError as error:
        raise ends.source.failed(error, segment.log_path, log.topic, log.partition) from error


def _seal(
    log: Log, copy: SegmentCopy, segment: Segment, following: Segment, end: int, ends: Ends
) -> None:
    """Seal the copy of a segment that is not the log's last segment."""
    if segment.is_dropped or end != segment.size_bytes:
        raise SourceChangedError  # the segment was still active when its size was read
    is_short = copy.scan.offset != following.base_offset and not segment.is_sparse
    if is_short and copy.position:
        raise CorruptRecordBatchError(
            path=segment.log_path,
            position=copy.position,
            reason=f"offsets {copy.scan.offset} to {following.base_offset} are missing after this "
            "segment",
        )
    copy.seal(relocation.metadata_of(log), ends)


def is_caught_up(segments: Sequence[Segment], target: Target) -> bool:
    """Report whether the copy equals the log, byte for byte.

    The caller must hold the log's locks.

    Raises:
        CorruptRecordBatchError: the last batch has a larger base offset than the log gave it. No
            checksum covers the base offset of a Kafka batch, and no batch follows.
    """
    if [segment.base_offset for segment in segments] != sorted(target.copies):
        return False
    for segment in segments:
        copy = target.copies[segment.base_offset]
        if copy.source is not segment or copy.position != segment.size_bytes:
            return False
    last, scan = segments[-1], target.copies[segments[-1].base_offset].scan
    if scan.offset > last.end_offset:
        raise CorruptRecordBatchError(
            path=last.log_path,
            position=scan.last_position,
            reason=f"the last batch ends at offset {scan.offset}, but the log ends at "
            f"{last.end_offset}; the batch cannot be moved",
        )
    return all(target.copies[segment.base_offset].is_sealed for segment in segments[:-1])
