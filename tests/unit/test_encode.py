"""Test what a caller may append, how it is encoded, and the largest size of its batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import Record
from logstore.format.columnar import record_batch as columnar
from logstore.format.columnar.payload import Payload
from logstore.format.kafka import record_batch as kafka
from logstore.log.write import encode

CELLS = st.none() | st.binary(max_size=60)
HEADERS = st.lists(st.tuples(st.text(max_size=9), CELLS), max_size=4).map(tuple)
ROWS = st.lists(st.tuples(CELLS, CELLS, HEADERS), min_size=1, max_size=12)


@pytest.mark.parametrize("magic", [columnar.MAGIC, kafka.MAGIC])
@given(rows=ROWS, now_ms=st.integers(0, 2**42), is_log_append_time=st.booleans())
def test_no_batch_is_larger_than_was_reckoned(
    magic: int, rows: list[Any], now_ms: int, is_log_append_time: bool
) -> None:
    """Records that are grouped by `size_max` never make a batch that is too large."""
    values, keys, headers = (list(column) for column in zip(*rows, strict=True))
    payload = encode.build(
        values, keys, None, headers,
        now_ms=now_ms, codec_id=0, is_log_append_time=is_log_append_time, magic=magic,
    )  # fmt: skip
    reckoned = sum(encode.size_max(*row) for row in rows)
    assert payload.record_count == len(rows)
    assert payload.size_bytes <= reckoned + encode.BATCH_OVERHEAD_BYTES


@pytest.mark.parametrize("given", [b"x", bytearray(b"x"), memoryview(b"x"), np.bytes_(b"x")])
def test_a_cell_becomes_bytes(given: Any) -> None:
    """Bytes-like objects are copied; null stays null."""
    assert encode.check_cell(given, "value") == b"x"
    assert encode.check_cell(None, "value") is None


@pytest.mark.parametrize(
    ("given", "reason"),
    [("x", "encode text first"), (1, "a key must be bytes or None"), ([], "key")],
)
def test_a_cell_of_another_kind_is_named(given: Any, reason: str) -> None:
    """The error names the cell, and says what to do with text."""
    with pytest.raises(TypeError, match=reason):
        encode.check_cell(given, "key")


@pytest.mark.parametrize("given", [0, 5, np.int64(5), encode.TIMESTAMP_MAX])
def test_a_timestamp_becomes_an_int(given: Any) -> None:
    """Numbers of NumPy are accepted, too."""
    assert encode.check_timestamp(given) == given
    assert type(encode.check_timestamp(given)) is int


@pytest.mark.parametrize(
    ("given", "kind"),
    [(-1, ValueError), (2**63, ValueError), (1.0, TypeError), (True, TypeError), (None, TypeError)],
)
def test_what_is_no_timestamp_is_refused(given: Any, kind: type[Exception]) -> None:
    """Times before the epoch, over 63 bits, fractions and booleans are refused."""
    with pytest.raises(kind, match="timestamp"):
        encode.check_timestamp(given)


@pytest.mark.parametrize(
    "given",
    [{"a": b"1", "b": None}, [("a", b"1"), ("b", None)], (["a", bytearray(b"1")], ("b", None))],
)
def test_headers_become_pairs_in_their_order(given: Any) -> None:
    """Headers are a mapping, or pairs in any sequence."""
    assert encode.check_headers(given) == (("a", b"1"), ("b", None))


@pytest.mark.parametrize("given", ["ab", [("a",)], [(b"a", b"1")], [("a", "1")], 7])
def test_what_is_no_headers_is_refused(given: Any) -> None:
    """Names must be text, values bytes or null, and each header a pair."""
    with pytest.raises(TypeError, match="header"):
        encode.check_headers(given)
    with pytest.raises(UnicodeEncodeError):
        encode.check_headers([("\ud800", None)])


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (([b"a"], [None, None], None, None), "2 keys for 1 values"),
        (([b"a"], None, None, [None, None]), "2 headers for 1 values"),
        (([b"a"], None, [1, 2], None), "2 timestamps for 1 values"),
        (([b"a"], None, [2**63], None), "timestamp"),
        (([b"a"], None, np.array([-1]), None), "timestamp"),
    ],
)
@pytest.mark.parametrize("magic", [columnar.MAGIC, kafka.MAGIC])
def test_columns_that_do_not_fit_are_refused(columns: Any, reason: str, magic: int) -> None:
    """The error names the column and the numbers of items."""
    options: Any = {"now_ms": 1, "codec_id": 0, "is_log_append_time": False, "magic": magic}
    with pytest.raises(ValueError, match=reason):
        encode.build(*columns, **options)


def test_the_time_of_the_log_outranks_that_of_the_records() -> None:
    """Without LogAppendTime, a record keeps its time; if it has none, it gets the present time."""
    options: Any = {"now_ms": 99, "codec_id": 0}
    own = encode.build([b"a", b"b"], None, [7, None], None, is_log_append_time=False, **options)
    logs = encode.build([b"a", b"b"], None, [7, None], None, is_log_append_time=True, **options)
    assert own.max_timestamp == logs.max_timestamp == 99
    assert isinstance(own, Payload) and isinstance(logs, Payload)
    assert (own.base_timestamp, logs.base_timestamp) == (7, 99)


def test_records_are_taken_apart_into_columns() -> None:
    """The offsets of records are ignored; anything but a record is refused."""
    records = [Record(7, 1, b"k", b"v", (("h", None),)), Record(3, 2, None, None, ())]
    columns = ([b"v", None], [b"k", None], [1, 2], [(("h", None),), ()])
    assert encode.unpack_records(records) == columns
    with pytest.raises(TypeError, match="but a value is of type bytes"):
        encode.unpack_records([*records, b"x"])  # type: ignore[list-item]
