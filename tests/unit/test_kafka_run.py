"""Decode many Kafka batches at once, and compare with decoding record by record.

The other readers are aiokafka's, and the plain way of our own, which takes a few records.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore import CorruptRecordBatchError, LogStore, RecordBatch, UnsupportedFormatError
from logstore.format.batch_parts import BatchHeader
from logstore.format.kafka import codecs as kafka_codecs
from logstore.format.kafka import decode as kafka_decode
from logstore.format.kafka import record_batch as kafka
from logstore.format.kafka import varints as kafka_varints
from logstore.format.kafka.encode import varint as written
from logstore.format.kafka.header import CODEC_MASK, CONTROL, HEADER_BYTES
from logstore.format.prefix import walk
from support.kafka_golden import GOLDEN

Run = list[tuple[int, BatchHeader]]

CELL_SIZES = ([100], [0], [60, 61, 62, 63, 64, 65], [8190, 8191, 8192], list(range(90)))
CODECS = (0, 0, 0, 1, 2, 3, 4)


def random_batch(rng: random.Random, base_offset: int) -> bytes:
    """Make a batch of any shape."""
    count = rng.choice((0, 1, 3, 10, 40, 200))
    sizes, nulls = rng.choice(CELL_SIZES), rng.choice((0, 0, 0.2, 1))
    values = [
        None if rng.random() < nulls else rng.randbytes(rng.choice(sizes)) for _ in range(count)
    ]
    keys = [None if rng.random() < 0.3 else rng.randbytes(rng.choice((4, 4, 70))) for _ in values]
    spread = rng.choice((1, 200, 10**12))
    times = np.array([rng.randrange(spread) for _ in values], np.int64)
    steps = [rng.choice((1, 1, 1, 90)) for _ in values]
    headers = [(("name", rng.choice((None, b"", b"cell"))),) * rng.randrange(3) for _ in values]
    payload = kafka.build_payload(
        values,
        keys if rng.random() < 0.4 else None,
        times,
        headers if rng.random() < 0.2 else None,
        offset_deltas=np.cumsum(steps) - 1 if rng.random() < 0.3 else None,
        codec_id=rng.choice(CODECS),
        is_log_append_time=rng.random() < 0.2,
    )
    if not count or rng.random() < 0.2:
        payload = payload.spanning(max(payload.last_offset_delta, 0) + rng.randrange(3))
    return b"".join(kafka.frame(payload, base_offset, 0))


def random_segment(seed: int) -> bytes:
    """Make a few batches, or many batches that are stepped through together."""
    rng = random.Random(seed)
    if rng.random() < 0.5:
        shape = rng.randrange(10**9)
        alike = [random.Random(shape) for _ in range(rng.randrange(60, 100))]
        return b"".join(random_batch(each, 1000 * at) for at, each in enumerate(alike))
    return b"".join(random_batch(rng, 1_000_000 * number) for number in range(rng.randrange(1, 12)))


def run_of(segment: bytes) -> Run:
    """Return the whole batches of a segment."""
    return [(span.position, kafka.read_header(segment, span.position)) for span in walk(segment)]


def one_by_one(segment: bytes, run: Run) -> Iterator[RecordBatch]:
    """Decode each batch alone, in the simplest way."""
    for position, header in run:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kafka_decode, "ROWS_PLAIN_MAX", 2**31)
            batch = kafka.decode_columns(segment, position, header)
        yield batch


def by_aiokafka(segment: bytes, position: int, header: BatchHeader) -> list[tuple[Any, ...]]:
    """Read one batch with the reader of another project."""
    if not header.record_count or header.attributes & CONTROL:
        return []  # it takes no batch without records
    data = segment[position : position + header.size_bytes]
    rows = DefaultRecordBatch(data)
    return [(row.offset, row.timestamp, row.key, row.value, tuple(row.headers)) for row in rows]


def rows_of(batches: Iterator[RecordBatch]) -> list[list[tuple[Any, ...]]]:
    """Read all fields of each batch, in both ways, up to the first refused batch."""
    found: list[list[tuple[Any, ...]]] = []
    try:
        for batch in batches:
            found.append([record[:5] for record in batch.records()])
            columns = (batch.offsets, batch.timestamps, batch.keys, batch.values)
            cells = zip(*(list(column) for column in columns), batch.headers, strict=True)
            assert found[-1] == list(cells)
            assert all(batch.record(at)[:5] == row for at, row in enumerate(found[-1][:3]))
    except ValueError as error:
        found.append([("refused", type(error))])
    return found


def check(segment: bytes) -> None:
    """Compare one reader with the other two."""
    run = run_of(segment)
    together = rows_of(kafka.decode_run(segment, run))
    assert together == rows_of(one_by_one(segment, run))
    assert together == [by_aiokafka(segment, position, header) for position, header in run]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_three_readers_agree_about_any_batches(seed: int) -> None:
    """Batches are few or many, of any size and codec, with nulls, headers and gaps, or empty."""
    check(random_segment(seed))


@pytest.mark.parametrize("path", sorted(GOLDEN.rglob("*.log")), ids=lambda path: str(path)[-45:])
def test_three_readers_agree_about_what_kafka_wrote(path: Any) -> None:
    """All segments of the golden directories are read."""
    check(path.read_bytes())


def damaged(segment: bytes, rng: random.Random) -> bytes:
    """Change a few bytes after the header of a batch, and correct its checksum."""
    bad = bytearray(segment)
    position, header = rng.choice(run_of(segment))
    end = position + header.size_bytes
    for _ in range(rng.randrange(1, 4)):
        if end - position > HEADER_BYTES:
            at = rng.randrange(position + HEADER_BYTES, end)
            bad[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    struct.pack_into(">I", bad, position + 17, crc32c(bytes(bad[position + 21 : end])))
    return bytes(bad)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_rows_that_lie_are_refused_in_their_turn(seed: int) -> None:
    """All batches before an invalid batch are returned, and nothing of the invalid one."""
    segment = damaged(random_segment(seed), random.Random(seed))
    run = run_of(segment)
    together = rows_of(kafka.decode_run(segment, run))
    assert together == rows_of(one_by_one(segment, run))


@pytest.mark.parametrize("copies", [1, 40])
@pytest.mark.parametrize("at", [3, 4])
def test_a_size_of_63_bits_is_refused(copies: int, at: int) -> None:
    """The sum of a position and a size never overflows 64 bits."""
    row = [b"\0", b"\0", b"\0", b"\1", b"\1", b"\0"]
    row[at] = b"\xfe" + b"\xff" * 8 + b"\x01"  # zigzag of 2**63 - 1
    rows = b"".join(
        row_of([b"\0", b"\0", bytes([2 * number]), b"\1", b"\1", b"\0"])
        for number in range(copies - 1)
    )
    header = kafka.read_header(random_batch(random.Random(1), 0) + bytes(61), 0)
    header = header._replace(record_count=copies, last_offset=header.base_offset + 200)
    with pytest.raises(ValueError, match="a cell ends after the end of its record"):
        kafka_decode.decode_rows(rows + row_of(row), header)


def row_of(fields: list[bytes]) -> bytes:
    """Encode a row of fields."""
    body = b"".join(fields)
    return bytes([2 * len(body)]) + body


def test_ten_octets_hold_64_bits_and_no_more() -> None:
    """Both ways refuse a number with more bytes."""
    for last, is_good in ((1, True), (2, False), (0x7F, False)):
        data = b"\xff" * 9 + bytes([last]) + kafka_varints.PADDING
        one = np.zeros(1, np.int64)
        if is_good:
            assert kafka_varints.varint(data, 0) == (-(2**63), 10)
            assert [int(each[0]) for each in kafka_varints.varints(data, one, one + 10)] == [
                -(2**63),
                10,
            ]
            continue
        with pytest.raises(ValueError, match="does not end"):
            kafka_varints.varint(data, 0)
        with pytest.raises(ValueError, match="does not end"):
            kafka_varints.varints(data, one, one + 10)


def test_of_many_bombs_one_is_restored_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are decoded together only if their decompressed size is small."""
    monkeypatch.setattr(kafka, "GROUP_BYTES", 50_000)
    payload = kafka.build_payload([bytes(60_000)], None, 5, None, codec_id=1)
    segment = b"".join(b"".join(kafka.frame(payload, at, 0)) for at in range(20))
    restored: list[int] = []
    decompress = kafka_codecs.decompress

    def counted(codec_id: int, data: bytes, restored_bytes_max: int) -> bytes:
        restored.append(codec_id)
        return decompress(codec_id, data, restored_bytes_max)

    monkeypatch.setattr(kafka_codecs, "decompress", counted)
    assert len(segment) < 5000
    for number, batch in enumerate(kafka.decode_run(segment, run_of(segment)), 1):
        assert len(restored) == number
        assert batch.values.to_list() == [bytes(60_000)] and batch.header.attributes & CODEC_MASK


