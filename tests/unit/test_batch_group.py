"""Several batches are appended in few writes: all of them or none, whatever fails."""

from __future__ import annotations

import errno
import linecache
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from logstore import Log, LogConfig, LogStore
from logstore.disk import files
from logstore.errors import LogDirError, LogDirFullError, LogStoreError
from logstore.format import layouts
from logstore.format.columnar import record_batch as columnar
from logstore.format.columnar.payload import LOG_APPEND_TIME
from logstore.format.kafka import record_batch as kafka
from logstore.log.encoded import leader_appends
from logstore.log.encoded.raw_batches import parse
from logstore.log.write import batch_group
from support.hanging import QUIET
from support.hostile import column, columnar_batch, kafka_batch, row
from support.interrupts import WRITING, InterruptAt
from support.places import fast_directory

BATCH = 144  # bytes of one of `batches`


def batches(count: int, first: int = 0) -> bytes:
    """Make columnar batches of one record each."""
    cells = [b"record %20d" % number + bytes(28) for number in range(first, first + count)]
    data = b"".join(columnar_batch(column([cell]), 1) for cell in cells)
    assert len(data) == BATCH * count
    return data


# Every line near the beginning is interrupted, then every so many; all of them in `make crash`.
DENSE, STEP = (10**6, 1) if "LOGSTORE_HISTORIES" in os.environ else (40, 7)
# Segments of 8 batches; the active one has 3. So many fit, need a roll first, or need more.
PLANS = {"the active segment takes all": 4, "a new segment takes all": 7, "many segments": 20}


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a directory in memory, so that the test does not wait for a disk."""
    with fast_directory() as path:
        yield Path(path)


def begin(store: LogStore) -> Log:
    """Return a log with three batches in its active segment."""
    log = store.create("t", 0, config=LogConfig(segment_bytes=8 * BATCH, index_interval_bytes=256))
    log.append_encoded(batches(3))
    log.flush()
    return log


def state(log: Log) -> tuple[Any, ...]:
    """Return the state of a log, in memory and on the disk."""
    sizes = {
        name: os.path.getsize(os.path.join(log.directory, name))
        for name in os.listdir(log.directory)
        if name.endswith(".log") and os.path.getsize(os.path.join(log.directory, name))
    }
    return [record.value for record in log], log.log_end_offset, sizes


@pytest.mark.parametrize("count", PLANS.values(), ids=PLANS)
def test_one_write_a_segment(place: Path, count: int) -> None:
    """All batches can be read again, also after a reopening."""
    calls: Any = []
    with LogStore.open(place, config=QUIET) as store:
        log = begin(store)
        real = files.pwritev
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "pwritev", lambda *a: calls.append(1) or real(*a))
            assert log.append_encoded(batches(count, 3)) == range(3, 3 + count)
        assert len(calls) == (1 if count < 8 else 3)
        expected, verified = state(log), log.verify()
        assert len(expected[0]) == 3 + count and verified == []
        assert all(log[at].value == value for at, value in enumerate(expected[0]))
    with LogStore.open(place, config=QUIET) as store:
        assert state(store.log("t", 0)) == expected


@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EIO, errno.EMFILE, None], ids=str)
@pytest.mark.parametrize("is_short", [False, True])
@pytest.mark.parametrize("count", PLANS.values(), ids=PLANS)
def test_regression_encoded_batches_are_all_or_nothing(
    count: int, is_short: bool, kind: int | None
) -> None:
    """With a full disk at the second batch, the first stayed, but the error said that none did."""
    nth, was_hit = 0, True
    while was_hit:
        nth += 1
        with fast_directory() as path, LogStore.open(path, config=QUIET) as store:
            log = begin(store)
            before, is_done = state(log), False
            with pytest.MonkeyPatch.context() as patch:
                fails = FailingCall(patch, nth, kind, is_short)
                try:
                    log.append_encoded(batches(count, 3))
                    is_done = True
                except LogDirFullError as error:
                    assert error.retriable
                except (LogDirError, KeyboardInterrupt):
                    pass
            was_hit = fails.was_hit
            if log._state.log_dir.is_offline:
                assert kind == errno.EIO
                continue
            if not is_done:
                assert state(log) == before
                log.append_encoded(batches(count, 3))
            assert len(log) == 3 + count and log.verify() == []
            assert log.append(b"next") == 3 + count and log[3 + count].value == b"next"
    assert nth > 1


class FailingCall:
    """Let the nth call that writes or opens fail; a write first writes some bytes."""

    def __init__(
        self, patch: pytest.MonkeyPatch, nth: int, kind: int | None, is_short: bool
    ) -> None:
        self.left, self.kind, self.is_short, self.was_hit = nth, kind, is_short, False
        for name in ("pwritev", "pwrite", "open_file"):
            patch.setattr(files, name, self._failing(getattr(files, name), name))

    def _failing(self, real: Any, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self.left -= 1
            if self.left:
                return real(*arguments)
            self.was_hit = True
            if name == "pwritev" and self.is_short:
                fd, buffers, position = arguments
                data = b"".join(buffers)
                os.pwrite(fd, data[: len(data) // 2], position)
            if self.kind is None:
                raise KeyboardInterrupt
            raise OSError(self.kind, os.strerror(self.kind))

        return call


@pytest.mark.parametrize("count", PLANS.values(), ids=PLANS)
def test_regression_an_interrupt_leaves_all_or_nothing(count: int) -> None:
    """After an interrupt at any line, readers, the disk and the next append agree."""
    number, was_hit, seen = 0, True, set()
    while was_hit:
        number += 1 if number < DENSE else STEP
        with fast_directory() as path:
            with LogStore.open(path, config=QUIET) as store:
                log = begin(store)
                before = state(log)
                with (
                    suppress(KeyboardInterrupt),
                    InterruptAt(number, batch_group, leader_appends, *WRITING) as it,
                ):
                    log.append_encoded(batches(count, 3))
                was_hit = it.was_hit
                seen.add(len(log))
                assert len(log) in (3, 3 + count), number
                assert len(log) != 3 or state(log) == before, number
                end = log.log_end_offset
                assert log.append(b"next", durable=True) == end
                log.append_encoded(batches(count, 3))
                assert len(list(log)) == end + 1 + count and log.verify() == [], number
                expected = state(log)
            with LogStore.open(path, config=QUIET) as store:
                assert state(store.log("t", 0)) == expected
    assert seen == {3, 3 + count}


class BetweenTwoRounds:
    """A tracer that interrupts once, when a loop begins its next round."""

    def __init__(self) -> None:
        self.rounds = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        return self._line if frame.f_code.co_filename == batch_group.__file__ else None

    def _line(self, frame: FrameType, event: str, _: object) -> Any:
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        self.rounds += event == "line" and text == "state.half_made = ()"
        if self.rounds == 1 and text == "try:":
            raise KeyboardInterrupt
        return self._line


@pytest.mark.parametrize("count", PLANS.values(), ids=PLANS)
def test_regression_a_second_interrupt_leaves_no_half(
    place: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The interrupt came between two rounds of the loop, and the log became unusable."""
    real, left = batch_group._publish, list[type[BaseException]]()

    def publish(*arguments: Any) -> None:
        real(*arguments)
        if left:
            raise left.pop()

    monkeypatch.setattr(batch_group, "_publish", publish)
    with LogStore.open(place, config=QUIET) as store:
        log = begin(store)
        left[:] = [KeyboardInterrupt]
        outer, tracer = sys.gettrace(), BetweenTwoRounds()
        sys.settrace(tracer)
        try:
            with pytest.raises(KeyboardInterrupt):
                log.append_encoded(batches(count, 3))
        finally:
            sys.settrace(outer)
        assert not left and tracer.rounds == 1 and len(log) == 3 + count
        assert log.append(b"next", durable=True) == 3 + count and log.verify() == []


