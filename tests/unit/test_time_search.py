"""The first record at or after a point in time is found, in whatever order the times stand."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from logstore import LogConfig, LogStore
from logstore.disk import files
from logstore.log.host import segments_of
from support.kafka_client import batch_of
from support.producers import sent


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_times_in_any_order_are_found(tmp_path: Path, codec: str) -> None:
    """As a search through all of them would; while appending, after deletions and an opening."""
    config = LogConfig(segment_bytes=2048, index_interval_bytes=256, compression_type=codec)
    rng = random.Random(7)
    times = [rng.randrange(1000) for _ in range(200)]
    probes = [-5, 0, *rng.sample(range(1000), 60), 999, 1000, 2**62]

    def expected(at: int, start: int) -> int | None:
        return next((n for n in range(start, 200) if times[n] >= at), None)

    with LogStore.open(tmp_path / "logs") as store:
        log = store.create("orders", 0, config=config)
        for number in range(0, 200, 5):
            log.extend([b"x" * 9] * 4, timestamps=times[number : number + 4])
            log.append(b"x", timestamp=times[number + 4])
        for at in probes:
            assert log.offset_for_timestamp(at) == expected(at, 0)
        log.delete_records_before(77)
        for at in probes:
            offset = expected(at, 77)
            assert log.offset_for_timestamp(at) == offset
            found = None if offset is None else (times[offset], offset)
            assert log.first_record_at(at) == found
    with LogStore.open(tmp_path / "logs") as store:
        for at in probes:
            assert store.log("orders", 0).offset_for_timestamp(at) == expected(at, 77)


def test_an_empty_log_has_no_time(tmp_path: Path) -> None:
    """None, and a time that is no number is refused."""
    with LogStore.open(tmp_path / "logs") as store:
        log = store.create("orders", 0)
        assert log.offset_for_timestamp(0) is None is log.first_record_at(0)
        for at in (1.5, "1", None):
            with pytest.raises(TypeError):
                log.offset_for_timestamp(at)  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                log.first_record_at(at)  # type: ignore[arg-type]


@pytest.mark.parametrize("record_format", ["columnar", "kafka"])
def test_the_latest_record_is_found(tmp_path: Path, record_format: Any) -> None:
    """As in a list of all records: the first one with the largest time, from the log start on."""
    config = LogConfig(segment_bytes=2048, index_interval_bytes=256, record_format=record_format)
    rng = random.Random(11)
    times = [rng.randrange(100) for _ in range(300)]

    def expected(start: int) -> tuple[int, int]:
        latest = max(times[start:])
        return latest, times.index(latest, start)

    with LogStore.open(tmp_path / "logs") as store:
        log = store.create("orders", 0, config=config)
        assert log.latest_record() is None
        for number in range(0, 300, 5):
            log.extend([b"x" * 9] * 4, timestamps=times[number : number + 4])
            log.append(b"x", timestamp=times[number + 4])
        for start in (0, 1, *sorted(rng.sample(range(2, 299), 40)), 299):
            log.delete_records_before(start)
            assert log.latest_record() == expected(start)
        log.delete_records_before(300)
        assert log.latest_record() is None
        log.extend([b"x"] * 3, timestamps=7)
        assert log.latest_record() == (7, 300)


def test_regression_the_latest_record_is_no_marker(tmp_path: Path) -> None:
    """Markers have the broker's time; the latest record may be in any segment before them."""
    config = LogConfig(record_format="kafka", segment_bytes=1024, index_interval_bytes=64)
    with LogStore.open(tmp_path / "logs") as store:
        log = store.create("orders", 0, config=config)
        untimed = batch_of(b"x", timestamp=-1)  # as old clients send it
        log.append_encoded(sent(7, 0, transactional=True))
        log.append_marker(7, 0, commit=True, coordinator_epoch=0)
        (first,) = log.read(0)
        assert log.latest_record() == (first.timestamp, 0)
        log.append_encoded(untimed)
        latest = log.extend([b"x" * 100] * 2, timestamps=[first.timestamp + 5] * 2).start
        log.extend([b"x" * 100] * 20, timestamps=first.timestamp + 4)
        for number in range(1, 60):
            log.append_encoded(sent(7, number, transactional=True))
            log.append_marker(7, 0, commit=number % 2 == 0, coordinator_epoch=0)
        assert len(segments_of(log)) > 3
        assert log.latest_record() == (first.timestamp + 5, latest)
    with LogStore.open(tmp_path / "logs") as store:
        log = store.log("orders", 0)
        assert log.latest_record() == (first.timestamp + 5, latest)
        log.truncate_to(3)
        assert log.latest_record() == (first.timestamp, 0)
        log.delete_records_before(2)
        assert log.latest_record() is None  # the last record has no time


def test_only_the_end_is_read_for_the_latest_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the times rise, the end of the last segment is enough, even if a marker is there."""
    with LogStore.open(tmp_path / "logs") as store:
        log = store.create("orders", 0, config=LogConfig(record_format="kafka"))
        for number in range(3000):
            log.append(b"x" * 1000, timestamp=number)
        log.append_encoded(sent(7, 0, transactional=True))
        (record,) = log.read(3000)
        log.append_marker(7, 0, commit=True, coordinator_epoch=0)
        read_bytes: list[int] = []
        read_up_to = files.read_up_to

        def counted(fd: int, size: int, position: int) -> bytes:
            read_bytes.append(size)
            return read_up_to(fd, size, position)

        monkeypatch.setattr(files, "read_up_to", counted)
        assert log.latest_record() == (record.timestamp, 3000)
        assert sum(read_bytes) < 200_000
