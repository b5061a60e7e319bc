"""Hold docs/FORMAT.md against the structs in the code, and its example against real bytes."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
import xxhash

from logstore.disk.documents import checkpoint
from logstore.disk.documents.meta_properties import encode_meta
from logstore.format import prefix
from logstore.format.columnar import columns
from logstore.format.columnar import payload as payloads
from logstore.format.columnar import record_batch as columnar
from logstore.log.segments import offset_index, time_index, trailer
from support import reader

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


def test_small_files_have_the_documented_form() -> None:
    """A checkpoint is a line of JSON and the xxh3-64 of that line."""
    data = checkpoint.encode_document({"version": 1, "offsets": [["orders", 0, 7]]})
    line, digest, rest = data.split(b"\n")
    assert digest == b"xxh3-64 " + xxhash.xxh3_64_hexdigest(line).encode() and rest == b""
    for name in (checkpoint.RECOVERY_POINTS, checkpoint.LOG_START_OFFSETS):
        assert f"`{name}`" in section(7)


def test_meta_properties_have_the_documented_keys() -> None:
    """Every key that `meta.properties` is written with stands in the document, and in its order."""
    keys = re.findall(r"^    ([a-z.]+)=", section(7), re.M)
    assert keys[0] == "version" and keys[-1] == "checksum"
    assert encode_meta.__doc__
