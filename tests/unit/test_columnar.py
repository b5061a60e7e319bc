"""A columnar batch is read back unchanged, and a damaged batch is always refused."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_digest

from logstore.format import layouts
from logstore.format.columnar import record_batch as columnar
from logstore.format.columnar.columns import encode_cells
from logstore.format.columnar.payload import Payload, build_payload, payload_of
from logstore.format.sound import sound_header
from logstore.log.encoded.raw_batches import parse
from logstore.log.write.encode import BATCH_OVERHEAD_BYTES, check_headers, encode_headers, size_max

CELLS = st.one_of(st.none(), st.binary(max_size=20), st.just(b"12345678"))
TIMES = st.one_of(st.integers(0, 3), st.integers(0, 2**63 - 1))
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))))
ROWS = st.lists(st.tuples(CELLS, CELLS, TIMES, HEADERS.map(tuple)), min_size=1, max_size=20)
CODECS = st.sampled_from([0, 3, 4])


def build(rows: list[Any], codec_id: int = 0, deltas: list[int] | None = None) -> Payload:
    """Lay rows of value, key, timestamp and headers out."""
    values, keys, times, headers = zip(*rows, strict=True)
    return build_payload(
        encode_cells(values),
        len(rows),
        keys=encode_cells(keys) if any(key is not None for key in keys) else None,
        headers=encode_headers(headers),
        timestamps=np.array(times, np.int64),
        offset_deltas=None if deltas is None else np.array(deltas, np.uint32),
        codec_id=codec_id,
    )


def joined(payload: Payload, base_offset: int = 7) -> bytes:
    """Join the buffers of a batch with this payload."""
    return b"".join(columnar.frame(payload, base_offset, 3))


def rows_of(data: bytes) -> list[Any]:
    """Decode a batch into its rows."""
    records = columnar.decode(data, 0).records()
    return [(record.value, record.key, record.timestamp, record.headers) for record in records]


@given(rows=ROWS, codec_id=CODECS, base_offset=st.integers(0, 2**62))
def test_rows_come_back(rows: list[Any], codec_id: int, base_offset: int) -> None:
    """Records are read one by one and in parts; the size is as estimated."""
    payload = build(rows, codec_id)
    data = joined(payload, base_offset)
    assert len(data) == payload.size_bytes
    assert layouts.fault(data, 0, base_offset) is None
    assert rows_of(data) == rows
    batch = columnar.decode(data, 0)
    assert batch.offsets.tolist() == list(range(base_offset, base_offset + len(rows)))
    assert [batch.record(at) for at in range(len(rows))] == batch.records()
    half = len(rows) // 2
    assert batch.slice(half, len(rows)).records() == batch.records()[half:]
    assert len(parse(data)) == 1


@given(rows=ROWS, codec_id=CODECS, steps=st.lists(st.integers(1, 9), min_size=20, max_size=20))
def test_offsets_with_gaps_come_back(rows: list[Any], codec_id: int, steps: list[int]) -> None:
    """This also holds after the records are encoded again."""
    deltas = np.cumsum(steps[: len(rows)]).tolist()
    data = joined(build(rows, codec_id, deltas))
    batch = columnar.decode(data, 0)
    assert batch.offsets.tolist() == [7 + delta for delta in deltas]
    assert rows_of(data) == rows
    again = joined(payload_of(batch, deltas[-1]))
    assert again == data


@given(rows=ROWS)
def test_no_batch_is_larger_than_its_records_are_at_most(rows: list[Any]) -> None:
    """So code that gathers records knows when a batch is full."""
    most = sum(size_max(value, key, check_headers(pairs)) for value, key, _, pairs in rows)
    assert build(rows).size_bytes <= most + BATCH_OVERHEAD_BYTES


@settings(max_examples=20)
@given(rows=ROWS, codec_id=CODECS)
def test_no_part_of_a_batch_is_a_batch(rows: list[Any], codec_id: int) -> None:
    """A batch that is cut at any byte has a fault, alone and before another batch."""
    data = joined(build(rows, codec_id))
    for end in range(len(data)):
        assert layouts.fault(data[:end], 0, None) is not None
        assert sound_header(memoryview(data), 0, end, 7) is None
    for start in range(1, min(len(data), 80)):
        assert layouts.fault(data[start:] + data, 0, None) is not None


@settings(max_examples=10)
@given(rows=ROWS, codec_id=CODECS, bit=st.integers(0, 7))
def test_no_changed_byte_passes(rows: list[Any], codec_id: int, bit: int) -> None:
    """Whichever it is."""
    data = joined(build(rows, codec_id))
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << bit
        assert layouts.fault(bytes(changed), 0, None) is not None
        assert sound_header(memoryview(changed), 0, len(data), 7) is None


@given(value=st.binary(max_size=40), time=TIMES, base_offset=st.integers(0, 2**62))
def test_the_short_way_makes_the_same_bytes(value: bytes, time: int, base_offset: int) -> None:
    """`frame_one` and the general function make the same bytes for one plain record."""
    payload = build_payload(encode_cells([value]), 1, timestamps=time)
    assert columnar.frame_one(base_offset, 3, time, value) == joined(payload, base_offset)


def test_a_batch_moves_to_another_offset() -> None:
    """The records do not change, and the checksum is right again."""
    data = joined(build([(b"a", b"k", 5, ()), (None, None, 4, (("h", b""),))]))
    moved = columnar.reframe(data, 100, 9)
    assert layouts.fault(moved, 0, 100) is None
    assert "begins with offset 100, not 7" in (layouts.fault(moved, 0, 7) or "")
    assert columnar.read_header(moved, 0).leader_epoch == 9
    assert rows_of(moved) == rows_of(data)


def test_a_hole_has_offsets_and_no_records() -> None:
    """The batch spans the lost offsets."""
    data = columnar.hole(5, 9, 2)
    header = columnar.read_header(data, 0)
    assert (header.base_offset, header.last_offset, header.record_count) == (5, 8, 0)
    batch = columnar.decode(data, 0)
    assert len(batch) == 0 and batch.records() == [] and batch.last_offset == 8


def crafted(data: bytes, changes: dict[int, bytes]) -> bytes:
    """Change bytes of a batch and correct its checksum, as a faulty peer could."""
    body = bytearray(data[:-8])
    for at, new in changes.items():
        body[at : at + len(new)] = new
    return bytes(body) + xxh3_64_digest(body)


# Three values of sizes 1, 2, 3: head at 72, starts at 80, data at 96.
PLAIN = joined(build([(b"a", None, 5, ()), (b"bc", None, 5, ()), (b"def", None, 5, ())]))
GAPS = joined(build([(b"aa", None, 5, ()), (b"bc", None, 5, ())], 0, [1, 4]))
U32, I64 = struct.Struct("<I").pack, struct.Struct(">q").pack


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(crafted(PLAIN, {80: U32(1)}), id="cells begin behind 0"),
        pytest.param(crafted(PLAIN, {84: U32(4), 88: U32(3)}), id="cells go back"),
        pytest.param(crafted(PLAIN, {92: U32(7)}), id="cells end behind the data"),
        pytest.param(crafted(PLAIN, {72: U32(600)}), id="data behind the batch"),
        pytest.param(crafted(PLAIN, {76: U32(5)}), id="cells of another size"),
        pytest.param(crafted(PLAIN, {24: U32(0)[::-1]}), id="fewer offsets than records"),
        pytest.param(crafted(PLAIN, {24: struct.pack(">I", 9)}), id="more offsets than records"),
        pytest.param(crafted(PLAIN, {40: I64(6)}), id="a later timestamp in the header"),
        pytest.param(crafted(PLAIN, {18: b"\x00\x20"}), id="keys that are not there"),
        pytest.param(crafted(PLAIN, {18: b"\x00\x04"}), id="zstd that is none"),
        pytest.param(crafted(PLAIN, {18: b"\x00\x03"}), id="lz4 that is none"),
        pytest.param(crafted(PLAIN, {18: b"\x01\x00"}), id="unknown attributes"),
        pytest.param(crafted(PLAIN, {17: b"\x02"}), id="another version"),
        pytest.param(crafted(GAPS, {72: U32(4)}), id="deltas that stand still"),
        pytest.param(crafted(GAPS, {76: U32(5)}), id="deltas behind the last"),
        pytest.param(PLAIN + PLAIN[:40], id="half a batch behind a whole one"),
    ],
)
def test_what_a_peer_made_badly_is_refused(data: bytes) -> None:
    """Although the checksum is right, a ValueError is raised. ValueError, and never a batch."""
    with pytest.raises(ValueError, match=r"[a-z]"):
        parse(data)


def test_what_is_no_bytes_is_refused() -> None:
    """The error is a TypeError."""
    raw: Any = "text"
    with pytest.raises(TypeError, match="as bytes, not"):
        parse(raw)
    assert parse(b"") == []
    assert len(parse(PLAIN + GAPS)) == 2
