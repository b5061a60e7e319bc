"""A range has whole, verified batches of one file, and does not change with the log."""

from __future__ import annotations

import errno
import os
import random
import socket
import threading
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from logstore import (
    CorruptRecordBatchError,
    FileRange,
    Log,
    LogClosedError,
    LogConfig,
    LogDirOfflineError,
    LogStore,
    OffsetOutOfRangeError,
    StoreConfig,
    UnknownPartitionError,
)
from logstore.disk import files
from logstore.format.prefix import walk
from logstore.log.encoded.raw_batches import parse
from logstore.log.metadata import SPARSE_OFFSETS, PartitionMetadata
from logstore.log.read import file_range
from logstore.log.segments.offset_index import OffsetIndex
from mover import MoveState, ReplicaMover
from support.bad_disk import failing
from support.compacting import NOW, batch_of
from support.places import fast_directory

SLOW = StoreConfig(log_flush_scheduler_interval_ms=3_600_000)


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


def opened(base: Path, disks: int = 1) -> LogStore:
    paths = [base / f"disk{number}" for number in range(disks)]
    return LogStore.open(paths, config=SLOW, admin_socket=False)


def bytes_of(found: FileRange) -> bytes:
    return os.pread(found.fileno(), found.size_bytes, found.position)


def fill(log: Log, batches: int, seed: int = 0) -> None:
    """Append batches of all sizes."""
    rng = random.Random(seed)
    for _ in range(batches):
        size = rng.choice((1, 30, 200, 2000, 6000))
        log.extend([rng.randbytes(size) for _ in range(rng.randint(1, 4))])


def check(log: Log, offset: int, max_bytes: int, found: FileRange, *, whole: bool = True) -> None:
    """Compare a range with the bytes of `read_raw`; if not whole, it may end earlier."""
    expected = log.read_raw(offset, max_bytes)
    data = bytes_of(found)
    assert data == expected if whole else data and expected.startswith(data)
    headers = [header for _, header in parse(data)]
    assert found.first_offset == headers[0].base_offset <= offset <= headers[0].last_offset
    assert found.next_offset == headers[-1].last_offset + 1


@pytest.mark.parametrize("record_format", ["columnar", "kafka"])
@pytest.mark.parametrize("interval_bytes", [4096, 1 << 20])
@pytest.mark.parametrize("state", ["appended", "flushed", "reopened"])
def test_each_range_is_the_whole_batches_that_fit(
    base: Path, record_format: str, interval_bytes: int, state: str
) -> None:
    """Ranges from every offset, of every size, with any index, equal the bytes of `read_raw`."""
    config = LogConfig(
        record_format=record_format, segment_bytes=30_000, index_interval_bytes=interval_bytes
    )
    store = opened(base)
    log = store.create("t", 0, config=config)
    fill(log, 60)
    if state != "appended":
        store.flush()
    if state == "reopened":
        store.close()
        store = opened(base)
        log = store.log("t", 0)
    rng = random.Random(1)
    for _ in range(400):
        offset = rng.randrange(log.log_end_offset)
        max_bytes = rng.choice((1, 300, 5000, 20_000, 1 << 20))
        with log.read_range(offset, max_bytes) as found:
            check(log, offset, max_bytes, found, whole=state != "reopened")
    offset, data = 0, b""
    while offset < log.log_end_offset:
        with log.read_range(offset, 9000) as found:
            data, offset = data + bytes_of(found), found.next_offset
    segments = sorted((base / "disk0" / "t-0").glob("*.log"))
    assert data == b"".join(path.read_bytes() for path in segments) and len(segments) > 3
    for segment in log._state.segments:
        assert segment.sound_until(0) >= segment.size_bytes and len(segment.sound_spans) <= 1
    store.close()


