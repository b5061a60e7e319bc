"""Compare reads, tails, raw batches and policies of one log with a list of its records."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import (
    CorruptRecordBatchError,
    Log,
    LogClosedError,
    LogConfig,
    LogStore,
    OffsetOutOfRangeError,
)
from logstore.log.read import records
from support.places import fast_directory

SMALL = LogConfig(segment_bytes=1024, index_interval_bytes=256)


class SetClock:
    """A clock that stands still until the test sets it."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        """Return the time that was set."""
        return self.ms


@pytest.fixture
def clock() -> SetClock:
    """Return a clock that the test sets."""
    return SetClock()


@pytest.fixture
def store(tmp_path: Path, clock: SetClock) -> Iterator[LogStore]:
    """Return an empty store."""
    with LogStore.open(tmp_path, clock=clock) as store:
        yield store


@pytest.fixture
def log(store: LogStore) -> Log:
    """Return a log of 60 records in 20 batches and several segments; times 0, 10, 20 ..."""
    log = store.create("orders", 0, config=SMALL)
    for first in range(0, 60, 3):
        numbers = range(first, first + 3)
        log.extend([b"%02d" % n * 10 for n in numbers], timestamps=[n * 10 for n in numbers])
    return log


def segments_of(log: Log) -> int:
    """Count the segment files of a log."""
    return len(list(Path(log.log_dir, f"{log.topic}-{log.partition}").glob("*.log")))


def test_reads_are_limited_by_count_and_by_size(log: Log) -> None:
    """At least one record and at most the requested number is returned, from the offset on."""
    assert segments_of(log) > 3
    assert [record.offset for record in log.read(7, max_records=5)] == list(range(7, 12))
    assert len(log.read(0, max_bytes=1)) >= 1
    assert len(log.read(0, max_bytes=1)) < 60
    offsets, offset = [], 0
    while batch := log.read(offset, max_bytes=200):
        offsets += [record.offset for record in batch]
        offset = offsets[-1] + 1
    assert offsets == list(range(60))
    for options in ({"max_records": 0}, {"isolation_level": "serializable"}):
        with pytest.raises(ValueError, match=str(next(iter(options.values())))):
            log.read(0, **options)


@pytest.mark.parametrize("zero_copy", [False, True])
@pytest.mark.parametrize(("start", "end"), [(0, 60), (4, 5), (1, 59), (60, 60)])
def test_batches_are_cut_to_the_range(log: Log, start: int, end: int, zero_copy: bool) -> None:
    """The first and the last batch contain only requested records, and their columns agree."""
    found = []
    for batch in log.read_batches(start, end_offset=end, zero_copy=zero_copy):
        assert len(batch) == len(batch.offsets) == len(batch.timestamps) == len(batch.values)
        assert batch.base_offset == batch.offsets[0]
        found += [
            (int(o), int(t), v)
            for o, t, v in zip(batch.offsets, batch.timestamps, batch.values, strict=True)
        ]
    assert found == [(n, n * 10, b"%02d" % n * 10) for n in range(start, end)]


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(0, 0), (1, 1), (295, 30), (300, 30), (590, 59), (591, None)]
)
def test_a_time_leads_to_the_first_record_not_before_it(
    log: Log, timestamp: int, offset: int | None
) -> None:
    """None means that every record is earlier."""
    assert log.offset_for_timestamp(timestamp) == offset


def test_times_out_of_order_are_found_all_the_same(store: LogStore) -> None:
    """The answer is the same as after reading every record."""
    log = store.create("late", 0, config=SMALL)
    times = [(n * 37) % 100 for n in range(200)]
    for first in range(0, 200, 5):
        log.extend([b"x" * 20] * 5, timestamps=times[first : first + 5])
    for wanted in range(0, 110, 7):
        expected = next((n for n, time in enumerate(times) if time >= wanted), None)
        assert log.offset_for_timestamp(wanted) == expected


def test_a_tail_gives_what_is_there_and_then_what_comes(log: Log) -> None:
    """The tail wakes for every append, and ends when no record comes within the timeout."""
    seen: list[int] = []
    ready = threading.Event()

    def follow() -> None:
        for record in log.tail(57, timeout=20):
            seen.append(record.offset)
            if record.offset == 59:
                ready.set()
            if record.value == b"end":
                return

    thread = threading.Thread(target=follow)
    thread.start()
    assert ready.wait(20)
    log.extend([b"more", b"end"])
    thread.join(20)
    assert seen == list(range(57, 62))
    assert [record.offset for record in log.tail("start", timeout=0)] == list(range(62))
    assert list(log.tail(timeout=0)) == []
    with pytest.raises(OffsetOutOfRangeError):
        log.tail(63, timeout=0)


def test_a_tail_ends_with_the_store(tmp_path: Path) -> None:
    """A thread that waits for records of a closed store gets an error."""
    errors: list[BaseException] = []
    waiting = threading.Event()
    store = LogStore.open(tmp_path)
    log = store.create("orders", 0)
    log.append(b"first")

    def follow() -> None:
        try:
            for _ in log.tail("start"):
                waiting.set()
        except LogClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    assert waiting.wait(20)
    store.close()
    thread.join(20)
    assert len(errors) == 1


def test_raw_batches_make_a_copy(store: LogStore, log: Log) -> None:
    """A follower has the same bytes at the same offsets; encoded batches get the next ones."""
    follower = store.create("follower", 0, config=SMALL)
    while raw := log.read_raw(follower.log_end_offset, 300):
        follower.append_as_follower(raw)
    assert [r[:5] for r in follower] == [r[:5] for r in log]
    assert follower.read_raw(0, 1 << 20) == log.read_raw(0, 1 << 20)
    with pytest.raises(OffsetOutOfRangeError):
        follower.append_as_follower(log.read_raw(0, 300))
    other = store.create("other", 0)
    other.append(b"first")
    while other.log_end_offset < 61:
        raw = log.read_raw(other.log_end_offset - 1, 1 << 20)
        assert other.append_encoded(raw).start > 0
    assert [r.value for r in other[1:]] == [r.value for r in log]


@pytest.mark.parametrize(
    "spoil", [lambda raw: raw[:-1], lambda raw: b"\1" + raw[1:], lambda _: b"x"]
)
def test_raw_bytes_that_are_no_batches_are_refused(log: Log, spoil: object) -> None:
    """No part of the bytes is appended."""
    assert callable(spoil)
    raw = spoil(log.read_raw(0, 300))
    for call in (log.append_encoded, log.append_as_follower):
        with pytest.raises((ValueError, LookupError)):
            call(raw)
    assert len(log) == 60


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_codecs_change_the_size_and_nothing_else(store: LogStore, codec: str) -> None:
    """Compressed batches are read like any others."""
    log = store.create(codec, 0, config=LogConfig(compression_type=codec))
    values = [b"the same again and again " * 40] * 50
    log.extend(values, keys=[b"k", None] * 25)
    assert [record.value for record in log] == values
    assert [record.key for record in log] == [b"k", None] * 25
    assert (log.size_bytes < len(b"".join(values)) // 4) == (codec != "none")


def test_log_append_time_is_the_clocks(store: LogStore, clock: SetClock) -> None:
    """The timestamps of the caller are replaced, in every way to append."""
    config = LogConfig(message_timestamp_type="LogAppendTime")
    log = store.create("stamped", 0, config=config)
    log.append(b"x", timestamp=1)
    clock.ms += 5
    log.extend([b"x"], timestamps=[2])
    log.append(b"x", timestamp=3, durable=True)
    assert [record.timestamp for record in log] == [1_000_000, 1_000_005, 1_000_005]


def test_regression_flush_messages_flushes_at_that_count(store: LogStore) -> None:
    """A new log never flushed by itself; a log that was opened did."""
    log = store.create("flushed", 0, config=LogConfig(flush_messages=4))
    for number in range(1, 13):
        log.append(b"x")
        assert log.recovery_point == number // 4 * 4


def test_segments_roll_by_age(store: LogStore, clock: SetClock) -> None:
    """A segment is rolled when its first record is older than `segment_ms`."""
    log = store.create("aged", 0, config=LogConfig(segment_ms=1000))
    for _ in range(3):
        log.append(b"x")
        clock.ms += 1001
        log.append(b"y")
    assert segments_of(log) == 4
    assert len(list(log)) == 6


def test_retention_drops_whole_segments_from_the_beginning(
    store: LogStore, clock: SetClock
) -> None:
    """Old and surplus segments are dropped; the active segment stays, and offsets continue."""
    config = SMALL.replace(retention_ms=1000, retention_bytes=4096)
    log = store.create("kept", 0, config=config)
    for number in range(100):
        log.append(b"%d" % number * 50, timestamp=clock.ms)
    assert log.apply_retention() > 0
    assert 0 < log.log_start_offset < 99
    assert log.size_bytes <= 4096 + 1024
    clock.ms += 5000
    log.append(b"new")
    log.apply_retention()
    assert log[-1].value == b"new"
    assert log.log_end_offset == 101
    assert segments_of(log) <= 2


@pytest.mark.parametrize("is_view", [False, True])
def test_regression_a_read_below_a_missing_first_segment_says_so(
    tmp_path: Path, is_view: bool
) -> None:
    """With any cache: damage from the log start on, and out of range below it."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=LogConfig(segment_bytes=1024))
        for number in range(60):
            log.append(b"%04d" % number)
        log.delete_records_before(2)
        first = log._state.view[1][1]
    for path in (tmp_path / "orders-0").glob(f"{0:020d}.*"):
        path.unlink()
    with LogStore.open(tmp_path, read_only=is_view) as store:
        log = store.log("orders", 0)
        for _ in range(2):
            for offset in (0, 1, -100):
                with pytest.raises(OffsetOutOfRangeError):
                    log[offset]
            for offset in (2, first - 1):
                for read in (log.record_at, log.read, log.read_raw):
                    with pytest.raises(CorruptRecordBatchError):
                        read(offset)
            for offset in (*range(first, 60), -1):
                assert log[offset].value == b"%04d" % (offset % 60)
            assert log.offset_for_timestamp(0) in (None, first)


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    deleted=st.integers(0, 40),
    reads=st.lists(st.tuples(st.integers(-60, 60), st.integers(-60, 60)), min_size=1, max_size=8),
)
def test_every_way_of_reading_gives_what_a_list_gives(
    sizes: list[int], deleted: int, reads: list[tuple[int, int]]
) -> None:
    """One record, a range and columns follow the rules of a list with a deleted beginning."""
    values = [b"%d" % number * 9 for number in range(sum(sizes))]
    with fast_directory() as place, LogStore.open(place, admin_socket=False) as store:
        log, rest = store.create("orders", 0, config=SMALL), list(values)
        for size in sizes:
            log.extend(rest[:size])
            del rest[:size]
        start, end = min(deleted, len(values)), len(values)
        log.delete_records_before(start)
        assert [record.value for record in log] == values[start:]
        for first, last in reads:
            if start - end <= first < 0 or start <= first < end:
                assert log[first].value == values[first]
            else:
                with pytest.raises(OffsetOutOfRangeError):
                    _ = log[first]
            if start <= first <= end and first <= last <= end:
                wanted = values[first:last]
                assert [record.value for record in log[first:last]] == wanted
                assert [record.value for record in log.read(first)][: last - first] == wanted
                columns = log.read_batches(first, end_offset=last)
                assert [value for batch in columns for value in batch.values] == wanted


