"""Reassign partitions that are not there yet, and such as may stay where they are (KIP-113)."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from logstore import LogStore

from .conftest import Run


def reassignment(tmp_path: Path, *entries: tuple[int, str]) -> str:
    """Write a reassignment of `orders`; gives its path."""
    file = tmp_path / "plan.json"
    rows: list[dict[str, Any]] = [
        {"topic": "orders", "partition": n, "replicas": [0], "log_dirs": [path]}
        for n, path in entries
    ]
    file.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(file)


def test_a_partition_to_come_is_wished_somewhere(
    run: Run, log_dirs: list[str], tmp_path: Path
) -> None:
    """It is noted and said so, tells of itself until it is created, and is created there."""
    file = reassignment(tmp_path, (0, log_dirs[1]), (77, log_dirs[1] + "/"))
    before = run("reassign", "--verify", file)
    assert (before.exit_code, "not created, not requested" in before.stdout) == (1, True)
    said = f"orders-77 does not exist yet: it will be created in {log_dirs[1]}"
    dry = run("reassign", "--execute", file, "--dry-run")
    assert (dry.exit_code, said in dry.stdout) == (0, True)
    assert "not requested" in run("reassign", "--verify", file).stdout
    done = run("reassign", "--execute", file)
    assert (done.exit_code, said in done.stdout) == (0, True), done.stderr
    after = run("reassign", "--verify", file)
    assert (after.exit_code, after.stdout.count("complete")) == (1, 1)
    assert "to be created there" in after.stdout
    assert "created orders-77" in run("create", "orders", "77").stdout
    with LogStore.open(log_dirs, read_only=True) as store:
        assert store.log("orders", 77).log_dir == log_dirs[1]
    assert run("reassign", "--verify", file).exit_code == 0


def test_a_wish_alone_is_told_to_programs(run: Run, log_dirs: list[str], tmp_path: Path) -> None:
    """Nothing moves, and that is no problem; in a log dir that there is not, nothing is wished."""
    file = reassignment(tmp_path, (77, log_dirs[1]))
    result = run("reassign", "--execute", file, "--format", "json")
    facts = json.loads(result.stdout)
    assert (result.exit_code, facts["moves"]) == (0, [])
    wish = {"topic": "orders", "partition": 77, "target": log_dirs[1], "state": "wished"}
    assert facts["wishes"] == [wish]
    assert json.loads(run("reassign", "--execute", file, "--format", "jsonl").stdout) == wish
    assert "no moves" not in run("reassign", "--execute", file).stdout
    wrong = run("reassign", "--execute", reassignment(tmp_path, (78, "/nowhere")))
    assert (wrong.exit_code, "/nowhere" in wrong.stderr) == (1, True)


@pytest.mark.parametrize("has_owner", [False, True])
def test_regression_a_cancel_withdraws_what_was_wished(
    run: Run, log_dirs: list[str], tmp_path: Path, has_owner: bool
) -> None:
    """Where the file names it; a later wish for another log dir stays."""
    file = reassignment(tmp_path, (77, log_dirs[1]), (78, log_dirs[1]), (79, log_dirs[0]))
    with LogStore.open(log_dirs) if has_owner else nullcontext():
        assert run("reassign", "--execute", file).exit_code == 0
        file = reassignment(tmp_path, (77, log_dirs[1] + "/"), (78, log_dirs[0]))
        result = run("reassign", "--cancel", file)
        said = f"orders-77 will no longer be created in {log_dirs[1]}"
        assert (result.exit_code, result.stdout.splitlines()) == (0, [said])
        verified = run("reassign", "--verify", file).stdout.splitlines()[1]
        assert "not created, not requested" in verified
        again = run("reassign", "--cancel", file, "--format", "json")
        assert json.loads(again.stdout)["wishes"] == []
        assert "no moves" in run("reassign", "--cancel", file).stdout
    with LogStore.open(log_dirs, read_only=True) as view:
        settings = [log_dir.settings for log_dir in view.host.replicas.log_dirs]
    assert [len(one.preferred) for one in settings[:2]] == [1, 1]  # 79 here, 78 there


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_any_log_dir_is_no_problem(
    run: Run, log_dirs: list[str], tmp_path: Path, options: list[str]
) -> None:
    """Where nothing is asked for there is nothing to do, and that is success."""
    file = reassignment(tmp_path, (0, "any"), (1, "any"))
    result = run("reassign", "--execute", file, *options)
    assert result.exit_code == 0
    assert result.stderr.count("nothing to do: orders-") == 2
    assert run("reassign", "--verify", file).exit_code == 0


def test_who_only_looks_knows_what_is_cordoned(
    log_dirs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A reader shows the state that the owner left, and logs nothing of it."""
    with LogStore.open(log_dirs, admin_socket=False) as store:
        store.cordon(log_dirs[1])
    caplog.clear()
    with LogStore.open(log_dirs, read_only=True) as view:
        states = [log_dir.state for log_dir in view.describe_dirs().log_dirs]
    assert (states, caplog.records) == (["online", "cordoned"], [])
