"""Hold docs/FORMAT.md against the structs in the code, and its example against real bytes."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest
import xxhash

from broker.coordination.journal import decode_journal
from broker.coordination.tree import Node
from logstore.disk.documents import checkpoint
from logstore.disk.documents.meta_properties import encode_meta
from logstore.disk.documents.offset_checkpoints import KINDS
from logstore.format import prefix, producer_file
from logstore.format.columnar import columns, subset
from logstore.format.columnar import payload as payloads
from logstore.format.columnar import record_batch as columnar
from logstore.format.kafka import header as kafka_header
from logstore.format.kafka import snapshots
from logstore.log.segments import offset_index, time_index, trailer
from support import reader, transaction_index

DOCUMENT = (Path(__file__).parents[2] / "docs" / "FORMAT.md").read_text()
CODES = {
    ("i64", 8): "q", ("u64", 8): "Q", ("i32", 4): "i", ("u32", 4): "I", ("i16", 2): "h",
    ("u16", 2): "H", ("u8", 1): "B", ("bytes", 8): "8s", ("bytes", 16): "16s",
}  # fmt: skip
ROW = re.compile(r"^\| (\d+) \| (\d+) \| (\w+) \| `(\w+)`", re.M)


def section(number: int) -> str:
    """Cut a section out of the document."""
    found = re.search(rf"^## {number}\. .*?(?=^## |\Z)", DOCUMENT, re.M | re.S)
    assert found, number
    return found.group()


def table(number: int) -> list[tuple[int, int, str, str]]:
    """Read the byte table of a section: at, size, type, field."""
    rows = ROW.findall(section(number))
    return [(int(at), int(size), kind, field) for at, size, kind, field in rows]


def tables(number: int) -> list[list[tuple[int, int, str, str]]]:
    """Read the byte tables of a section that has several; each begins at 0."""
    found: list[list[tuple[int, int, str, str]]] = []
    for row in table(number):
        if row[0] == 0:
            found.append([])
        found[-1].append(row)
    return found


def fields_of(kind: np.dtype[np.void]) -> list[tuple[int, int, str, str]]:
    """Make the table that describes a type of NumPy's, without fields that are arrays."""
    rows = []
    for name in kind.names or ():
        assert kind.fields is not None
        each, at = kind.fields[name][:2]
        if not each.subdtype:
            rows.append((at, each.itemsize, f"{each.kind}{each.itemsize * 8}", name))
    return rows


def struct_of(rows: list[tuple[int, int, str, str]]) -> str:
    """Make the struct that a table describes; its fields follow without gaps."""
    expected = rows[0][0]
    for at, size, _, field in rows:
        assert at == expected, f"{field} is said to be at {at}, and follows at {expected}"
        expected += size
    return ">" + "".join(CODES[kind, size] for _, size, kind, _ in rows)


def test_the_prefix_is_the_documented_one() -> None:
    """Section 3 and the walker's struct are the same."""
    assert struct_of(table(3)) == prefix.PREFIX.format
    assert prefix.PREFIX_BYTES == 17


def test_the_header_is_the_documented_one() -> None:
    """Sections 3 and 4 together are the struct of the columnar header."""
    rows = [*table(3), *table(4)]
    assert struct_of(rows) == columnar.HEADER.format == reader.HEADER.format
    assert columnar.HEADER_BYTES == 72 and "Header: 72 bytes" in section(4)
    assert rows[-1][0] + rows[-1][1] == columnar.HEADER_BYTES


def test_the_trailer_is_the_documented_one() -> None:
    """Section 5 and the struct of the index trailer are the same, field by field."""
    rows = table(5)
    assert struct_of(rows) == trailer.TRAILER.format
    names = [field for *_, field in rows if field not in ("magic", "checksum", "reserved_112")]
    assert names == list(trailer.Trailer._fields)
    assert f"`{trailer.MAGIC.decode()}`" in section(5)


def test_a_file_of_producers_is_the_documented_one() -> None:
    """Section 9 has the header, the row and the batch of the code, field by field."""
    header, row, batch = tables(9)
    assert struct_of(header) == producer_file.HEADER.format
    assert f"`{producer_file.MAGIC.decode()}`" in section(9)
    assert row == fields_of(producer_file.ROW)
    assert batch == fields_of(producer_file.BATCH)
    assert f"x {producer_file.ROW_BYTES} bytes" in section(9)
    assert f"at most {producer_file.PRODUCERS_MAX:,}" in section(9)
    assert row[-1][0] + row[-1][1] + 5 * (batch[-1][0] + batch[-1][1]) == producer_file.ROW_BYTES


