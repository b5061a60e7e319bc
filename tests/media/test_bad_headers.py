"""Lie in a header that a reader only steps over: what stands behind it is read all the same."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore import CorruptRecordBatchError, LogConfig, LogStore

BATCH_BYTES = 192
VALUES = [b"%d" % number * 100 for number in range(9)]


def stopped_log(root: Path) -> Path:
    """Write nine batches, then a second segment; stop, and give the first segment's path."""
    config = LogConfig(segment_bytes=9 * BATCH_BYTES)
    with LogStore.open(root) as store:
        log = store.create("orders", 0, config=config)
        for value in [*VALUES, b"next"]:
            log.append(value)
    return root / "orders-0" / f"{0:020d}.log"


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def length_to_the_end(path: Path) -> None:
    """Make batch 2 seem to reach exactly to the end of the segment."""
    overwrite(path, 2 * BATCH_BYTES + 8, struct.pack(">i", 7 * BATCH_BYTES - 12))


def length_over_two(path: Path) -> None:
    """Make batch 2 seem to cover batch 3 as well."""
    overwrite(path, 2 * BATCH_BYTES + 8, struct.pack(">i", 2 * BATCH_BYTES - 12))


def length_into_another(path: Path) -> None:
    """Make batch 2 seem to end inside batch 4."""
    overwrite(path, 2 * BATCH_BYTES + 8, struct.pack(">i", 2 * BATCH_BYTES + 40))


def base_offset_changed(path: Path) -> None:
    overwrite(path, 2 * BATCH_BYTES, struct.pack(">q", 1))


def first_batch_zeroed(path: Path) -> None:
    overwrite(path, 0, bytes(BATCH_BYTES))


def last_batch_zeroed(path: Path) -> None:
    overwrite(path, 8 * BATCH_BYTES, bytes(BATCH_BYTES))


LIES: dict[Callable[[Path], None], int] = {
    length_to_the_end: 2,
    length_over_two: 2,
    length_into_another: 2,
    base_offset_changed: 2,
    first_batch_zeroed: 0,
    last_batch_zeroed: 8,
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
@pytest.mark.parametrize("read_only", [False, True])
def test_regression_a_lying_header_hides_no_good_batch(
    tmp_path: Path, lie: Callable[[Path], None], read_only: bool
) -> None:
    """Batches behind a bad header were unreadable, or left out without a word."""
    path = stopped_log(tmp_path)
    lie(path)
    bad = LIES[lie]
    with LogStore.open(tmp_path, read_only=read_only) as store:
        log = store.log("orders", 0)
        for offset in range(9):
            if offset == bad:
                with pytest.raises(CorruptRecordBatchError):
                    log[offset]
                with pytest.raises(CorruptRecordBatchError):
                    log.read(offset)
            else:
                assert log[offset].value == VALUES[offset]
                assert log.read(offset, max_records=1)[0].value == VALUES[offset]
        found = []
        with pytest.raises(CorruptRecordBatchError):
            for record in log:
                found.append(record.value)
        assert found == VALUES[:bad]
        assert log[9].value == b"next"
