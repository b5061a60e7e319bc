"""Retention drops whole segments by age and size; readers continue or get an error."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from logstore import Log, LogConfig, LogStore
from logstore.errors import OffsetOutOfRangeError
from support.clock import NOW_MS, Clock
from support.kafka_client import batch_of

BATCH_BYTES = 88 + 104


def filled(store: LogStore, clock: Clock, **config: Any) -> Log:
    """Make a log of five segments of two records; a second lies between two records."""
    log = store.create("orders", 0, config=LogConfig(segment_bytes=2 * BATCH_BYTES, **config))
    for number in range(10):
        log.append(b"%d" % number + bytes(100))
        clock.ms += 1000
    assert names(log) == [0, 2, 4, 6, 8]
    return log


def names(log: Log) -> list[int]:
    """Return the base offsets of the existing segment files."""
    return sorted(int(name[:20]) for name in os.listdir(log.directory) if name.endswith(".log"))


def numbers(log: Log) -> list[int]:
    """Return the numbers of the existing records."""
    return [int((record.value or b"").strip(b"\0")) for record in log]


def test_nothing_goes_without_a_limit(store: LogStore, clock: Clock) -> None:
    """Records of any age stay."""
    log = filled(store, clock)
    clock.ms += 10**12
    assert log.apply_retention() == 0
    assert numbers(log) == list(range(10))


def test_what_is_older_goes_segment_by_segment(store: LogStore, clock: Clock) -> None:
    """The latest record of a segment decides; the active segment always stays."""
    log = filled(store, clock, retention_ms=10_000)
    assert log.apply_retention() == 0
    clock.ms += 1000
    assert log.apply_retention() == 0  # its last record is 10 s old to the millisecond
    clock.ms += 1
    assert log.apply_retention() == 1
    assert (log.log_start_offset, names(log)) == (2, [2, 4, 6, 8])
    assert numbers(log) == list(range(2, 10))
    clock.ms += 10**9
    assert log.apply_retention() == 3
    assert (numbers(log), names(log)) == ([8, 9], [8])
    assert log.apply_retention() == 0


def test_a_young_record_keeps_its_segment_and_those_behind(store: LogStore, clock: Clock) -> None:
    """Segments are dropped from the log start on, never from the middle."""
    log = store.create(
        "orders", 0, config=LogConfig(segment_bytes=2 * BATCH_BYTES, retention_ms=1000)
    )
    for time in (NOW_MS, 0, 0, 0, 0):
        log.append(bytes(104), timestamp=time)
    assert log.apply_retention() == 0
    clock.ms += 2000
    assert log.apply_retention() == 2


def test_what_is_too_much_goes(store: LogStore, clock: Clock) -> None:
    """Segments are dropped while the rest still has `retention_bytes`."""
    log = filled(store, clock, retention_bytes=4 * BATCH_BYTES)
    assert log.apply_retention() == 3
    assert log.size_bytes == 4 * BATCH_BYTES
    assert numbers(log) == [6, 7, 8, 9]


def test_what_went_stays_away(tmp_path: Path, clock: Clock) -> None:
    """This holds after a reopening, too, and the offsets continue."""
    with LogStore.open(tmp_path / "logs", clock=clock) as store:
        log = filled(store, clock, retention_bytes=4 * BATCH_BYTES)
        log.apply_retention()
        log.delete_records_before(7)
    with LogStore.open(tmp_path / "logs", clock=clock) as store:
        log = store.log("orders", 0)
        assert (log.log_start_offset, log.log_end_offset, len(log)) == (7, 10, 3)
        assert numbers(log) == [7, 8, 9]
        assert log.append(b"10") == 10
        assert log.verify() == []


def test_deleting_up_to_an_offset_hides_the_rest_of_its_segment(
    store: LogStore, clock: Clock
) -> None:
    """Only whole segments free disk space; at the log end, no record is left to read."""
    log = filled(store, clock)
    log.delete_records_before(5)
    assert (log.log_start_offset, names(log)) == (5, [4, 6, 8])
    for offset in (0, 4):
        for read in (log.read, log.read_raw, log.read_batches, log.__getitem__):
            with pytest.raises(OffsetOutOfRangeError) as caught:
                read(offset)
            assert (caught.value.log_start_offset, caught.value.log_end_offset) == (5, 10)
    assert log.offset_for_timestamp(0) == 5
    assert numbers(log) == [5, 6, 7, 8, 9]
    log.delete_records_before(3)  # before the start: nothing to do
    assert log.log_start_offset == 5
    log.delete_records_before(10)
    assert (len(log), list(log), log.read(10)) == (0, [], [])
    assert log.append(b"10") == 10


@pytest.mark.parametrize("offset", [-1, 11, 2**70])
def test_offsets_outside_are_refused(store: LogStore, clock: Clock, offset: int) -> None:
    """Nothing is deleted."""
    log = filled(store, clock)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records_before(offset)
    with pytest.raises(TypeError):
        log.delete_records_before(1.5)  # type: ignore[arg-type]
    assert numbers(log) == list(range(10))


def test_a_reader_whose_records_went_is_told(store: LogStore, clock: Clock) -> None:
    """The reader gets an error when it reaches the gap: no record is skipped silently."""
    log = filled(store, clock)
    reader = iter(log)
    seen = [next(reader).offset]
    log.delete_records_before(6)
    with pytest.raises(OffsetOutOfRangeError):
        for record in reader:
            seen.append(record.offset)
    assert seen == list(range(len(seen)))


def test_a_reader_behind_what_went_goes_on(store: LogStore, clock: Clock) -> None:
    """The reader does not notice the deletion."""
    log = filled(store, clock)
    reader = iter(log[6:])
    assert next(reader).offset == 6
    log.delete_records_before(6)
    assert [record.offset for record in reader] == [7, 8, 9]


def test_leader_epochs_begin_with_the_log(store: LogStore) -> None:
    """The epoch that contains the new log start begins there."""
    log = store.create("orders", 0, config=LogConfig(segment_bytes=2 * BATCH_BYTES))
    for epoch in range(3):
        log.leader_epoch = epoch
        log.extend([bytes(104)])
        log.append(bytes(104))
    log.delete_records_before(3)
    assert log._state.replication.epochs.entries == [(1, 3), (2, 4)]


def test_a_log_that_is_only_compacted_keeps_what_is_old(store: LogStore, clock: Clock) -> None:
    """The cleanup policy decides, even if it changes while the log is in use."""
    log = filled(store, clock, retention_ms=10_000)
    store.set_config("orders", 0, {"cleanup_policy": "compact"})
    clock.ms += 10**9
    assert log.apply_retention() == 0
    store.set_config("orders", 0, {"cleanup_policy": "compact,delete"})
    assert log.apply_retention() == 4


def test_regression_records_without_a_timestamp_stay_as_long_as_others(tmp_path: Path) -> None:
    """Their time is that of the last write to the file, as in Kafka; they counted as very old."""
    config = LogConfig(segment_bytes=2 * BATCH_BYTES, retention_ms=10_000, record_format="kafka")
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=config)
        for _ in range(6):
            log.append_encoded(batch_of(bytes(60), timestamp=-1))
        count = len(names(log))
        assert count > 1 and log.apply_retention() == 0
        for name in names(log):
            os.utime(os.path.join(log.directory, f"{name:020}.log"), (0, 0))
        assert log.apply_retention() == count - 1
