"""`format`, `dirs`, `log-dirs`, `topics`, `create`: tables for people, JSON for programs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest

from logstore import LogStore
from logstore.cli.output import bar
from logstore.log.metadata import COPYING, MoveRecord
from support.command_line import Run, owner_of
from support.moves import metadata_of


def test_format_makes_a_store(run: Run, log_dirs: list[str]) -> None:
    """`format` gives each dir an identity and names it."""
    result = run("format")
    assert result.exit_code == 0
    assert [line.split()[-1] for line in result.output.splitlines()] == log_dirs
    assert all(os.path.exists(os.path.join(path, "meta.properties")) for path in log_dirs)
    assert run("topics").exit_code == 0


def test_format_twice_changes_nothing(run: Run, orders: list[str]) -> None:
    """Formatting a store that is there leaves its records alone."""
    result = run("format")
    assert result.exit_code == 0
    assert result.stdout == "".join(f"left as it is: {path}\n" for path in orders)
    assert run("cat", "orders", "0").output.count("\n") == 10


def test_regression_format_says_what_it_takes_back(run: Run, orders: list[str]) -> None:
    """A dir that was removed has an identity, and is none of the store's until it is formatted."""
    assert run("remove-dir", orders[1]).exit_code == 0
    result = run("format")
    assert result.stdout == f"left as it is: {orders[0]}\ntaken back: {orders[1]}\n"
    assert run("format").stdout == "".join(f"left as it is: {path}\n" for path in orders)


def test_regression_format_says_what_it_refuses(run: Run, orders: list[str]) -> None:
    """A path that cannot be a log dir was called formatted."""
    os.rename(orders[1], orders[1] + ".gone")
    Path(orders[1]).touch()
    result = run("format")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (1, f"left as it is: {orders[0]}")
    assert result.stdout.splitlines()[1].startswith(f"refused: {orders[1]}: ENOTDIR")


def test_dirs_as_a_table(run: Run, orders: list[str]) -> None:
    """The table has a line for each log dir, with state, replicas and a bar."""
    lines = run("dirs").output.splitlines()
    assert lines[0].split()[:3] == ["LOG", "DIR", "STATE"]
    assert len(lines) == 3
    first = lines[1].split()
    assert first[:3] == [orders[0], "online", "1"]
    assert first[-1].endswith("%")


@pytest.mark.parametrize("output_format", ["json", "jsonl"])
def test_dirs_for_programs(run: Run, orders: list[str], output_format: str) -> None:
    """JSON has the facts as numbers, and no bar."""
    output = run("dirs", "--format", output_format).stdout
    rows = (
        json.loads(output)
        if output_format == "json"
        else list(map(json.loads, output.splitlines()))
    )
    assert [row["path"] for row in rows] == orders
    assert rows[0]["replicas"] == 1 and rows[0]["log_bytes"] > 0
    assert rows[0]["used_bytes"] + rows[0]["usable_bytes"] == rows[0]["total_bytes"]
    assert "bar" not in rows[0]


def test_dirs_says_what_is_offline(run: Run, orders: list[str]) -> None:
    """A dir that is gone is in the table with its reason, and the other one is whole."""
    os.rename(orders[1], orders[1] + ".gone")
    assert run("dirs", "--log-dirs", orders[0]).exit_code == 0
    result = run("dirs", "--format", "json")
    assert result.exit_code == 1
    rows = json.loads(result.stdout)
    assert [row["state"] for row in rows] == ["online", "offline"]
    assert rows[1]["error"]
    table = run("dirs").stdout.splitlines()
    assert table[0].split()[-1] == "REASON"
    assert "offline" in table[2]


@pytest.mark.parametrize("is_owned", [True, False])
def test_regression_dirs_counts_nothing_on_a_disk_it_never_saw(
    run: Run, orders: list[str], is_owned: bool
) -> None:
    """What a dir holds that was missing at the start is unknown, and not nothing."""
    os.rename(orders[1], orders[1] + ".gone")
    with owner_of(orders) if is_owned else contextlib.nullcontext():
        rows = json.loads(run("dirs", "--format", "json").stdout)
        assert [row["replicas"] for row in rows] == [1, None] and rows[1]["log_bytes"] is None
        assert run("dirs").stdout.splitlines()[2].split()[1:5] == ["offline", "-", "-", "-"]
        assert run("metrics").stdout.splitlines()[-1].split()[1:5] == ["offline", "-", "-", "-"]


