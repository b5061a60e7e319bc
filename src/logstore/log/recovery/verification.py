"""Verify a whole log: all batches and trailers are undamaged, and the segments are contiguous."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from logstore.disk import bulk, files
from logstore.errors import CorruptRecordBatchError
from logstore.format import layouts
from logstore.format.prefix import LENGTH_OVERHEAD_BYTES, PREFIX_BYTES, unpack_prefix
from logstore.log.recovery import known_damage
from logstore.log.recovery.dense_scan import scan_class
from logstore.log.recovery.known_damage import falling_batch
from logstore.log.recovery.report import DamageName, Problem
from logstore.log.segments.scan import Progress, Scan
from logstore.log.segments.segment import Segment

if TYPE_CHECKING:
    from logstore.log.replica import Replica


# How often the check of a segment begins again if another file replaces the segment.
TRIES_MAX = 5

# A function that walks over a segment.
# Its arguments are the segment, and the base offset of the next segment.
# This base offset is None for the last segment.
NewScan = Callable[[Segment, int | None], Scan]


def verify(
    state: Replica, progress: Progress | None = None, new_scan: NewScan | None = None
) -> list[Problem]:
    """Read a whole log from the disk and return the damage, in the order of the offsets.

    The records of each batch are decoded, too. If a reader would refuse a batch, the batch is
    reported as a problem.

    Args:
        progress: called with the number of bytes that were checked since the last call.
        new_scan: makes the walk over each segment; None for a plain walk.
    """
    state.check()
    state.refresh()

    def plain_scan(segment: Segment, next_base: int | None) -> Scan:
        limit_offset = 2**63 if next_base is None else next_base
        bound = state.environment.record_expansion_bytes_max
        walk = scan_class(state.metadata, segment)
        return walk(segment.base_offset, limit_offset=limit_offset, expansion_bytes_max=bound)

    problems: list[Problem] = []
    segments = state.segments
    expected, latest = state.log_start_offset, -1
    for number, segment in enumerate(segments):
        base = segment.base_offset
        if base > expected:
            reason = f"the segments before it, offsets {expected} to {base}, are missing"
            place = segment.log_path, 0, 0, reason, expected, base
            problems.append(Problem(*place, DamageName.HOLE))
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else None
        present: Segment | None = segment
        for _ in range(TRIES_MAX):
            if present is None:
                break
            segment = present
            try:
                scan = (new_scan or plain_scan)(segment, next_base)
                problems += _verify_segment(state, segment, next_base, progress, scan)
                found, latest = falling_batch(segment, scan.epochs, latest)
                if found is not None and new_scan is None:  # `side_files` checks a broker's epochs
                    problems.append(found)
                break
            except FileNotFoundError as error:
                present = _replacement(state, segment, error)
            except OSError as error:
                raise state.failed(error) from error
        expected = max(segment.end_offset, next_base or 0)
    return problems


def _replacement(state: Replica, segment: Segment, error: FileNotFoundError) -> Segment | None:
    """If a segment's file is gone, return the segment that replaced this segment, or None.

    A view of another process's log makes a new segment even if only the contents of the file were
    changed. So the new segment must be checked, too.
    """
    state.look_anew()
    if segment in state.segments and not segment.is_dropped:
        raise state.failed(error) from error
    segments, bases = state.view
    is_there = segment.base_offset in bases
    return segments[bases.index(segment.base_offset)] if is_there else None


def verify_all(state: Replica, progress: Progress | None, *, is_owner: bool) -> list[Problem]:
    """Return the damage in the batches of a log and in its small files.

    Args:
        is_owner: see `known_damage.in_files`.
    """
    problems = verify(state, progress)
    try:
        return problems + known_damage.in_files(state, state.recovery.findings, is_owner=is_owner)
    except FileNotFoundError:  # the log was deleted meanwhile
        state.look_anew()
        return problems
    except OSError as error:
        raise state.failed(error) from error


def _verify_segment(
    state: Replica,
    segment: Segment,
    next_base: int | None,
    progress: Progress | None,
    scan: Scan,
) -> list[Problem]:
    end_offset, path = segment.end_offset, segment.log_path
    size_bytes = segment.size_bytes
    problems = []
    try:
        handle = segment.handle(state.environment)  # this reference keeps the file open
    except CorruptRecordBatchError as error:
        return [
            Problem(path, error.position, size_bytes, error.reason, segment.base_offset, end_offset)
        ]
    fd = handle.fd
    while (reason := scan.run(fd, size_bytes, progress)) is not None:
        damage = scan.skip_damage(fd, size_bytes, reason)
        lost_end = damage.end_offset
        if lost_end is None:
            lost_end = max(end_offset, damage.offset)
        if damage.max_timestamp is not None:
            lost_end = damage.offset  # the batch's records can be read
        problems.append(
            Problem(path, damage.position, damage.end_position, reason, damage.offset, lost_end)
        )
    is_short = scan.offset != next_base and not segment.is_sparse
    if next_base is not None and not problems and is_short:
        reason = (
            f"the segment ends at offset {scan.offset}, but the next segment begins at "
            f"offset {next_base}"
        )
        place = path, size_bytes, size_bytes, reason, scan.offset, max(next_base, scan.offset)
        problems.append(Problem(*place, DamageName.HOLE))
    return problems


# --- one segment, batch by batch ------------------------------------------------------------------


class SegmentDamage(NamedTuple):
    """One damaged batch, or wrong bytes between whole batches."""

    position: int
    offset: int
    reason: str


def verify_segment(state: Replica, base_offset: int, flushed_to: int) -> list[SegmentDamage]:
    """Check one segment, to the end of its file; report each damaged batch separately.

    The last bytes of a log may be only a part of a batch. Such bytes count as damage only if their
    offset is below `flushed_to`. At or after that offset, a running append may be writing a batch,
    or a crash may have left an incomplete batch.
    """
    check = SegmentCheck(state, base_offset, flushed_to)
    while not check.is_done:
        check.run()
    return check.found


class SegmentCheck:
    """Checks one segment like `verify_segment`, but in any number of steps.

    No file is kept open between two steps. If retention, a truncation or a move drops the segment
    before the check is done, the check ends. If another file replaces the segment, the check begins
    again.

    Attributes:
        found: the damage that was found so far, in order of position.
        is_done: whether the whole segment was read.
        path: the path of the segment's file.
    """

    def __init__(
        self, state: Replica, base_offset: int, flushed_to: int, *, from_disk: bool = False
    ) -> None:
        """Begin a check; `from_disk`: drop the file's cached pages before and after the check."""
        state.check()
        state.refresh()
        self.found: list[SegmentDamage] = []
        self._state, self._from_disk = state, from_disk
        self._base_offset, self._flushed_to = base_offset, flushed_to
        self._tries, self.path = 0, ""
        self._next_base: int | None = None
        self._begin()

    def _begin(self) -> None:
        """Begin to check the present segment of the log; if the segment is gone, end the check."""
        state, base_offset = self._state, self._base_offset
        segments, bases = state.view
        self.found, self._end = [], -1
        self._tries += 1
        self.is_done = base_offset not in bases or self._tries > TRIES_MAX
        if self.is_done:  # the segment was dropped meanwhile
            return
        number = bases.index(base_offset)
        next_base = bases[number + 1] if number + 1 < len(bases) else None
        if self._tries > 1 and (next_base is None or next_base != self._next_base):
            self.is_done = True  # after a truncation, `flushed_to` no longer holds
            return
        self._segment, self._next_base = segments[number], next_base
        self.path = self._segment.log_path
        self._expected = self._flushed_to if self._next_base is None else self._next_base
        limit_offset = 2**63 if self._next_base is None else self._next_base
        bound = state.environment.record_expansion_bytes_max
        walk = scan_class(state.metadata, self._segment)
        self._scan = walk(base_offset, limit_offset=limit_offset, expansion_bytes_max=bound)

    def run(self, budget_bytes: int = 2**62, progress: Progress | None = None) -> int:
        """Continue the check for about `budget_bytes`; return how many bytes were checked.

        Raises:
            LogStoreError: the disk could not read the bytes.
        """
        if self.is_done:
            return 0
        started = self._scan.position
        state, segment = self._state, self._segment
        state.check()
        try:
            self._step(started + budget_bytes, progress)
        except CorruptRecordBatchError as error:
            self.is_done = True
            self.found.append(SegmentDamage(error.position, segment.base_offset, error.reason))
        except FileNotFoundError as error:
            self.is_done = True
            if _replacement(state, segment, error) is not None:
                self._begin()
            return 0
        except OSError as error:
            raise state.failed(error) from error
        if state.unavailable is not None:  # the log was detached, so close the file here
            segment.forget(state.environment)
            state.check()
        return self._scan.position - started

    def _step(self, pause_at: int, progress: Progress | None) -> None:
        if self._from_disk and self._end < 0:
            bulk.drop_cache(self.path)
        scan, handle = self._scan, self._segment.handle(self._state.environment)
        if self._end < 0:
            self._end = files.fstat(handle.fd).st_size
        found = self._walk(handle.fd, pause_at, progress)
        if self._segment.is_dropped:  # the segment was cut, replaced or removed meanwhile
            self._begin()
            return
        self.found += found
        if not self.is_done and scan.position < self._end:
            return
        self.is_done = True
        if self._from_disk:
            bulk.drop_cache(self.path)
        is_short = scan.offset < self._expected and not self._segment.is_sparse
        is_short |= self._next_base is not None and scan.offset > self._next_base
        if is_short and not self.found:
            what = (
                "its records are flushed up to"
                if self._next_base is None
                else ("the next one begins at")
            )
            reason = f"the segment ends at offset {scan.offset}, {what} {self._expected}"
            self.found.append(SegmentDamage(self._end, scan.offset, reason))

    def _walk(self, fd: int, pause_at: int, progress: Progress | None) -> list[SegmentDamage]:
        """Continue the walk, and return the damage that was found."""
        scan = self._scan
        found: list[SegmentDamage] = []
        while (reason := scan.run(fd, self._end, progress, pause_at)) is not None:
            damage = scan.skip_damage(fd, self._end, reason)
            is_tail = damage.end_offset is None and self._next_base is None
            if is_tail and damage.offset >= self._expected:
                self.is_done = True
                break
            found += _batches_within(
                fd, damage.position, damage.end_position, damage.offset, reason
            )
        return found


def _batches_within(
    fd: int, position: int, end: int, offset: int, reason: str
) -> list[SegmentDamage]:
    """List consecutive damaged batches, as long as each batch's size leads to the next batch."""
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
            return found  # the length in the last prefix was wrong
        offset = base_offset
        data = files.read_up_to(fd, size_bytes, position)
        fault = layouts.fault(data, 0, None)
        if fault is None:
            return found
        found.append(SegmentDamage(position, offset, fault))