def test_a_failed_follower_fetches_the_same_again(place: Path) -> None:
    """Batches that a follower appends are also written all or none."""
    with LogStore.open(place, config=QUIET) as store:
        leader = begin(store)
        leader.append_encoded(batches(20, 3))
        raw = b"".join(leader.read_raw(at, BATCH) for at in range(23))
        log = store.create("t", 1, config=LogConfig(segment_bytes=8 * BATCH))
        real, left = files.pwritev, 2

        def pwritev(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if not left:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "pwritev", pwritev)
            with pytest.raises(LogStoreError):
                log.append_as_follower(raw)
        assert len(log) == 0
        assert log.append_as_follower(raw) == range(23)
        assert state(log)[0] == state(leader)[0] and log.verify() == []


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("record_format", ["columnar", "kafka"])
def test_regression_log_append_time_holds_for_encoded_batches(
    place: Path, record_format: str, codec: str
) -> None:
    """The batches kept the timestamps of their sender."""
    with LogStore.open(place, config=QUIET) as store:
        config = LogConfig(record_format=record_format, compression_type=codec)
        source = store.create("source", 0, config=config)
        source.extend([b"a" * 50, None] * 9, keys=[b"k"] * 18, timestamps=list(range(18)))
        source.extend([b"b"], timestamps=7, headers=[{"h": b"v"}])
        raw = source.read_raw(0)
        late = config.replace(message_timestamp_type="LogAppendTime")
        log = store.create("late", 0, config=late)
        before = log._state.now_ms()
        log.append_encoded(raw)
        times = {record.timestamp for record in log}
        assert min(times) >= before and len(times) <= 2
        assert [tuple(each)[2:5] for each in log] == [tuple(each)[2:5] for each in source]
        assert log.verify() == [] and log.offset_for_timestamp(before) == 0
        for data, header in parse(log.read_raw(0)):
            assert header.attributes & LOG_APPEND_TIME
            assert layouts.fault(bytes(data), 0, None) is None
        assert {batch.header.max_timestamp for batch in log.read_batches()} == times


def test_batches_of_two_layouts_begin_segments(place: Path) -> None:
    """A segment has one layout, so the group continues after a roll."""
    with LogStore.open(place, config=QUIET) as store:
        log = store.create("t", 0)
        raw = columnar_batch(column([b"a"]), 1) + kafka_batch(row(b"b"), 1)
        assert log.append_encoded(raw + columnar_batch(column([b"c"]), 1)) == range(3)
        assert [record.value for record in log] == [b"a", b"b", b"c"]
        assert [segment.base_offset for segment in log._state.segments] == [0, 1, 2]
        assert log.append(b"d") == 3 and log.verify() == []
    assert columnar.MAGIC != kafka.MAGIC