def test_what_looks_odd_is_told(run: Run, orders: list[str]) -> None:
    """Names in a log dir that are not ours are told on stderr by what opens it for changes."""
    os.mkdir(os.path.join(orders[0], "orders-x"))
    result = run("create", "orders", "1")
    assert result.exit_code == 0
    assert "orders-x" in result.stderr


@pytest.mark.parametrize("command", ["dirs", "topics", "verify"])
def test_a_log_dir_left_out_is_told(run: Run, orders: list[str], command: str) -> None:
    """Naming only some of a store's log dirs is answered with a warning."""
    result = run(command, "--log-dirs", orders[0])
    assert "is missing: its partitions are offline" in result.stderr
    assert "add it to --log-dirs" in result.stderr


def test_log_dirs_is_kip_113(run: Run, orders: list[str]) -> None:
    """`log-dirs --describe` prints one line of JSON: version, dirs, partitions."""
    result = run("log-dirs", "--describe")
    assert result.output.count("\n") == 1
    document = json.loads(result.output)
    assert document["version"] == 1
    first = document["log_dirs"][0]
    assert first["path"] == orders[0] and first["is_live"] is True
    assert first["partitions"][0]["topic"] == "orders"
    assert first["partitions"][0]["is_temporary"] is False


def test_log_dirs_of_some(run: Run, orders: list[str]) -> None:
    """Topics and dirs can be chosen."""
    chosen = json.loads(run("log-dirs", "--describe", "--topics", "none").output)
    assert chosen["log_dirs"][0]["partitions"] == []
    chosen = json.loads(run("log-dirs", "--describe", "--only", orders[1]).output)
    assert [each["path"] for each in chosen["log_dirs"]] == [orders[1]]
    assert run("log-dirs").exit_code == 2


def test_topics_are_summed_up(run: Run, orders: list[str]) -> None:
    """A line per topic has partitions, records and size."""
    assert run("create", "orders", "1").exit_code == 0
    lines = run("topics").output.splitlines()
    assert lines[1].split()[:3] == ["orders", "2", "10"]
    row = json.loads(run("topics", "--format", "jsonl").stdout)
    assert row["partitions"] == 2 and row["offsets"] == 10 and row["state"] == "online"


def test_partitions_of_a_topic(run: Run, orders: list[str]) -> None:
    """A line per partition has its offsets and its log dir."""
    rows = json.loads(run("topics", "orders", "--format", "json").stdout)
    assert rows[0]["log_start_offset"] == 0 and rows[0]["log_end_offset"] == 10
    assert rows[0]["log_dir"] == orders[0]
    assert run("topics", "--partitions").output.splitlines()[1].split()[:2] == ["orders", "0"]


def test_a_topic_that_is_not_there(run: Run, orders: list[str]) -> None:
    """Asking for an unknown topic is a failure, not an empty table."""
    result = run("topics", "nothing")
    assert result.exit_code == 1
    assert "nothing" in result.stderr


def test_regression_topics_names_what_a_missing_disk_holds(run: Run, orders: list[str]) -> None:
    """What is on it is offline, with its log dir, and the exit code says that not all is there."""
    assert run("create", "orders", "1", "--log-dir", orders[1]).exit_code == 0
    assert run("create", "visits", "0", "--log-dir", orders[1]).exit_code == 0
    os.rename(orders[1], orders[1] + ".gone")
    summed = run("topics", "--format", "json")
    assert summed.exit_code == 1
    states = {row["topic"]: (row["partitions"], row["state"]) for row in json.loads(summed.stdout)}
    assert states == {"orders": (2, "1 offline"), "visits": (1, "1 offline")}
    table = run("topics")
    assert table.exit_code == 1
    assert f"offline with {orders[1]}: orders-1, visits-0" in table.stderr
    rows = json.loads(run("topics", "orders", "--format", "json").stdout)
    assert [row["log_dir"] for row in rows] == orders
    assert rows[0]["state"] == "online" and rows[1]["state"].startswith("offline: ")
    assert run("topics", "orders").exit_code == 1


