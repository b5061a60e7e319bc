"""Remove damage from a log so that the log can be written again; keep every removed byte.

A segment with damage is rewritten without the damage. Batches without records take the place of
lost records and of missing segments. So records keep their offsets, and the offsets are contiguous
again. The old file stays beside the new file as `*.quarantine`. A batch may have no damage except
one wrong value in its header: the largest timestamp, the base offset in a log without gaps, or a
leader epoch that is lower than an earlier epoch. A batch with one wrong value keeps its records,
and the value is corrected.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from logstore.disk import files
from logstore.format import layouts
from logstore.format.columnar import record_batch as columnar
from logstore.format.columnar.columns import Buffer
from logstore.log.recovery.dense_scan import MisplacedBatch, scan_class
from logstore.log.recovery.known_damage import falling_batch
from logstore.log.recovery.report import DamageName
from logstore.log.segments.listing import list_partition
from logstore.log.segments.scan import Damage, Scan
from logstore.log.segments.segment import Segment
from logstore.log.write import flush
from logstore.log.write.flush import set_metadata
from logstore.log.write.hung_locks import held

if TYPE_CHECKING:
    from logstore.log.state import LogState

HOLE_OFFSETS_MAX = 2**31


class RepairReport(NamedTuple):
    """The result of a repair.

    Attributes:
        quarantined: paths of the files that have the removed bytes.
        lost: the ranges of offsets whose records are lost.
        mended: the kinds of damage that the opening of the log or this repair mended.
    """

    topic: str
    partition: int
    quarantined: list[str]
    lost: list[range]
    mended: list[str]

    def __str__(self) -> str:
        count = sum(len(offsets) for offsets in self.lost)
        text = (
            f"{self.topic}-{self.partition}: {count} offsets are lost; {len(self.quarantined)} "
            "damaged files were kept as *.quarantine"
        )
        return f"{text}; mended: {', '.join(self.mended)}" if self.mended else text


def repair(state: LogState) -> RepairReport:
    """Repair a log in place; a log without damage is unchanged. See `Log.repair`."""
    from logstore.log.recovery.open_log import reopen

    report = RepairReport(state.topic, state.partition, [], [], [])
    with state.flush_lock, state.lock, held(state, "flush_lock", "lock"):
        state.check_current()
        state.cut_offset = 0
        try:
            # Sync all segments first, because the rewritten segments will be durable.
            # Otherwise, a power cut could remove earlier records, and leave a gap.
            flush.sync_segments(state, state.segments)
            changed = _repair(state, report)
            named = {one.name for one in (*state.recovery.problems, *state.recovery.findings)}
            if changed and not named:
                named.add(DamageName.CORRUPTION)  # a clean open reads no batch and finds no damage
            if _raise_epochs(state, report):
                named.add(DamageName.FALLING_EPOCHS)
            report.mended.extend(sorted(named))
            if DamageName.RESURRECTED_PARTITION in named:
                flush.write_epochs(state)  # with this file, the log no longer looks resurrected
            _settle_place(state, named)
            if DamageName.LOST_CONFIGURATION in named:
                set_metadata(state, extra=state.metadata.with_config(state.config).extra)
        except OSError as error:
            raise state.failed(error) from error
        if changed or named or state.refusal:
            state.recovery_point = min(state.recovery_point, state.log_end_offset)
            reopen(state)
            flush.write_epochs(state)
        if not state.recovery.problems:
            state.log_dir.not_loaded.discard((state.topic, state.partition))
    return report


def _settle_place(state: LogState, named: Collection[DamageName]) -> None:
    """If the log is a resurrected partition, forget that another copy replaces this copy."""
    if DamageName.RESURRECTED_PARTITION in named and state.metadata.superseded_by is not None:
        set_metadata(state, extra=state.metadata.with_superseded_by(None).extra)


def _raise_epochs(state: LogState, report: RepairReport) -> bool:
    """Raise each leader epoch that is lower than an earlier epoch.

    Return whether an epoch was raised.
    """
    latest, changed = -1, False
    for row in list_partition(state.directory).segments:
        segment = Segment(state.directory, row.base_offset)
        fd = files.open_regular(segment.log_path, files.READ)
        try:
            scan = Scan(row.base_offset)
            if scan.run(fd, row.log_bytes) is not None:
                continue
            found, highest = falling_batch(segment, scan.epochs, latest)
            if found is not None:
                temporary = f"{segment.log_path}.tmp"
                _copy_rising(fd, row.log_bytes, temporary, latest)
        finally:
            files.close(fd)
        if found is not None:
            _quarantine(state, segment, report, keep=True)
            files.rename(temporary, segment.log_path)
            files.sync_dir(state.directory)
            changed = True
        latest = highest
    return changed


def _copy_rising(source: int, end: int, path: str, latest: int) -> None:
    """Copy whole batches to a new file; raise each epoch that is lower than an earlier epoch."""
    target = files.replace_file(path)
    try:
        position = 0
        while position < end:
            head = files.read_up_to(source, layouts.HEADER_BYTES_MAX, position)
            header = layouts.read_header(head, 0)
            buffers: list[Buffer] = [files.read_up_to(source, header.size_bytes, position)]
            if 0 <= header.leader_epoch < latest:
                buffers = layouts.reframe(buffers[0], header.magic, header.base_offset, latest)
            latest = max(latest, header.leader_epoch)
            position += files.write_fully(target, buffers, position)
        files.sync_file(target)
    finally:
        files.close(target)


def _repair(state: LogState, report: RepairReport) -> bool:
    expected = state.log_start_offset
    foreign = {
        problem.path: problem.end_offset
        for problem in state.recovery.problems
        if problem.position == 0 and problem.end_position and problem.end_offset > problem.offset
    }
    segments = list(state.segments)
    lost_end = max((problem.end_offset for problem in state.recovery.problems), default=0)
    changed = False
    for number, segment in enumerate(segments):
        base = segment.base_offset
        if base < expected and number:
            _quarantine(state, segment, report, keep=False)
            changed = True
            continue
        if segment.log_path in foreign and not segment.size_bytes:
            _quarantine(state, segment, report, keep=False)
            end = foreign[segment.log_path]
            _fill(state, base, end, report)
            expected, changed = end, True
            continue
        if base > expected:
            _fill(state, expected, base, report)
            changed = True
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else None
        goal = max(lost_end, segment.end_offset) if next_base is None else next_base
        limit_offset = 2**63 if next_base is None else next_base
        end, is_changed = _mend(state, segment, goal, limit_offset, report)
        changed = changed or is_changed
        expected = end
    return changed


def _mend(
    state: LogState, segment: Segment, goal: int, limit_offset: int, report: RepairReport
) -> tuple[int, bool]:
    """Rewrite a segment without its damage; the new segment ends at the offset `goal` or later."""
    fd = files.open_regular(segment.log_path, files.READ_WRITE)
    try:
        end = files.fstat(fd).st_size
        bound = state.environment.record_expansion_bytes_max
        walk = scan_class(state.metadata, segment)
        scan = walk(segment.base_offset, limit_offset=limit_offset, expansion_bytes_max=bound)
        damages: list[Damage] = []
        while (reason := scan.run(fd, end)) is not None:
            damages.append(scan.skip_damage(fd, end, reason))
        if not damages and scan.offset >= goal:
            return scan.offset, False
        temporary = f"{segment.log_path}.tmp"
        target = files.replace_file(temporary)
        try:
            magic = scan.magic or state.rules.magic
            _copy_whole(state, fd, target, damages, end, scan.offset, goal, report, magic)
            files.sync_file(target)
        finally:
            files.close(target)
    finally:
        files.close(fd)
    _quarantine(state, segment, report, keep=True)
    files.rename(temporary, segment.log_path)
    files.sync_dir(state.directory)
    return max(scan.offset, goal), True


def _copy_whole(
    state: LogState,
    source: int,
    target: int,
    damages: list[Damage],
    end: int,
    offset: int,
    goal: int,
    report: RepairReport,
    magic: int,
) -> None:
    """Copy whole batches, and write a batch without records in place of lost offsets."""
    position = written = 0
    for damage in [*damages, Damage(end, end, offset, None, "")]:
        length = damage.position - position
        done = 0
        while done < length:
            data = files.read_up_to(source, min(1 << 20, length - done), position + done)
            files.write_fully(target, [data], written + done)
            done += len(data)
        written += length
        position = damage.end_position
        if damage.max_timestamp is not None or isinstance(damage, MisplacedBatch):
            batch = files.read_up_to(source, position - damage.position, damage.position)
            written += files.write_fully(target, _corrected(batch, damage), written)
            continue
        lost_end = damage.end_offset
        if lost_end is None:
            lost_end = max(goal, damage.offset)
        written += _write_holes(state, target, written, damage.offset, lost_end, report, magic)
        goal = goal if damage.end_offset is not None else 0


def _corrected(batch: bytes, damage: Damage) -> list[Buffer]:
    """Correct the wrong value in the header of a batch."""
    if damage.max_timestamp is not None:
        return [layouts.with_max_timestamp(batch, damage.max_timestamp)]
    header = layouts.read_header(batch, 0)
    return layouts.reframe(batch, header.magic, damage.offset, header.leader_epoch)


def _write_holes(
    state: LogState,
    fd: int,
    position: int,
    offset: int,
    end_offset: int,
    report: RepairReport,
    magic: int,
) -> int:
    start = position
    # This batch must not have a lower epoch than the records before it.
    entries = state.replication.epochs.entries
    epoch = max((epoch for epoch, first in entries if first <= offset), default=0)
    if end_offset > offset:
        report.lost.append(range(offset, end_offset))
    while offset < end_offset:
        stop = min(end_offset, offset + HOLE_OFFSETS_MAX)
        position += files.write_fully(fd, [layouts.hole(magic, offset, stop, epoch)], position)
        offset = stop
    return position - start


def _fill(state: LogState, offset: int, end_offset: int, report: RepairReport) -> None:
    """Write a segment without records in place of a missing segment."""
    path = Segment(state.directory, offset).log_path
    temporary = f"{path}.tmp"
    fd = files.replace_file(temporary)
    try:
        _write_holes(state, fd, 0, offset, end_offset, report, columnar.MAGIC)
        files.sync_file(fd)
    finally:
        files.close(fd)
    files.rename(temporary, path)
    files.sync_dir(state.directory)


def _quarantine(state: LogState, segment: Segment, report: RepairReport, *, keep: bool) -> None:
    """Give a segment's file a `.quarantine` name; if `keep` is True, the old name stays, too."""
    for path in (segment.index_path, segment.time_index_path):
        files.remove_if_there(path)
    path = f"{segment.log_path}.{os.urandom(4).hex()}.quarantine"
    files.link(segment.log_path, path)
    files.sync_dir(state.directory)
    if not keep:
        files.unlink(segment.log_path)
        files.sync_dir(state.directory)
    report.quarantined.append(path)
