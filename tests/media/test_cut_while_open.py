"""Cut a segment's file while its log is open: readers get an error, never wait for ever."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from logstore import CorruptRecordBatchError, LogStore
from logstore.log.segments.scan import Scan


@pytest.mark.timeout(20)
@pytest.mark.parametrize("left", [0, 5, 17, 100, 192, 200, 1000])
def test_regression_a_file_cut_by_others_ends_a_read_with_an_error(
    tmp_path: Path, left: int
) -> None:
    """Reading ran for ever when a file was shorter than the log knew it to be."""
    with contextlib.suppress(CorruptRecordBatchError), LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        for number in range(10):
            log.append(b"%d" % number * 100)
        path = tmp_path / "orders-0" / f"{0:020d}.log"
        with path.open("r+b") as file:
            file.truncate(left)
        found = []
        with pytest.raises(CorruptRecordBatchError):
            for record in log:
                found.append(record.value)
        assert found == [b"%d" % number * 100 for number in range(left // 192)]
    with LogStore.open(tmp_path) as store:
        assert [r.value for r in store.log("orders", 0).read(0)[: left // 192]] == found


@pytest.mark.timeout(20)
@pytest.mark.parametrize("max_bytes", [1, 16, 17, 18, 191, 192, 193])
def test_regression_a_small_max_bytes_gives_one_batch(tmp_path: Path, max_bytes: int) -> None:
    """Reading ran for ever when asked for fewer bytes than a prefix has."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        for _ in range(3):
            log.append(bytes(100))
        assert len(log.read_raw(1, max_bytes)) == 192
        assert [r.offset for r in log.read(1, max_bytes=max_bytes)][0] == 1


@pytest.mark.timeout(20)
@pytest.mark.parametrize("left", [0, 5, 192, 200])
def test_regression_a_walk_over_a_file_cut_by_others_ends(tmp_path: Path, left: int) -> None:
    """Walking ran for ever when a file was shorter than the walk was told."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        for _ in range(3):
            log.append(bytes(100))
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    with path.open("r+b") as file:
        file.truncate(left)
        scan = Scan(0)
        assert scan.run(file.fileno(), 3 * 192) is not None
        assert scan.position == left // 192 * 192
