"""Clean the batches of a log: find the latest offset of each key, then remove older records.

First `note` reads the part of the log that was not cleaned before, and puts the latest offset of
each key into a table (`LatestOffsets`). The complete table is sealed. In the second step, a
`Cleaner` reads the log from its start in windows of batches, and returns the bytes that replace
each window. `note` and `Cleaner` work in steps of less than a millisecond (see `format/steps`), and
do not write to the disk.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logstore.format import layouts, subsets
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar.columns import Buffer
from logstore.format.steps import Steps
from logstore.format.subsets import Group
from logstore.log.compaction.fingerprints import fingerprints
from logstore.log.compaction.latest_offsets import LatestOffsets
from logstore.log.compaction.rules import IsAborted, Rules, Verdict
from logstore.log.compaction.window import CHUNK_RECORDS, STEP_BATCHES, Place, Window

HOLE_OFFSETS_MAX = 2**31 - 1

Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]


class LastBatch(NamedTuple):
    """A producer's last batch; it stays, so that the log keeps the producer's epoch and sequence.

    Usually, this batch is the producer's last batch with records, because a marker has no sequence.
    If a marker began a new epoch, or if the producer has only markers, the batch is the producer's
    last marker.
    """

    epoch: int
    last_offset: int
    is_marker: bool


def note(
    latest: LatestOffsets,
    window: Window,
    is_aborted: IsAborted,
    producers: dict[int, LastBatch] | None = None,
) -> Steps[bool]:
    """Store the latest offset of each key of a window; the windows must come in the log's order.

    Args:
        producers: a dict to which this function adds the last batch of each producer id.

    Returns:
        False if the table is full. With a full table, only the records before `latest.end_offset`
        can be cleaned. This offset is always after the first record whose key was stored.

    Raises:
        The errors of `Window`; after an error, the table must not be used.
    """
    first_offset = latest.first_offset
    for chunk in window.chunks():
        yield
        if not chunk:
            continue
        if producers is not None:  # take these first, because the table may become full below
            _note_producers(producers, chunk)
        wanted = [
            (at, header)
            for at, header in chunk
            if header.record_count
            and header.last_offset >= first_offset
            and not subsets.is_control(header)
            and not is_aborted(header)
        ]
        for group in (yield from window.groups_of(wanted, checks_headers=True)):
            if not (yield from _note_group(latest, group)):
                return False
        latest.end_offset = max(latest.end_offset, chunk[-1][1].last_offset + 1)
    return True


def _note_producers(producers: dict[int, LastBatch], chunk: list[Place]) -> None:
    for _, header in chunk:
        if header.producer_id < 0:
            continue
        is_marker, known = subsets.is_control(header), producers.get(header.producer_id)
        if (
            not is_marker
            or known is None
            or known.is_marker
            or known.epoch != header.producer_epoch
        ):
            last = LastBatch(header.producer_epoch, header.last_offset, is_marker)
            producers[header.producer_id] = last


def _note_group(latest: LatestOffsets, group: Group) -> Steps[bool]:
    offsets, (data, starts, sizes) = group.offsets(), group.keys()
    yield
    with_key = np.flatnonzero((sizes >= 0) & (offsets >= latest.first_offset))
    for rows in np.array_split(with_key, len(with_key) // CHUNK_RECORDS or 1):
        keys = yield from fingerprints(data, starts[rows], sizes[rows], latest.seed)
        yield
        noted = latest.insert(keys, offsets[rows])
        if noted < len(rows):
            latest.end_offset = int(offsets[rows[noted]])
            return False
        yield
    return True


class _Replacement:
    """Collect the bytes that replace one window of batches."""

    def __init__(self, window: Window) -> None:
        self._look = memoryview(window.data)
        self._parts: list[Buffer] = []
        self._whole = [0, 0]  # where a run of unchanged batches begins and ends

    def keep(self, at: int, end: int) -> None:
        """Keep a batch of the window unchanged."""
        if self._whole[1] != at:
            self._flush()
            self._whole[0] = at
        self._whole[1] = end

    def add(self, data: bytes) -> None:
        """Append a new batch."""
        self._flush()
        self._parts.append(data)

    def parts(self) -> list[Buffer]:
        """Return all collected bytes."""
        self._flush()
        return self._parts

    def _flush(self) -> None:
        start, end = self._whole
        if start < end:
            self._parts.append(self._look[start:end])
        self._whole = [end, end]


class Cleaner:
    """Produce the bytes that replace the batches of a log, window by window.

    In the columnar layout, the offsets of a log have no gaps. So if cleaning leaves out batches,
    empty batches take over the offsets of these batches. There are as few empty batches as
    possible. In Kafka's layout, the offsets of left-out batches are missing from the log.

    Attributes:
        records_read, records_kept, bytes_read, bytes_written: totals so far.
        is_changed: whether the returned bytes differ from the bytes that were read.
        horizon_ms: the earliest future time at which a kept tombstone or marker can be removed;
            None if there is no such time.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._hole: BatchHeader | None = None  # offsets that an empty batch has to take over
        self.records_read = self.records_kept = self.bytes_read = self.bytes_written = 0
        self.is_changed = False
        self.horizon_ms: int | None = None

    def clean(self, window: Window) -> Steps[list[Buffer]]:
        """Return the bytes that replace a window; the windows must come in the log's order.

        Raises:
            The errors of `Window`; after an error, the caller must not replace any segment.
        """
        found = _Replacement(window)
        for chunk in window.chunks():
            yield
            if not chunk:
                continue
            horizons = subsets.delete_horizons_ms(window.data, chunk)
            verdicts = self._rules.judge_all([header for _, header in chunk], horizons)
            yield
            rows = list(zip(chunk, horizons, verdicts, strict=True))
            looked = [row for row in rows if row[2] is Verdict.LOOK]
            copies = yield from self._select(window, looked)
            for number, ((at, header), horizon, verdict) in enumerate(rows):
                if number % STEP_BATCHES == 0:
                    yield
                copy = copies.get(at)
                if verdict is Verdict.DROP or copy == b"":
                    self._drop(found, at, header)
                    continue
                if verdict is Verdict.KEEP:
                    self.records_kept += header.record_count
                    self._note_horizon(horizon)
                self._put(found, at, header, copy)
            self.bytes_read += sum(header.size_bytes for _, header in chunk)
            self.records_read += sum(header.record_count for _, header in chunk)
        parts = found.parts()
        self.bytes_written += sum(map(len, parts))
        return parts

    def finish(self) -> list[Buffer]:
        """Return an empty batch for the offsets after a segment's last kept batch, if needed."""
        parts: list[Buffer] = [*self._end_hole()]
        self.bytes_written += sum(map(len, parts))
        return parts

    def _select(
        self, window: Window, looked: list[tuple[Place, int | None, Verdict]]
    ) -> Steps[dict[int, bytes | None]]:
        """Examine the records of some batches, and return the new bytes of each batch.

        The key of a batch in the result is its position. The bytes are None for an unchanged batch,
        and empty for a batch that keeps no record.
        """
        copies: dict[int, bytes | None] = {}
        remaining = iter(looked)
        for group in (
            yield from window.groups_of([place for place, _, _ in looked], checks_headers=False)
        ):
            batches = list(islice(remaining, len(group.firsts) - 1))
            headers, before = [row[0][1] for row in batches], [row[1] for row in batches]
            yield
            offsets, is_null = group.offsets(), group.is_null()
            is_superseded = yield from self._is_superseded(group, offsets)
            keep, horizons = self._rules.select(
                headers, before, group.firsts, offsets, is_null, is_superseded
            )
            begins = group.firsts[:-1]
            counts = np.add.reduceat(keep, begins, dtype=np.int64).tolist()
            has_null = np.logical_or.reduceat(keep & is_null, begins).tolist()
            for number, (((at, header), horizon, _), kept) in enumerate(
                zip(batches, counts, strict=True)
            ):
                self.records_kept += kept
                copies[at] = None if kept else b""
                if kept and (kept < header.record_count or horizons[number] != horizon):
                    rows = slice(*group.firsts[number : number + 2].tolist())
                    copies[at] = yield from group.subset(number, keep[rows], horizons[number])
                if has_null[number] or subsets.is_control(header):
                    self._note_horizon(horizons[number])
                yield
        return copies

    def _is_superseded(self, group: Group, offsets: Numbers) -> Steps[Mask]:
        """Select the records before the range of collected keys that can be removed.

        A record can be removed if it has no key, or if its key is also in the range.
        """
        found = np.zeros(len(offsets), np.bool_)
        latest = self._rules.latest
        old = np.flatnonzero(offsets < latest.first_offset)
        if len(old):
            data, starts, sizes = group.keys()
            found[old] = sizes[old] < 0
            rows = old[sizes[old] >= 0]
            keys = yield from fingerprints(data, starts[rows], sizes[rows], latest.seed)
            yield
            found[rows] = latest.contains(keys)
            yield
        return found

    def _put(self, found: _Replacement, at: int, header: BatchHeader, copy: bytes | None) -> None:
        """Append a batch or its copy; first append an empty batch for missing offsets."""
        for hole in self._end_hole():
            found.add(hole)
        if copy is None:
            found.keep(at, at + header.size_bytes)
        else:
            found.add(copy)
            self.is_changed = True

    def _drop(self, found: _Replacement, at: int, header: BatchHeader) -> None:
        """Leave out a batch; if its offsets or its producer must stay, keep an empty batch."""
        if header.last_offset in self._rules.kept_empty:
            self._put(found, at, header, subsets.empty(header) if header.record_count else None)
            return
        must_follow = subsets.must_follow(header)
        self.is_changed |= header.record_count > 0 or header.producer_id >= 0 or not must_follow
        if not must_follow:
            return
        hole = self._hole
        if (
            hole is not None
            and hole.leader_epoch == header.leader_epoch
            and header.last_offset - hole.base_offset < HOLE_OFFSETS_MAX
        ):
            self._hole = hole._replace(last_offset=header.last_offset)
            self.is_changed = True
            return
        for data in self._end_hole():
            found.add(data)
        self._hole = header

    def _end_hole(self) -> list[bytes]:
        """Return an empty batch for the offsets that were left out since the last kept batch."""
        hole, self._hole = self._hole, None
        if hole is None:
            return []
        end_offset = hole.last_offset + 1
        return [layouts.hole(hole.magic, hole.base_offset, end_offset, hole.leader_epoch)]

    def _note_horizon(self, horizon_ms: int | None) -> None:
        if horizon_ms is not None and horizon_ms > self._rules.passed_ms:
            self.horizon_ms = min(horizon_ms, self.horizon_ms or horizon_ms)
