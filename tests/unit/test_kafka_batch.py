"""Kafka's record batches are read back unchanged, and invalid batches are refused."""

from __future__ import annotations

import struct
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore import RecordExpansionError, UnsupportedFormatError
from logstore.format import layouts
from logstore.format.batch import RecordBatch
from logstore.format.compression import CODEC_IDS
from logstore.format.expansion import expansion_bytes
from logstore.format.kafka import codecs as kafka_codecs
from logstore.format.kafka import record_batch as kafka
from logstore.format.kafka.decode import read_headers
from logstore.format.kafka.encode import encode_alike, encode_rows, equal_size
from logstore.format.kafka.encode import varint as written
from logstore.format.kafka.varints import varint

CELLS = st.one_of(st.none(), st.binary(max_size=80))
HEADERS = st.lists(st.tuples(st.text(max_size=5), CELLS), max_size=3).map(tuple)
ROWS = st.lists(
    st.tuples(st.integers(0, 2**40), CELLS, CELLS, HEADERS), min_size=1, max_size=60
)  # fmt: skip
CODECS = sorted(CODEC_IDS.values())


def framed(payload: kafka.KafkaPayload, base_offset: int = 7, epoch: int = 3) -> bytes:
    """Encode a whole batch."""
    return b"".join(kafka.frame(payload, base_offset, epoch))


def decoded(data: bytes, base_offset: int = 7) -> RecordBatch:
    """Check a batch and decode it."""
    header = kafka.sound_header(memoryview(data), 0, len(data), base_offset)
    assert header is not None and layouts.fault(data, 0, base_offset) is None
    assert kafka.read_header(data, 0) == header
    return kafka.decode_columns(data, 0, header)


@settings(max_examples=150, deadline=None)
@given(rows=ROWS, codec_id=st.sampled_from(CODECS), repeat=st.sampled_from([1, 1, 9]))
def test_records_come_back(rows: list[tuple[Any, ...]], codec_id: int, repeat: int) -> None:
    """Few or many records, in any codec, are read back with all their fields."""
    rows = rows * repeat
    times, keys, values, headers = (list(column) for column in zip(*rows, strict=True))
    payload = kafka.build_payload(
        values, keys, np.array(times, np.int64), headers, codec_id=codec_id
    )
    data = framed(payload)
    batch = decoded(data)
    assert len(data) == payload.size_bytes and batch.header.leader_epoch == 3
    assert [record[:5] for record in batch.records()] == [
        (7 + at, time, key, value, pairs) for at, (time, key, value, pairs) in enumerate(rows)
    ]


@pytest.mark.parametrize("sizes", [[100] * 500, [0] * 50, [63, 64] * 40, [8191, 8192, 5] * 20])
def test_equal_and_unequal_sizes_come_back(sizes: list[int]) -> None:
    """There are runs of equal records, and records whose length needs another byte."""
    values = [bytes([at % 256]) * size for at, size in enumerate(sizes)]
    batch = decoded(framed(kafka.build_payload(values, None, 5, None)))
    assert batch.values.to_list() == values and batch.timestamps.tolist() == [5] * len(values)


@pytest.mark.parametrize("count", [3, 40])
def test_missing_offsets_are_kept(count: int) -> None:
    """A compacted batch has fewer records than offsets, and keeps its range of offsets."""
    deltas = np.arange(count) * 3 + 1
    payload = kafka.build_payload([b"v"] * count, None, 1, None, offset_deltas=deltas)
    batch = decoded(framed(payload.spanning(3 * count + 9)))
    assert batch.offsets.tolist() == (deltas + 7).tolist()
    assert batch.header.last_offset == 7 + 3 * count + 9


def test_a_part_keeps_its_producer() -> None:
    """The part of a batch before an offset keeps its codec, producer and offsets."""
    values = [b"%d" % number for number in range(50)]
    data = bytearray(framed(kafka.build_payload(values, None, 1, None, codec_id=1)))
    struct.pack_into(">qhi", data, 43, 99, 4, 17)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    part = decoded(b"".join(layouts.part_until(bytes(data), 7 + 30)))
    assert part.values.to_list() == values[:30] and part.header.last_offset == 7 + 29
    assert part.header[10:13] == (99, 4, 17) and part.header.attributes == 1


def test_a_hole_spans_offsets() -> None:
    """A batch without records takes the offsets of lost records."""
    data = layouts.hole(kafka.MAGIC, 7, 40, 2)
    batch = decoded(data)
    assert batch.count == 0 and batch.header.last_offset == 39 and len(data) == 61


