"""Records as text, in both directions."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import Record
from logstore.cli.record_text import (
    parse_json_record,
    parse_moment,
    printable,
    record_to_json,
    record_to_line,
)

cells = st.none() | st.binary(max_size=20)
headers = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), cells), max_size=3)


@given(cells, cells, st.integers(0, 2**62), headers)
def test_a_json_line_comes_back_unchanged(
    key: bytes | None,
    value: bytes | None,
    timestamp: int,
    pairs: list[tuple[str, bytes | None]],
) -> None:
    """What `cat` prints of any record, `append` reads as the same record."""
    record = Record(7, timestamp, key, value, tuple(pairs), "orders", 3)
    line = json.dumps(record_to_json(record)).encode()
    parsed = parse_json_record(line)
    assert (parsed.key, parsed.value, parsed.timestamp, parsed.headers) == (
        key,
        value,
        timestamp,
        tuple(pairs),
    )


@given(st.binary())
def test_any_bytes_are_a_record_or_a_value_error(line: bytes) -> None:
    """No input makes the parser fail in another way than it promises."""
    try:
        parse_json_record(line)
    except ValueError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "not JSON"),
        ("[1]", "not a JSON object"),
        ("{}", '"value" is missing'),
        ('{"value": 1}', '"value" must be'),
        ('{"value": {"base64": "!"}}', "not base64"),
        ('{"value": "v", "kye": "k"}', 'unknown field "kye"'),
        ('{"value": "v", "timestamp": -1}', '"timestamp" must be'),
        ('{"value": "v", "timestamp": 1.5}', '"timestamp" must be'),
        ('{"value": "v", "timestamp": true}', '"timestamp" must be'),
        ('{"value": "v", "timestamp": "noon"}', "not a date and time"),
        ('{"value": "v", "timestamp": 9223372036854775808}', '"timestamp" must be'),
        ('{"value": "v", "headers": 3}', '"headers" must be'),
        ('{"value": "v", "headers": [["a"]]}', '"headers" must be [name, value]'),
        ('{"value": "\\ud800"}', "surrogate"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_line_says_what_is_wrong(line: str, said: str) -> None:
    """Each kind of bad line has its own words."""
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_json_record(line.encode())


def test_headers_may_be_an_object() -> None:
    """A header object is the short form of a list of pairs."""
    parsed = parse_json_record(b'{"value": null, "headers": {"a": "1", "b": null}}')
    assert parsed.headers == (("a", b"1"), ("b", None))


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [
        ("0", 0),
        ("1357034400000", 1357034400000),
        ("2013-01-01T10:00:00Z", 1357034400000),
        ("2013-01-01T10:00", 1357034400000),
        ("2013-01-01T05:00:00-05:00", 1357034400000),
        ("2013-01-01", 1356998400000),
    ],
)
def test_moments(text: str, timestamp: int) -> None:
    """A point in time is read in each of its forms; UTC when it names no zone."""
    assert parse_moment(text) == timestamp


def test_a_line_cannot_steer_the_terminal() -> None:
    """Control characters and broken UTF-8 are shown, not sent."""
    assert printable(b"\x1b[31mred\n\xff") == "\\x1b[31mred\\n\\xff"
    assert printable("größe €".encode()) == "größe €"
    assert printable(None) == "(null)"


def test_a_text_line_has_all_of_a_record() -> None:
    """Offset, time, key, value and headers are parted by tabs."""
    record = Record(5, 1357034400000, b"k", None, (("h", b"1"),), "orders", 0)
    assert record_to_line(record) == "5\t2013-01-01T10:00:00.000Z\tk\t(null)\th=1"


def test_a_time_beyond_the_calendar_is_a_number() -> None:
    """A timestamp that no date can hold is printed as it is."""
    record = Record(0, 2**62, None, b"")
    assert record_to_line(record).split("\t")[1] == str(2**62)
