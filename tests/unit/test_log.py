"""A log accepts records, returns them in every way, and refuses invalid records."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logstore import Log, LogConfig, LogStore, Record
from logstore.errors import LogClosedError, RecordTooLargeError
from logstore.format.columnar import record_batch as columnar
from support.clock import NOW_MS, Clock


@pytest.fixture
def log(store: LogStore) -> Log:
    """Return an empty log."""
    return store.create("orders", 0)


# --- what is appended comes back ------------------------------------------------------------------


def test_a_record_comes_back_whole(log: Log) -> None:
    """Value, key, headers and timestamp are unchanged, and the offset is set."""
    offset = log.append(b"v", key=b"k", timestamp=7, headers=[("a", b"1"), ("é", None), ("a", b"")])
    headers = (("a", b"1"), ("é", None), ("a", b""))
    assert log[offset] == Record(0, 7, b"k", b"v", headers, "orders", 0)
    assert list(log) == [log[0]]


@pytest.mark.parametrize("value", [b"", None, b"x", b"12345678", b"123456789"])
@pytest.mark.parametrize("key", [None, b"", b"k"])
def test_empty_and_null_are_different(log: Log, value: bytes | None, key: bytes | None) -> None:
    """This holds for values and keys, alone and in a batch."""
    log.append(value, key=key)
    log.extend([value, b"other", value], keys=[key, None, key])
    assert [record.value for record in log] == [value, value, b"other", value]
    assert [record.key for record in log] == [key, key, None, key]


def test_bytes_like_values_become_bytes(log: Log) -> None:
    """After the append, a caller may change its buffer."""
    buffer: Any = bytearray(b"abc")
    view: Any = memoryview(buffer)
    log.append(buffer, key=view)
    log.extend([buffer, view])
    buffer[0] = 0
    assert [record.value for record in log] == [b"abc"] * 3
    assert {type(record.value) for record in log} == {bytes}


def test_an_extend_of_nothing_appends_nothing(log: Log) -> None:
    """The range is empty, at the log end."""
    log.append(b"x")
    assert log.extend([]) == range(1, 1)
    assert log.extend(iter(()), durable=True) == range(1, 1)
    assert log.log_end_offset == 1


def test_an_extend_takes_iterables(log: Log) -> None:
    """Generators of values, keys and headers are accepted."""
    given = log.extend((b"%d" % n for n in range(3)), keys=(b"k" for _ in range(3)))
    assert given == range(3)
    assert [record.key for record in log] == [b"k"] * 3


def test_headers_are_pairs_or_a_mapping(log: Log) -> None:
    """The headers of each record may have another form, or be missing."""
    log.append(b"x", headers={"a": b"1", "b": None})
    log.extend([b"x"] * 4, headers=[{"a": b"2"}, None, (), [("c", b"3")]])
    assert [record.headers for record in log] == [
        (("a", b"1"), ("b", None)),
        (("a", b"2"),),
        (),
        (),
        (("c", b"3"),),
    ]


def test_records_are_values(store: LogStore, log: Log) -> None:
    """Records of one log can be appended to another log; only the offsets are new."""
    log.extend([b"a", None], keys=[b"k", None], timestamps=[5, 3], headers=[{"h": b"1"}, None])
    other = store.create("others", 0)
    other.append(b"first")
    assert other.extend(log) == range(1, 3)
    assert [record[1:5] for record in other[1:]] == [record[1:5] for record in log]
    with pytest.raises(ValueError, match="have their own"):
        other.extend(log, keys=[b"k", b"k"])
    mixed: list[Any] = [log[0], b"x"]
    with pytest.raises(TypeError, match="all Records or all bytes"):
        other.extend(mixed)


def test_timestamps_are_given_or_now(log: Log, clock: Clock) -> None:
    """Each value has its own timestamp, or all have the same; None means the present time."""
    log.append(b"x")
    log.extend([b"x", b"x"], timestamps=[None, 5])
    log.extend([b"x", b"x"], timestamps=9)
    log.extend([b"x", b"x"], timestamps=np.array([3, 2], np.uint16))
    clock.ms += 1
    log.extend([b"x"])
    now = NOW_MS
    assert [record.timestamp for record in log] == [now, now, 5, 9, 9, 3, 2, now + 1]


def test_the_edges_of_time_are_kept(log: Log) -> None:
    """0 and the last millisecond of 64 bits are valid."""
    log.extend([b"x", b"x"], timestamps=[0, 2**63 - 1])
    log.append(b"x", timestamp=2**63 - 1)
    log.append(b"x", timestamp=0)
    assert [record.timestamp for record in log] == [0, 2**63 - 1, 2**63 - 1, 0]


def test_log_append_time_is_the_logs_own(store: LogStore, clock: Clock) -> None:
    """A timestamp from the caller is ignored."""
    config = LogConfig(message_timestamp_type="LogAppendTime")
    log = store.create("stamped", 0, config=config)
    log.append(b"x", timestamp=5)
    clock.ms += 10
    log.extend([b"x", b"x"], timestamps=[1, 2])
    assert [record.timestamp for record in log] == [NOW_MS, NOW_MS + 10, NOW_MS + 10]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_codecs_change_nothing(store: LogStore, codec: str) -> None:
    """The records are equal with every codec; records that compress need less space."""
    log = store.create(codec, 0, config=LogConfig(compression_type=codec))
    noise = random.Random(1).randbytes(5000)
    log.append(b"a" * 5000)
    dense = log.size_bytes
    log.append(noise)
    log.extend([b"a" * 100, None, b""], keys=[b"k", None, b""])
    values = [record.value for record in log]
    assert values == [b"a" * 5000, noise, b"a" * 100, None, b""]
    assert (dense < 300) == (codec != "none")
    assert log.verify() == []


# --- sizes ----------------------------------------------------------------------------------------


def test_a_record_of_100_mib_fits_when_allowed(store: LogStore) -> None:
    """The record is read by its offset and in a range, also after a flush."""
    log = store.create("big", 0, config=LogConfig(max_message_bytes="128MiB"))
    value = bytes(100 << 20)
    assert log.append(value) == 0
    log.append(b"x")
    assert log[0].value == value
    assert [len(record.value or b"") for record in log.read(0, max_records=2)] == [100 << 20]
    assert log[1].value == b"x"


def test_what_is_too_large_is_refused_whole(store: LogStore) -> None:
    """Nothing is written, the error has the limit, and the largest valid record is accepted."""
    log = store.create("small", 0, config=LogConfig(max_message_bytes=1024))
    fits = 1024 - columnar.OVERHEAD_BYTES - 8
    assert log.append(b"x" * fits) == 0
    for append in (
        lambda: log.append(b"x" * (fits + 1)),
        lambda: log.append(b"x" * (fits + 1), durable=True),
        lambda: log.append(None, key=b"x" * 1024),
        lambda: log.append(b"", headers={"h": b"x" * 1024}),
        lambda: log.extend([b"x" * 100] * 11),
    ):
        with pytest.raises(RecordTooLargeError) as caught:
            append()
        assert caught.value.max_message_bytes == 1024 < caught.value.size_bytes
    assert log.log_end_offset == 1


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["text", 1, 1.5, [b"x"], object(), np.arange(3)])
def test_values_that_are_not_bytes_are_refused(log: Log, value: object) -> None:
    """This holds for values and keys, alone and among others."""
    for arguments in ({"value": value}, {"value": b"x", "key": value}):
        with pytest.raises(TypeError, match="bytes"):
            log.append(**arguments)  # type: ignore[arg-type]
    for values, keys in (([b"x", value], None), ([b"x", b"x"], [None, value])):
        with pytest.raises(TypeError):
            log.extend(values, keys=keys)  # type: ignore[arg-type]
    assert log.log_end_offset == 0


def test_one_bytes_is_no_sequence(log: Log) -> None:
    """The error names this most likely mistake."""
    with pytest.raises(TypeError, match="not one bytes"):
        log.extend(b"abc")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="encode text first"):
        log.append("abc")  # type: ignore[arg-type]


@pytest.mark.parametrize("timestamp", [-1, 2**63, 2**70])
def test_timestamps_out_of_range_are_refused(log: Log, timestamp: int) -> None:
    """A ValueError is raised, for one timestamp and among others."""
    for times in (timestamp, [timestamp], [5, timestamp][-1:]):
        with pytest.raises(ValueError, match="timestamp"):
            log.extend([b"x"], timestamps=times)
    with pytest.raises(ValueError, match="timestamp"):
        log.append(b"x", timestamp=timestamp)
    assert log.log_end_offset == 0


@pytest.mark.parametrize("timestamp", [1.5, True, "5", np.bool_(True)])
def test_timestamps_that_are_no_numbers_are_refused(log: Log, timestamp: object) -> None:
    """A TypeError is raised, for one timestamp and among others."""
    with pytest.raises(TypeError):
        log.append(b"x", timestamp=timestamp)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        log.extend([b"x"], timestamps=[timestamp])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        log.extend([b"x"], timestamps=np.array([1.5]))
    assert log.log_end_offset == 0


def test_columns_of_another_length_are_refused(log: Log) -> None:
    """The error names each column with both lengths."""
    for columns in ({"keys": [b"k"]}, {"timestamps": [1]}, {"headers": [None]}):
        (name,) = columns
        with pytest.raises(ValueError, match=f"1 {name} for 2 values"):
            log.extend([b"x", b"x"], **columns)
    assert log.log_end_offset == 0


@pytest.mark.parametrize("headers", [("a", b"1"), [("a", "1")], [(b"a", b"1")], [("a",)], {"a": 1}])
def test_headers_that_are_none_are_refused(log: Log, headers: object) -> None:
    """A TypeError is raised; nothing is appended."""
    with pytest.raises(TypeError):
        log.append(b"x", headers=headers)  # type: ignore[arg-type]
    with pytest.raises(UnicodeEncodeError):
        log.append(b"x", headers={"\ud800": b"1"})
    assert log.log_end_offset == 0


def test_leader_epochs_grow(log: Log) -> None:
    """They are whole numbers below 2**31, and every batch has its own."""
    log.append(b"x")
    log.leader_epoch = 3
    log.append(b"x")
    log.extend([b"x", b"x"])
    assert [batch.leader_epoch for batch in log.read_batches()] == [0, 3, 3]
    for epoch in (2, -1, 2**31):
        with pytest.raises(ValueError, match="leader_epoch"):
            log.leader_epoch = epoch
    with pytest.raises(TypeError):
        log.leader_epoch = 4.5  # type: ignore[assignment]
    assert log.leader_epoch == 3


def test_a_closed_log_says_so(store: LogStore, log: Log) -> None:
    """Every call raises; closing twice is allowed."""
    log.append(b"x")
    store.close()
    log.close()
    for call in (
        lambda: log.append(b"x"),
        lambda: log.append(b"x", durable=True),
        lambda: log.extend([b"x"]),
        lambda: log.extend([]),
        lambda: log[0],
        lambda: log[:],
        lambda: log.read(0),
        lambda: list(log),
        log.flush,
        lambda: log.truncate_to(0),
        lambda: log.delete_records_before(0),
        lambda: log.offset_for_timestamp(0),
        lambda: next(log.tail("start")),
    ):
        with pytest.raises(LogClosedError):
            call()


def test_a_tail_that_waits_is_told_when_its_log_is_closed(store: LogStore, log: Log) -> None:
    """The tail does not wait forever."""
    caught: list[Exception] = []

    def follow() -> None:
        try:
            list(log.tail("end", timeout=60))
        except LogClosedError as error:
            caught.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    log.append(b"x")
    store.close()
    thread.join(60)
    assert not thread.is_alive() and len(caught) == 1


def test_regression_a_log_that_was_closed_lets_its_store_close_in_order(tmp_path: Path) -> None:
    """A log that was closed by hand is flushed, so the store closes cleanly around it."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        log.append(b"a value")
        log.close()
    with LogStore.open(tmp_path) as store:
        assert store.log("orders", 0).recovery.state == "clean"
        assert store.log("orders", 0)[0].value == b"a value"
