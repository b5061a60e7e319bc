"""The scrubber finds bit rot in cold batches, at its rate, and changes nothing."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore import Log, LogConfig, LogStore, StoreConfig
from logstore.disk import files
from logstore.format import layouts
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar import record_batch as columnar
from logstore.store.upkeep.keeper import DirKeeper
from logstore.store.upkeep.scrubber import OPEN_BYTES, QUIET_MS
from mover import ReplicaMover
from support.clock import Clock
from support.hanging import QUIET
from support.inside import keepers_of

HOUR_MS = 3_600_000
VALUE = b"v" * 1000
CONFIG = QUIET.replace(log_scrub_bytes_per_second=1 << 30, log_scrub_interval_ms=HOUR_MS)
OFF = QUIET.replace(log_scrub_bytes_per_second=0)
SMALL = LogConfig(segment_bytes=8192)


@pytest.fixture
def clock() -> Clock:
    """Make a clock that the test sets."""
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[LogStore]:
    """Open a store whose own keepers do not scrub."""
    with LogStore.open([tmp_path / "a", tmp_path / "b"], config=OFF, clock=clock) as opened:
        yield opened


def keeper_of(
    store: LogStore, clock: Clock, number: int = 0, config: StoreConfig = CONFIG
) -> DirKeeper:
    """Make a keeper without a thread for a log dir, after the first quiet minute."""
    log_dir = store.host.replicas.log_dirs[number]
    keeper = DirKeeper(log_dir, store.host.replicas, config, clock)
    clock.ms += QUIET_MS
    return keeper


def fill(store: LogStore, config: LogConfig = SMALL, records: int = 40) -> Log:
    """Make a log of several sealed segments, completely flushed."""
    log = store.create("orders", 0, log_dir=store.log_dirs[0], config=config)
    for _ in range(records):
        log.append(VALUE)
    log.flush()
    assert len(log._state.segments) > 3
    return log


def rot(log: Log, offset: int) -> tuple[str, int]:
    """Flip a bit of the value at `offset` on the disk; return the file and the batch's position."""
    segment = next(one for one in log._state.segments if one.base_offset <= offset < one.end_offset)
    size_bytes = segment.size_bytes // (segment.end_offset - segment.base_offset)
    position = size_bytes * (offset - segment.base_offset)
    with open(segment.log_path, "r+b") as file:
        file.seek(position + size_bytes // 2)
        byte = file.read(1)[0]
        file.seek(position + size_bytes // 2)
        file.write(bytes([byte ^ 1]))
    return segment.log_path, position


def cold_bytes(log: Log) -> int:
    """Return how many bytes a pass has to read."""
    return sum(segment.size_bytes for segment in log._state.segments[:-1])


@pytest.mark.parametrize("record_format", ["columnar", "kafka"])
def test_rot_is_reported_once_and_counted(
    store: LogStore, clock: Clock, caplog: pytest.LogCaptureFixture, record_format: str
) -> None:
    """Two flipped bits cause two warnings, in any number of passes; no record is removed."""
    log = fill(store, SMALL.replace(record_format=record_format))
    places = [rot(log, 3), rot(log, 17)]
    scrubber = keeper_of(store, clock).scrubber
    with caplog.at_level(logging.WARNING, "logstore"):
        scrubber.step()
        clock.ms += HOUR_MS
        scrubber.step()
    assert scrubber.passes == 2
    texts = sorted(record.getMessage() for record in caplog.records)
    assert len(texts) == 2
    for text, (path, position) in zip(texts, places, strict=True):
        assert f"rot in {path} at position {position}," in text
        assert "'logstore verify orders 0'" in text
        assert "'logstore repair orders 0'" in text
    row = store.metrics().log_dirs[0]
    assert (row.state, row.corrupt_batches) == ("online", 2)
    assert row.scrubbed_bytes == 2 * cold_bytes(log)
    assert log.log_end_offset == 40
    assert log.append(VALUE) == 40
    assert log[39].value == VALUE


def test_sound_logs_give_no_word(
    store: LogStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """A pass reads the sealed segments once, and then it rests."""
    log = fill(store)
    scrubber = keeper_of(store, clock).scrubber
    for _ in range(3):
        scrubber.step()
    assert not caplog.records
    assert store.metrics().log_dirs[0].scrubbed_bytes == cold_bytes(log)
    assert scrubber.passes == 1


def test_the_minute_after_the_start_is_left_alone(store: LogStore, clock: Clock) -> None:
    """Nothing is read before the dir has been open for a minute."""
    fill(store)
    scrubber = keeper_of(store, clock).scrubber
    clock.ms -= 1
    scrubber.step()
    assert store.metrics().log_dirs[0].scrubbed_bytes == 0


def test_the_rate_is_kept(store: LogStore, clock: Clock) -> None:
    """Steps read what a second allows; if one reads too much, the next ones read less."""
    rate = 10_000
    log = fill(store, LogConfig(segment_bytes=32_000), records=150)
    config = CONFIG.replace(log_scrub_bytes_per_second=rate)
    scrubber = keeper_of(store, clock, config=config).scrubber
    steps = 0
    while not scrubber.passes:
        scrubber.step()
        steps += 1
        read = store.metrics().log_dirs[0].scrubbed_bytes
        assert read <= steps * rate + 32_000
    assert read == cold_bytes(log)
    assert steps >= read // rate


def test_zero_turns_it_off(store: LogStore, clock: Clock) -> None:
    """With a rate of 0, the keeper does not scrub."""
    assert "scrub" not in keeper_of(store, clock, config=OFF)._due
    assert "scrub" in keeper_of(store, clock, config=StoreConfig())._due


def test_the_keeper_scrubs(store: LogStore, clock: Clock) -> None:
    """Scrubbing is one of the keeper's duties."""
    log = fill(store)
    keeper_of(store, clock).run_one("scrub")
    assert store.metrics().log_dirs[0].scrubbed_bytes == cold_bytes(log)


def test_what_is_not_flushed_is_not_read(store: LogStore, clock: Clock) -> None:
    """Sealed segments that may be only in memory are left to the flush."""
    log = fill(store)
    before = cold_bytes(log)
    for _ in range(20):
        log.append(VALUE)
    keeper_of(store, clock).scrubber.step()
    assert before <= store.metrics().log_dirs[0].scrubbed_bytes < cold_bytes(log)


@pytest.mark.parametrize("how", ["truncated", "retained", "deleted", "vanished"])
def test_a_segment_that_goes_under_it(
    store: LogStore, clock: Clock, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """If a segment is cut or removed, a running check of it ends."""
    log = store.create(
        "orders", 0, log_dir=store.log_dirs[0], config=LogConfig(segment_bytes=4 << 20)
    )
    for _ in range(14):
        log.append(bytes(700_000))
    log.flush()
    config = CONFIG.replace(log_scrub_bytes_per_second=OPEN_BYTES + 1)
    keeper = keeper_of(store, clock, config=config)
    scrubber = keeper.scrubber
    scrubber.step()
    check = scrubber._check
    assert check is not None
    assert 0 < check._scan.position < check._end
    if how == "truncated":
        log.truncate_to(check._segment.base_offset + 1)
    elif how == "retained":
        log.delete_records_before(log.log_end_offset)
        log.apply_retention()
    elif how == "deleted":
        store.delete("orders", 0)
        assert keepers_of(store)[store.log_dirs[0]].wait_idle()
    else:
        os.unlink(check.path)
    for _ in range(3000):
        keeper.run_one("scrub")
    assert scrubber.passes == 1
    assert not [one for one in caplog.records if "rot" in one.getMessage()]
    assert store.metrics().log_dirs[0].state == "online"


def test_what_is_read_of_a_dropped_segment_is_no_rot(
    store: LogStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that are read while a segment is being dropped are not reported."""
    log = fill(store)
    scrubber = keeper_of(store, clock).scrubber
    segments = log._state.segments

    def drop(fd: int, size_bytes: int, position: int) -> bytes:
        for segment in segments:
            segment.is_dropped = True
        return bytes(size_bytes)

    with monkeypatch.context() as patch:
        patch.setattr(files, "read_up_to", drop)
        scrubber.step()
    for segment in segments:
        segment.is_dropped = False
    assert store.metrics().log_dirs[0].corrupt_batches == 0


def test_a_disk_that_fails_goes_offline(
    store: LogStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An EIO takes the log dir offline, as anywhere; the other log dir still serves."""
    log = fill(store)
    keeper = keeper_of(store, clock)

    def fail(fd: int, size_bytes: int, position: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(files, "read_up_to", fail)
        keeper.run_one("scrub")
    assert [row.state for row in store.metrics().log_dirs] == ["offline", "online"]
    assert log.log_dir == store.log_dirs[0]


def test_a_moved_replica_goes_first(
    store: LogStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """After a move, the next step reads the replica from the disk, with its last segment."""
    log = fill(store)
    scrubber = keeper_of(store, clock, 1).scrubber
    scrubber.step()
    assert scrubber.passes == 1  # of an empty dir: it rests now
    with ReplicaMover(store) as mover:
        mover.move("orders", 0, store.log_dirs[1]).wait()
    path, position = rot(log, 39)
    assert path.startswith(store.log_dirs[1])
    scrubber.step()
    row = store.metrics().log_dirs[1]
    assert row.scrubbed_bytes == log.size_bytes
    assert row.corrupt_batches == 1
    assert f"rot in {path} at position {position}," in caplog.text
    clock.ms += HOUR_MS
    scrubber.step()
    assert store.metrics().log_dirs[1].corrupt_batches == 1


def test_a_log_that_moves_away_is_left_to_the_other(store: LogStore, clock: Clock) -> None:
    """If the log has moved to another log dir, its check ends."""
    log = fill(store)
    scrubber = keeper_of(store, clock).scrubber
    scrubber._step_bytes = OPEN_BYTES + 1
    scrubber.step()
    read = store.metrics().log_dirs[0].scrubbed_bytes
    with ReplicaMover(store) as mover:
        mover.move("orders", 0, store.log_dirs[1]).wait()
    scrubber._step_bytes = 1 << 30
    scrubber.step()
    scrubber.step()
    assert store.metrics().log_dirs[0].scrubbed_bytes == read
    assert log.log_dir == store.log_dirs[1]


@pytest.mark.parametrize(
    ("value_bytes", "batches_max"),
    [(16, 32), (8 << 10, 32), (64 << 10, 15), (600_000, 1), (3 << 20, 1)],
)
def test_other_threads_get_their_turn(
    store: LogStore,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    value_bytes: int,
    batches_max: int,
) -> None:
    """Other threads run after at most 1 MiB and 32 batches, or after one longer batch.

    Every read and every nap of a scan lets them run; what it checks in between is counted.
    """
    size_bytes = len(columnar.frame_one(0, 0, 0, bytes(value_bytes)))
    count = 2 * batches_max + 1
    log = store.create(
        "big",
        0,
        log_dir=store.log_dirs[0],
        config=LogConfig(segment_bytes=size_bytes * count),
    )
    for _ in range(count + 1):
        log.append(bytes(value_bytes))
    log.flush()
    keeper = keeper_of(store, clock)
    turns, read, checked = [0], files.pread, layouts.sound_header_of

    def pread(fd: int, wanted_bytes: int, position: int) -> bytes:
        turns.append(0)
        return read(fd, wanted_bytes, position)

    def sound_header_of(data: memoryview, at: int) -> Callable[..., BatchHeader | None]:
        sound_header = checked(data, at)

        def count_one(*arguments: Any) -> BatchHeader | None:
            header: BatchHeader | None = sound_header(*arguments)
            turns[-1] += header is not None
            return header

        return count_one

    monkeypatch.setattr(time, "sleep", lambda seconds: turns.append(0))
    monkeypatch.setattr(files, "pread", pread)
    monkeypatch.setattr(layouts, "sound_header_of", sound_header_of)
    keeper.scrubber.step()
    assert sum(turns) == count
    assert max(turns) == batches_max
    assert batches_max * size_bytes <= 1 << 20 or batches_max == 1
