"""Copy batches with some of their records, and compare our readers with aiokafka's."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from logstore.errors import RecordExpansionError
from logstore.format import layouts, subsets
from logstore.format.columnar import payload as columnar_payload
from logstore.format.columnar import record_batch as columnar
from logstore.format.columnar.columns import encode_cells
from logstore.format.kafka import record_batch as kafka
from logstore.format.kafka.bounds import STEP_RECORDS_MAX
from logstore.format.kafka.header import DELETE_HORIZON, LOG_APPEND_TIME
from logstore.format.steps import STEP_CELLS, Steps, cut, run
from logstore.log.write.encode import encode_headers
from support import reader
from support.compacting import DAY, NOW, ROOM, batch_of, rows_of

T = TypeVar("T")
LAYOUTS = [("columnar", codec) for codec in (0, 3, 4)] + [("kafka", codec) for codec in range(5)]


def horizon_of(data: bytes) -> int | None:
    """Return the delete horizon of one batch."""
    (horizon_ms,) = subsets.delete_horizons_ms(data, [(0, layouts.read_header(data, 0))])
    return horizon_ms


def group_of(*batches: bytes) -> subsets.Group:
    """Decode batches together."""
    places, at = [], 0
    for data in batches:
        places.append((at, layouts.read_header(data, 0)))
        at += len(data)
    return run(subsets.group_of(b"".join(batches), places, ROOM))


def shapes(rng: random.Random) -> list[list[tuple[bytes | None, bytes | None, int]]]:
    """Make records of every shape: sizes, nulls, times."""
    values: list[Callable[[], bytes | None]] = [
        lambda: b"same size",
        lambda: rng.randbytes(rng.randrange(30)),
        lambda: None if rng.random() < 0.4 else rng.randbytes(rng.randrange(9)),
        lambda: b"",
        lambda: None,
    ]
    keys: list[Callable[[], bytes | None]] = [lambda: b"k%03d" % rng.randrange(999), *values[1:]]
    times: list[Callable[[], int]] = [lambda: NOW, lambda: NOW + rng.randrange(-(10**6), 10**6)]
    return [
        [(key(), value(), when()) for _ in range(rng.choice((1, 3, 40, 200)))]
        for value in values
        for key in keys
        for when in times
    ]


@pytest.mark.parametrize(("layout", "codec"), LAYOUTS)
def test_a_copy_has_the_records_of_the_mask(layout: str, codec: int) -> None:
    """Offsets, times, keys, values and header fields are those of the original."""
    rng = random.Random(codec)
    for rows in shapes(rng):
        data = batch_of(layout, 7, rows, codec=codec, epoch=3, producer=(5, 0, 11))
        whole, header = rows_of([data]), layouts.read_header(data, 0)
        for horizon in (None, NOW + DAY):
            keep = np.array([rng.random() < 0.5 for _ in rows])
            keep[rng.randrange(len(rows))] = True
            copy = run(group_of(data).subset(0, keep, horizon))
            assert rows_of([copy]) == [row for row, kept in zip(whole, keep, strict=True) if kept]
            found = layouts.read_header(copy, 0)
            assert (found.base_offset, found.last_offset) == (7, header.last_offset)
            assert (found.leader_epoch, *found[10:13]) == (3, 5, 0, 11)
            assert subsets.delete_horizons_ms(copy, [(0, found)])[0] == horizon
            if layout == "columnar":
                records = reader.read_batch(copy, 0, 7).records
                assert [tuple(record[:4]) for record in records] == rows_of([copy])
            else:
                assert by_aiokafka(copy) == rows_of([copy])
            # A copy of the copy keeps the horizon without encoding anything again.
            rest = np.zeros(int(keep.sum()), np.bool_)
            rest[-1] = True
            last = run(group_of(copy).subset(0, rest, horizon))
            assert rows_of([last]) == rows_of([copy])[-1:]
            assert horizon_of(last) == horizon


def by_aiokafka(data: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Read a batch with aiokafka."""
    batch: Any = DefaultRecordBatch(data)
    assert batch.validate_crc()
    return [(one.offset, one.timestamp, one.key, one.value) for one in batch]


