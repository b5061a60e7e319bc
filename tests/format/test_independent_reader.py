"""Hold the engine's encoder and decoder against the reader that was written from the document."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.format import compression, layouts
from logstore.format.columnar import record_batch as columnar
from logstore.log.write import encode
from support import reader

CELLS = st.one_of(st.none(), st.binary(max_size=20), st.just(b"12345678"))
NAMES = st.text(max_size=5)
HEADERS = st.lists(st.tuples(NAMES, CELLS), max_size=3).map(tuple)
TIMES = st.integers(min_value=0, max_value=2**48)
ROWS = st.lists(st.tuples(TIMES, CELLS, CELLS, HEADERS), min_size=1, max_size=30)
BASES = st.integers(min_value=0, max_value=2**62)


def encoded(rows: list[tuple[Any, ...]], base: int, codec: str) -> bytes:
    """Encode rows as the engine does."""
    times, keys, values, headers = (list(column) for column in zip(*rows, strict=True))
    payload = encode.build(
        values, keys, times, headers,
        now_ms=0, codec_id=compression.CODEC_IDS[codec], is_log_append_time=False,
    )  # fmt: skip
    return b"".join(layouts.frame(payload, base, 5))


@settings(max_examples=150, deadline=None)
@given(rows=ROWS, base=BASES, codec=st.sampled_from(["none", "lz4", "zstd"]))
def test_the_reader_finds_what_the_engine_encodes(
    rows: list[tuple[Any, ...]], base: int, codec: str
) -> None:
    """Any batch reads the same by the document and by the engine."""
    data = encoded(rows, base, codec)
    batch = reader.read_batch(data, 0, base)
    assert [tuple(r)[1:] for r in batch.records] == rows
    assert (batch.size_bytes, batch.end_offset) == (len(data), base + len(rows))
    assert [tuple(r)[:5] for r in columnar.decode(data, 0)] == batch.records


@settings(max_examples=40, deadline=None)
@given(rows=ROWS, place=st.floats(0, 1), bit=st.integers(0, 7))
def test_the_reader_takes_no_flipped_bit(
    rows: list[tuple[Any, ...]], place: float, bit: int
) -> None:
    """A flipped bit is damage for the reader too, and so is a cut."""
    data = bytearray(encoded(rows, 7, "none"))
    data[round(place * (len(data) - 1))] ^= 1 << bit
    with pytest.raises(reader.Damage):
        reader.read_batch(bytes(data), 0, 7)
    with pytest.raises(reader.Damage):
        reader.read_batch(encoded(rows, 7, "none")[:-1], 0, 7)


def test_a_hole_has_no_records() -> None:
    """A batch without records spans its offsets."""
    batch = reader.read_batch(columnar.hole(3, 9, 1), 0, 3)
    assert (batch.records, batch.base_offset, batch.end_offset) == ([], 3, 9)
