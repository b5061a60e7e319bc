"""The commands for a broker's log dirs, and dump on its segments."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from logstore import LogConfig, LogStore
from support.command_line import Run
from support.kafka_golden import GOLDEN, given, log_dirs


def lines_of(text: str) -> list[str]:
    """Give the lines that are not about the file itself."""
    return [line for line in text.splitlines() if not line.startswith(("Dumping", "Log starting"))]


@pytest.mark.parametrize("name", ["transactions-0", "codec-lz4-0", "compacted-0"])
def test_dump_prints_as_kafkas_own_tool(run: Run, name: str) -> None:
    """Batch for batch and record for record, what DumpLogSegments printed."""
    expected = (GOLDEN / f"{name}.dump.txt").read_text()
    path = GOLDEN / expected.splitlines()[0].removeprefix("Dumping ")
    done = run("dump", str(path), "--records")
    assert done.exit_code == 0 and lines_of(done.stdout) == lines_of(expected)


def test_ls_names_everything(run: Run, tmp_path: Path) -> None:
    """Topics, offsets, sizes, times, codecs, dirs, and what cannot be read."""
    dirs = log_dirs("killed", tmp_path)
    done = run("kafka", "ls", *map(str, dirs), "--format", "json")
    rows = {(row["topic"], row["partition"]): row for row in json.loads(done.stdout)}
    assert done.exit_code == 0 and "-future: the unfinished copy" in done.stderr
    row = rows["codec-zstd", 0]
    assert (row["log_start_offset"], row["log_end_offset"], row["codecs"]) == (0, 36, ["zstd"])
    assert "not read after the log end" in rows["torn", 0]["state"]
    assert "codec-zstd" in run("kafka", "ls", str(dirs[0])).stdout


def test_regression_a_time_range_is_not_backwards(run: Run, tmp_path: Path) -> None:
    """A batch's base timestamp is its first record's, or what compaction has put there."""
    config = LogConfig(record_format="kafka")
    with LogStore.open(tmp_path / "store", admin_socket=False) as store:
        log = store.create("t", 0, config=config)
        log.extend([b"a", b"b"], timestamps=[9_000, 1_000])
        log.extend([b"c"], timestamps=[2_000])
    broker = str(tmp_path / "broker")
    os.mkdir(broker)
    done = run("kafka", "export", "t", "--to", broker, "--log-dirs", str(tmp_path / "store"))
    assert done.exit_code == 0, done.output
    (row,) = json.loads(run("kafka", "ls", "--log-dirs", broker, "--format", "json").stdout)
    assert (row["first_timestamp"], row["last_timestamp"]) == (1_000, 9_000)
    (again,) = json.loads(run("kafka", "ls", broker, "--format", "json").stdout)
    assert again == row


def test_regression_a_path_of_no_broker_is_told_once(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Alone it is an error with one piece of advice; beside a good one a warning."""
    nowhere, good = str(tmp_path / "nowhere"), str(log_dirs("killed", tmp_path)[0])
    result = run("kafka", "ls", nowhere)
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert result.stderr.endswith("check the path and its disk, then try again\n")
    result = run("kafka", "ls", good, nowhere)
    assert f"warning: log dir {nowhere} is offline: " in result.stderr
    assert not caplog.text


def test_regression_log_dirs_are_shown_in_one_way(run: Run) -> None:
    """Help and document showed `ls DIRS` beside `verify --log-dirs`."""
    document = Path(__file__).parents[2] / "docs" / "KAFKA_DISK.md"
    lines = [*run("kafka", "--help").stdout.splitlines(), *document.read_text().splitlines()]
    shown = [line for line in lines if re.match(r" +logstore kafka ls ", line)]
    assert len(shown) == 2 and [line for line in shown if "--log-dirs" not in line] == []


def test_cat_prints_a_partition(run: Run, tmp_path: Path) -> None:
    """In both isolation levels, with the options of `cat`."""
    dirs = ",".join(map(str, log_dirs("stopped", tmp_path)))
    for level, rows in zip(("read_uncommitted", "read_committed"), given("stopped")[
        "transactions", 0  # type: ignore[index]
    ][2:], strict=True):  # fmt: skip
        done = run(
            "kafka", "cat", "transactions", "--log-dirs", dirs, "--format", "jsonl",
            "--isolation-level", level,
        )  # fmt: skip
        offsets = [json.loads(line)["offset"] for line in done.stdout.splitlines()]
        assert offsets == [row[0] for row in rows]