def test_a_verified_range_is_not_read(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that this process appended, or verified before, are not read again."""
    with opened(base) as store:
        log = store.create("t", 0, config=LogConfig(segment_bytes=100_000))
        for _ in range(20):
            log.append(bytes(9000))
    sizes: list[int] = []
    pread = files.pread

    def count(fd: int, size_bytes: int, position: int) -> bytes:
        sizes.append(size_bytes)
        return pread(fd, size_bytes, position)

    def read_all(log: Log) -> int:
        """Return the bytes that this process reads to make all ranges."""
        before, offset = sum(sizes), 0
        while offset < log.log_end_offset:
            with log.read_range(offset, 30_000) as found:
                offset = found.next_offset
        return sum(sizes) - before

    with opened(base) as store:
        log = store.log("t", 0)
        log.append(bytes(9000))
        monkeypatch.setattr(files, "pread", count)
        assert read_all(log) > 20 * 9000
        assert read_all(log) < 9000
        assert log.read_range(20, 1 << 20).size_bytes > 9000


def test_it_ends_where_its_reader_may_not_see_on(base: Path) -> None:
    """A range ends at the high watermark, at an end offset, or at the log end, between batches."""
    with opened(base) as store:
        log = store.create("t", 0)
        for _ in range(6):
            log.extend([b"x"] * 5)
        log.advance_high_watermark(17)
        for level, end in (
            ("read_uncommitted", 30),
            ("read_replicated", 15),
            ("read_committed", 15),
        ):
            found = log.read_range(3, 1 << 20, isolation_level=level)
            assert (found.first_offset, found.next_offset) == (0, end)
            for most in (12, 10, 30):
                found = log.read_range(3, 1 << 20, end_offset=most, isolation_level=level)
                assert found.next_offset == min(most // 5 * 5, end)
        for offset, at in (
            (15, "read_replicated"),
            (17, "read_committed"),
            (30, "read_uncommitted"),
        ):
            found = log.read_range(offset, 9, isolation_level=at)
            assert (found.size_bytes, found.first_offset, found.next_offset) == (0, offset, offset)
            assert bytes_of(found) == b""
        assert log.read_range(3, 9, end_offset=2).size_bytes == 0
        for offset in (-1, 31):
            with pytest.raises(OffsetOutOfRangeError):
                log.read_range(offset, 9)
        empty = store.create("t", 1).read_range(0, 9)
        assert (empty.size_bytes, empty.next_offset) == (0, 0)


def rolled(log: Log, store: LogStore) -> None:
    fill(log, 40, 3)
    store.flush()


def moved(log: Log, store: LogStore) -> None:
    with ReplicaMover(store) as mover:
        (target,) = [path for path in store.log_dirs if path != log.log_dir]
        assert mover.move("t", 0, target).wait(60) is MoveState.DONE


CHANGES: dict[str, Callable[[Log, LogStore], object]] = {
    "truncated": lambda log, _: log.truncate_to(1),
    "retained": lambda log, _: log.delete_records_before(log.log_end_offset),
    "rolled": rolled,
    "moved": moved,
    "deleted": lambda _, store: store.delete("t", 0),
    "closed": lambda _, store: store.close(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_it_stays_what_it_was(base: Path, name: str) -> None:
    """Its descriptor belongs to the range alone until the range is closed."""
    with opened(base, 2) as store:
        log = store.create("t", 0, config=LogConfig(segment_bytes=20_000))
        fill(log, 30)
        ranges = [log.read_range(offset, 5000) for offset in (0, 2, log.log_end_offset - 1)]
        before = [bytes_of(found) for found in ranges]
        CHANGES[name](log, store)
        assert [bytes_of(found) for found in ranges] == before
        if name in ("rolled", "moved"):
            for found, data in zip(ranges, before, strict=True):
                assert bytes_of(log.read_range(found.first_offset, 5000)).startswith(data)
    numbers = {found.fileno() for found in ranges}
    for found in ranges:
        found.close()
        found.close()
        with pytest.raises(ValueError, match="closed"):
            found.fileno()
        assert "closed" in repr(found)
    for number in numbers:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)
    with pytest.raises((LogClosedError, UnknownPartitionError)):
        log.read_range(0, 9)


def test_a_moved_log_needs_no_second_look(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mover has already verified every batch of the copy."""
    with opened(base, 2) as store:
        log = store.create("t", 0, log_dir=base / "disk0")
        fill(log, 30)
        moved(log, store)
        monkeypatch.setattr(file_range, "_verify", None)
        with log.read_range(0, 1 << 20) as found:
            check(log, 0, 1 << 20, found)


@pytest.mark.parametrize("record_format", ["columnar", "kafka"])
def test_damage_is_found_before_a_byte_is_given_out(base: Path, record_format: str) -> None:
    """A range ends before a damaged batch, and no range begins with a damaged batch."""
    with opened(base) as store:
        log = store.create("t", 0, config=LogConfig(record_format=record_format))
        for number in range(10):
            log.append(bytes([number]) * 5000)
        log.flush()
    path = base / "disk0" / "t-0" / f"{0:020d}.log"
    spans = list(walk(path.read_bytes()))
    with path.open("r+b") as file:
        file.seek(spans[4].position + 3000)
        file.write(b"?")
    with opened(base) as store:
        log = store.log("t", 0)
        for _ in range(2):
            with log.read_range(0, 1 << 20) as found:
                assert (found.first_offset, found.next_offset) == (0, 4)
                assert found.size_bytes == spans[4].position
            for offset in (4, 4):
                with pytest.raises(CorruptRecordBatchError) as error:
                    log.read_range(offset, 1 << 20)
                assert error.value.position == spans[4].position
            assert log.read_range(5, 1 << 20).next_offset == 10


def test_a_disk_that_fails_is_reported(base: Path) -> None:
    """No range is given out, and the log dir is offline."""
    with opened(base) as store:
        store.create("t", 0).append(b"x")
    with opened(base) as store:
        log = store.log("t", 0)
        failed = failing("pread", str(base / "disk0"), errno.EIO)
        with patch.object(files, "pread", failed), pytest.raises(LogDirOfflineError):
            log.read_range(0, 9)
        with pytest.raises(LogDirOfflineError):
            log.read_range(0, 9)


def test_a_wrong_index_misleads_no_range(base: Path) -> None:
    """A wrong index entry is noticed, even for bytes that this process wrote."""
    with opened(base) as store:
        log = store.create("t", 0, config=LogConfig(segment_bytes=40_000))
        for number in range(20):
            log.append(bytes([number]) * 5000)
        store.flush()
        segment = log._state.segments[0]
        assert segment.index is None and segment.sound_from == 0
        right = segment.offset_index(log._state.environment)
        wrong = [list(right.offsets), list(right.positions)]
        wrong[1][3] += 8
        for offset in (3, 0, 1, 2):
            index = OffsetIndex(*(memoryview(array("I", column)) for column in wrong))
            segment.cached["index"].value = index
            with log.read_range(offset, 11_000) as found:
                check(log, offset, 11_000, found)


def test_a_gap_between_segments_stops_no_reader(base: Path) -> None:
    """In a compacted log of Kafka's layout, the batch after the gap follows."""
    pieces = {0: ([0, 3], [10]), 20: ([20, 29],), 40: ([], [45, 46])}
    with opened(base) as store:
        log = store.create("t", 0, config=LogConfig(record_format="kafka"))
        log.append(b"x")
    directory = base / "disk0" / "t-0"
    for path in directory.glob("0*"):
        path.unlink()
    for first, batches in pieces.items():
        made = [batch_of("kafka", o[0], [(b"k", b"v", NOW)] * len(o)) for o in batches if o]
        (directory / f"{first:020d}.log").write_bytes(b"".join(made))
    metadata = PartitionMetadata.read(str(directory))
    assert metadata is not None
    metadata._replace(extra=metadata.extra | {SPARSE_OFFSETS: True}).write(str(directory))
    for name in ("recovery-point-offset-checkpoint", ".clean-shutdown"):
        (base / "disk0" / name).unlink()
    with opened(base) as store:
        log = store.log("t", 0)
        assert log.log_end_offset == 47, store.recovery_report
        for _ in range(2):
            offset, firsts = 0, []
            while offset < log.log_end_offset:
                with log.read_range(offset, 1) as found:
                    assert found.size_bytes and found.next_offset > offset
                    firsts.append(found.first_offset)
                    offset = found.next_offset
            assert firsts == [0, 10, 20, 45]
            for offset, first in ((5, 10), (12, 20), (30, 45), (44, 45)):
                assert log.read_range(offset, 1).first_offset == first


def test_ranges_beside_an_appender_and_a_truncation_are_whole(base: Path) -> None:
    """Whatever is appended meanwhile, each range has whole batches up to its next offset."""
    with opened(base) as store:
        log = store.create("t", 0, config=LogConfig(segment_bytes=50_000))
        is_over = threading.Event()
        errors: list[BaseException] = []

        def read() -> None:
            offset = 0
            try:
                while not is_over.is_set():
                    try:
                        with log.read_range(offset, 20_000) as found:
                            if found.size_bytes:
                                headers = [header for _, header in parse(bytes_of(found))]
                                assert headers[0].base_offset == found.first_offset <= offset
                                assert headers[-1].last_offset + 1 == found.next_offset
                            offset = found.next_offset
                    except OffsetOutOfRangeError:
                        offset = 0
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        rng = random.Random(4)
        for number in range(600):
            log.extend([rng.randbytes(rng.choice((1, 300, 3000)))] * rng.randint(1, 5))
            if number % 50 == 49:
                log.truncate_to(log.log_end_offset - rng.randint(1, 60))
        is_over.set()
        for reader in readers:
            reader.join(60)
        assert errors == []


def test_a_batch_that_is_not_published_yet_is_left_out(base: Path) -> None:
    """An append moves the size of the segment first, and its end offset afterwards."""
    with opened(base) as store:
        log = store.create("t", 0)
        for _ in range(3):
            log.append(bytes(5000))
        state = log._state
        segment, environment = state.active, state.environment
        segment.end_offset = 2
        fd = segment.handle(environment).fd
        for max_bytes in (6000, 1 << 20):
            found = file_range._verified(state, segment, fd, 1, max_bytes, 3)
            assert found is not None and found[2:] == (1, 2) and found[1] < 6000


def test_another_process_has_ranges_too(base: Path) -> None:
    """Each of its ranges is verified, because only the owner knows what it wrote."""
    with opened(base) as store:
        log = store.create("t", 0)
        fill(log, 20)
        with LogStore.open(base / "disk0", read_only=True) as reader:
            view = reader.log("t", 0)
            for _ in range(2):
                with view.read_range(2, 9000) as found:
                    check(view, 2, 9000, found)
            assert view._state.segments[0].sound_until(0) == 0


def test_a_socket_gets_the_bytes(base: Path) -> None:
    """Ranges are made for sockets."""
    with opened(base) as store:
        log = store.create("t", 0)
        log.extend([b"x" * 100] * 50)
        ours, theirs = socket.socketpair()
        with ours, theirs, log.read_range(0, 1 << 20) as found:
            sent = os.sendfile(ours.fileno(), found.fileno(), found.position, found.size_bytes)
            assert theirs.recv(sent, socket.MSG_WAITALL) == log.read_raw(0)
