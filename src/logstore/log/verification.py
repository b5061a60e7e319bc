"""Check a whole log: every batch, every seal, and that segments follow one another."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from logstore.disk import files
from logstore.errors import CorruptRecordBatchError
from logstore.format import layouts
from logstore.format.prefix import LENGTH_OVERHEAD_BYTES, PREFIX_BYTES, unpack_prefix
from logstore.log.report import Problem
from logstore.log.scan import Progress, Scan
from logstore.log.segment import Segment

if TYPE_CHECKING:
    from logstore.log.reader import LogReader


def verify(log: LogReader, progress: Progress | None = None) -> list[Problem]:
    """Read everything from the disk and give what is wrong, in order of offset.

    Args:
        progress: called with the bytes checked since its last call.
    """
    log._check()
    log._refresh()
    problems: list[Problem] = []
    segments = log._view[0]
    expected = log.log_start_offset
    for number, segment in enumerate(segments):
        base = segment.base_offset
        if base > expected:
            problems.append(
                Problem(
                    segment.log_path, 0, 0, "the segments before it are missing", expected, base
                )
            )
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else None
        try:
            problems += _verify_segment(log, segment, next_base, progress)
        except FileNotFoundError as error:
            if not segment.is_dropped:
                raise log._failed(error) from error
        except OSError as error:
            raise log._failed(error) from error
        expected = max(segment.end_offset, next_base or 0)
    return problems


def _verify_segment(
    log: LogReader, segment: Segment, next_base: int | None, progress: Progress | None
) -> list[Problem]:
    end_offset, path = segment.end_offset, segment.log_path
    size_bytes = segment.size_bytes
    problems = []
    try:
        fd = segment.handle(log._environment).fd
    except CorruptRecordBatchError as error:
        return [
            Problem(path, error.position, size_bytes, error.reason, segment.base_offset, end_offset)
        ]
    scan = Scan(
        segment.base_offset,
        limit_offset=2**63 if next_base is None else next_base,
    )
    while (reason := scan.run(fd, size_bytes, progress)) is not None:
        damage = scan.skip_damage(fd, size_bytes, reason)
        lost_end = damage.end_offset
        if lost_end is None:
            lost_end = max(end_offset, damage.offset)
        problems.append(
            Problem(path, damage.position, damage.end_position, reason, damage.offset, lost_end)
        )
    is_short = scan.offset != next_base and not segment.is_sparse
    if next_base is not None and not problems and is_short:
        reason = f"the segment ends at offset {scan.offset}, the next begins at {next_base}"
        problems.append(
            Problem(path, size_bytes, size_bytes, reason, scan.offset, max(next_base, scan.offset))
        )
    return problems


# --- one segment, batch by batch ------------------------------------------------------------------


class SegmentDamage(NamedTuple):
    """Tell of one damaged batch, or of bytes between whole ones."""

    position: int
    offset: int
    reason: str


def verify_segment(log: LogReader, base_offset: int, flushed_to: int) -> list[SegmentDamage]:
    """Check one segment alone, to the end of its file; each damaged batch is told by itself.

    At the very end of a log, bytes that are no whole batch are damage below `flushed_to` only;
    behind it a batch may be on its way, or a crash have cut it.
    """
    log._check()
    log._refresh()
    segments, bases = log._view
    if base_offset not in bases:
        return []  # retained or truncated meanwhile
    number = bases.index(base_offset)
    segment = segments[number]
    next_base = bases[number + 1] if number + 1 < len(bases) else None
    try:
        return _verify_to_end(log, segment, next_base, flushed_to)
    except CorruptRecordBatchError as error:
        return [SegmentDamage(error.position, base_offset, error.reason)]
    except FileNotFoundError as error:
        log._seen = None  # type: ignore[attr-defined]
        log._refresh()
        if segment in log._view[0]:
            raise log._failed(error) from error
        return []
    except OSError as error:
        raise log._failed(error) from error


def _verify_to_end(
    log: LogReader, segment: Segment, next_base: int | None, flushed_to: int
) -> list[SegmentDamage]:
    fd = segment.handle(log._environment).fd
    end = files.fstat(fd).st_size
    scan = Scan(segment.base_offset, limit_offset=2**63 if next_base is None else next_base)
    found: list[SegmentDamage] = []
    while (reason := scan.run(fd, end)) is not None:
        damage = scan.skip_damage(fd, end, reason)
        is_tail = damage.end_offset is None and next_base is None
        if is_tail and damage.offset >= flushed_to:
            return found
        found += _batches_within(fd, damage.position, damage.end_position, damage.offset, reason)
    expected = flushed_to if next_base is None else next_base
    is_short = scan.offset < expected or (next_base is not None and scan.offset > next_base)
    if is_short and not found:
        what = "it is flushed up to" if next_base is None else "the next one begins at"
        found.append(
            SegmentDamage(
                end, scan.offset, f"the segment ends at offset {scan.offset}, {what} {expected}"
            )
        )
    return found


def _batches_within(
    fd: int, position: int, end: int, offset: int, reason: str
) -> list[SegmentDamage]:
    """Tell apart damaged batches that follow one another, as far as their prefixes lead."""
    found = [SegmentDamage(position, offset, reason)]
    while True:
        head = files.read_up_to(fd, PREFIX_BYTES, position)
        if len(head) < PREFIX_BYTES:
            return found
        position += unpack_prefix(head)[1] + LENGTH_OVERHEAD_BYTES
        if unpack_prefix(head)[1] < 0 or position + PREFIX_BYTES > end:
            return found
        head = files.read_up_to(fd, PREFIX_BYTES, position)
        base_offset, length, _, _ = unpack_prefix(head)
        size_bytes = length + LENGTH_OVERHEAD_BYTES
        if base_offset <= offset or not PREFIX_BYTES < size_bytes <= end - position:
            return found  # the length that led here lied
        offset = base_offset
        data = files.read_up_to(fd, size_bytes, position)
        fault = layouts.fault(data, 0, None)
        if fault is None:
            return found
        found.append(SegmentDamage(position, offset, fault))
