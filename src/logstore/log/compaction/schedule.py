"""Plan a cleaning: decide which segments are cleaned and when, and divide them into groups.

All functions are pure. Invariants: the active segment is never cleaned. No record at or after the
stable offset is cleaned, so cleaning does not go beyond the high watermark or the first open
transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

OFFSETS_MAX = 2**31 - 1  # the most offsets that a segment may span, as in Kafka


class SegmentFacts(NamedTuple):
    """The facts about a segment that a plan needs: its offsets, sizes and timestamps.

    Attributes:
        magic: the layout of all batches of the segment.
        index_bytes: the size of the segment's `.index` file.
        oldest_ms: the largest timestamp of the segment's first batch; None if unknown.
        newest_ms: the largest timestamp of the segment.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    index_bytes: int
    magic: int
    oldest_ms: int | None
    newest_ms: int


class Policy(NamedTuple):
    """The settings of a log that decide when it is cleaned (Kafka's topic keys)."""

    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int | None = None


class Plan(NamedTuple):
    """A planned cleaning of a log.

    Attributes:
        segments: the segments to clean; the first segment of the log comes first.
        first_dirty_offset: the cleaning collects the keys of all records from this offset on.
        end_offset: the end offset of the last segment to clean.
        clean_bytes: the size of the segments before the first dirty offset.
        dirty_bytes: the size of the segments to clean, except those in `clean_bytes`.
        is_due: whether the log should be cleaned now.
        is_overdue: whether `max_compaction_lag_ms` demands that the log is cleaned now.
    """

    segments: tuple[SegmentFacts, ...]
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_due: bool
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The fraction of the log's bytes that no cleaning has read yet."""
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)


def plan(
    segments: Sequence[SegmentFacts],
    *,
    clean_end_offset: int,
    stable_offset: int,
    policy: Policy,
    now_ms: int,
    horizon_ms: int | None = None,
) -> Plan:
    """Plan the next cleaning of a log.

    Args:
        segments: all segments of the log; the last segment is active.
        clean_end_offset: where the last cleaning ended; 0 if the log was never cleaned. If the log
            does not contain this offset any more, the whole log is dirty.
        stable_offset: no record at or after this offset is cleaned.
        horizon_ms: the earliest time at which a tombstone or a marker can be removed; None if
            unknown.
    """
    log_start = segments[0].base_offset
    cleanable: list[SegmentFacts] = []
    for segment in segments[:-1]:
        is_young = segment.newest_ms > now_ms - policy.min_compaction_lag_ms
        if segment.end_offset > stable_offset or (policy.min_compaction_lag_ms and is_young):
            break
        cleanable.append(segment)
    end_offset = cleanable[-1].end_offset if cleanable else log_start
    first_dirty = clean_end_offset
    if not log_start <= first_dirty <= segments[-1].end_offset:
        first_dirty = log_start
    first_dirty = min(first_dirty, end_offset)
    dirty = [segment for segment in cleanable if segment.end_offset > first_dirty]
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    clean_bytes = sum(segment.size_bytes for segment in cleanable) - dirty_bytes
    oldest = next((one.oldest_ms for one in dirty if one.oldest_ms is not None), now_ms)
    lag_ms = policy.max_compaction_lag_ms
    if lag_ms is not None:
        lag_ms = max(lag_ms, policy.min_compaction_lag_ms)
    is_overdue = lag_ms is not None and now_ms - oldest > lag_ms
    has_expired = bool(cleanable) and horizon_ms is not None and horizon_ms <= now_ms
    found = Plan(
        tuple(cleanable), first_dirty, end_offset, clean_bytes, dirty_bytes, False, is_overdue
    )
    is_dirty = dirty_bytes > 0 and found.dirty_ratio > policy.min_cleanable_dirty_ratio
    return found._replace(is_due=is_dirty or is_overdue or has_expired)


def urgency(found: Plan) -> tuple[bool, bool, float]:
    """Return a key for `max`: overdue logs come first, then due logs, then the dirtiest logs."""
    return found.is_overdue, found.is_due, found.dirty_ratio


def groups(
    segments: Iterable[SegmentFacts], *, segment_bytes: int, segment_index_bytes: int
) -> list[list[SegmentFacts]]:
    """Divide segments into groups, each of which becomes one segment.

    So small segments are merged. Before the cleaning, the segments of a group together are not
    larger than the given sizes. All segments of a group have the same layout, and together span
    less than 2^31 offsets. A segment that is larger than the given sizes is a group of its own.
    """
    found: list[list[SegmentFacts]] = []
    for segment in segments:
        group = found[-1] if found else []
        if (
            group
            and group[0].magic == segment.magic
            and sum(one.size_bytes for one in group) + segment.size_bytes <= segment_bytes
            and sum(one.index_bytes for one in group) + segment.index_bytes <= segment_index_bytes
            and segment.end_offset - group[0].base_offset <= OFFSETS_MAX
        ):
            group.append(segment)
        else:
            found.append([segment])
    return found
