"""Follow a log whose records are dropped and appended again: no record is skipped silently.

The other tests of tails are in `test_log` and `test_high_watermark`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.config import LogConfig
from logstore.errors import OffsetOutOfRangeError
from logstore.format.batch import Record
from logstore.log.log import Log
from logstore.log.reader import ReadableLog
from logstore.store.store import LogStore
from support.keyed_logs import COMPACTED

SMALL = LogConfig(segment_bytes=1024, index_interval_bytes=256)
READERS = pytest.mark.parametrize("is_owner", [True, False], ids=["the owner", "a view"])


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[tuple[Log, ReadableLog]]:
    """Open a log with ten records, and a view of it as another process has it."""
    with LogStore.open(tmp_path) as store, LogStore.open(tmp_path, read_only=True) as view:
        log = store.create("t", 0)
        for number in range(10):
            log.append(b"old %d" % number)
        yield log, view.log("t", 0)


def values(records: Iterator[Record], limit: int | None = None) -> list[bytes | None]:
    """Take the next values of a tail, or all until its time ends."""
    return [record.value for record in islice(records, limit)]


def append(log: Log, amount: int, name: bytes = b"new") -> None:
    """Append records one by one; each value has a name and its offset."""
    for _ in range(amount):
        log.append(b"%s %d" % (name, log.log_end_offset))


@READERS
def test_regression_a_tail_whose_records_were_replaced_raises(
    logs: tuple[Log, ReadableLog], is_owner: bool
) -> None:
    """The tail does not continue after the records that got the same offsets."""
    log = logs[0]
    tail = logs[not is_owner].tail("start", timeout=0)
    assert len(values(tail, 10)) == 10
    log.truncate_to(5)
    append(log, 10)
    with pytest.raises(OffsetOutOfRangeError, match="truncated"):
        next(tail)


@READERS
def test_regression_a_tail_that_waits_after_the_new_end_raises_at_once(
    logs: tuple[Log, ReadableLog], is_owner: bool
) -> None:
    """The tail does not wait until the log has its earlier length again."""
    log, caught, has_begun = logs[0], [], threading.Event()

    def follow() -> None:
        tail = logs[not is_owner].tail(9, timeout=60)
        try:
            for _ in tail:
                has_begun.set()
        except OffsetOutOfRangeError as error:
            caught.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    assert has_begun.wait(60)
    log.truncate_to(5)
    thread.join(30)
    assert not thread.is_alive() and len(caught) == 1


@READERS
def test_regression_a_tail_at_the_end_notes_a_truncation_before_its_first_record(
    logs: tuple[Log, ReadableLog], is_owner: bool
) -> None:
    """Otherwise, records after the call would be skipped, before the tail yields any."""
    log = logs[0]
    tail = logs[not is_owner].tail("end", timeout=0)
    log.truncate_to(5)
    if is_owner:
        append(log, 10)
    with pytest.raises(OffsetOutOfRangeError):
        next(tail)


@pytest.mark.parametrize(
    ("is_owner", "yielded"), [(True, 0), (True, 5), (True, 9), (True, 10), (False, 10)]
)
def test_a_truncation_after_the_place_of_a_tail_is_no_error(
    logs: tuple[Log, ReadableLog], is_owner: bool, yielded: int
) -> None:
    """The tail continues with new records; a view first yields the rest of its batch."""
    log = logs[0]
    tail = logs[not is_owner].tail("start", timeout=0)
    expected = [b"old %d" % number for number in range(yielded)]
    assert values(tail, yielded) == expected
    for name in (b"a", b"b"):
        log.truncate_to(yielded)
        append(log, 3, name)
    assert values(tail) == [b"b %d" % number for number in range(yielded, yielded + 3)]


def test_regression_a_truncation_at_the_place_of_a_tail_is_no_error(
    logs: tuple[Log, ReadableLog],
) -> None:
    """The pass ended at the shorter log, and the tail counted the dropped records as yielded."""
    log = logs[0]
    tail = log.tail("start", timeout=0)
    assert len(values(tail, 5)) == 5
    log.truncate_to(5)
    assert values(tail) == []


@READERS
def test_a_cut_that_a_tail_has_passed_rightly_does_not_count_later(
    logs: tuple[Log, ReadableLog], is_owner: bool
) -> None:
    """The records that the tail yielded after the cut are the new ones."""
    log = logs[0]
    tail = logs[not is_owner].tail("start", timeout=0.2)
    values(tail, 10)
    append(log, 2)
    log.truncate_to(10)
    append(log, 2)
    assert values(tail, 2) == [b"new 10", b"new 11"]
    append(log, 2)
    assert values(tail) == [b"new 12", b"new 13"]


@READERS
def test_the_lowest_of_several_truncations_counts(
    logs: tuple[Log, ReadableLog], is_owner: bool
) -> None:
    """This also holds if the last truncation was after the tail's offset."""
    log = logs[0]
    tail = logs[not is_owner].tail("start", timeout=0)
    values(tail, 10)
    log.truncate_to(3)
    append(log, 12)
    log.truncate_to(11)
    append(log, 3)
    with pytest.raises(OffsetOutOfRangeError):
        next(tail)


