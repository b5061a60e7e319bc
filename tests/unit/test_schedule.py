"""Test when a log is cleaned, up to which offset, and into which segments."""

from __future__ import annotations

import random

from logstore.log.compaction.schedule import (
    OFFSETS_MAX,
    Plan,
    Policy,
    SegmentFacts,
    groups,
    plan,
    urgency,
)

COLUMNAR, KAFKA = 0x4C, 2
SEGMENTS = [
    SegmentFacts(100 * n, 100 * n + 100, 1000, 80, COLUMNAR, 10 * n, 10 * n + 9) for n in range(6)
]


def planned(
    *,
    segments: list[SegmentFacts] = SEGMENTS,
    clean: int = 0,
    stable: int = 600,
    policy: Policy = Policy(),  # noqa: B008 - it never changes
    now_ms: int = 1000,
    horizon_ms: int | None = None,
) -> Plan:
    return plan(
        segments,
        clean_end_offset=clean,
        stable_offset=stable,
        policy=policy,
        now_ms=now_ms,
        horizon_ms=horizon_ms,
    )


def test_the_active_segment_is_never_cleaned() -> None:
    """A log of one segment is not cleaned; of a longer log, all but the last segment is."""
    assert planned(segments=SEGMENTS[:1], stable=100)[:6] == ((), 0, 0, 0, 0, False)
    found = planned()
    assert found.segments == tuple(SEGMENTS[:5]) and found.end_offset == 500
    assert (found.clean_bytes, found.dirty_bytes, found.is_due) == (0, 5000, True)


def test_nothing_at_or_after_the_stable_offset_is_cleaned() -> None:
    """A high watermark or an open transaction in an old segment keeps that whole segment."""
    for stable in range(601):
        found = planned(stable=stable)
        assert found.end_offset <= stable
        assert len(found.segments) == min(stable // 100, 5)


def test_records_younger_than_the_minimal_lag_are_not_cleaned() -> None:
    """The first segment with such a record ends what can be cleaned."""
    policy = Policy(min_compaction_lag_ms=50)
    assert planned(policy=policy, now_ms=79).end_offset == 300
    assert planned(policy=policy, now_ms=20).segments == ()
    late = [*SEGMENTS[:1], SEGMENTS[1]._replace(newest_ms=10**15), *SEGMENTS[2:]]
    assert planned(segments=late, policy=policy).end_offset == 100
    assert planned(segments=late).end_offset == 500


def test_the_dirty_ratio_decides() -> None:
    """Bytes that no cleaning has seen, of all that can be cleaned, must be more than the ratio."""
    assert planned(clean=200).dirty_ratio == 0.6 and planned(clean=200).is_due
    assert not planned(clean=300).is_due
    assert planned(clean=300, policy=Policy(min_cleanable_dirty_ratio=0.39)).is_due
    assert planned(clean=300, policy=Policy(min_cleanable_dirty_ratio=0.4)).is_due is False


def test_a_log_is_overdue_after_the_maximal_lag() -> None:
    """This holds for a log with few dirty bytes, too; the minimal lag still counts."""
    policy = Policy(0.9, 0, 100)
    late = planned(clean=400, policy=policy, now_ms=141)
    assert (
        late.is_overdue and late.is_due and not planned(clean=400, policy=policy, now_ms=140).is_due
    )
    unknown = [one._replace(oldest_ms=None) for one in SEGMENTS]
    assert not planned(segments=unknown, clean=400, policy=policy, now_ms=10**9).is_overdue
    both = Policy(0.9, 500, 100)
    assert not planned(clean=400, policy=both, now_ms=541).is_due
    assert max([late, planned(clean=0), planned(clean=300)], key=urgency) is late


def test_a_cleaned_log_is_left_alone() -> None:
    """A log that was cleaned to its end is not due, with any ratio, gap or empty segment."""
    never = Policy(min_cleanable_dirty_ratio=0.0)
    empty = [SegmentFacts(0, 50, 0, 0, KAFKA, None, -1), *SEGMENTS[1:]]
    apart = [
        *SEGMENTS[:2],
        *(one._replace(base_offset=one.base_offset + 2**31) for one in SEGMENTS[2:]),
    ]
    for segments in (SEGMENTS, empty, apart):
        assert not planned(segments=segments, clean=500, policy=never).is_due
    middle = planned(clean=450, policy=never)
    assert middle.first_dirty_offset == 450 and middle.dirty_bytes == 1000 and middle.is_due
    assert planned(clean=499, policy=never).is_due


def test_a_stale_end_of_the_last_cleaning_starts_from_the_log_start() -> None:
    """The end may be before the log start after a deletion, or after the end after a truncation."""
    assert planned(segments=SEGMENTS[2:], clean=100).first_dirty_offset == 200
    assert planned(clean=601).first_dirty_offset == 0
    assert planned(clean=550).first_dirty_offset == 500


def test_an_expired_horizon_makes_a_clean_log_due() -> None:
    """So tombstones are removed on time, even if nothing is appended."""
    assert planned(clean=500, horizon_ms=1000).is_due
    assert planned(clean=500, horizon_ms=1000).first_dirty_offset == 500
    assert not planned(clean=500, horizon_ms=1001).is_due
    assert not planned(clean=0, stable=0, horizon_ms=1).is_due


def test_groups_are_within_their_limits() -> None:
    """Every segment is in one group, in order; only a segment that is too large exceeds them."""
    rng = random.Random(1)
    for _ in range(200):
        base, segments = 0, []
        for _ in range(rng.randrange(12)):
            end = base + rng.choice((1, 100, 2**30, 2**31 - 1))
            magic = rng.choice((COLUMNAR, COLUMNAR, COLUMNAR, KAFKA))
            sizes = rng.randrange(1500), rng.randrange(120)
            segments.append(SegmentFacts(base, end, *sizes, magic, 0, 0))
            base = end
        found = groups(segments, segment_bytes=1000, segment_index_bytes=100)
        assert [one for group in found for one in group] == segments
        for group in found:
            assert len({one.magic for one in group}) == 1
            if len(group) > 1:
                assert sum(one.size_bytes for one in group) <= 1000
                assert sum(one.index_bytes for one in group) <= 100
                assert group[-1].end_offset - group[0].base_offset <= OFFSETS_MAX


def test_small_segments_are_merged() -> None:
    """As many segments as fit become one segment."""
    found = groups(SEGMENTS, segment_bytes=3000, segment_index_bytes=10_000)
    assert [len(group) for group in found] == [3, 3]
    assert [
        len(group) for group in groups(SEGMENTS, segment_bytes=9000, segment_index_bytes=170)
    ] == [2, 2, 2]