def test_another_place_needs_no_other_checksum() -> None:
    """The checksum does not cover offset and epoch, so a batch can move unchanged."""
    data = framed(kafka.build_payload([b"a", b"b"], None, 1, None))
    moved = b"".join(kafka.reframe(data, 1000, 9))
    assert moved[16:] == data[16:] and decoded(moved, 1000).offsets.tolist() == [1000, 1001]


def test_every_flipped_bit_is_damage() -> None:
    """This holds for all bytes but base offset and epoch, which the checksum does not cover."""
    data = framed(kafka.build_payload([b"abc", None], [b"k", None], 5, None))
    for at in (*range(8, 12), *range(16, len(data))):
        for bit in range(8):
            bad = bytearray(data)
            bad[at] ^= 1 << bit
            assert layouts.fault(bytes(bad), 0, None) is not None, (at, bit)
            found = kafka.sound_header(memoryview(bad), 0, len(bad), 7) if bad[16] == 2 else None
            assert found is None


def signed(rows: bytes, count: int, last_delta: int | None = None) -> bytes:
    """Make a batch with a right checksum from any bytes."""
    payload = kafka.build_payload([b"x"], None, 1, None)
    data = bytearray(framed(payload)[:61]) + rows
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">i", data, 23, count - 1 if last_delta is None else last_delta)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


ROW = b"\x10\x00\x00\x00\x01\x04hi\x00"


@pytest.mark.parametrize("copies", [1, 40])
@pytest.mark.parametrize(
    "row",
    [
        ROW[:-1],  # ends early
        ROW + b"\x00",  # bytes are left
        b"\x0f" + ROW[1:],  # a negative size
        b"\x10\x00\x00\x00\x01\x06hi\x00",  # a value that ends behind its record
        b"\x10\x00\x00\x00\x03\x04hi\x00",  # a key of size -2
        b"\x10\x00\x00\x00\x01\x04hi\x02",  # a header that is not there
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",  # a number that does not end
        b"\x10\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x10\x00\x00\xff\xff\xff\xff\xff\xff",
    ],
)
def test_rows_that_cannot_be_are_refused(row: bytes, copies: int) -> None:
    """A right checksum does not prove that the batch was encoded correctly."""
    rows = b"".join(
        bytes([ROW[0] + 2 * (number > 63), 0, 0]) + written(number) + ROW[4:]
        for number in range(copies - 1)
    )
    data = signed(rows + row, copies)
    assert layouts.fault(data, 0, 7) is None
    with pytest.raises(ValueError, match=r"record|number|cell|header"):
        kafka.decode(data, 0)


def test_counts_are_checked_before_memory_is_asked_for() -> None:
    """Two thousand million records do not fit into nine bytes."""
    assert layouts.fault(signed(ROW, 2**31 - 1), 0, 7) is not None
    data = bytearray(signed(ROW, 1))
    data[22] = 1  # gzip: the header cannot know
    struct.pack_into(">ii", data, 23, 2**31 - 2, 0)
    struct.pack_into(">i", data, 57, 2**31 - 1)
    data[61:] = kafka_codecs.compress(1, ROW)
    struct.pack_into(">i", data, 8, len(data) - 12)
    with pytest.raises(ValueError, match="do not fit into 9 bytes"):
        kafka.decode(bytes(data), 0)


@pytest.mark.parametrize("codec_id", CODECS[1:])
def test_a_bomb_is_refused(codec_id: int) -> None:
    """Decompression stops at the limit, before memory is allocated."""
    packed = kafka_codecs.compress(codec_id, bytes(100_000))
    assert kafka_codecs.decompress(codec_id, packed) == bytes(100_000)
    with pytest.raises(RecordExpansionError, match="record_expansion_bytes_max=99999"):
        kafka_codecs.decompress(codec_id, packed, 99_999)
    for damaged in (packed[:-9], b"", b"\x00" * 40):
        with pytest.raises(ValueError, match="do not decompress"):
            kafka_codecs.decompress(codec_id, damaged)


