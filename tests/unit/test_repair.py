"""A repair loses only damaged records, reports their offsets, and keeps every byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore import Log, LogConfig, LogStore

COUNT = 12
BIG = b"v" * 700_000  # a segment of these is copied in more steps than one


def values_of(log: Log) -> dict[int, bytes | None]:
    """Return the values that can be read, by offset."""
    return {record.offset: record.value for record in log}


def fill(tmp_path: Path, pad: bytes, segment_bytes: int = 1 << 30) -> list[Path]:
    """Make a log of batches of one record, closed cleanly; return its segments."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=LogConfig(segment_bytes=segment_bytes))
        for number in range(COUNT):
            log.append(b"%d" % number + pad)
    return sorted((tmp_path / "orders-0").glob("*.log"))


def lose(tmp_path: Path, pad: bytes, lost: range, kept: dict[Path, bytes]) -> None:
    """Repair, and compare the log with the expected records, now and after a start."""
    wanted = {n: b"%d" % n + pad for n in range(COUNT) if n not in lost}
    with LogStore.open(tmp_path) as store:
        log = store.log("orders", 0)
        assert log.recovery.state == "corrupt"
        report = store.repair("orders", 0)
        assert report.lost == [lost]
        assert [Path(path).read_bytes() for path in report.quarantined] == list(kept.values())
        assert values_of(log) == wanted
        assert log.recovery_point <= log.log_end_offset == COUNT
        assert log.verify() == []
        assert log.append(b"next") == COUNT
    with LogStore.open(tmp_path) as store:
        log = store.log("orders", 0)
        assert store.recovery_report.is_sound
        assert values_of(log) == {**wanted, COUNT: b"next"}
        again = store.repair("orders", 0)
        assert (again.lost, again.quarantined) == ([], [])


@pytest.mark.parametrize("number", [0, 5, COUNT - 1])
def test_a_damaged_batch(tmp_path: Path, number: int) -> None:
    """The batches around it are copied byte by byte, wherever they are."""
    (path,) = fill(tmp_path, BIG)
    data = bytearray(path.read_bytes())
    data[data.index(b"%d" % number + BIG[:9])] ^= 8
    path.write_bytes(bytes(data))
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).unlink()
    lose(tmp_path, BIG, range(number, number + 1), {path: bytes(data)})


def test_flushed_records_that_are_missing_at_the_end(tmp_path: Path) -> None:
    """Their offsets are not given to other records."""
    (path,) = fill(tmp_path, b"-pad")
    with LogStore.open(tmp_path, read_only=True) as view:
        size = len(view["orders", 0].read_raw(9))  # the last three batches
    path.write_bytes(path.read_bytes()[:-size])
    lose(tmp_path, b"-pad", range(9, COUNT), {path: path.read_bytes()})


@pytest.mark.parametrize("number", [0, 1])
def test_a_segment_that_is_gone(tmp_path: Path, number: int) -> None:
    """A batch without records replaces the segment, after the previous segment or alone."""
    paths = fill(tmp_path, b"p" * 200, segment_bytes=1024)
    kept = {} if number == 0 else {paths[0]: paths[0].read_bytes()}
    paths[number].unlink()
    lost = range(int(paths[number].stem), int(paths[number + 1].stem))
    lose(tmp_path, b"p" * 200, lost, kept)
