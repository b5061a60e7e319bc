"""Call `logstore move` and `logstore reassign`, with and without an owner of the store."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from logstore import LogStore
from mover.cli import live, operating
from support.command_line import owner_of

from .conftest import COUNT, Run


def places(log_dirs: list[str]) -> dict[int, str]:
    """Return the log dir of each partition, as a second reader sees it."""
    with LogStore.open(log_dirs, read_only=True) as store:
        return {key.partition: store.log(*key).log_dir for key in store}


def spread(log_dirs: list[str]) -> list[int]:
    """Count the partitions of each log dir."""
    found = list(places(log_dirs).values())
    return [found.count(path) for path in log_dirs]


def test_a_plan_is_shown_and_moves_nothing(run: Run, log_dirs: list[str]) -> None:
    """The plan shows the moves, each log dir before and after, and the sums."""
    result = run("move", "plan")
    assert result.exit_code == 0
    assert "3 moves" in result.stdout
    assert "FREE THEN" in result.stdout
    assert result.stdout.count(log_dirs[1]) == 4
    assert spread(log_dirs) == [COUNT, 0]


def test_a_plan_as_json_has_the_reassignment(run: Run, tmp_path: Path) -> None:
    """The output is one document; `--output` writes what kafka-reassign-partitions accepts."""
    file = tmp_path / "plan.json"
    facts = json.loads(run("move", "plan", "--format", "json", "--output", str(file)).stdout)
    assert len(facts["planned"]) == 3
    assert json.loads(facts["reassignment"]) == json.loads(file.read_text())
    lines = run("move", "plan", "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == facts["planned"]


def test_a_plan_that_cannot_do_all_ends_with_1(run: Run, log_dirs: list[str]) -> None:
    """If both dirs are to be emptied, each partition is named on stderr: it has no target."""
    result = run("move", "plan", "--evacuate", log_dirs[0], "--evacuate", log_dirs[1])
    assert result.exit_code == 1
    assert result.stderr.count("no other log dir accepts replicas") == COUNT


def test_a_dry_run_moves_nothing(run: Run, log_dirs: list[str], tmp_path: Path) -> None:
    """This holds for a new plan, for one partition, and for a file."""
    file = tmp_path / "plan.json"
    assert "3 moves" in run("move", "run", "--dry-run").stdout
    assert "1 move, " in run("move", "run", "orders", "0", log_dirs[1], "--dry-run").stdout
    run("move", "plan", "--output", str(file))
    assert "3 moves" in run("reassign", "--execute", str(file), "--dry-run").stdout
    assert spread(log_dirs) == [COUNT, 0]


def test_one_partition_is_moved(run: Run, log_dirs: list[str]) -> None:
    """The second time, there is nothing to do, and the exit code is 0."""
    for _ in range(2):
        result = run("move", "run", "orders", "4", log_dirs[1])
        assert (result.exit_code, "done" in result.stdout) == (0, True)
    assert places(log_dirs)[4] == log_dirs[1]
    assert spread(log_dirs) == [COUNT - 1, 1]


def test_the_dirs_are_evened_out(run: Run, log_dirs: list[str]) -> None:
    """`move run` makes the moves that `move plan` shows; after that, nothing is left to move."""
    facts = json.loads(run("move", "run", "--threads", "2", "--format", "json").stdout)
    assert [row["state"] for row in facts["moves"]] == ["done"] * 3
    assert all(row["bytes_done"] == row["bytes_total"] > 50_000 for row in facts["moves"])
    assert spread(log_dirs) == [3, 3]
    assert "nothing to move" in run("move", "plan").stdout


def test_a_dir_is_emptied(run: Run, log_dirs: list[str]) -> None:
    """All replicas leave the dir."""
    assert run("move", "run", "--evacuate", log_dirs[0], "--throttle", "auto").exit_code == 0
    assert spread(log_dirs) == [0, COUNT]


def test_a_reassignment_is_executed_and_verified(
    run: Run, log_dirs: list[str], tmp_path: Path
) -> None:
    """Before the move, `--cancel` has nothing to do; after the move, all is complete."""
    file = tmp_path / "plan.json"
    run("move", "plan", "--output", str(file))
    before = run("reassign", "--verify", str(file))
    assert (before.exit_code, before.stdout.count("not there")) == (1, 3)
    cancelled = run("reassign", "--cancel", str(file))
    assert (cancelled.exit_code, cancelled.stdout) == (0, "no moves\n")
    done = run("reassign", "--execute", str(file), "--throttle", "500MB/s")
    assert done.exit_code == 0
    back = json.loads(next(line for line in done.stderr.splitlines() if line.startswith("{")))
    assert {entry["log_dirs"][0] for entry in back["partitions"]} == {log_dirs[0]}
    after = run("reassign", "--verify", str(file))
    assert (after.exit_code, after.stdout.count("complete")) == (0, 3)


def test_a_reassignment_names_what_it_leaves_out(
    run: Run, log_dirs: list[str], tmp_path: Path
) -> None:
    """Another broker's replica is reported, with exit code 1; a bad document is wrong usage."""
    file = tmp_path / "plan.json"
    entry: dict[str, Any] = {"topic": "orders", "partition": 0, "log_dirs": [log_dirs[1]]}
    file.write_text(json.dumps({"version": 1, "partitions": [{**entry, "replicas": [7]}]}))
    result = run("reassign", "--execute", str(file))
    assert result.exit_code == 1
    assert "broker 0 is not among the replicas" in result.stderr
    file.write_text("{}")
    for action in ("--execute", "--verify", "--cancel"):
        assert run("reassign", action, str(file)).exit_code == 2
    assert run("reassign", str(file)).exit_code == 2
    for several in (("--execute", "--verify"), ("--verify", "--cancel"), ("--verify", "--dry-run")):
        result = run("reassign", *several, str(file))
        assert result.exit_code == 2 and " ".join(several[1:]) in result.stderr, result.stderr
    assert run("reassign", "--cancel", "--throttle", "1MB/s", str(file)).exit_code == 2
    for rate in ("5", "0", "fast"):
        result = run("reassign", "--execute", "--throttle", rate, str(file))
        assert (result.exit_code, "or auto, or none" in result.stderr) == (2, True), result.stderr
        assert "replica assignment" not in result.stderr  # the rate is checked before the plan
    assert spread(log_dirs) == [COUNT, 0]


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["run", "nope", "0", "{1}"], 1, "no partition nope-0"),
        (["run", "orders", "0", "{1}/x"], 1, "not one of the log dirs"),
        (["run", "orders", "0", "{1}/x"], 1, "{0}, {1}"),
        (["run", "orders", "0"], 2, "TOPIC PARTITION TARGET"),
        (["run", "orders", "0", "{1}", "--evacuate", "{0}"], 2, "not both"),
        (["run", "--plan", "/dev/null", "--evacuate", "{0}"], 2, "not both"),
        (
            ["run", "orders", "0", "{1}", "--throttle", "fast"],
            2,
            "'fast' is not a rate: write '50MB/s'",
        ),
        (["run", "orders", "0", "{1}", "--throttle", "5"], 2, "write '5MB/s', or '5B/s'"),
        (["run", "orders", "0", "{1}", "--throttle", "0"], 2, "give a rate above 0, such as"),
        (["throttle", "50Mbps"], 2, "or auto, or none for no limit"),
        (["plan", "--tolerance", "-1"], 2, "tolerance"),
        (["plan", "--evacuate", "/nope"], 2, "is not a log dir of this store"),
        (["throttle", "5MB/s"], 1, "no process has the store open"),
        (["cancel", "orders", "0"], 2, "orders-0 is not being moved"),
        (["pause", "orders"], 1, "no partition of orders"),
    ],
)
def test_what_is_typed_wrongly_is_said(
    run: Run, log_dirs: list[str], words: list[str], code: int, reason: str
) -> None:
    """There is one line on stderr, and the exit code for a problem or for wrong usage."""
    result = run("move", *(word.format(*log_dirs) for word in words))
    told = reason.format(*log_dirs) in result.stderr
    assert (result.exit_code, told) == (code, True), result.stderr


