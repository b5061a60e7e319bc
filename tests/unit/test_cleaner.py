"""Compare cleaned logs with a dictionary, in both layouts and with every codec."""

from __future__ import annotations

import random

import pytest

from logstore.format import layouts
from logstore.format.kafka.header import DELETE_HORIZON
from support import reader
from support.compacting import (
    CONTROL,
    DAY,
    NOW,
    TRANSACTIONAL,
    Row,
    aborted_by,
    batch_of,
    clean,
    headers_of,
    marker,
    rows_of,
    state_of,
)

LAYOUTS = [("columnar", codec) for codec in (0, 3, 4)] + [("kafka", codec) for codec in range(5)]
KEYS = [
    b"",
    b"a",
    b"fourteen bytes",
    b"fifteen bytes!!",
    b"k" * 40,
    b"another key of 36 bytes as a UUID has",
]


def random_rows(rng: random.Random, count: int) -> list[Row]:
    """Make records of few keys, some of them null, and some tombstones."""
    one_size = rng.random() < 0.5
    found: list[Row] = []
    for _ in range(count):
        key = None if rng.random() < 0.05 else rng.choice(KEYS) + bytes([rng.randrange(6)])
        value = rng.randbytes(20 if one_size else rng.randrange(40))
        found.append((key, None if rng.random() < 0.2 else value, NOW + rng.randrange(1000)))
    return found


def random_log(
    rng: random.Random, layout: str, codec: int, batches: int, base: int = 0
) -> list[bytes]:
    """Make a dense log; batches of one record and of many."""
    found = []
    for _ in range(batches):
        count = rng.choice((1, 2, 7, 30, 90))
        producer = (rng.randrange(3), 0, base) if rng.random() < 0.3 else (-1, -1, -1)
        found.append(
            batch_of(
                layout,
                base,
                random_rows(rng, count),
                codec=codec,
                epoch=base // 500,
                producer=producer,
            )
        )
        base += count
    return found


def check_frames(before: list[bytes], after: list[bytes], layout: str) -> None:
    """Offsets rise; columnar batches follow one another; epochs and producers are kept."""
    old = {header.base_offset: header for header in headers_of(before)}
    expected = 0
    for data, header in zip(after, headers_of(after), strict=True):
        if layout == "columnar":
            assert header.base_offset == expected
            assert reader.read_batch(data, 0, expected).end_offset == header.last_offset + 1
        assert header.base_offset >= expected
        expected = header.last_offset + 1
        was = old[header.base_offset]
        assert header.leader_epoch == was.leader_epoch
        if header.record_count:
            assert header[9 + 1 : 13] == was[10:13] and header.last_offset == was.last_offset
    if layout == "columnar":
        assert expected == headers_of(before)[-1].last_offset + 1


@pytest.mark.parametrize(("layout", "codec"), LAYOUTS)
@pytest.mark.parametrize("seed", range(4))
def test_what_is_left_is_what_a_dictionary_says(layout: str, codec: int, seed: int) -> None:
    """The latest record of each key stays with its offset and time; records without a key go."""
    rng = random.Random(f"{layout} {codec} {seed}")
    log = random_log(rng, layout, codec, 25)
    rows = rows_of(log)
    latest = {row.key: row.offset for row in rows}
    expected = [row for row in rows if row.key is not None and latest[row.key] == row.offset]
    done = clean(log, window=rng.choice((1, 3, 50)))
    assert rows_of(done.batches) == expected
    check_frames(log, done.batches, layout)
    cleaner = done.cleaner
    assert (cleaner.records_read, cleaner.records_kept) == (len(rows), len(expected))
    assert cleaner.bytes_read == sum(map(len, log)) and cleaner.is_changed
    assert done.end_offset == rows[-1].offset + 1
    has_tombstone = any(row.value is None for row in expected)
    assert cleaner.horizon_ms == (NOW + DAY if has_tombstone else None)
    # A second pass, with the first part clean, changes nothing.
    again = clean(done.batches, first_dirty=done.end_offset)
    assert again.batches == done.batches and not again.cleaner.is_changed
    # After the delete horizon the tombstones go.
    later = clean(done.batches, first_dirty=done.end_offset, now_ms=NOW + DAY)
    assert rows_of(later.batches) == [row for row in expected if row.value is not None]
    assert later.cleaner.horizon_ms is None and state_of(later.batches) == state_of(log)
    check_frames(done.batches, later.batches, layout)


