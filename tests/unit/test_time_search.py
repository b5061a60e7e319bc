"""The first record at or after a point in time is found, in whatever order the times stand."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from logstore import LogConfig, LogStore


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
            assert log.offset_for_timestamp(at) == expected(at, 77)
    with LogStore.open(tmp_path / "logs") as store:
        for at in probes:
            assert store.log("orders", 0).offset_for_timestamp(at) == expected(at, 77)


def test_an_empty_log_has_no_time(tmp_path: Path) -> None:
    """None, and a time that is no number is refused."""
    with LogStore.open(tmp_path / "logs") as store:
        log = store.create("orders", 0)
        assert log.offset_for_timestamp(0) is None
        for at in (1.5, "1", None):
            with pytest.raises(TypeError):
                log.offset_for_timestamp(at)  # type: ignore[arg-type]


def test_the_largest_time_is_known(tmp_path: Path) -> None:
    """Over all segments, in whatever order; -1 without a record."""
    with LogStore.open(tmp_path / "logs") as store:
        log = store.create("orders", 0, config=LogConfig(segment_bytes=1024))
        assert log.largest_timestamp == -1
        for time in (5, 900, 17):
            log.extend([b"x" * 700], timestamps=time)
        assert log.largest_timestamp == 900
