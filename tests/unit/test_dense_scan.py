"""A wrong base offset is damage in a log without gaps, even that of the last batch."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logstore import CorruptionError, LogConfig, LogStore
from logstore.format.prefix import Span, walk
from logstore.log.host import segments_of
from logstore.log.metadata import CONFIG_LOST, PartitionMetadata
from logstore.log.recovery.dense_scan import DenseScan, scan_class
from logstore.log.segments.scan import Scan

KAFKA = LogConfig(record_format="kafka")


def value(number: int) -> bytes:
    return b"%06d" % number * 20


class Killed:
    """The files of a process that was killed after durable appends, one record to a batch."""

    def __init__(self, base: Path, count: int) -> None:
        self.base, self.count = base / "killed", count
        with LogStore.open(base / "live", admin_socket=False) as store:
            log = store.create("orders", 0, config=KAFKA)
            for number in range(count):
                log.append(value(number), timestamp=number, durable=True)
            shutil.copytree(base / "live", self.base)
        (self.path,) = (self.base / "orders-0").glob("*.log")

    def spans(self) -> list[Span]:
        """Return the places of the batches."""
        return list(walk(self.path.read_bytes()))

    def flip(self, number: int, at: int, bit: int) -> None:
        """Flip a bit of a batch."""
        data = bytearray(self.path.read_bytes())
        data[self.spans()[number].position + at] ^= 1 << bit
        self.path.write_bytes(data)


@pytest.mark.parametrize(("at", "bit"), [(0, 7), (0, 0), (3, 0), (4, 2), (5, 0), (7, 6), (7, 0)])
@pytest.mark.parametrize(
    ("count", "number"), [(100, 99), (100, 50), (100, 0), (3, 2), (3, 1), (1, 0)]
)
def test_regression_a_wrong_base_offset_is_damage_and_loses_no_record(
    tmp_path: Path, count: int, number: int, at: int, bit: int
) -> None:
    """Before, a last batch moved the log end by up to 2^32, or was cut; others lost a record."""
    killed = Killed(tmp_path, count)
    size_bytes = killed.path.stat().st_size
    killed.flip(number, at, bit)
    for _ in range(2):  # a clean stop hides nothing
        with LogStore.open(killed.base, admin_socket=False) as store:
            log = store.log("orders", 0)
            (problem,) = log.recovery.problems
            assert (problem.offset, problem.end_offset) == (number, number + 1)
            assert problem.position == killed.spans()[number].position
            assert log.log_end_offset == count and killed.path.stat().st_size == size_bytes
            assert [(one.offset, one.end_offset) for one in log.verify()] == [(number, number + 1)]
            with pytest.raises(CorruptionError):
                log.record_at(number)
            for other in {0, count // 2, count - 1} - {number}:
                assert log.record_at(other).value == value(other)
    with LogStore.open(killed.base, admin_socket=False) as store:
        report = store.log("orders", 0).repair()
        assert report.lost == [] and len(report.quarantined) == 1
        assert [record.value for record in store.log("orders", 0)] == list(map(value, range(count)))
        assert store.log("orders", 0).append(b"next") == count
        assert store.log("orders", 0).verify() == []


@pytest.mark.parametrize("count", [100, 4])
def test_regression_missing_batches_are_damage(tmp_path: Path, count: int) -> None:
    """Before, a log without gaps was sound although batches in the middle were missing."""
    killed = Killed(tmp_path, count)
    first, second = killed.spans()[1], killed.spans()[2]
    data = killed.path.read_bytes()
    killed.path.write_bytes(data[: first.position] + data[second.position :])
    with LogStore.open(killed.base, admin_socket=False) as store:
        log = store.log("orders", 0)
        (problem,) = log.recovery.problems
        assert (problem.offset, problem.end_offset, log.log_end_offset) == (1, 2, count)
        assert log.repair().lost == [range(1, 2)]
        expected = [value(number) for number in range(count) if number != 1]
        assert [record.value for record in log] == expected
        assert log.verify() == []


def test_a_torn_tail_is_still_cut(tmp_path: Path) -> None:
    """Also if the base offset of the last whole batch is wrong; only the torn bytes are cut."""
    killed = Killed(tmp_path, 5)
    last = killed.spans()[4]
    torn = killed.path.read_bytes()[last.position : last.position + 70]
    killed.flip(4, 5, 0)
    size_bytes = killed.path.stat().st_size
    with killed.path.open("ab") as file:
        file.write(torn)
    with LogStore.open(killed.base, admin_socket=False) as store:
        log = store.log("orders", 0)
        (problem,) = log.recovery.problems
        assert (problem.offset, problem.end_offset, log.log_end_offset) == (4, 5, 5)
        assert (log.recovery.cut_bytes, killed.path.stat().st_size) == (70, size_bytes)


def test_two_wrong_base_offsets_are_damage(tmp_path: Path) -> None:
    """Each of them has the expected offset after the repair."""
    killed = Killed(tmp_path, 20)
    killed.flip(10, 5, 0)
    killed.flip(11, 5, 1)
    with LogStore.open(killed.base, admin_socket=False) as store:
        log = store.log("orders", 0)
        places = [(one.offset, one.end_offset) for one in log.recovery.problems]
        assert (places, log.log_end_offset) == ([(10, 11), (11, 12)], 20)
        assert log.record_at(9).value == value(9) and log.record_at(15).value == value(15)
        log.repair()
        assert [record.value for record in log] == list(map(value, range(20)))
        assert log.verify() == []


def test_a_log_that_may_have_gaps_is_walked_as_before(tmp_path: Path) -> None:
    """The log is sparse, or its `partition.metadata` was lost, and with it perhaps this fact."""
    with LogStore.open(tmp_path, admin_socket=False) as store:
        (segment,) = segments_of(store.create("orders", 0, config=KAFKA))
        metadata = PartitionMetadata("orders", 0, bytes(16))
        assert scan_class(metadata, segment) is DenseScan
        lost = metadata._replace(extra={CONFIG_LOST: True})
        assert scan_class(lost, segment) is Scan
        segment.is_sparse = True
        assert scan_class(metadata, segment) is Scan