def test_the_owner_moves_while_it_appends(run: Run, log_dirs: list[str]) -> None:
    """The owner's socket serves the move, its status, and a new rate during appends."""
    with owner_of(log_dirs) as owner:
        assert owner.append(b"before") == 500
        facts = json.loads(run("move", "status", "--format", "json").stdout)
        assert (facts["pid"], facts["moves"]) == (owner.pid, [])
        moved = run("move", "run", "orders", "0", log_dirs[1], "--throttle", "300MB/s")
        assert moved.exit_code == 0, moved.stderr
        assert owner.append(b"after") == 501
        facts = json.loads(run("move", "status", "--format", "json").stdout)
        (row,) = facts["moves"]
        assert (row["state"], row["target"]) == ("done", log_dirs[1])
        assert (facts["pid"], facts["throttled_rate"]) == (owner.pid, 300_000_000)
        assert run("move", "throttle", "none").exit_code == 0
        refused = run("move", "run", "orders", "1", log_dirs[1] + "/x")
        assert (refused.exit_code, "not one of" in refused.stderr) == (1, True)
    assert places(log_dirs)[0] == log_dirs[1]


def interrupted_view() -> Iterator[Callable[[Any], None]]:
    """Stand in for a person who presses Ctrl-C as soon as a move is running."""

    def show(facts: dict[str, Any]) -> None:
        if any(row["bytes_done"] for row in facts["moves"]):
            raise KeyboardInterrupt

    yield show