def test_regression_a_log_is_walked_backwards(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's default iteration used indexes as offsets, and skipped the newest records."""
    monkeypatch.setattr(records, "BACKWARDS_OFFSETS", 7)
    assert list(reversed(log)) == list(log)[::-1]
    log.delete_records_before(5)
    assert [r.offset for r in reversed(log)] == list(range(59, 4, -1))
    walk = reversed(log)
    log.append(b"later")
    assert next(walk).offset == 59
    log.delete_records_before(56)
    with pytest.raises(OffsetOutOfRangeError):
        list(walk)
    log.delete_records_before(log.log_end_offset)
    assert list(reversed(log)) == []
    log.close()
    with pytest.raises(LogClosedError):
        reversed(log)


def test_regression_an_offset_that_is_not_there_is_answered_with_those_that_are(
    tmp_path: Path,
) -> None:
    """The message was "offset 10 is not in the log's 5..10", without the name of the log."""
    with LogStore.open(tmp_path) as store:
        log = store.create("t", 0)
        log.extend([b"x"] * 10)
        log.delete_records_before(5)
        for offset in (4, 10):
            with pytest.raises(OffsetOutOfRangeError) as raised:
                log[offset]
            expected = f"no record at {offset} in t-0: offsets are 5 to 9, the next is 10"
            assert str(raised.value) == expected
        log.delete_records_before(10)
        with pytest.raises(OffsetOutOfRangeError, match="the log is empty, the next offset is 10"):
            log[9]
