"""`append`: lines, JSON lines and files; bad lines; Ctrl-C."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path

import pytest

from logstore import LogStore, Record
from logstore.cli import intake
from logstore.cli.interrupts import Interrupts
from support.command_line import Run, Start


def records_of(log_dirs: list[str], topic: str = "orders", partition: int = 0) -> list[Record]:
    """Read all records of a partition."""
    with LogStore.open(log_dirs, read_only=True) as store:
        return list(store.log(topic, partition))


@pytest.fixture
def empty_orders(log_dirs: list[str]) -> list[str]:
    """Make a store with an empty orders-0."""
    with LogStore.open(log_dirs) as store:
        store.create("orders", 0)
    return log_dirs


def test_lines_from_stdin(run: Run, empty_orders: list[str]) -> None:
    """Each line is a value as it stands; the last needs no newline, empty ones count."""
    result = run("append", "orders", "0", stdin=b"one\n\nthr\xffee\r\nfour")
    assert result.exit_code == 0
    assert result.stdout == "appended 4 records to orders-0, offsets 0 to 3\n"
    values = [record.value for record in records_of(empty_orders)]
    assert values == [b"one", b"", b"thr\xffee\r", b"four"]


def test_nothing_from_stdin(run: Run, empty_orders: list[str]) -> None:
    """No input appends nothing, and that is fine."""
    result = run("append", "orders", "0", stdin=b"")
    assert result.exit_code == 0
    assert "no records" in result.stdout


def test_keys_from_lines(run: Run, empty_orders: list[str]) -> None:
    """What stands before the separator is the key."""
    assert run("append", "orders", "--key-separator", ":", stdin=b"a:1\nb:2:3\n").exit_code == 0
    pairs = [(record.key, record.value) for record in records_of(empty_orders)]
    assert pairs == [(b"a", b"1"), (b"b", b"2:3")]
    result = run("append", "orders", "--key-separator", ":", stdin=b"c:4\nnothing\nd:5\n")
    assert result.exit_code == 1
    assert "standard input, line 2:" in result.stderr
    assert len(records_of(empty_orders)) == 3


def test_json_lines(run: Run, empty_orders: list[str]) -> None:
    """JSON lines carry key, value, timestamp and headers; blank lines are none."""
    lines = [
        {"key": "k", "value": "v", "timestamp": 5, "headers": {"h": "1"}},
        {"value": None, "timestamp": "1970-01-01T00:00:01Z"},
        {"value": {"base64": "AP8="}, "headers": [["h", None], ["h", "2"]]},
    ]
    text = "\n\n".join(map(json.dumps, lines)) + "\n"
    result = run("append", "orders", "0", "--input", "jsonl", stdin=text)
    assert result.exit_code == 0, result.output
    first, second, third = records_of(empty_orders)
    assert first[1:5] == (5, b"k", b"v", (("h", b"1"),))
    assert second[1:5] == (1000, None, None, ())
    assert third.timestamp > 1_600_000_000_000
    assert third[2:5] == (None, b"\x00\xff", (("h", None), ("h", b"2")))


def test_a_bad_line_loses_nothing_before_it(run: Run, empty_orders: list[str]) -> None:
    """The bad line is named by its number; all before it is appended, nothing behind it."""
    good = b'{"value": "v"}\n' * 5000
    result = run("append", "orders", "0", "--input", "jsonl", stdin=good + b"{oops\n" + good)
    assert result.exit_code == 1
    assert "error: standard input, line 5001: not JSON" in result.stderr
    assert "appended 5,000 records to orders-0, offsets 0 to 4999" in result.stderr
    assert len(records_of(empty_orders)) == 5000


def test_a_bad_line_in_the_second_file(run: Run, empty_orders: list[str], tmp_path: Path) -> None:
    """The file is named beside the line."""
    (tmp_path / "good.jsonl").write_text('{"value": "1"}\n{"value": "2"}')
    (tmp_path / "bad.jsonl").write_text('{"value": "3"}\n{"val": "4"}\n')
    paths = [str(tmp_path / name) for name in ("good.jsonl", "bad.jsonl")]
    result = run("append", "orders", "0", *paths, "--input", "jsonl")
    assert result.exit_code == 1
    assert f"{paths[1]}, line 2:" in result.stderr
    assert [record.value for record in records_of(empty_orders)] == [b"1", b"2", b"3"]


def test_a_record_that_the_log_refuses_is_named(run: Run, log_dirs: list[str]) -> None:
    """A value beyond max_message_bytes is named by its line; those before it are appended."""
    assert run("create", "orders", "-c", "max_message_bytes=1000").exit_code == 0
    text = b"a\nb\n" + b"x" * 990 + b"\nc\n"
    result = run("append", "orders", "0", stdin=text)
    assert result.exit_code == 1
    assert "standard input, line 3:" in result.stderr
    assert [record.value for record in records_of(log_dirs)] == [b"a", b"b"]


def test_a_line_without_end_is_refused_early(run: Run, log_dirs: list[str]) -> None:
    """A line that could never be a record is not gathered in memory."""
    assert run("create", "orders", "-c", "max_message_bytes=1000").exit_code == 0
    result = run("append", "orders", "0", stdin=b"a\n" + b"x" * 3_000_000)
    assert result.exit_code == 1
    assert "line 2:" in result.stderr
    assert len(records_of(log_dirs)) == 1


def test_files_one_after_the_other(run: Run, empty_orders: list[str], tmp_path: Path) -> None:
    """Files keep their order, whatever their size; --format json gives the outcome as facts."""
    first, second = tmp_path / "1.txt", tmp_path / "2.txt"
    first.write_bytes(b"".join(b"line %d\n" % number for number in range(100_000)))
    second.write_bytes(b"the end")
    result = run("append", "orders", "0", str(first), str(second), "--format", "json")
    assert json.loads(result.stdout) == {
        "topic": "orders",
        "partition": 0,
        "records": 100_001,
        "first_offset": 0,
        "last_offset": 100_000,
    }
    records = records_of(empty_orders)
    assert records[77_777].value == b"line 77777" and records[-1].value == b"the end"


def test_whole_files(run: Run, empty_orders: list[str], tmp_path: Path) -> None:
    """With `--input whole` a file is one record, newlines and all."""
    path = tmp_path / "page.html"
    path.write_bytes(b"<p>\n\n</p>\n")
    assert run("append", "orders", "0", str(path), "--input", "whole").exit_code == 0
    assert [record.value for record in records_of(empty_orders)] == [b"<p>\n\n</p>\n"]


def test_a_file_that_cannot_be_read(run: Run, empty_orders: list[str], tmp_path: Path) -> None:
    """A missing file or a directory is wrong usage, and nothing is appended."""
    good = tmp_path / "good.txt"
    good.write_text("x\n")
    for bad in (tmp_path / "missing", tmp_path):
        result = run("append", "orders", "0", str(good), str(bad))
        assert result.exit_code == 2
        assert str(bad) in result.stderr
    assert records_of(empty_orders) == []


def test_a_partition_that_is_not_there(run: Run, empty_orders: list[str]) -> None:
    """An unknown partition is a failure that names the way out; `--create` is that way."""
    result = run("append", "audit", "0", stdin=b"x\n")
    assert result.exit_code == 1
    assert "--create" in result.stderr
    assert run("append", "audit", "0", "--create", stdin=b"x\n").exit_code == 0
    assert len(records_of(empty_orders, "audit")) == 1


def test_durable_batches(run: Run, empty_orders: list[str]) -> None:
    """`--durable` leaves nothing unflushed."""
    assert run("append", "orders", "0", "--durable", stdin=b"x\n" * 10).exit_code == 0
    with LogStore.open(empty_orders, read_only=True) as store:
        assert store.log("orders", 0).log_end_offset == 10


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_keeps_what_was_acknowledged(
    empty_orders: list[str], start: Start, number: int, code: int
) -> None:
    """Ctrl-C while waiting for input closes the store in order, and all lines are there."""
    child = start("append", "orders", "0")
    tail = start("tail", "orders", "0", "--offset", "start", "--max-records", "2")
    assert child.stdin is not None and child.stderr is not None and tail.stdout is not None
    child.stdin.write(b"one\ntwo\nhalf a li")
    child.stdin.flush()
    assert len([tail.stdout.readline() for _ in range(2)]) == 2  # both are appended now
    child.send_signal(number)
    errors = child.stderr.read()
    assert child.wait() == code
    assert b"appended 2 records to orders-0" in errors
    assert b"Traceback" not in errors
    with LogStore.open(empty_orders) as store:
        assert store.recovery_report.was_clean
        assert [record.value for record in store.log("orders", 0)] == [b"one", b"two"]


def test_lines_come_as_they_arrive() -> None:
    """A slow pipe's lines are passed on at once, and a line may arrive in many pieces."""
    pieces = [b"a\nb", b"c", b"d\ne\n", b"f"]

    class Pipe(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            """Give the next piece, as a slow pipe does."""
            return pieces.pop(0) if pieces else b""

    stream = Pipe()
    found = [
        (lines.first_number, lines.data)
        for lines, _ in intake.lines_as_they_come(stream, "pipe", 100, Interrupts())
    ]
    assert found == [(1, [b"a"]), (2, []), (2, [b"bcd", b"e"]), (4, []), (4, [b"f"])]