@pytest.mark.parametrize(
    ("layout", "codec"), [("columnar", 0), ("columnar", 4), ("kafka", 0), ("kafka", 3)]
)
@pytest.mark.parametrize("key_count_max", [1, 5, 40])
def test_passes_over_a_growing_log_keep_its_state(
    layout: str, codec: int, key_count_max: int
) -> None:
    """With a table of any size, each pass gets further, and a reader sees the same state."""
    rng = random.Random(f"{layout} {codec} {key_count_max}")
    log: list[bytes] = []
    dirty = 0
    for turn in range(6):
        end = headers_of(log[-1:])[0].last_offset + 1 if log else 0
        log += random_log(rng, layout, codec, 2 if key_count_max > 1 else 1, end)
        state, rows = state_of(log), rows_of(log)
        done = clean(
            log, first_dirty=dirty, key_count_max=key_count_max, now_ms=NOW + turn * DAY // 3
        )
        assert done.end_offset > dirty
        assert state_of(done.batches) == state
        assert [row for row in rows if row.offset >= done.end_offset] == [
            row for row in rows_of(done.batches) if row.offset >= done.end_offset
        ]
        assert set(rows_of(done.batches)) <= set(rows)
        log, dirty = done.batches, done.end_offset
    while dirty <= headers_of(log[-1:])[0].last_offset:
        done = clean(log, first_dirty=dirty, key_count_max=key_count_max, now_ms=NOW + 9 * DAY)
        assert done.end_offset > dirty
        log, dirty = done.batches, done.end_offset
    left = [row.key for row in rows_of(log) if row.value is not None]
    assert len(left) == len(set(left)) and None not in left
    assert set(left) == set(state_of(log))


def test_a_tombstone_stays_for_the_whole_time_after_its_first_cleaning() -> None:
    """The time runs from the first cleaning, not from the append, and is not extended."""
    for layout in ("columnar", "kafka"):
        log = [batch_of(layout, 0, [(b"k", b"v", 5)]), batch_of(layout, 1, [(b"k", None, 6)])]
        first = clean(log, now_ms=NOW)
        assert [row[:2] for row in rows_of(first.batches)] == [(1, 6)]
        assert first.cleaner.horizon_ms == NOW + DAY
        second = clean(first.batches, first_dirty=2, now_ms=NOW + DAY - 1000)
        assert second.batches == first.batches and second.cleaner.horizon_ms == NOW + DAY
        third = clean(second.batches, first_dirty=2, now_ms=NOW + DAY)
        assert rows_of(third.batches) == [] and third.cleaner.is_changed


def test_a_tombstone_after_the_end_of_the_range_gets_no_horizon() -> None:
    """Records that the tombstone deletes may still exist, so its time has not begun."""
    rows: list[Row] = [(b"a", b"1", 1), (b"b", b"2", 2), (b"c", None, 3)]
    for layout in ("columnar", "kafka"):
        done = clean(
            [batch_of(layout, 0, [(b"a", b"0", 0)]), batch_of(layout, 1, rows)],
            key_count_max=2,
        )
        assert done.end_offset == 3 and done.cleaner.horizon_ms is None
        assert [row.offset for row in rows_of(done.batches)] == [1, 2, 3]


