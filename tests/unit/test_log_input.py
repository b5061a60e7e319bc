"""Test invalid and unusual input to a log: there is a clear error or an exact answer."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest

from logstore import Log, LogConfig, LogStore, OffsetOutOfRangeError, RecordTooLargeError

MIB = 1 << 20
BERLIN = timezone(timedelta(hours=1))
NOON = datetime(2026, 11, 23, 12, 0, 0, 123_999, BERLIN)
NOON_MS = 1_795_431_600_123


@pytest.fixture(params=["columnar", "kafka"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    """Return an empty log, in each layout."""
    config = LogConfig(max_message_bytes="1MiB", record_format=request.param)
    with LogStore.open(tmp_path) as store:
        yield store.create("orders", 0, config=config)


@pytest.mark.parametrize("value", [b"", b"x", None, b"\0" * 17, bytes(range(256)) * 9])
@pytest.mark.parametrize("key", [None, b"", b"key"])
@pytest.mark.parametrize("durable", [False, True])
def test_any_bytes_and_none_come_back(
    log: Log, value: bytes | None, key: bytes | None, durable: bool
) -> None:
    """Empty is not null, for values and keys, alone and in a batch."""
    offset = log.append(value, key=key, durable=durable)
    offsets = log.extend([value, b"-", value], keys=[key, b"-", None], durable=durable)
    assert (log[offset].value, log[offset].key) == (value, key)
    assert [log[n].value for n in offsets] == [value, b"-", value]
    assert [log[n].key for n in offsets] == [key, b"-", None]


@pytest.mark.parametrize("kind", [bytearray, memoryview, numpy.bytes_])
def test_what_holds_bytes_is_taken_or_refused(log: Log, kind: type[Any]) -> None:
    """An accepted buffer is copied: changing the buffer later changes no record."""
    bytes_like = kind(b"abc")
    try:
        log.append(bytes_like)
    except TypeError:
        assert len(log) == 0
        return
    if isinstance(bytes_like, bytearray):
        bytes_like[:] = b"xyz"
    assert log[0].value == b"abc"


@pytest.mark.parametrize("value", ["text", 1, 1.5, [b"x"], object(), True])
def test_what_is_no_bytes_is_a_type_error(log: Log, value: Any) -> None:
    """Text is not encoded by guessing; nothing is appended, in any way."""
    for call in (
        lambda: log.append(value),
        lambda: log.append(value, durable=True),
        lambda: log.append(b"", key=value),
        lambda: log.extend([b"good", value]),
        lambda: log.extend([b"good"], keys=[value]),
    ):
        with pytest.raises(TypeError):
            call()
    assert len(log) == 0


@pytest.mark.parametrize("count", [1, 2, 30])
@pytest.mark.parametrize("others", [[], [b"12"], [None]])
def test_items_wider_than_a_byte_are_no_bytes(log: Log, count: int, others: list[Any]) -> None:
    """The length of such an array is not its size, so records would overlap."""
    wide: Any = array("I", [1, 2])
    with pytest.raises(TypeError):
        log.extend([wide] * count + others)
    with pytest.raises(TypeError):
        log.extend([*others, wide], keys=[wide, *others])
    view: Any = memoryview(wide)
    assert [log[n].value for n in log.extend([view] * count)] == [bytes(view)] * count
    assert len(log) == count


@pytest.mark.parametrize("values", [b"one bytes object", "text", None, 5])
def test_values_are_a_sequence(log: Log, values: Any) -> None:
    """One bytes object is a sequence of numbers, which is surely a mistake."""
    with pytest.raises(TypeError):
        log.extend(values)
    assert len(log) == 0


def test_a_batch_without_records_is_nothing(log: Log) -> None:
    """The range is empty, at the log end, before and after other records."""
    assert log.extend([]) == range(0)
    log.append(b"x")
    assert log.extend([], durable=True) == range(1, 1)
    assert len(log) == 1


@pytest.mark.parametrize("timestamp", [-1, -(2**63), 2**63, 2**64])
def test_a_timestamp_out_of_range_is_a_value_error(log: Log, timestamp: int) -> None:
    """No number overflows."""
    for call in (
        lambda: log.append(b"x", timestamp=timestamp),
        lambda: log.extend([b"x", b"y"], timestamps=[0, timestamp]),
    ):
        with pytest.raises((ValueError, OverflowError)):
            call()
    assert len(log) == 0


@pytest.mark.parametrize("timestamp", [1.5, "2013-01-01", b"1"])
def test_a_timestamp_is_a_whole_number(log: Log, timestamp: Any) -> None:
    """Seconds as a float would be wrong by a factor of a thousand."""
    with pytest.raises(TypeError):
        log.append(b"x", timestamp=timestamp)
    with pytest.raises(TypeError):
        log.extend([b"x"], timestamps=[timestamp])
    assert len(log) == 0


def test_columns_of_another_length_are_a_value_error(log: Log) -> None:
    """There must be as many keys, timestamps and headers as values, or none."""
    values = [b"x", b"y"]
    for columns in ({"keys": [b"k"]}, {"timestamps": [1, 2, 3]}, {"headers": [()]}):
        with pytest.raises(ValueError, match="for 2 values"):
            log.extend(values, **columns)
    assert len(log) == 0


def test_what_is_too_large_says_by_how_much(log: Log) -> None:
    """The sizes are attributes; a caller can split a batch, but not a record."""
    for call in (
        lambda: log.append(bytes(MIB)),
        lambda: log.append(bytes(MIB), durable=True),
        lambda: log.append(b"", key=bytes(MIB)),
        lambda: log.extend([bytes(MIB // 2)] * 3),
    ):
        with pytest.raises(RecordTooLargeError) as caught:
            call()
        assert caught.value.max_message_bytes == MIB < caught.value.size_bytes
    assert len(log) == 0


def test_a_hundred_mebibytes_in_one_record(tmp_path: Path) -> None:
    """A large record is appended and read as a whole; the segment rolls after it."""
    value = bytes(range(256)) * (100 * MIB // 256)
    with LogStore.open(tmp_path) as store:
        log = store.create("large", 0, config=LogConfig(segment_bytes="101MiB"))
        log.extend([b"before"])
        assert log.append(value) == 1
        log.append(b"after", durable=True)
    with LogStore.open(tmp_path) as store:
        log = store.log("large", 0)
        assert log[1].value == value
        assert [log[0].value, log[2].value] == [b"before", b"after"]
        assert [len(record.value or b"") for record in log] == [6, len(value), 5]


@pytest.mark.parametrize("offset", [3, 99, -4, 2**63])
def test_an_offset_out_of_range_names_the_range(log: Log, offset: int) -> None:
    """The error is a LookupError that has the range of the log."""
    log.extend([b"0", b"1", b"2"])
    with pytest.raises(OffsetOutOfRangeError) as caught:
        log[offset]
    assert (caught.value.log_start_offset, caught.value.log_end_offset) == (0, 3)
    assert isinstance(caught.value, LookupError)


def test_reading_at_the_end_is_empty_and_behind_it_an_error(log: Log) -> None:
    """The log end offset is the next record's offset; no offset after it exists."""
    log.extend([b"0", b"1"])
    assert log.read(2) == []
    with pytest.raises(OffsetOutOfRangeError):
        log.read(3)
    log.delete_records_before(1)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(0)
    assert [record.offset for record in log] == [1]