@pytest.mark.parametrize("kind", ["move", "old copy"])
def test_regression_topics_names_what_is_incomplete(
    run: Run, orders: list[str], kind: str, tmp_path: Path
) -> None:
    """It was online, and the exit code was 0."""
    with LogStore.open(orders, admin_socket=False) as store:
        live = Path(store.log("orders", 0).directory)
    if kind == "move":
        metadata = metadata_of(live).with_move_record(MoveRecord("1" * 32, "2" * 32, COPYING, 10))
        metadata.write(str(live))
        live.rename(live.with_name(f"orders-0.{'1' * 32}.move"))
    else:
        shutil.copytree(live.parent, tmp_path / "backup")
        with LogStore.open(orders, admin_socket=False) as store:
            store.log("orders", 0).append(b"more", durable=True)
        shutil.rmtree(live.parent)
        (tmp_path / "backup").rename(live.parent)
        LogStore.open(orders, admin_socket=False).close()
    result = run("topics", "orders", "--format", "json")
    states = [row["state"].partition(":")[0] for row in json.loads(result.stdout)]
    assert result.exit_code == 1 and states[0] == "incomplete"
    summed = run("topics", "--format", "json")
    (row,) = [row for row in json.loads(summed.stdout) if row["topic"] == "orders"]
    assert summed.exit_code == 1 and row["incomplete_partitions"] >= 1
    assert f"incomplete in {live.parent}: orders-0" in run("topics").stderr
    for key in [("orders", 0), ("orders", 1), ("visits", 0)]:
        run("promote", key[0], str(key[1]))
    assert run("topics").exit_code == 0


def test_no_topics_says_how_to_make_one(run: Run, log_dirs: list[str]) -> None:
    """An empty store hints at `create` on stderr."""
    run("format")
    result = run("topics")
    assert result.exit_code == 0
    assert "logstore create" in result.stderr


def test_create_formats_and_places(run: Run, log_dirs: list[str]) -> None:
    """`create` makes a new store and spreads partitions over its dirs."""
    result = run("create", "orders", "--partitions", "4", "-c", "segment.bytes=64MiB")
    assert result.exit_code == 0
    assert [line.split()[1] for line in result.output.splitlines()] == [
        f"orders-{number}" for number in range(4)
    ]
    with LogStore.open(log_dirs, read_only=True) as store:
        assert store.log("orders", 3).config.segment_bytes == 64 << 20
        assert len({store.log("orders", number).log_dir for number in range(4)}) == 2


def test_create_where_it_is_wished(run: Run, log_dirs: list[str]) -> None:
    """`--log-dir` decides where."""
    result = run("create", "orders", "3", "5", "--log-dir", log_dirs[1], "--format", "json")
    rows = json.loads(result.stdout)
    assert [(row["partition"], row["log_dir"]) for row in rows] == [
        (3, log_dirs[1]),
        (5, log_dirs[1]),
    ]


def test_create_what_exists(run: Run, orders: list[str]) -> None:
    """A partition that exists is a failure; those made before it are named."""
    result = run("create", "orders", "1", "0")
    assert result.exit_code == 1
    assert "created orders-1" in result.stdout
    assert "orders-0" in result.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("a/b",), "a/b"),
        (("..",), ".."),
        (("x" * 250,), "249"),
        (("orders", "-c", "segment_byte=1"), "segment_bytes"),
        (("orders", "-c", "segment_bytes"), "KEY=VALUE"),
        (("orders", "-c", "segment_bytes=lots"), "segment_bytes"),
        (("orders", "1", "--partitions", "2"), "not both"),
        (("orders", "--partitions", "0"), "0"),
        (("orders", "0", "0"), "twice"),
        (("orders", "0", "2147483648"), "2147483647"),
        (("orders", "--partitions", "2147483649"), "2147483648"),
        (("x" * 249, "0", "1000000"), "255"),
        (("orders", "--log-dir", "/nowhere"), "/nowhere"),
    ],
)
def test_create_with_wrong_words(
    run: Run, log_dirs: list[str], args: tuple[str, ...], said: str
) -> None:
    """Names and settings that cannot be are wrong usage, say why, and nothing is made."""
    result = run("create", *args)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert not os.path.exists(log_dirs[0])


def test_bars() -> None:
    """A bar shows shares of a whole, and the smallest share is seen."""
    assert bar(0.5, 0.25, cells=8) in ("████▒▒░░", "####==..")
    assert bar(0.0, 0.0, cells=4) in ("░░░░", "....")
    assert bar(0.001, cells=4) in ("█░░░", "#...")
    assert bar(1.0, cells=4) in ("████", "####")
    assert len(bar(0.9, 0.9, cells=10)) == 10