def test_verify_finds_damage(run: Run, tmp_path: Path) -> None:
    """Exit code 1, with the place."""
    dirs = log_dirs("stopped", tmp_path)
    names = ",".join(map(str, dirs))
    assert run("kafka", "verify", "--log-dirs", names).exit_code == 0
    path = dirs[1] / "stamped-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    (dirs[1] / "segments-1" / f"{3:020d}.log").write_bytes(b"\x00" * 70)
    done = run("kafka", "verify", "--log-dirs", names, "--format", "json")
    assert done.exit_code == 1 and "segments-1" in done.stdout


def test_adopted_partitions_go_on(run: Run, tmp_path: Path) -> None:
    """Linked, readable with the same offsets, writable; the source stays as it was."""
    dirs = log_dirs("killed", tmp_path / "broker")
    before = {path: path.read_bytes() for path in (tmp_path / "broker").rglob("*.log")}
    ours = str(tmp_path / "ours")
    sources = ",".join(map(str, dirs))
    names = ["codec-snappy", "transactions", "compacted", "segments", "torn", "stamped"]
    for name in names:
        done = run("kafka", "adopt", name, "--from", sources, "--log-dirs", ours)
        assert done.exit_code == 0, done.stderr
    link = Path(ours) / "segments-0" / f"{0:020d}.log"
    assert link.stat().st_nlink == 2
    expected = given("stopped") | given("killed")
    for read_only in (True, False):
        with LogStore.open(ours, read_only=read_only) as store:
            for key in store:
                log = store[key]
                assert log.log_end_offset == expected[key].end
                assert [tuple(record[:5]) for record in log] == expected[key].uncommitted
                committed = log.read(log.log_start_offset, isolation_level="read_committed")
                assert [tuple(record[:5]) for record in committed] == expected[key].committed
            assert store.verify().is_sound
    with LogStore.open(ours) as store:
        for key in store:
            assert store[key].append(b"goes on", durable=True) == expected[key].end
            store[key].truncate_to(expected[key].end)
    assert {path: path.read_bytes() for path in before} == before
    assert run("kafka", "adopt", "stamped", "--from", sources, "--log-dirs", ours).exit_code == 1


def test_exported_partitions_are_a_brokers(run: Run, tmp_path: Path) -> None:
    """Segments in Kafka's layout, with the same offsets, whatever layout they had."""
    ours, target = str(tmp_path / "ours"), tmp_path / "target"
    os.mkdir(target)
    with LogStore.open(ours) as store:
        rows = store.create("rows", 0, config=LogConfig(record_format="kafka"))
        columns = store.create("columns", 0)
        for log in (rows, columns):
            log.extend([b"a", None, b"c" * 100], keys=[b"k", None, b""], timestamps=[3, 1, 2])
            log.append(b"d", headers=[("h", b"v")])
        expected = [tuple(record[:5]) for record in rows]
        assert [row[2:] for row in expected] == [tuple(record[2:5]) for record in columns]
    for name in ("rows", "columns"):
        assert run("kafka", "export", name, "--log-dirs", ours, "--to", str(target)).exit_code == 0
    with LogStore.open_kafka(target) as store:
        for key in store:
            found = [tuple(record[:5]) for record in store[key]]
            assert [row[2:] for row in found] == [row[2:] for row in expected]
    assert run("kafka", "export", "rows", "--log-dirs", ours, "--to", str(target)).exit_code == 1


def test_regression_nothing_is_exported_into_a_log_dir_of_ours(run: Run, orders: list[str]) -> None:
    """The partition was there twice then, and offline."""
    result = run("kafka", "export", "orders", "--to", orders[1])
    assert (result.exit_code, "belongs to a store of this library" in result.stderr) == (1, True)
    assert not os.path.exists(os.path.join(orders[1], "orders-0"))