def test_ctrl_c_leaves_what_can_go_on(
    run: Run, log_dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is 130, a hint says how to continue, and the partition is still complete."""
    monkeypatch.setattr(operating, "live_view", contextmanager(interrupted_view))
    result = run("move", "run", "orders", "0", log_dirs[1], "--throttle", "10KB/s")
    assert result.exit_code == 130
    assert "logstore move resume" in result.stderr
    with LogStore.open(log_dirs, read_only=True) as store:
        assert (store.log("orders", 0).log_dir, len(store.log("orders", 0))) == (log_dirs[0], 500)
    assert [name for name in os.listdir(log_dirs[1]) if name.endswith(".move")]
    left = json.loads(run("move", "status", "--format", "json").stdout)["moves"]
    assert [(row["state"], row["target"]) for row in left] == [("left", log_dirs[1])]
    assert 0 < left[0]["bytes_done"] < left[0]["bytes_total"]
    monkeypatch.undo()
    resumed = run("move", "resume")
    assert (resumed.exit_code, "done" in resumed.stdout) == (0, True)
    with LogStore.open(log_dirs, read_only=True) as store:
        assert (store.log("orders", 0).log_dir, len(store.log("orders", 0))) == (log_dirs[1], 500)


def test_regression_a_resumed_move_keeps_the_rate_it_had(
    run: Run, log_dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process uses the same rate for the move; a pause in between changes nothing."""
    seen: list[dict[str, Any]] = []

    @contextmanager
    def watched_view() -> Iterator[Callable[[Any], None]]:
        def show(facts: dict[str, Any]) -> None:
            seen.append(facts)
            raise KeyboardInterrupt

        yield show

    monkeypatch.setattr(operating, "live_view", contextmanager(interrupted_view))
    run("move", "run", "orders", "0", log_dirs[1], "--throttle", "10KB/s")
    monkeypatch.setattr(operating, "live_view", watched_view)
    for _ in range(2):
        assert run("move", "resume").exit_code == 130
        assert seen.pop()["throttled_rate"] == 10_000
        monkeypatch.setattr(operating, "live_view", live.live_view)
        assert run("move", "pause").exit_code == 0
        monkeypatch.setattr(operating, "live_view", watched_view)
    monkeypatch.setattr(operating, "live_view", live.live_view)
    assert run("move", "cancel").exit_code == 0
    with LogStore.open(log_dirs) as store:
        assert "move_rates" not in store["orders", 0]._state.metadata.extra


def test_regression_the_time_that_a_move_needs_is_headed_eta(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Users read the heading LEFT as bytes left, or as the state of an unfinished move."""
    row = {
        "topic": "orders", "partition": 0, "source": "/a", "target": "/b", "state": "copying",
        "bytes_done": 1, "bytes_total": 2, "lag_bytes": 1, "bytes_per_second": 1.0,
        "eta_seconds": 65.0, "throttled_rate": None, "error": None,
    }  # fmt: skip
    live.print_moves([row])
    heading, line = capsys.readouterr().out.splitlines()
    assert "ETA" in heading.split() and "LEFT" not in heading
    assert "1:05" in line


def test_what_was_left_can_be_cancelled(
    run: Run, log_dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancelled move frees its space, and no move is left to resume."""
    monkeypatch.setattr(operating, "live_view", contextmanager(interrupted_view))
    run("move", "run", "orders", "0", log_dirs[1], "--throttle", "10KB/s")
    monkeypatch.undo()
    assert run("move", "cancel", "orders", "0").exit_code == 0
    assert not [name for name in os.listdir(log_dirs[1]) if name.endswith(".move")]
    assert run("move", "status").stdout == "no moves\n"
    assert places(log_dirs)[0] == log_dirs[0]


def test_a_reassignment_that_names_other_brokers_is_cancelled(
    run: Run, log_dirs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the entries of this store's broker count, as in `--execute`."""
    entry = {
        "topic": "orders",
        "partition": 0,
        "replicas": [7, 0],
        "log_dirs": ["any", log_dirs[1]],
    }
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    monkeypatch.setattr(operating, "live_view", contextmanager(interrupted_view))
    run("move", "run", "orders", "0", log_dirs[1], "--throttle", "10KB/s")
    monkeypatch.undo()
    assert run("reassign", "--cancel", str(file)).exit_code == 0
    assert run("move", "status").stdout == "no moves\n"
    assert places(log_dirs)[0] == log_dirs[0]


def test_nothing_is_begun_of_a_reassignment_with_a_wrong_dir(
    run: Run, log_dirs: list[str], tmp_path: Path
) -> None:
    """A log dir that is not in the store is reported before the first move, even in a dry run."""
    entries = [
        {"topic": "orders", "partition": n, "replicas": [0], "log_dirs": [path]}
        for n, path in enumerate((log_dirs[1], "/nowhere"))
    ]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": entries}))
    for options in ([], ["--dry-run"]):
        result = run("reassign", "--execute", str(file), *options)
        assert result.exit_code == 1
        assert "/nowhere" in result.stderr
        assert "current replica assignment" not in result.stderr
    assert run("move", "status").stdout == "no moves\n"
    assert spread(log_dirs) == [COUNT, 0]


@pytest.mark.parametrize("text", [b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_document_is_wrong_usage(run: Run, tmp_path: Path, text: bytes) -> None:
    """Bytes that are not text, and endless brackets, are reported as wrong usage."""
    file = tmp_path / "plan.json"
    file.write_bytes(text)
    for command in (["reassign", "--execute"], ["reassign", "--verify"], ["move", "run", "--plan"]):
        assert run(*command, str(file)).exit_code == 2


def test_the_view_shows_bytes_rate_time_lag_and_throttle(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is one line for all moves, and one line for each running move."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "160")
    row = {
        "topic": "orders", "partition": 0, "state": "copying", "bytes_done": 5 << 20,
        "bytes_total": 10 << 20, "lag_bytes": 5 << 20, "bytes_per_second": 1 << 20,
        "eta_seconds": 5.0, "throttled_rate": 2 << 20,
    }  # fmt: skip
    done = {**row, "partition": 1, "state": "done", "bytes_done": 10 << 20, "lag_bytes": 0}
    with live.live_view() as show:
        show({"moves": [row, done], "throttled_rate": None})
        show({"moves": [{**row, "state": "swapping"}, done], "throttled_rate": None})
    text = capsys.readouterr().err
    assert "5.0 MiB of 10.0 MiB  1.0 MB/s  ETA 0:05  lag 5.0 MiB  throttle 2.1 MB/s" in text
    assert "15.0 MiB of 20.0 MiB" in text


def test_the_commands_are_in_the_help(run: Run) -> None:
    """The help lists these commands, although another package defines them."""
    text = run("--help").stdout
    assert "move " in text and "reassign " in text
    for verb in ("plan", "run", "status", "cancel", "pause", "resume", "retry", "throttle"):
        assert "Example" in run("move", verb, "--help").stdout