def test_regression_records_in_no_bytes_are_refused() -> None:
    """A compressed batch may decompress to nothing, although it claims records."""
    good = b"".join(kafka.frame(kafka.build_payload([b"x"], None, 5, None), 0, 0))
    data = bytearray(good[:HEADER_BYTES]) + kafka_codecs.compress(1, b"")
    data[22] = 1
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    segment = good + bytes(data)
    decoded = kafka.decode_run(segment, run_of(segment))
    assert next(decoded).values.to_list() == [b"x"]
    with pytest.raises(ValueError, match="1 records do not fit into 0 bytes"):
        next(decoded)


@pytest.mark.parametrize("copies", [5, 40])
def test_regression_deltas_go_round_no_corner(copies: int) -> None:
    """Offset deltas whose differences overflow 64 bits are refused."""
    deltas = [0, 2**63 - 1, -(2**63), -1, *range(5, copies + 1)]
    rows = b"".join(row_of([b"\0", b"\0", written(delta), b"\1", b"\1", b"\0"]) for delta in deltas)
    header = kafka.read_header(random_batch(random.Random(1), 0) + bytes(61), 0)
    header = header._replace(record_count=len(deltas), last_offset=header.base_offset + copies)
    with pytest.raises(ValueError, match="do not increase"):
        kafka_decode.decode_rows(rows, header)