@pytest.mark.parametrize("offset", ["1", 1.0, None])
def test_an_offset_is_a_whole_number(log: Log, offset: Any) -> None:
    """What is no index of a list is no offset of a log."""
    log.append(b"0")
    with pytest.raises(TypeError):
        log[offset]
    with pytest.raises(TypeError):
        log.truncate_to(offset)
    with pytest.raises(TypeError):
        log.delete_records_before(offset)
    assert len(log) == 1


@pytest.mark.parametrize(
    "headers", [[("a", "text")], [(b"a", b"")], [("a",)], "ab", [("a", b"", 1)]]
)
def test_headers_are_pairs_of_text_and_bytes(log: Log, headers: Any) -> None:
    """A header that Kafka could not carry is refused."""
    with pytest.raises((TypeError, ValueError)):
        log.append(b"x", headers=headers)
    assert len(log) == 0


def test_headers_keep_order_doubles_and_nulls(log: Log) -> None:
    """They are a list, not a dictionary."""
    headers = (("b", b"1"), ("a", None), ("b", b""), ("größe", b"\0"))
    log.append(b"x", headers=headers)
    log.append(b"x", headers=headers, durable=True)
    assert log[0].headers == log[1].headers == headers


@pytest.mark.parametrize("timeout", [float("nan"), float("inf"), -1, True, "1"])
def test_regression_a_tail_ends(log: Log, tmp_path: Path, timeout: Any) -> None:
    """An invalid time is refused at the call; a wait for NaN seconds never ended."""
    with LogStore.open(tmp_path, read_only=True) as beside:
        for one in (log, beside.log("orders", 0)):
            with pytest.raises((TypeError, ValueError), match="timeout"):
                one.tail(timeout=timeout)