def test_an_old_horizon_covers_no_newer_tombstone_of_another_batch() -> None:
    """Each batch has its own horizon, and an existing horizon is not replaced."""
    log = [batch_of("kafka", 0, [(b"a", None, 1)])]
    log = clean(log, now_ms=NOW).batches
    log.append(batch_of("kafka", 1, [(b"b", None, 2)]))
    log = clean(log, first_dirty=1, now_ms=NOW + 500).batches
    assert [header.base_timestamp for header in headers_of(log)] == [NOW + DAY, NOW + DAY + 500]
    assert [row[:3] for row in rows_of(log)] == [(0, 1, b"a"), (1, 2, b"b")]


def test_a_batch_that_is_not_changed_is_the_same_bytes() -> None:
    """A batch of distinct keys is kept unchanged; adjacent batches come as one buffer."""
    for layout, codec in LAYOUTS:
        log = [
            batch_of(
                layout, 10 * n, [(b"%d" % (10 * n + i), b"v", n) for i in range(10)], codec=codec
            )
            for n in range(4)
        ]
        done = clean(log, window=4)
        assert done.batches == log and not done.cleaner.is_changed


def test_the_last_batch_of_a_producer_stays_without_records() -> None:
    """The batch still has its sequence numbers and its epoch, in both layouts."""
    for layout in ("columnar", "kafka"):
        log = [
            batch_of(layout, 0, [(b"a", b"1", NOW)] * 3, producer=(7, 0, 40), epoch=2, codec=3),
            batch_of(layout, 3, [(b"a", b"2", NOW)], producer=(8, 0, 1), epoch=2),
        ]
        done = clean(log, kept_empty=frozenset({2}))
        header = headers_of(done.batches)[0]
        assert (header.record_count, header.last_offset, header.leader_epoch) == (0, 2, 2)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 40)
        assert header.max_timestamp == (NOW if layout == "kafka" else -1)
        again = clean(done.batches, first_dirty=4, kept_empty=frozenset({2}))
        assert again.batches == done.batches
        gone = clean(done.batches, first_dirty=4)
        assert [h.record_count for h in headers_of(gone.batches)] == (
            [0, 1] if layout == "columnar" else [1]
        )
        assert headers_of(gone.batches)[0].producer_id == (-1 if layout == "columnar" else 8)


