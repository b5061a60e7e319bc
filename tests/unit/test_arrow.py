"""Arrow data of every type is appended cell by cell, and read back without a change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logstore import Log, LogConfig, LogStore
from logstore.arrow import SCHEMA
from logstore.errors import RecordTooLargeError

CELLS = [b"ab", None, b"", b"cd", b"ef"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    """Return a new store."""
    with LogStore.open(tmp_path / "logs") as store:
        yield store


@pytest.fixture
def log(store: LogStore) -> Log:
    """Return an empty log."""
    return store.create("orders", 0)


def values(log: Log, data: Any) -> list[bytes | None]:
    """Append Arrow rows, and return their values, read one by one."""
    given = log.append_arrow(data)
    found = [log[offset].value for offset in given]
    assert found == [record.value for record in log[given.start : given.stop]]
    return found


def column(kind: pa.DataType) -> pa.Array:
    """Make the sample column of a type."""
    if pa.types.is_fixed_size_binary(kind):
        return pa.array([None if cell is None else cell.ljust(2) for cell in CELLS], kind)
    if pa.types.is_dictionary(kind):
        return pa.array(CELLS, kind.value_type).dictionary_encode()
    return pa.array(CELLS, pa.binary()).cast(kind)


KINDS = [
    pa.binary(),
    pa.large_binary(),
    pa.string(),
    pa.large_string(),
    pa.binary_view(),
    pa.string_view(),
    pa.binary(2),
    pa.dictionary(pa.int32(), pa.binary()),
    pa.dictionary(pa.int32(), pa.string()),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("part", [slice(None), slice(1, None), slice(1, 4), slice(3, 5), slice(0)])
def test_columns_of_bytes_and_text_go_in(log: Log, kind: pa.DataType, part: slice) -> None:
    """This holds for every layout, whole and as slices, as values and as keys."""
    cells = column(kind)[part]
    expected = CELLS[part]
    if pa.types.is_fixed_size_binary(kind):
        expected = [None if cell is None else cell.ljust(2) for cell in expected]
    assert values(log, pa.table({"value": cells})) == expected
    assert values(log, pa.record_batch({"key": cells, "value": cells})) == expected
    assert [record.key for record in log[len(expected) :]] == expected
    assert log.verify() == []


def test_bytes_that_hide_behind_a_null_stay_outside(log: Log) -> None:
    """Arrow allows such bytes; the log stores no bytes for a null."""
    hidden = pa.Array.from_buffers(
        pa.binary(),
        3,
        [
            pa.py_buffer(b"\x05"),
            pa.array([0, 1, 7, 8], pa.int32()).buffers()[1],
            pa.py_buffer(b"asecretb"),
        ],
    )
    assert values(log, pa.table({"value": hidden})) == [b"a", None, b"b"]
    assert values(log, pa.table({"value": hidden.slice(1)})) == [None, b"b"]
    assert b"secret" not in log.read_raw(0)


def test_nulls_alone_are_a_column(log: Log) -> None:
    """A column of the type null is accepted, too."""
    assert values(log, pa.table({"value": pa.nulls(3)})) == [None] * 3
    assert values(log, pa.table({"value": pa.nulls(2, pa.binary())})) == [None] * 2
    log.append_arrow(pa.table({"value": [b"x"], "key": pa.nulls(1, pa.binary())}))
    assert log[5].key is None


def test_a_table_of_many_chunks_is_one_batch(log: Log) -> None:
    """The chunks of values and keys may end at different rows."""
    table = pa.table(
        {
            "value": pa.chunked_array([[b"a"], [], [b"b", None], [b"d"]], pa.binary()),
            "key": pa.chunked_array([[b"1", b"2"], [None, b"4"]], pa.binary()),
        }
    )
    assert values(log, table) == [b"a", b"b", None, b"d"]
    assert [record.key for record in log] == [b"1", b"2", None, b"4"]
    assert [batch.count for batch in log.read_batches()] == [4]
    assert log.append_arrow(table.slice(0, 0)) == range(4, 4)
    assert log.append_arrow(table.schema.empty_table()) == range(4, 4)


@pytest.mark.parametrize(
    ("unit", "given", "expected"),
    [("s", 7, 7000), ("ms", 7, 7), ("us", 7999, 7), ("ns", 7_999_999, 7)],
)
@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_timestamps_of_every_unit_become_ms(
    log: Log, unit: str, given: int, expected: int, zone: str | None
) -> None:
    """Fractions of a ms are dropped; a zone only changes how a time is shown."""
    times = pa.array([given, given + 5_000_000_000], pa.timestamp(unit, zone))
    log.append_arrow(pa.table({"value": [b"x", b"y"], "timestamp": times}))
    assert log[0].timestamp == expected
    in_ms = times.cast(pa.timestamp("ms", zone), safe=False).cast("int64").to_pylist()
    assert [record.timestamp for record in log] == in_ms


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.uint64(), pa.uint8()], ids=str)
def test_timestamps_are_whole_numbers_too(log: Log, kind: pa.DataType) -> None:
    """Whole numbers of any size are accepted, sliced or not."""
    times = pa.array([1, 5, 3], kind)
    log.append_arrow(pa.table({"value": [b"x"] * 2, "timestamp": times[1:]}))
    assert [record.timestamp for record in log] == [5, 3]


@pytest.mark.parametrize(
    "times",
    [
        pa.array([None], pa.int64()),
        pa.array([-1], pa.int64()),
        pa.array([2**63], pa.uint64()),
        pa.array([-1], pa.timestamp("s")),
        pa.array([2**62], pa.timestamp("s")),
    ],
    ids=str,
)
def test_times_that_are_none_are_refused(log: Log, times: pa.Array) -> None:
    """Nulls, times before 1970, and seconds that overflow 64 bits of ms are refused."""
    with pytest.raises(ValueError, match=r"[a-z]"):
        log.append_arrow(pa.table({"value": [b"x"], "timestamp": times}))
    assert log.log_end_offset == 0


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (pa.table({"key": [b"x"]}), ValueError),
        (pa.table({"value": [b"x"], "more": [1]}), ValueError),
        (pa.table([[b"x"], [b"y"]], names=["value", "value"]), ValueError),
        (pa.table({"value": [1]}), TypeError),
        (pa.table({"value": [b"x"], "key": [1.5]}), TypeError),
        (pa.table({"value": [b"x"], "timestamp": [1.5]}), TypeError),
        (pa.table({"value": [b"x"], "headers": [1]}), TypeError),
        (pa.table({"value": [b"x"], "headers": [[{"key": None, "value": b""}]]}), TypeError),
        ([b"x"], TypeError),
        (None, TypeError),
    ],
    ids=str,
)
def test_what_is_no_table_of_records_is_refused(log: Log, data: Any, error: type) -> None:
    """The error names the columns of the table, and nothing is appended."""
    with pytest.raises(error):
        log.append_arrow(data)
    assert log.log_end_offset == 0


def test_what_is_too_large_is_refused(store: LogStore) -> None:
    """The rule is the same as for any append."""
    log = store.create("small", 0, config=LogConfig(max_message_bytes=1024))
    with pytest.raises(RecordTooLargeError):
        log.append_arrow(pa.table({"value": [b"x" * 1024]}))
    assert log.log_end_offset == 0


def test_what_comes_out_goes_in_again(store: LogStore, log: Log) -> None:
    """The table has keys, headers and times; the appended records get new offsets."""
    headers = [{"a": b"1", "é": None}, None, {"b": b""}]
    log.extend([b"x", None, b""], keys=[None, b"k", b""], timestamps=[5, 3, 4], headers=headers)
    table = log[:].to_arrow()
    assert table.schema == SCHEMA
    other = store.create("others", 0)
    other.append(b"first")
    assert other.append_arrow(table, durable=True) == range(1, 4)
    assert [record[1:5] for record in other[1:]] == [record[1:5] for record in log]
    assert other.append_arrow(log[1:]) == range(4, 6)
    (batch,) = log.read_batches()
    assert other.append_arrow(batch) == range(6, 9)
    assert [record[1:5] for record in other[6:]] == [record[1:5] for record in log]


def test_batches_and_their_parts_come_out(log: Log) -> None:
    """Arrow checks each column."""
    log.extend([b"x", None, b"yy"], headers=[None, {"a": b"1"}, None], timestamps=[1, 2, 3])
    (batch,) = log.read_batches()
    for part, expected in (
        (batch, [0, 1, 2]),
        (batch.slice(1, 3), [1, 2]),
        (batch.slice(1, 1), []),
    ):
        rows = part.to_arrow()
        rows.validate(full=True)
        assert rows.column("offset").to_pylist() == expected
    assert batch.to_arrow().column("headers").to_pylist()[1] == [{"key": "a", "value": b"1"}]


def test_log_append_time_wins(store: LogStore) -> None:
    """The column of timestamps is ignored."""
    config = LogConfig(message_timestamp_type="LogAppendTime", compression_type="zstd")
    log = store.create("stamped", 0, config=config)
    log.append_arrow(pa.table({"value": [b"x" * 500], "timestamp": [5]}))
    assert log[0].timestamp > 5 and log.size_bytes < 300


def test_headers_of_another_shape_are_refused(tmp_path: Path) -> None:
    """A list of structs without key and value causes a TypeError that names the column."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        for headers in (pa.array([[{"name": "a"}]]), pa.array([["a"]]), pa.array([1])):
            table = pa.table({"value": pa.array([b"v"]), "headers": headers})
            with pytest.raises(TypeError, match="column 'headers'"):
                log.append_arrow(table)
        nothing = pa.table({"value": pa.array([b"v"]), "headers": pa.nulls(1)})
        assert log.append_arrow(nothing) == range(1)


