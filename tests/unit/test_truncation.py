"""A truncated log ends at the requested offset, for every reader and after every open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import Log, LogConfig, LogStore
from logstore.errors import CorruptRecordBatchError, OffsetOutOfRangeError
from support.hanging import QUIET
from support.inside import abandon

CONFIG = LogConfig(segment_bytes=512, index_interval_bytes=128)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    """Return a new store of one log dir."""
    with LogStore.open(tmp_path / "logs") as store:
        yield store


def filled(store: LogStore, codec: str = "none") -> Log:
    """Make a log of several segments, with batches of one record and of four."""
    config = LogConfig(**{**CONFIG.to_dict(), "compression_type": codec})
    log = store.create("orders", 0, config=config)
    for number in range(0, 30, 5):
        cells = [b"%d" % at for at in range(number, number + 4)]
        times = list(range(number, number + 4))
        log.extend(cells, keys=cells, timestamps=times, headers=[{"h": cell} for cell in cells])
        log.append(b"%d" % (number + 4), timestamp=number + 4)
    return log


def check(log: Log, end: int) -> None:
    """Compare all that can be read with the numbers up to the end."""
    assert (log.log_start_offset, log.log_end_offset, len(log)) == (0, end, end)
    assert [record.value for record in log] == [b"%d" % at for at in range(end)]
    assert [record.timestamp for record in log] == list(range(end))
    assert [log[at].value for at in range(end)] == [b"%d" % at for at in range(end)]
    assert [log.offset_for_timestamp(at) for at in range(end)] == list(range(end))
    assert log.offset_for_timestamp(end) is None
    with pytest.raises(OffsetOutOfRangeError):
        log[end]
    assert log.verify() == []


@pytest.mark.parametrize("end", [0, 1, 3, 4, 5, 7, 14, 15, 26, 29, 30])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_log_ends_where_it_is_truncated(tmp_path: Path, end: int, codec: str) -> None:
    """The new end is between or inside batches; it holds after more records and an opening."""
    with LogStore.open(tmp_path / "logs") as store:
        log = filled(store, codec)
        log.truncate_to(end)
        check(log, end)
        assert log.recovery_point <= end
        assert not [name for name in os.listdir(log.directory) if name.endswith(".tmp")]
    with LogStore.open(tmp_path / "logs") as store:
        log = store.log("orders", 0)
        check(log, end)
        for number in range(end, 40):
            assert log.append(b"%d" % number, timestamp=number) == number
        check(log, 40)
    with LogStore.open(tmp_path / "logs") as store:
        check(store.log("orders", 0), 40)


@pytest.mark.parametrize("offset", [-1, 31, 2**70])
def test_offsets_outside_are_refused(store: LogStore, offset: int) -> None:
    """Nothing is dropped."""
    log = filled(store)
    with pytest.raises(OffsetOutOfRangeError):
        log.truncate_to(offset)
    with pytest.raises(TypeError):
        log.truncate_to(1.5)  # type: ignore[arg-type]
    check(log, 30)


def test_before_the_log_start_is_outside(store: LogStore) -> None:
    """A deleted offset cannot be the end, but the log start can."""
    log = filled(store)
    log.delete_records_before(12)
    with pytest.raises(OffsetOutOfRangeError):
        log.truncate_to(11)
    log.truncate_to(12)
    assert (log.log_start_offset, log.log_end_offset, list(log)) == (12, 12, [])
    assert log.append(b"x") == 12 and log[12].value == b"x"


def test_a_reader_inside_an_iteration_gives_no_record_twice(store: LogStore) -> None:
    """The iteration ends at the new end, or continues with records that it has already read."""
    log = filled(store)
    reader = iter(log)
    seen = [next(reader).offset]
    log.truncate_to(7)
    seen += [record.offset for record in reader]
    assert seen == list(range(len(seen))) and 7 <= len(seen) <= 30
    check(log, 7)


def test_what_is_appended_instead_is_what_is_read(store: LogStore) -> None:
    """No cache keeps the dropped records."""
    log = filled(store)
    before = [log[at].value for at in range(30)]
    log.truncate_to(2)
    log.extend([b"new"] * 28)
    assert [log[at].value for at in range(30)] == before[:2] + [b"new"] * 28
    assert [record.value for record in log] == before[:2] + [b"new"] * 28


def test_bytes_that_a_caller_looks_at_stay(store: LogStore) -> None:
    """No file is shortened while a view of it exists."""
    log = store.create("large", 0)
    value = os.urandom(100_000)
    log.extend([value, value])
    (batch,) = log.read_batches(zero_copy=True)
    log.truncate_to(1)
    assert batch.values.to_list() == [value, value]
    assert [record.value for record in log] == [value]


def test_leader_epochs_end_with_the_log(store: LogStore) -> None:
    """Epochs that began after the new end are forgotten."""
    log = store.create("orders", 0)
    for epoch in range(3):
        log.leader_epoch = epoch
        log.extend([b"x", b"x"])
    log.truncate_to(3)
    assert log._state.replication.epochs.entries == [(0, 0), (1, 2)]
    assert [batch.leader_epoch for batch in log.read_batches()] == [0, 1]


def test_damage_in_what_is_to_be_kept_is_named(tmp_path: Path) -> None:
    """Nothing is dropped; the error has the place of the damage, and other records are read."""
    with LogStore.open([str(tmp_path)]) as store:
        log = store.create("orders", 0)
        for number in range(200):
            log.append(b"%03d" % number * 20)
    path = tmp_path / "orders-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    position = data.index(b"005005")
    data[position] ^= 1
    path.write_bytes(data)
    with LogStore.open([str(tmp_path)]) as store:
        log = store.log("orders", 0)
        with pytest.raises(CorruptRecordBatchError) as raised:
            log.truncate_to(150)
        assert raised.value.path == str(path) and raised.value.position < position
        assert log.log_end_offset == 200 and log[199].value == b"199" * 20
        assert not list(path.parent.glob("*.tmp"))
        assert log.append(b"more") == 200


@pytest.mark.parametrize("number", [0, 1, -1])
def test_regression_a_log_ends_where_it_was_truncated_also_in_a_gap(
    tmp_path: Path, number: int
) -> None:
    """Compaction had removed the records before the end, so the log ended too early."""
    config = LogConfig(
        record_format="kafka", segment_bytes=2000, cleanup_policy="compact", index_interval_bytes=64
    )
    with LogStore.open(tmp_path, config=QUIET, admin_socket=False) as store:
        log = store.create("t", 0, config=config)
        log.leader_epoch = 3
        for at in range(200):
            log.append(b"v" * 30, key=b"%d" % (at // 5 if at < 150 else 0))
        log.flush()
        log.compact()
        left = [record.offset for record in log]
        offset = [at for at in range(1, left[-1]) if at not in left and at - 1 not in left][number]
        log.truncate_to(offset)
        assert log.log_end_offset == offset >= log.recovery_point
        assert log.append(b"new", key=b"k", durable=True) == offset
        assert log.end_offset_for_epoch(3) == (3, offset + 1) and log.verify() == []
        abandon(store)
    with LogStore.open(tmp_path, config=QUIET, admin_socket=False) as store:
        log = store.log("t", 0)
        assert store.recovery_report.is_sound and not log.recovery.warnings
        kept = [at for at in left if at < offset]
        assert [record.offset for record in log] == [*kept, offset]
        assert log.leader_epochs == ((3, 0),)
