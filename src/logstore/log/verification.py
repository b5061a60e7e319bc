"""Check a whole log: every batch, every seal, and that segments follow one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.errors import CorruptRecordBatchError
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
    if next_base is not None and not problems and scan.offset != next_base:
        reason = f"the segment ends at offset {scan.offset}, the next begins at {next_base}"
        problems.append(
            Problem(path, size_bytes, size_bytes, reason, scan.offset, max(next_base, scan.offset))
        )
    return problems
