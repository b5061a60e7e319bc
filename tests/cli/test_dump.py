"""`dump`: the words of kafka-dump-log, records, damage."""

from __future__ import annotations

import json
import os
import re

from logstore.format.columnar.record_batch import HEADER_BYTES
from support.command_line import Run, damage, segment_path

BATCH_WORDS = (
    "baseOffset lastOffset count baseSequence lastSequence producerId producerEpoch "
    "partitionLeaderEpoch position CreateTime size magic compresscodec crc isvalid"
)
RECORD_WORDS = "offset CreateTime keySize valueSize sequence headerKeys key payload"


def words(line: str) -> str:
    """List the words before a colon, in their order."""
    return " ".join(re.findall(r"(\w+): ", line))


def test_batches_of_a_partition(run: Run, orders: list[str]) -> None:
    """A line per batch has Kafka's words in Kafka's order."""
    head, first, second = run("dump", "orders", "0").output.splitlines()
    assert head == f"Dumping {segment_path(orders)}"
    assert words(first) == BATCH_WORDS
    assert first.startswith("baseOffset: 0 lastOffset: 4 count: 5 ")
    assert " position: 0 CreateTime: 1004000 size: " in first
    assert first.endswith(" isvalid: true")
    size = int(re.search(r"size: (\d+)", first)[1])  # type: ignore[index]
    assert f" position: {size} " in second


def test_records_of_a_file(run: Run, orders: list[str]) -> None:
    """A FILE needs no store, and each record is shown under its batch."""
    lines = run("dump", segment_path(orders), "--records", "--log-dirs", "/nowhere").output
    records = [line for line in lines.splitlines() if line.startswith("| ")]
    assert len(records) == 10
    assert words(records[3]) == RECORD_WORDS
    assert records[3] == (
        "| offset: 3 CreateTime: 1003000 keySize: 5 valueSize: 7 sequence: -1 headerKeys: [] "
        "key: key 3 payload: value 3"
    )


def test_dump_for_programs(run: Run, orders: list[str]) -> None:
    """JSON lines carry the same words, and say what each line is."""
    output = run("dump", "orders", "0", "--records", "--format", "jsonl").stdout
    rows = [json.loads(line) for line in output.splitlines()]
    assert [row["kind"] for row in rows] == ["file", *(["batch"] + ["record"] * 5) * 2]
    assert rows[1]["isvalid"] is True and rows[1]["magic"] == ord("L")
    assert rows[2]["payload"] == "value 0"
    document = json.loads(run("dump", "orders", "0", "--format", "json").stdout)
    assert len(document) == 3


def test_damage_is_shown_and_stepped_over(run: Run, orders: list[str]) -> None:
    """A damaged batch is not valid, the next is, and the exit code is 1."""
    damage(segment_path(orders), HEADER_BYTES + 12)
    result = run("dump", "orders", "0", "--records")
    assert result.exit_code == 1
    _, first, second, *records = result.stdout.splitlines()
    assert "isvalid: false" in first and "checksum" in first
    assert first.startswith("baseOffset: 0 ")
    assert second.startswith("baseOffset: 5 ") and second.endswith("isvalid: true")
    assert len(records) == 5


def test_a_torn_batch_is_measured_by_the_file(run: Run, orders: list[str]) -> None:
    """Its size and what is left of it are those of the file, not of what was read so far."""
    path = segment_path(orders)
    first = os.path.getsize(path) // 2
    os.truncate(path, first + 100)
    result = run("dump", path)
    assert result.exit_code == 1
    assert f"the batch has {first} bytes, but only 100 are left" in result.stdout


def test_a_file_of_garbage(run: Run, orders: list[str]) -> None:
    """Bytes that are no batch at all are one line, not a traceback."""
    path = segment_path(orders)
    for garbage in (b"\0" * 5000, b"x", b"not a log at all, but some text" * 100):
        with open(path, "wb") as file:
            file.write(garbage)
        result = run("dump", path)
        assert result.exit_code == 1
        assert result.stdout.splitlines()[1].startswith("position: 0 size: ")
        assert "isvalid: false" in result.stdout


def test_an_empty_file_is_fine(run: Run, orders: list[str]) -> None:
    """A segment without a batch has none to show."""
    path = segment_path(orders)
    open(path, "wb").close()
    result = run("dump", path)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [f"Dumping {path}"]


def test_what_cannot_be_dumped(run: Run, orders: list[str]) -> None:
    """Files that are not there, directories and too many names are wrong usage."""
    for args in (["/no/such.log"], [orders[0]], ["orders", "0", "1"], ["orders", "x"]):
        assert run("dump", *args).exit_code == 2
    assert run("dump", "nothing", "0").exit_code == 1