@pytest.mark.parametrize("layout", ["columnar", "kafka"])
def test_record_headers_are_copied(layout: str) -> None:
    """Each kept record has its headers; if no record has headers, the copy has none."""
    headers = [((f"n{n}", b"v%d" % n), ("m", None))[: n % 3] for n in range(30)]
    values: list[bytes | None] = [b"%d" % n for n in range(30)]
    times = np.arange(30)
    if layout == "kafka":
        data = b"".join(kafka.frame(kafka.build_payload(values, values, times, headers), 0, 0))
    else:
        built = columnar_payload.build_payload(
            encode_cells(values),
            30,
            headers=encode_headers(headers),
            timestamps=times,
        )
        data = b"".join(columnar.frame(built, 0, 0))
    for keep in (np.arange(30) % 2 == 0, np.arange(30) % 3 == 0, np.arange(30) == 29):
        copy = run(group_of(data).subset(0, keep, None))
        found = list(layouts.decode_all(copy))
        assert [record.headers for record in found] == [headers[n] for n in np.flatnonzero(keep)]
        assert [record.value for record in found] == [values[n] for n in np.flatnonzero(keep)]


def test_log_append_time_stays() -> None:
    """Every kept record has the time of its append, with a horizon and without."""
    for layout in ("columnar", "kafka"):
        data = batch_of(layout, 0, [(b"k", b"v", n) for n in range(9)])
        data = layouts.with_append_time(data, layouts.read_header(data, 0), NOW)
        for horizon in (None, NOW + DAY):
            copy = run(group_of(data).subset(0, np.arange(9) > 5, horizon))
            assert layouts.read_header(copy, 0).attributes & LOG_APPEND_TIME
            assert [row[:2] for row in rows_of([copy])] == [(6, NOW), (7, NOW), (8, NOW)]
            if layout == "kafka":
                assert by_aiokafka(copy) == rows_of([copy])


def test_batches_of_a_group_are_copied_one_by_one() -> None:
    """The columns belong to the whole group; each copy is made from one batch."""
    for layout, codec in LAYOUTS:
        sizes = (1, 5, 60, 2)
        batches, base = [], 0
        for size in sizes:
            rows = [(b"%d" % n, None if n % 4 == 0 else b"v", n) for n in range(base, base + size)]
            batches.append(batch_of(layout, base + 100, rows, codec=codec))
            base += size
        group = group_of(*batches)
        assert np.diff(group.firsts).tolist() == list(sizes)
        assert group.offsets().tolist() == list(range(100, 100 + base))
        assert np.flatnonzero(group.is_null()).tolist() == list(range(0, base, 4))
        data, starts, lengths = group.keys()
        cells = zip(starts.tolist(), lengths.tolist(), strict=True)
        assert [data[a : a + n] for a, n in cells] == [b"%d" % n for n in range(base)]
        assert len(data) >= int(starts[-1]) + 16
        for number, (first, end) in enumerate(pairwise(group.firsts.tolist())):
            keep = np.zeros(end - first, np.bool_)
            keep[-1] = True
            copy = run(group.subset(number, keep, None))
            assert rows_of([copy]) == rows_of([batches[number]])[-1:]


def test_a_batch_without_records_keeps_offsets_and_producer() -> None:
    """The copy has no codec and no horizon, but the producer's time in Kafka's layout."""
    rows = [(b"k", b"v" * 99, NOW)] * 20
    for layout, codec in LAYOUTS:
        data = batch_of(layout, 40, rows, codec=codec, epoch=2, producer=(5, 0, 11))
        data = run(group_of(data).subset(0, np.ones(20, np.bool_), NOW))
        empty = subsets.empty(layouts.read_header(data, 0))
        header = layouts.read_header(empty, 0)
        assert layouts.fault(empty, 0, 40) is None and rows_of([empty]) == []
        assert (header.last_offset, header.record_count, header.attributes & 7) == (59, 0, 0)
        assert (header.leader_epoch, *header[10:13]) == (2, 5, 0, 11)
        assert subsets.delete_horizons_ms(empty, [(0, header)])[0] is None
        assert len(empty) == (80 if layout == "columnar" else 61)
        if layout == "kafka":
            assert header.max_timestamp == NOW
        else:
            assert reader.read_batch(empty, 0, 40).end_offset == 60