def test_regression_a_base_offset_near_the_end_of_all_is_damage(tmp_path: Path) -> None:
    """Among many batches, one whose offsets would overflow 64 bits is found."""
    payload = kafka.build_payload([b"x"], None, 5, None)
    batches = [b"".join(kafka.frame(payload, at, 0)) for at in range(40)]
    batches[20] = b"".join(kafka.frame(payload.spanning(5), 2**63 - 2, 0))
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"".join(batches))
    with LogStore.open_kafka(tmp_path) as store:
        problems = store["t", 0].verify()
    assert [(problem.offset, problem.end_offset) for problem in problems] == [(20, 21)]


@pytest.mark.parametrize("kind", ["rows", "codec"])
def test_regression_a_range_says_nothing_of_what_stands_behind_it(
    tmp_path: Path, kind: str
) -> None:
    """A batch that cannot be decoded does not hide earlier batches or fail their readers."""
    payload = kafka.build_payload([b"value"] * 30, None, 5, None)
    batches = [bytearray(b"".join(kafka.frame(payload, 30 * at, 0))) for at in range(5)]
    if kind == "rows":
        batches[2][HEADER_BYTES] ^= 0x02  # the length of its first record
    else:
        batches[2][22] = 7  # none that there is
    struct.pack_into(">I", batches[2], 17, crc32c(bytes(batches[2][21:])))
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"".join(batches))
    with LogStore.open_kafka(tmp_path) as store:
        log = store["t", 0]
        for end in (29, 30, 31, 59, 60):
            read = log.read_batches(0, end_offset=end)
            assert [at for batch in read for at in batch.offsets.tolist()] == list(range(end))
            assert len(log[0:end]) == end == len(list(log[0:end]))
        for end in (61, 150):
            with pytest.raises((CorruptRecordBatchError, UnsupportedFormatError)):
                list(log.read_batches(0, end_offset=end))
        behind = [at for batch in log.read_batches(90) for at in batch.offsets.tolist()]
        assert behind == list(range(90, 150))


def compacted(count: int) -> list[bytes]:
    """Make batches of two records each, of which compaction removed the first."""
    payload = kafka.build_payload([b"value"] * 2, None, 5, None)
    return [b"".join(kafka.frame(payload, 4 * at, 0)) for at in range(count)]


def log_of(place: Path, *batches: bytes) -> Path:
    """Make the log dir of a partition with these batches."""
    (place / "t-0").mkdir()
    (place / "t-0" / f"{0:020d}.log").write_bytes(b"".join(batches))
    return place


