"""NumPy's whole numbers are accepted as offsets, like Python's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from logstore import LogConfig, LogStore


def test_regression_small_whole_numbers_do_not_wrap_round(tmp_path: Path) -> None:
    """A byte times the size of a cell overflowed, and another record's bytes were returned."""
    values = [b"%04d" % number for number in range(1000)]
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        log.extend(values)
        for offset in (np.uint8(200), np.int8(100), np.int16(999), np.uint64(7)):
            for _ in range(2):
                record = log.record_at(offset)  # type: ignore[arg-type]
                assert record.value == values[offset] and type(record.offset) is int
        part = log[200:]
        assert part[np.uint8(100)].value == values[300]  # type: ignore[call-overload]
        with pytest.raises(TypeError):
            log.record_at(1.0)  # type: ignore[arg-type]


def test_regression_a_view_finds_times_that_came_before_a_roll(tmp_path: Path) -> None:
    """Records that came between the last look and a roll were skipped."""
    config = LogConfig(segment_bytes="1MiB", max_message_bytes="1MiB")
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=config)
        log.append(b"a", timestamp=10)
        with LogStore.open(tmp_path, read_only=True) as beside:
            view = beside.log("orders", 0)
            assert view[0].value == b"a"
            log.append(b"b", timestamp=1000)
            log.append(bytes(1_048_480), timestamp=2000)
            log.append(b"c", timestamp=3000)
            assert view.offset_for_timestamp(500) == log.offset_for_timestamp(500) == 1