def test_a_columnar_horizon_is_rounded_up_to_a_second() -> None:
    """A tombstone is never removed early; the oldest horizon does not mean "none"."""
    data = batch_of("columnar", 0, [(b"k", None, 1)])
    keep = np.ones(1, np.bool_)
    for wanted, found in ((NOW + 1, NOW + 1000), (NOW, NOW), (0, 1000), (1, 1000)):
        copy = run(group_of(data).subset(0, keep, wanted))
        assert horizon_of(copy) == found
        assert rows_of([copy]) == rows_of([data])
    far = run(group_of(data).subset(0, keep, 2**60))
    assert horizon_of(far) == (2**32 - 1) * 1000


def test_a_truncation_drops_the_horizon_and_an_append_time_keeps_it() -> None:
    """A part of a batch gets no horizon: its tombstones stay longer, never shorter."""
    data = batch_of("columnar", 0, [(b"k", None, 1), (b"l", None, 1)])
    data = run(group_of(data).subset(0, np.ones(2, np.bool_), NOW))
    header = layouts.read_header(data, 0)
    stamped = layouts.with_append_time(data, header, 5)
    assert subsets.delete_horizons_ms(stamped, [(0, header)])[0] == NOW
    moved = b"".join(layouts.reframe(data, header.magic, 9, 1))
    assert subsets.delete_horizons_ms(moved, [(0, header)])[0] == NOW
    part = b"".join(layouts.part_until(data, 1))
    assert subsets.delete_horizons_ms(part, [(0, header)]) == [None]


def test_long_work_is_divided_into_steps() -> None:
    """Batches of any size are read and copied in steps of limited length."""
    rng = random.Random(5)
    count = 20_000
    rows = [(b"%d" % n, rng.randbytes(rng.randrange(9)), NOW) for n in range(count)]
    keep = np.arange(count) % 2 == 0
    for layout in ("columnar", "kafka"):
        data = batch_of(layout, 0, rows)
        steps = [0, 0, 0]
        group = counted(subsets.group_of(data, [(0, layouts.read_header(data, 0))], ROOM), steps, 0)
        copy = counted(group.subset(0, keep, None), steps, 1)
        stamped = counted(group.subset(0, keep, NOW + DAY), steps, 2)
        assert rows_of([copy]) == rows_of([stamped]) == rows_of([data])[::2]
        assert min(steps[1:]) >= count // 2 // STEP_CELLS
        if layout == "kafka":
            assert steps[0] >= count // STEP_RECORDS_MAX
            assert layouts.read_header(stamped, 0).attributes & DELETE_HORIZON


def counted(steps: Steps[T], counts: list[int], at: int) -> T:
    """Take all steps and count them."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        counts[at] += 1


def test_other_threads_run_between_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` releases the interpreter's lock after 0.1 ms, and returns the result."""
    naps: list[float] = []
    now = 0.0
    monkeypatch.setattr(time, "sleep", lambda seconds: naps.append(now + seconds))
    monkeypatch.setattr(time, "perf_counter", lambda: now)

    def steps() -> Steps[str]:
        nonlocal now
        for moment in (0.00015, 0.0002, 0.00024, 0.0004, 0.00045):
            now = moment
            yield
        return "done"

    assert run(steps()) == "done" and naps == [0.00015, 0.0004]


def test_parts_that_follow_one_another_are_cut_together() -> None:
    """There is one piece for each run of kept parts."""
    data, edges = b"aabbbcdd", np.array([0, 2, 5, 5, 6, 8])
    for keep, expected in (
        ([1, 1, 1, 1, 1], [b"aabbbcdd"]),
        ([0, 0, 0, 0, 0], []),
        ([1, 0, 0, 0, 1], [b"aa", b"dd"]),
        ([0, 1, 1, 1, 0], [b"bbbc"]),
        ([0, 0, 1, 0, 0], [b""]),
    ):
        assert run(cut(data, edges, np.array(keep, np.bool_))) == expected


@pytest.mark.parametrize("layout", ["columnar", "kafka"])
def test_a_batch_that_needs_too_much_memory_is_refused(layout: str) -> None:
    """The limit is the same as for every reader."""
    data = batch_of(layout, 0, [(b"k", b"v", 1)] * 50)
    place = (0, layouts.read_header(data, 0))
    with pytest.raises(RecordExpansionError):
        run(subsets.group_of(data, [place], 1000))