def test_a_golden_file_of_producers_is_read_by_the_document_alone() -> None:
    """Its header, its rows and its pair are where section 9 says."""
    (path,) = (Path(__file__).parent / "golden" / "v1_producers" / "orders-4").iterdir()
    data = path.read_bytes()
    header, row, batch = ["<" + struct_of(each)[1:] for each in tables(9)]
    kind, topic_id, partition, version, offset, count, pairs = struct.unpack_from(
        ">" + header[1:], data
    )
    assert (kind, topic_id, partition, version) == (b"LSPRODUC", bytes(range(16)), 4, 1)
    assert f"{offset:020d}.producers" == path.name
    expected = json.loads((path.parents[1] / "expected.json").read_text())
    at = struct.calcsize(header)
    for producer_id, epoch, coordinator_epoch, _, used_ms, open_offset, batches in expected:
        found = struct.unpack_from(row, data, at)
        assert found[:2] == (producer_id, open_offset) and found[4:] == (
            *(coordinator_epoch, epoch, 0, used_ms),
        )
        at += struct.calcsize(row)
        five = [list(struct.unpack_from(batch, data, at + 24 * n)) for n in range(5)]
        assert [each for each in five if each[0] >= 0] == batches
        at += 5 * 24
    assert count == len(expected) and struct.unpack_from("<qq", data, at) == (16, 17) and pairs == 1
    assert data[at + 16 :] == xxhash.xxh3_64_digest(data[: at + 16])


def test_kafkas_files_of_producers_are_the_documented_ones() -> None:
    """Section 10 has the entries of both files."""
    of_snapshot, of_index = tables(10)
    assert of_snapshot == fields_of(snapshots.ENTRY)
    assert of_index == fields_of(transaction_index.ENTRY)


def test_index_entries_have_the_documented_size() -> None:
    """Entries are 8 and 12 bytes."""
    assert offset_index.ENTRY_BYTES == struct.calcsize("<II") == 8
    assert time_index.ENTRY_BYTES == struct.calcsize("<qI") == 12
    assert "12 bytes each" in section(6)


def test_the_worked_example_is_what_the_code_writes() -> None:
    """The bytes printed in section 4 are one record as the engine encodes it."""
    example = re.search(r"### One worked example.*?\n\n.*?\n\n(.*?)\n\n", section(4), re.S)
    assert example
    lines = [re.match(r"\s*((?:[0-9a-f]+ )+)", f"{line} ") for line in example[1].splitlines()]
    digits = "".join(line[1].replace(" ", "") for line in lines if line)
    data = bytes.fromhex(digits)
    assert data == columnar.frame_one(0, 0, 1, b"hi")
    assert reader.read_batch(data, 0, 0).records == [reader.Record(0, 1, None, b"hi", ())]


def test_the_delete_horizon_is_where_the_document_says() -> None:
    """The field of section 4, in seconds, and the bit of section 8, whose time is in ms."""
    (row,) = [row for row in table(4) if row[3] == "delete_horizon"]
    assert row[:3] == (subset.HORIZON_AT, 4, "u32") and subset.HORIZON_UNIT_MS == 1000
    assert "from which a compaction may remove" in section(4)
    assert kafka_header.DELETE_HORIZON == 1 << 6
    assert "6 `base_timestamp` is the delete horizon" in section(8)


def test_a_hundred_byte_record_has_the_documented_size() -> None:
    """A batch of one 100-byte record is 192 bytes."""
    assert len(columnar.frame_one(0, 0, 1, bytes(100))) == 192
    assert "100-byte record: 192 bytes" in section(4)


@pytest.mark.parametrize(
    ("bit", "mask"),
    [(3, payloads.LOG_APPEND_TIME), (4, payloads.HAS_TIMESTAMPS), (5, payloads.HAS_KEYS)]
    + [(6, payloads.HAS_HEADERS), (7, payloads.HAS_DELTAS)],
)
def test_attribute_bits_are_the_documented_ones(bit: int, mask: int) -> None:
    """Each bit of the attributes table is that of the code."""
    assert mask == 1 << bit
    assert re.search(rf"^\| {bit} \| ", section(4), re.M)


def test_column_markers_are_the_documented_ones() -> None:
    """The two sizes that mean "sizes vary" are those of the document."""
    assert f"0x{columns.VARIABLE:X}" in section(4)
    assert f"0x{columns.VARIABLE_WITH_NULLS:X}" in section(4)


def test_the_example_of_a_coordination_journal_is_what_the_code_reads() -> None:
    """Section 11, with the checksums that it describes."""
    lines = re.findall(r"^    <checksum> (.+)$", section(11), re.M)
    data, digest = b"", 0
    for line in lines:
        text = line.replace("<32 hex>", "0" * 32).encode()
        digest = xxhash.xxh3_64_intdigest(text, digest)
        data += b"%016x %s\n" % (digest, text)
    found = decode_journal(data, "example")
    assert (found.tree.zxid, found.digest, found.size_bytes) == (9, digest, len(data))
    assert found.tree.nodes == {
        "/": Node(b"", 0, 0, created=1),
        "/a": Node(b"new", 3, 8, 3, created=2),
        "/a/c": Node(b"", 9, 9),
    }


def test_small_files_have_the_documented_form() -> None:
    """A checkpoint is a line of JSON and the xxh3-64 of that line."""
    data = checkpoint.encode_document({"version": 1, "offsets": [["orders", 0, 7]]})
    line, digest, rest = data.split(b"\n")
    assert digest == b"xxh3-64 " + xxhash.xxh3_64_hexdigest(line).encode() and rest == b""
    for name in KINDS:
        assert f"`{name}`" in section(7)


def test_meta_properties_have_the_documented_keys() -> None:
    """Every key that `meta.properties` is written with stands in the document, and in its order."""
    keys = re.findall(r"^    ([a-z.]+)=", section(7), re.M)
    assert keys[0] == "version" and keys[-1] == "checksum"
    assert encode_meta.__doc__
