"""`cat` and `tail`: ranges, times, formats, following an owner."""

from __future__ import annotations

import json

import pytest

from logstore import LogStore
from support.command_line import Run, Start, damage, owner_of, segment_path


def offsets(run: Run, *args: str) -> list[int]:
    """Run `cat orders 0` with options and return the offsets that it printed."""
    result = run("cat", "orders", "0", "--format", "jsonl", *args)
    assert result.exit_code == 0, result.output
    return [json.loads(line)["offset"] for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((), range(10)),
        (("--offset", "7"), range(7, 10)),
        (("--offset", "-3"), range(7, 10)),
        (("--offset", "-300"), range(10)),
        (("--offset", "start", "--end-offset", "2"), range(2)),
        (("--end-offset", "-8"), range(2)),
        (("--offset", "3", "--end-offset", "6"), range(3, 6)),
        (("--offset", "3", "--end-offset", "600"), range(3, 10)),
        (("--offset", "6", "--end-offset", "3"), range(0)),
        (("--offset", "end"), range(0)),
        (("--offset", "10"), range(0)),
        (("--offset", "4", "--max-records", "3"), range(4, 7)),
        (("--max-records", "0"), range(0)),
        (("--since", "1003000"), range(3, 10)),
        (("--until", "1003000"), range(3)),
        (("--since", "1002001", "--until", "1007000"), range(3, 7)),
        (("--since", "1970-01-01T00:16:48Z"), range(8, 10)),
        (("--since", "2100-01-01"), range(0)),
        (("--since", "1000000", "--offset", "8"), range(8, 10)),
    ],
)
def test_what_cat_prints(
    run: Run, orders: list[str], args: tuple[str, ...], expected: range
) -> None:
    """Ranges of offsets and of time are half-open and may be combined."""
    assert offsets(run, *args) == list(expected)


def test_times_that_do_not_grow(run: Run, orders: list[str]) -> None:
    """Records late by their timestamps are found behind those that were earlier."""
    with LogStore.open(orders) as store:
        store.log("orders", 0).extend([b"late", b"later"], timestamps=[1_004_500, 999_000])
    assert offsets(run, "--since", "1004000", "--until", "1006000") == [4, 5, 10]


def test_an_offset_beyond_the_log(run: Run, orders: list[str]) -> None:
    """An offset that the log does not have is a failure that names the range."""
    result = run("cat", "orders", "0", "--offset", "11")
    assert result.exit_code == 1
    assert "11" in result.stderr and "10" in result.stderr


def test_text_and_table(run: Run, orders: list[str]) -> None:
    """Text has a line per record; a table has a heading too."""
    first = "0\t1970-01-01T00:16:40.000Z\tkey 0\tvalue 0"
    assert run("cat", "orders", "0").output.splitlines()[0] == first
    lines = run("cat", "orders", "0", "--format", "table").output.splitlines()
    assert lines[0].split("\t")[0] == "OFFSET" and lines[1] == first


def test_json(run: Run, orders: list[str]) -> None:
    """JSON is one document, an array of all fields; an empty one too."""
    rows = json.loads(run("cat", "orders", "0", "--format", "json").stdout)
    assert rows[9] == {
        "topic": "orders",
        "partition": 0,
        "offset": 9,
        "timestamp": 1_009_000,
        "key": "key 9",
        "value": "value 9",
        "headers": [],
    }
    assert json.loads(run("cat", "orders", "0", "-o", "end", "--format", "json").stdout) == []


def test_raw(run: Run, orders: list[str]) -> None:
    """Raw is the values with a separator of one's choice."""
    args = ("cat", "orders", "0", "--offset", "8", "--format", "raw")
    assert run(*args).stdout_bytes == b"value 8\nvalue 9\n"
    assert run(*args, "--separator", r"\0").stdout_bytes == b"value 8\0value 9\0"
    assert run(*args, "--separator", "").stdout_bytes == b"value 8value 9"


def test_cat_feeds_append(run: Run, orders: list[str]) -> None:
    """A partition printed as JSON lines and appended elsewhere is the same partition."""
    with LogStore.open(orders) as store:
        store.log("orders", 0).append(
            b"\xff\x00", key=b"\xfe", headers=[("h", b"\xfd"), ("i", None)]
        )
        store.log("orders", 0).append(None, key=b"gone")
    lines = run("cat", "orders", "0", "--format", "jsonl").stdout
    assert run("append", "copy", "--create", "--input", "jsonl", stdin=lines).exit_code == 0
    with LogStore.open(orders, read_only=True) as store:
        source, copy = store.log("orders", 0), store.log("copy", 0)
        assert [record[:5] for record in source] == [record[:5] for record in copy]


@pytest.mark.parametrize("name", [("orders",), ("orders", "0"), ("orders-0",)])
def test_names_of_a_partition(run: Run, orders: list[str], name: tuple[str, ...]) -> None:
    """The only partition of a topic needs no number, and `orders-0` is understood."""
    assert run("cat", *name).output.count("\n") == 10


def test_a_topic_of_several_partitions(run: Run, orders: list[str]) -> None:
    """Which partition is meant must be said when there are several."""
    run("create", "orders", "1")
    result = run("cat", "orders")
    assert result.exit_code == 2
    assert "0, 1" in result.stderr


@pytest.mark.parametrize("time", ["yesterday", "5x", ""])
def test_a_time_that_is_none(run: Run, orders: list[str], time: str) -> None:
    """A time that cannot be read is wrong usage."""
    assert run("cat", "orders", "0", "--since", time).exit_code == 2


def test_an_age_counts_back_from_now(run: Run, orders: list[str]) -> None:
    """`1h` is an hour ago."""
    with LogStore.open(orders) as store:
        store.log("orders", 0).append(b"now")
    assert offsets(run, "--since", "1h") == [10]


def test_damage_is_told_after_what_stands_before_it(run: Run, orders: list[str]) -> None:
    """The records before damaged bytes are printed, then the error, with exit code 1."""
    path = segment_path(orders)
    with open(path, "rb") as file:
        size = len(file.read())
    damage(path, size - 20)
    result = run("cat", "orders", "0")
    assert result.exit_code == 1
    assert result.stdout.count("\n") == 5
    assert result.stderr.startswith("error: ")
    assert path in result.stderr


def test_tail_prints_the_last_ones(run: Run, orders: list[str]) -> None:
    """`tail` begins ten records before the end, or where it is told."""
    assert run("tail", "orders", "0", "--timeout", "0").output.count("\n") == 10
    lines = run("tail", "orders", "0", "--offset", "-2", "--timeout", "0").output.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["8", "9"]
    assert run("tail", "orders", "0", "--offset", "end", "--timeout", "0").output == ""


def test_tail_follows_an_owner(orders: list[str], start: Start) -> None:
    """Records that another process appends are printed as they come."""
    with owner_of(orders) as owner:
        child = start("tail", "orders", "0", "--offset", "-1", "--format", "jsonl", "-n", "4")
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["offset"] == 9
        for number in range(3):
            owner.append(b"fresh %d" % number)
            row = json.loads(child.stdout.readline())
            assert (row["offset"], row["value"]) == (10 + number, f"fresh {number}")
        assert child.wait() == 0