@pytest.mark.parametrize(
    "timestamps", [memoryview(b"5"), b"5", "5", numpy.array([[5]]), numpy.array(5), {5: 5}, 5.0]
)
def test_regression_timestamps_are_numbers_in_one_row(log: Log, timestamps: Any) -> None:
    """The character "5" was accepted as the timestamp 53."""
    with pytest.raises(TypeError, match="timestamps"):
        log.extend([b"x"], timestamps=timestamps)
    assert len(log) == 0


def test_regression_a_wrong_timestamp_costs_no_other_record(log: Log) -> None:
    """An appender accepted the timestamp, and later the whole batch was refused."""
    with log.appender(linger=60) as appender:
        future = appender.append(b"good")
        with pytest.raises(ValueError, match="timestamp"):
            appender.append(b"bad", timestamp=2**63)
        appender.flush()
        assert future.result(0) == 0
    assert [record.value for record in log] == [b"good"]


def test_timestamps_come_from_any_iterable(log: Log) -> None:
    """Any iterable is accepted, as for values and keys."""
    log.extend([b"x", b"y"], timestamps=(at for at in (5, None)))
    log.extend([b"x", b"y"], timestamps=range(7, 9))
    assert [record.timestamp for record in log][::2] == [5, 7]
    assert log[3].timestamp == 8


def test_values_may_be_a_sequence_without_an_iterator_of_its_own(store: LogStore) -> None:
    """Python iterates over such a sequence by index; it was refused as no sequence."""

    class Two:
        def __getitem__(self, index: int) -> bytes:
            return (b"a", b"b")[index]

    values: Any = Two()
    assert store.create("two", 0).extend(values) == range(2)


def test_regression_a_moment_with_a_zone_is_a_timestamp(log: Log) -> None:
    """Every way to append rounds the time down to ms; a search by the time finds the record."""
    same = [NOON, NOON.astimezone(UTC), pandas.Timestamp(NOON)]
    for moment in same:
        log.append(b"x", timestamp=moment)
        log.append(b"x", key=b"k", timestamp=moment, durable=True)
        log.extend([b"x", b"y"], timestamps=moment)
        log.extend([b"x", b"y"], timestamps=[moment, NOON_MS])
        with log.appender() as appender:
            appender.append(b"x", timestamp=moment)
    assert {record.timestamp for record in log} == {NOON_MS}
    for moment in same:
        assert log.offset_for_timestamp(moment) == 0
        assert log.offset_for_timestamp(moment + timedelta(seconds=1)) is None


def test_a_moment_without_a_zone_is_refused(log: Log) -> None:
    """The error says what to do, and nothing is written."""
    naive = NOON.replace(tzinfo=None)
    with log.appender() as appender:
        for call in (
            lambda: log.append(b"x", timestamp=naive),
            lambda: log.append(b"x", timestamp=naive, durable=True),
            lambda: log.extend([b"x"], timestamps=naive),
            lambda: log.extend([b"x", b"y"], timestamps=[1, naive]),
            lambda: appender.append(b"x", timestamp=naive),
            lambda: log.offset_for_timestamp(naive),
        ):
            with pytest.raises(ValueError, match=r"has no zone.* \.astimezone\(\)"):
                call()
    with pytest.raises(ValueError, match="timestamp 1969"):
        log.append(b"x", timestamp=datetime(1969, 12, 31, tzinfo=UTC))
    assert len(log) == 0