def test_a_compacted_log_is_decoded_many_batches_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gaps between batches cost no time; no later batch confirms the last batch."""
    decoded: list[int] = []
    decode_many = kafka_decode.decode_many

    def counted(parts: Any, headers: Any, expansion_bytes_max: int) -> Any:
        decoded.append(len(parts))
        return decode_many(parts, headers, expansion_bytes_max)

    monkeypatch.setattr(kafka, "decode_many", counted)
    with LogStore.open_kafka(log_of(tmp_path, *compacted(200))) as store:
        offsets = [at for batch in store["t", 0].read_batches() for at in batch.offsets.tolist()]
    assert offsets == [4 * number + more for number in range(200) for more in (0, 1)]
    assert decoded == [199, 1]


@pytest.mark.parametrize("claim", [103, 4 * 60, 2**40])
def test_a_base_offset_that_lies_in_a_compacted_log_is_damage(tmp_path: Path, claim: int) -> None:
    """No checksum covers the base offset; the next batch shows the error, at every read."""
    batches = [bytearray(each) for each in compacted(60)]
    with LogStore.open_kafka(log_of(tmp_path, *map(bytes, batches))) as store:
        log = store["t", 0]
        assert len(list(log)) == 120
        for number in (25, 40):
            bad = [*batches]
            bad[number] = bytearray(batches[number])
            struct.pack_into(">q", bad[number], 0, claim)
            (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"".join(bad))
            found: list[int] = []
            with pytest.raises(CorruptRecordBatchError, match=r"base offset|begins with offset"):
                for batch in log.read_batches():
                    found += batch.offsets.tolist()
            # The batch before one that claims too little is not vouched for.
            good = number - (claim < 4 * number and number == 40)
            assert found == [4 * at + more for at in range(good) for more in (0, 1)]


@pytest.mark.parametrize("step", [2, 4])
@pytest.mark.parametrize("claim", [0, 3, 103, 240, 2**40])
def test_regression_what_a_lying_base_offset_hides_is_no_gap(
    tmp_path: Path, step: int, claim: int
) -> None:
    """A reader that begins after the batch skips it unchecked, and may be misled by it."""
    payload = kafka.build_payload([b"value"] * 2, None, 5, None)
    batches = [bytearray(b"".join(kafka.frame(payload, step * at, 0))) for at in range(60)]
    bad, behind = step * 40, step * 41
    struct.pack_into(">q", batches[40], 0, claim)
    with LogStore.open_kafka(log_of(tmp_path, *map(bytes, batches))) as store:
        log = store["t", 0]
        for offset in range(bad - step + 2, behind):
            with pytest.raises(CorruptRecordBatchError):
                list(log.read_batches(offset))
            with pytest.raises(CorruptRecordBatchError):
                log.read(offset)
            with pytest.raises(CorruptRecordBatchError):
                _ = log[offset]
        if step == 2:  # where there are gaps, one that claims too little has the one before blamed
            assert [r.offset for r in log.read(bad - step)] == [bad - step, bad - step + 1]
        for offset in range(behind, behind + 2):
            assert log[offset].offset == log.read(offset)[0].offset == offset
            assert next(log.read_batches(offset)).base_offset == offset


# The segments of a log, each batch as its first offset and its count; which batch lies, and how.
LIES: dict[str, tuple[list[list[tuple[int, int]]], tuple[int, int], int]] = {
    "the last one of a segment": ([[(0, 1), (1, 1)], [(2, 3)]], (0, 1), 0),
    "the last one of a log": ([[(2, 3), (5, 3)]], (0, 1), 4),
    "the first one of a segment": ([[(0, 3)], [(3, 3)], [(6, 3)]], (1, 0), 1),
    "claims what was before it": ([[(1, 1), (2, 10), (12, 1)]], (0, 1), 0),
    "claims to be right behind": ([[(0, 3), (4, 1), (5, 1), (6, 1)]], (0, 2), 4),
    "claims a gap before it": ([[(50, 1), (51, 3), (54, 1)]], (0, 1), 8),
}


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("name", LIES)
def test_regression_records_that_a_lying_batch_is_taken_for_are_not_lost_unseen(
    tmp_path: Path, name: str, is_open: bool
) -> None:
    """From any offset, all following records are read, or fewer and an error; never others."""
    segments, (number, liar), claim = LIES[name]
    paths: list[Path] = []
    (tmp_path / "t-0").mkdir()
    for batches in segments:
        path = tmp_path / "t-0" / f"{batches[0][0] if paths else 0:020d}.log"
        payloads = [kafka.build_payload([b"value"] * count, None, 5, None) for _, count in batches]
        framed = [kafka.frame(each, at, 0) for each, (at, _) in zip(payloads, batches, strict=True)]
        path.write_bytes(b"".join(b"".join(each) for each in framed))
        paths.append(path)
    data = bytearray(paths[number].read_bytes())
    struct.pack_into(">q", data, [span.position for span in walk(bytes(data))][liar], claim)
    if not is_open:
        paths[number].write_bytes(data)
    with LogStore.open_kafka(tmp_path) as store:
        log = store["t", 0]
        paths[number].write_bytes(data)
        true = [at + more for batches in segments for at, count in batches for more in range(count)]
        for offset in range(log.log_end_offset):
            wanted = [each for each in true if offset <= each < log.log_end_offset]
            found: list[int] = []
            try:
                for batch in log.read_batches(offset):
                    found += batch.offsets.tolist()
            except CorruptRecordBatchError:
                assert found == wanted[: len(found)], offset
            else:
                assert found == wanted, offset