def test_cells_of_one_size_are_told_from_all_others(log: Log) -> None:
    """Right behind such of one size: others as many, of other sizes, null, empty, or a part."""
    whole = pa.array([b"abc"] * 6, pa.binary())
    columns = [
        whole,
        whole,
        pa.array([b"ab", b"abcd", *[b"abc"] * 4], pa.binary()),
        pa.array([b"abc"] * 5 + [b"ab"], pa.binary()),
        pa.array([b"abcd"] * 6, pa.binary()),
        pa.array([b"abc"] * 5 + [None], pa.binary()),
        pa.array([b""] * 6, pa.binary()),
        pa.array([b"xyz"] * 8, pa.binary())[1:7],
        pa.array(["abc"] * 6, pa.string()),
        pa.array(["abc"] * 6, pa.large_string()),
        pa.array([], pa.binary()),
        whole,
    ]
    expected: list[bytes | None] = []
    for column in columns:
        log.append_arrow(pa.record_batch({"value": column}))
        expected += [
            cell.encode() if isinstance(cell, str) else cell for cell in column.to_pylist()
        ]
    assert [record.value for record in log] == expected
    table = log[:].to_arrow()
    assert table.column("value").to_pylist() == expected
    assert table.column("offset").to_pylist() == list(range(len(expected)))
    for batch, other in zip(log.read_batches(), table.to_batches(), strict=True):
        batch.to_arrow().validate(full=True)
        assert batch.to_arrow().equals(other)


def test_batches_far_apart_and_in_any_order_keep_their_offsets_and_times(log: Log) -> None:
    """Arrays that are kept for the last batch are not used for another batch."""
    for number in range(30):
        log.extend([b"%d" % number] * (number % 4 + 1), timestamps=number // 3)
    batches = list(log.read_batches())
    for batch in [*batches, *batches[::-1], *batches[::3], *batches[:5]]:
        arrow = batch.to_arrow()
        assert arrow.column("offset").to_pylist() == batch.offsets.tolist()
        assert arrow.column("timestamp").to_pylist() == batch.timestamps.tolist()
        part = batch.slice(1, 3)
        assert part.to_arrow().column("offset").to_pylist() == part.offsets.tolist()