def test_bare_snappy_is_read() -> None:
    """Some clients write snappy without a frame."""
    from cramjam import snappy

    assert kafka_codecs.decompress(2, bytes(snappy.compress_raw(b"abc" * 50))) == b"abc" * 50


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_sets_are_refused_by_name(magic: int) -> None:
    """Old message sets are not damaged, but this library cannot read them."""
    message = struct.pack(">qiIBB", 0, 30, 0, magic, 0) + bytes(40)
    assert f"message format v{magic}" in str(layouts.fault(message, 0, 0))
    with pytest.raises(UnsupportedFormatError, match=f"v{magic}"):
        layouts.layout_of(magic)


@pytest.mark.parametrize("number", [0, -1, 1, 63, -64, 64, 8191, 8192, 2**31, -(2**62), 2**62])
def test_numbers_come_back(number: int) -> None:
    """Zigzag varints of any size are read back."""
    assert varint(written(number) + b"\x80", 0) == (number, len(written(number)))


def test_headers_that_cannot_be_are_refused() -> None:
    """A count that is too large, and a name that is null, are refused."""
    for data in (b"\x08\x02", b"\x02\x01\x01", b"\x02\x02a"):
        with pytest.raises(ValueError, match=r"headers do not fit|no name|not end"):
            read_headers(data, 0, len(data))


@pytest.mark.parametrize("copies", [1, 40])
def test_regression_a_name_that_is_no_text_is_read_as_java_reads_it(copies: int) -> None:
    """A producer may send any bytes as the name of a header; a reader must not fail."""
    names = [b"\xff\xfea", b"good", b"\xc3", b"\xa9"]
    headers = written(len(names)) + b"".join(written(len(name)) + name + b"\1" for name in names)
    rows = b""
    for number in range(copies):
        row = b"\0\0" + written(number) + b"\1\1" + headers
        rows += written(len(row)) + row
    batch = kafka.decode(signed(rows, copies), 0)
    expected = tuple((name, None) for name in ("\ufffd\ufffda", "good", "\ufffd", "\ufffd"))
    assert batch.headers == [expected] * copies
    assert batch.to_arrow()["headers"][0][0]["key"].as_py() == "\ufffd\ufffda"


@pytest.mark.parametrize("copies", [1, 30])
def test_more_headers_than_allowed_are_refused(copies: int) -> None:
    """A header of two bytes becomes an object, so all headers of a batch count together."""
    headers = [((("a", None),) * (60 // copies))] * copies
    data = framed(kafka.build_payload([b"v"] * copies, None, 1, headers, codec_id=1))
    needed = expansion_bytes(
        len(kafka_codecs.decompress(1, data[kafka.HEADER_BYTES :])), copies, 60
    )
    assert kafka.decode(data, 0, needed).count == copies
    with pytest.raises(RecordExpansionError):
        kafka.decode(data, 0, needed - 256)


@pytest.mark.parametrize(("library", "codec"), [("crc32c", "none"), ("cramjam", "snappy")])
def test_a_missing_library_is_named_with_its_extra(library: str, codec: str) -> None:
    """The error also has the path of the file."""
    program = f"""
import sys
sys.modules[{library!r}] = None
from logstore.format import layouts, compression
try:
    layouts.layout_of(2, "/disk/t-0").require(compression.CODEC_IDS[{codec!r}])
except layouts.UnsupportedFormatError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "pip install 'logstore[kafka]'" in done.stdout, done.stderr
    assert library != "crc32c" or "/disk/t-0" in done.stdout
    assert library == "crc32c" or done.stdout.startswith("unsupported format 'snappy'")


def test_a_broker_opened_without_the_extra_names_it() -> None:
    """The error of a failed import says what to install."""
    program = "import sys; sys.modules['crc32c'] = None\n"
    program += "from logstore import LogStore; LogStore.open_kafka('/')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1].startswith("ImportError: Kafka's record batches need")
    assert "pip install 'logstore[kafka]'" in done.stderr


@pytest.mark.parametrize("size", [0, 1, 55, 56, 57, 63, 64, 100, 8200])
def test_values_of_one_size_are_laid_out_as_any_others(size: int) -> None:
    """Values of one size and time are encoded to the same bytes by both methods."""
    for count in (1, 2, 24, 25, 63, 64, 65, 300):
        values = [bytes([number % 256]) * size for number in range(count)]
        zeros, deltas = np.zeros(count, np.int64), np.arange(count)
        assert equal_size(values) == size
        assert encode_alike(values, size) == encode_rows(values, None, zeros, deltas, None)
        assert equal_size([*values, b"x" * (size + 1)]) == equal_size([*values, None]) == -1
    assert equal_size([]) == -1