def test_offsets_of_many_batches_that_go_are_one_columnar_batch() -> None:
    """There is one batch for each leader epoch and segment end; later passes merge them."""
    log = [batch_of("columnar", n, [(b"k", b"%d" % n, n)], epoch=n // 4) for n in range(10)]
    log.append(batch_of("columnar", 10, [(None, b"", 1)], epoch=2))
    done = clean(log)
    spans = [
        (h.base_offset, h.last_offset, h.leader_epoch, h.record_count)
        for h in headers_of(done.batches)
    ]
    assert spans == [(0, 3, 0, 0), (4, 7, 1, 0), (8, 8, 2, 0), (9, 9, 2, 1), (10, 10, 2, 0)]
    more = [*done.batches, batch_of("columnar", 11, [(b"k", b"", 1)], epoch=2)]
    later = clean(more, first_dirty=11)
    spans = [
        (h.base_offset, h.last_offset, h.leader_epoch, h.record_count)
        for h in headers_of(later.batches)
    ]
    assert spans == [(0, 3, 0, 0), (4, 7, 1, 0), (8, 10, 2, 0), (11, 11, 2, 1)]


def test_a_log_of_which_nothing_is_left_spans_its_offsets_or_is_empty() -> None:
    """Columnar: a batch without records. Kafka's layout: nothing, or the segment's last batch."""
    log = [batch_of("columnar", n, [(None, b"v", 1)]) for n in range(5)]
    assert [h[:1] + h[5:7] for h in headers_of(clean(log).batches)] == [(0, 0, 4)]
    log = [batch_of("kafka", n, [(None, b"v", 1)]) for n in range(5)]
    assert clean(log).batches == []
    (data,) = clean(log, kept_empty=frozenset({4})).batches
    assert layouts.read_header(data, 0).last_offset == 4


def test_markers_outlive_their_transactions() -> None:
    """First the records are removed, then the marker gets a horizon, then the marker is removed."""

    def data(base: int, producer_id: int, key: bytes) -> bytes:
        return batch_of(
            "kafka",
            base,
            [(key, b"v", NOW)],
            producer=(producer_id, 0, 0),
            attributes=TRANSACTIONAL,
        )

    log = [
        data(0, 1, b"a"), data(1, 2, b"b"), marker(2, 1, commit=False), marker(3, 2, commit=True),
        data(4, 2, b"b"), marker(5, 2, commit=True), batch_of("kafka", 6, [(b"z", b"", 1)]),
    ]  # fmt: skip
    state = state_of(log)
    first = clean(log, is_aborted=aborted_by(log))
    assert [h.base_offset for h in headers_of(first.batches)] == [2, 3, 4, 5, 6]
    assert not any(h.attributes & DELETE_HORIZON for h in headers_of(first.batches))
    log = first.batches
    second = clean(log, first_dirty=7, is_aborted=aborted_by(log), now_ms=NOW)
    marked = [h.base_offset for h in headers_of(second.batches) if h.attributes & DELETE_HORIZON]
    assert marked == [2, 3] and second.cleaner.horizon_ms == NOW + DAY
    assert all(h.attributes & CONTROL for h in headers_of(second.batches)[:2])
    log = second.batches
    waiting = clean(log, first_dirty=7, is_aborted=aborted_by(log), now_ms=NOW + DAY - 1)
    assert waiting.batches == log and waiting.cleaner.horizon_ms == NOW + DAY
    third = clean(
        log, first_dirty=7, is_aborted=aborted_by(log), now_ms=NOW + DAY, kept_empty=frozenset({3})
    )
    assert [(h.base_offset, h.record_count) for h in headers_of(third.batches)] == [
        (3, 0),
        (4, 1),
        (5, 1),
        (6, 1),
    ]
    log = third.batches
    fourth = clean(log, first_dirty=7, is_aborted=aborted_by(log), now_ms=NOW + DAY)
    assert [h.base_offset for h in headers_of(fourth.batches)] == [4, 5, 6]
    assert state_of(fourth.batches) == state


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("key_count_max", [2, 1000])
def test_committed_records_are_the_same_after_each_of_many_passes(
    seed: int, key_count_max: int
) -> None:
    """Wherever passes end, no aborted record becomes visible, and no committed record is lost."""
    rng = random.Random(seed)
    log: list[bytes] = []
    base = dirty = 0
    for turn in range(8):
        open_ids: set[int] = set()
        for _ in range(rng.randrange(12)):
            producer_id = rng.randrange(3)
            if rng.random() < 0.3:
                log.append(marker(base, producer_id, commit=rng.random() < 0.5))
                open_ids.discard(producer_id)
                base += 1
                continue
            rows = random_rows(rng, rng.choice((1, 3)))
            open_ids.add(producer_id)
            log.append(
                batch_of(
                    "kafka", base, rows, producer=(producer_id, 0, 0), attributes=TRANSACTIONAL
                )
            )
            base += len(rows)
        for producer_id in open_ids:
            log.append(marker(base, producer_id, commit=rng.random() < 0.5))
            base += 1
        if not log:
            continue
        state = state_of(log)
        kept = frozenset(h.last_offset for h in headers_of(log) if rng.random() < 0.1)
        done = clean(
            log, first_dirty=dirty, is_aborted=aborted_by(log), kept_empty=kept,
            key_count_max=key_count_max, now_ms=NOW + turn * DAY // 2, window=rng.choice((1, 4)),
        )  # fmt: skip
        assert state_of(done.batches) == state
        log, dirty = done.batches, done.end_offset
        base = max([base, *(h.last_offset + 1 for h in headers_of(log))])
