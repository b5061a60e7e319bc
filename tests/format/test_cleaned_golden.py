"""Read the golden logs that a compaction left, as every version must."""

from __future__ import annotations

import json

import pytest

from format.write_cleaned_golden import GOLDEN, cleaned, expected, main
from logstore.format import subsets
from logstore.format.kafka.header import CONTROL
from support import reader
from support.compacting import DAY, NOW, headers_of, rows_of, split
from unit.test_subsets import by_aiokafka

HORIZON = NOW + 2 * DAY


@pytest.mark.parametrize("layout", ["columnar", "kafka"])
def test_a_cleaned_log_is_read(layout: str) -> None:
    """The records are those that were left, with the offsets that they always had."""
    data = (GOLDEN / f"{layout}.log").read_bytes()
    rows = json.loads((GOLDEN / f"{layout}.json").read_text())
    assert expected(data) == rows and len(rows) > 40


@pytest.mark.parametrize("layout", ["columnar", "kafka"])
def test_the_same_log_is_cleaned_to_the_same_records(layout: str) -> None:
    """Today's code leaves the same records, headers and horizons of the same log."""
    golden, data = (GOLDEN / f"{layout}.log").read_bytes(), cleaned(layout)
    assert expected(data) == expected(golden)
    for old, new in zip(headers_of(split(golden)), headers_of(split(data)), strict=True):
        assert old[:1] + old[2:7] == new[:1] + new[2:7]  # the size depends on the codec's version
        assert old[8:13] == new[8:13]


def test_a_cleaned_columnar_log_is_read_by_the_document_alone() -> None:
    """The independent reader finds no gap, and the delete horizon where the document says."""
    data = (GOLDEN / "columnar.log").read_bytes()
    batches = list(reader.batches(data, 0))
    rows = [tuple(record[:4]) for batch in batches for record in batch.records]
    assert rows == rows_of(split(data))
    horizons = [int.from_bytes(one[68:72], "big") for one in split(data)]
    assert sorted(set(horizons)) == [0, HORIZON // 1000]
    assert [(batch.base_offset, len(batch.records)) for batch in batches[:3]] == [
        (0, 0), (5, 0), (6, 2),
    ]  # fmt: skip


def test_a_cleaned_kafka_log_is_read_by_aiokafka() -> None:
    """Another project's reader finds the same offsets, times, keys and values."""
    for data in split((GOLDEN / "kafka.log").read_bytes()):
        (header,) = headers_of([data])
        if not header.record_count or header.attributes & CONTROL:
            continue
        assert by_aiokafka(data) == rows_of([data])
    headers = headers_of(split((GOLDEN / "kafka.log").read_bytes()))
    assert [header.base_offset for header in headers] == [5, 6, 9, 70, 71]
    horizons = subsets.delete_horizons_ms(b"", [(0, header) for header in headers])
    assert horizons == [None, HORIZON, None, None, HORIZON]


def test_the_writer_overwrites_no_golden_log() -> None:
    """The script that wrote the golden logs refuses to write them again."""
    before = {path: path.read_bytes() for path in GOLDEN.iterdir()}
    assert main() == 1
    assert before == {path: path.read_bytes() for path in GOLDEN.iterdir()}