def test_a_truncation_within_the_records_of_one_append_is_noted(tmp_path: Path) -> None:
    """A tail finishes the batch that it has read, and raises before the next one."""
    with LogStore.open(tmp_path) as store:
        log = store.create("t", 0)
        log.extend([b"%d" % number for number in range(10)])
        tail = log.tail("start", timeout=0)
        values(tail, 3)
        log.truncate_to(5)
        append(log, 10)
        assert values(tail, 7) == [b"%d" % number for number in range(3, 10)]
        with pytest.raises(OffsetOutOfRangeError):
            next(tail)


@READERS
def test_retention_rolls_and_reopened_segments_are_no_truncation(
    tmp_path: Path, is_owner: bool
) -> None:
    """Files that are replaced by files with the same records do not end a tail."""
    with LogStore.open(tmp_path) as store, LogStore.open(tmp_path, read_only=True) as view:
        log = store.create("t", 0, config=SMALL)
        reader: ReadableLog = log if is_owner else view.log("t", 0)
        tail = reader.tail("start", timeout=0.2)
        for start in range(0, 200, 20):
            append(log, 20)
            assert values(tail, 20) == [b"new %d" % n for n in range(start, start + 20)]
            log.flush()
            log.delete_records_before(start + 15)
        log.repair()
        append(log, 1)
        assert values(tail) == [b"new 200"]


@READERS
def test_compaction_is_no_truncation(tmp_path: Path, is_owner: bool) -> None:
    """A tail continues although compaction removed the record that it yielded last."""
    with LogStore.open(tmp_path) as store, LogStore.open(tmp_path, read_only=True) as view:
        log = store.create("t", 0, config=COMPACTED)
        reader: ReadableLog = log if is_owner else view.log("t", 0)
        tail = reader.tail("start", timeout=0.2)
        for number in range(400):
            log.append(b"x" * 100, key=b"%d" % (number % 7))
        assert [record.offset for record in islice(tail, 150)] == list(range(150))
        report = log.compact()
        assert report.records_kept < report.records_read and report.is_complete
        later = [record.offset for record in tail]
        assert later[-1] == 399 and later[0] >= 150


def test_a_pass_that_a_truncation_ends_is_begun_again_at_the_next_record(tmp_path: Path) -> None:
    """No record is skipped, even with a high watermark inside a batch."""
    with LogStore.open(tmp_path) as store:
        log = store.create("t", 0)
        log.advance_high_watermark(0)
        log.extend([b"%d" % number for number in range(10)])
        append(log, 5, b"old")
        tail = log.tail("start", timeout=0, isolation_level="read_replicated")
        log.advance_high_watermark(3)
        assert values(tail, 3) == [b"0", b"1", b"2"]
        log.advance_high_watermark(12)
        assert values(tail, 2) == [b"3", b"4"]
        log.truncate_to(11)
        append(log, 3)
        log.advance_high_watermark(14)
        expected = [b"5", b"6", b"7", b"8", b"9", b"old 10", b"new 11", b"new 12", b"new 13"]
        assert values(tail) == expected


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 6)),
        st.tuples(st.just("truncate"), st.integers(0, 12)),
        st.tuples(st.just("read"), st.integers(1, 8)),
    ),
    max_size=30,
)


def test_a_tail_yields_the_log_or_raises(tmp_path: Path) -> None:
    """The tail raises exactly if a truncation dropped records that it had yielded."""
    with LogStore.open(tmp_path) as store:
        numbers = count()

        @given(STEPS)
        @settings(max_examples=40, deadline=None)
        def check(steps: list[tuple[str, int]]) -> None:
            log = store.create("t", next(numbers), config=SMALL)
            _compare(log, steps)

        check()


def _compare(log: Log, steps: list[tuple[str, int]]) -> None:
    """Take steps on a log, a tail and a list; each append is a batch, so no tail reads ahead."""
    tail, model, place, is_cut = log.tail("start", timeout=0), list[bytes](), 0, False
    for number, (step, size) in enumerate(steps):
        if step == "append":
            for _ in range(size):
                model.append(b"%d in step %d" % (len(model), number))
                log.append(model[-1])
        elif step == "truncate":
            offset = max(len(model) - size, 0)
            log.truncate_to(offset)
            del model[offset:]
            is_cut = is_cut or offset < place
        elif is_cut:
            with pytest.raises(OffsetOutOfRangeError):
                next(tail)
            return
        else:
            wanted = model[place : place + size]
            assert values(tail, len(wanted)) == wanted
            place += len(wanted)
