"""Log dirs are operated from the command line, by their owner or without one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest

from logstore import LogDirError, LogStore
from logstore.cli.commands import operate as operating
from logstore.store.admin.client import find_owner
from support.command_line import Run, owner_of
from support.moves import StagedMove


def state_of(run: Run, path: str) -> str:
    """Ask for the state of a log dir."""
    rows = json.loads(run("dirs", "--format", "json").stdout)
    (state,) = [row["state"] for row in rows if row["path"] == path]
    return str(state)


def test_a_running_owner_is_operated(run: Run, orders: list[str]) -> None:
    """Cordon, take offline, reopen: each says how the log dir stands, and it stands so."""
    with owner_of(orders) as owner:
        result = run("cordon", orders[1])
        assert result.exit_code == 0, result.output
        assert f"{orders[1]} is cordoned" in result.stdout
        assert state_of(run, orders[1]) == "cordoned"
        assert run("uncordon", orders[1]).stdout == f"{orders[1]} is online\n"
        result = run("take-offline", orders[1], "--format", "json")
        row = json.loads(result.stdout)
        assert row["state"] == "offline" and row["reason"]
        assert (
            json.loads(run("metrics", "--format", "json").stdout)["OfflineLogDirectoryCount"] == 1
        )
        assert owner.append(b"goes on") == 10
        result = run("reopen", orders[1])
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[-1] == f"{orders[1]} is online"
        assert state_of(run, orders[1]) == "online"


def test_log_dirs_come_and_go(run: Run, orders: list[str]) -> None:
    """A new one is added and used; one with replicas is not removed, an empty one is."""
    new = orders[0] + "-new"
    with owner_of(orders):
        assert run("add-dir", new).exit_code == 0
        assert (
            "already a log dir of this store; if it is offline, reopen it"
            in run("add-dir", new).stderr
        )
        assert run("create", "orders", "1", "--log-dir", new).exit_code == 0
        refused = run("remove-dir", new)
        assert refused.exit_code == 1 and len(refused.stderr.splitlines()) == 1
        result = run("remove-dir", orders[1])
        assert result.exit_code == 0, result.output
        assert result.stdout == f"{orders[1]} is no longer a log dir of this store\n"
        paths = [row["path"] for row in json.loads(run("dirs", "--format", "json").stdout)]
        assert paths == [orders[0], new]
        assert run("prefer-dir", "audit", "0", new).exit_code == 0
        assert run("create", "audit").stdout == f"created audit-0 in {new}\n"


def test_a_missing_disk_is_given_up_by_its_id(run: Run, orders: list[str]) -> None:
    """It has no path any more; until then nothing is created that might be on it."""
    with LogStore.open(orders) as store:
        lost = store.host.replicas.dir_of(orders[1]).directory_id
        store.create("audit", 0, log_dir=orders[1])
    refused = run("create", "fresh", "--log-dirs", orders[0])
    assert (refused.exit_code, "--is-new" in refused.stderr) == (1, True)
    result = run("remove-dir", "--lost", lost, "--yes", "--log-dirs", orders[0])
    assert result.exit_code == 0, result.output
    assert f"{lost} is no longer a log dir of this store" in result.stdout
    assert "lost: audit-0" in result.stdout
    assert run("create", "fresh", "--log-dirs", orders[0]).exit_code == 0


@pytest.mark.parametrize("name", ["file", "file/x", "no-lock"])
def test_regression_a_path_that_does_not_work_is_told_once(
    run: Run, orders: list[str], caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """With one piece of advice, which the log does not contradict."""
    path = Path(orders[0] + "-bad")
    (path / "no-lock" / ".lock").mkdir(parents=True)
    (path / "file").touch()
    path = path / name
    result = run("add-dir", str(path))
    assert (result.exit_code, str(path) in result.stderr) == (1, True)
    assert result.stderr.endswith("; check the path and its disk, then try again\n")
    assert not caplog.text


@pytest.mark.parametrize("command", ["cordon", "take-offline", "reopen", "remove-dir"])
def test_a_path_that_is_no_log_dir(run: Run, orders: list[str], command: str) -> None:
    """It is a failure of one line, and names the path."""
    with owner_of(orders):
        result = run(command, "/no/where")
        assert result.exit_code == 1
        assert "/no/where" in result.stderr and len(result.stderr.splitlines()) == 1


def test_without_an_owner_the_store_is_opened_here(run: Run, orders: list[str]) -> None:
    """What is to last lasts: a cordon is there at the next start."""
    assert run("cordon", orders[1]).exit_code == 0
    with LogStore.open(orders) as store:
        states = [row.state for row in store.describe_dirs().log_dirs]
    assert states == ["online", "cordoned"]
    table = run("metrics").stdout
    assert "OfflineLogDirectoryCount 0" in table and "cordoned" in table


def test_regression_a_dir_taken_offline_without_an_owner_is_back_at_once(
    run: Run, orders: list[str]
) -> None:
    """It was said to be offline, and the next command had it online: it says so now."""
    result = run("take-offline", orders[1])
    assert (result.exit_code, "the next start uses" in result.stderr) == (0, True)
    assert state_of(run, orders[1]) == "online"
    with owner_of(orders):
        assert "the next start" not in run("take-offline", orders[1]).stderr


@pytest.mark.parametrize("is_owned", [False, True])
def test_regression_the_gauges_take_no_lock(run: Run, orders: list[str], is_owned: bool) -> None:
    """Without an owner they opened the store as one: its start was refused meanwhile."""
    with owner_of(orders, admin_socket=False) if is_owned else contextlib.nullcontext():
        names = [os.path.join(path, name) for path in orders for name in os.listdir(path)]
        before = {name: os.stat(name).st_mtime_ns for name in names}
        row = json.loads(run("metrics", "--format", "json").stdout)["log_dirs"][0]
        assert (row["state"], row["partition_count"]) == ("online", 1)
        assert {name: os.stat(name).st_mtime_ns for name in names} == before


def test_the_gauges_are_what_the_help_says(run: Run, orders: list[str]) -> None:
    """Every figure of a log dir that the help promises has a column, and a key in the JSON."""
    told = " ".join(run("metrics", "--help").stdout.split())
    headings = run("metrics").stdout
    row = json.loads(run("metrics", "--format", "json").stdout)["log_dirs"][0]
    for word, heading, key in (
        ("state", "STATE", "state"),
        ("oldest call", "OLDEST CALL", "longest_call_seconds"),
        ("flushes", "FLUSHES", "flush_count"),
        ("seconds", "FLUSH TIME", "flush_seconds"),
        ("scrubbed", "SCRUBBED", "scrubbed_bytes"),
        ("corrupt batches", "CORRUPT", "corrupt_batches"),
    ):
        assert word in told and heading in headings and key in row


def test_an_owner_without_a_socket_is_named(run: Run, orders: list[str]) -> None:
    """Nobody can be asked: the line has the pid."""
    with owner_of(orders, admin_socket=False) as owner:
        result = run("cordon", orders[1])
        assert result.exit_code == 1
        assert str(owner.pid) in result.stderr and len(result.stderr.splitlines()) == 1
    assert os.path.isdir(orders[1])


@pytest.mark.parametrize("is_owned", [True, False])
def test_a_topic_is_deleted(run: Run, orders: list[str], is_owned: bool) -> None:
    """By its owner when there is one; it is asked for, and what is not wished stays."""
    with LogStore.open(orders) as store:
        store.create("orders", 1)
        store.create("audit", 0)
    with owner_of(orders) if is_owned else contextlib.nullcontext():
        refused = run("delete", "orders", stdin="n\n")
        unasked = run("delete", "orders", stdin="")
        assert (unasked.exit_code, "give --yes" in unasked.stderr) == (2, True)
        assert refused.exit_code == 1 and not refused.stdout
        assert "orders-0, orders-1" in refused.stderr
        for unknown in ("nowhere", "orders-01", "orders-\N{SUPERSCRIPT TWO}"):
            assert run("delete", unknown, "--yes").exit_code == 1
        assert run("delete", "orders-1", "--yes").stdout == "deleted orders-1\n"
        result = run("delete", "orders", "0", "--format", "jsonl", stdin="y\n")
        assert json.loads(result.stdout) == {"topic": "orders", "partition": 0}
        rows = run("topics", "--format", "jsonl").stdout.splitlines()
        assert [json.loads(row)["topic"] for row in rows] == ["audit"]


@pytest.mark.parametrize("is_owned", [True, False])
def test_regression_a_partition_that_does_not_exist_is_not_asked_about(
    run: Run, orders: list[str], is_owned: bool
) -> None:
    """The question was answered, and then there was nothing to delete."""
    with owner_of(orders) if is_owned else contextlib.nullcontext():
        for words in (("orders", "7"), ("nowhere", "0"), ("nowhere",)):
            result = run("delete", *words, stdin="y\n")
            assert result.exit_code == 1
            assert "there is no" in result.stderr and "with all records?" not in result.stderr


def test_a_deletion_that_is_refused_says_what_went_before(run: Run, orders: list[str]) -> None:
    """The replica of an offline log dir stays; its error is one line."""
    with LogStore.open(orders) as store:
        store.create("orders", 1, log_dir=orders[1])
    with owner_of(orders):
        run("take-offline", orders[1])
        result = run("delete", "orders", "--yes")
        assert result.exit_code == 1
        assert result.stdout == "deleted orders-0\n"
        assert orders[1] in result.stderr and len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("is_owned", [True, False])
def test_an_incomplete_replica_is_promoted(run: Run, orders: list[str], is_owned: bool) -> None:
    """It was read-only with what there is of it; from then on it is the live one."""
    disks = [Path(path) for path in orders]
    with LogStore.open(orders) as store:
        store.create("half", 0, log_dir=orders[0]).append(b"x")
    half = StagedMove(disks[0], disks[1], "half", 0, 1).name().copy()
    shutil.rmtree(half.live)
    with owner_of(orders) if is_owned else contextlib.nullcontext():
        result = run("promote", "half", "0")
        assert result.exit_code == 0, result.output
        assert result.stdout == "half-0 is live, with the records that it has\n"
        again = run("promote", "half", "0")
        assert (again.exit_code, again.stdout) == (
            0,
            "half-0 was already complete: nothing to do\n",
        )
    with LogStore.open(orders) as store:
        assert store["half", 0].append(b"y") == 1
    assert run("promote", "nowhere").exit_code == 1


@pytest.mark.parametrize("is_at_a_terminal", [False, True])
def test_regression_replacing_a_disk_names_what_is_lost_and_asks(
    run: Run, orders: list[str], monkeypatch: pytest.MonkeyPatch, is_at_a_terminal: bool
) -> None:
    """The owner forgot the partitions of the old disk without a word, through its socket too."""
    with LogStore.open(orders) as store:
        for partition in range(2):
            store.create("audit", partition, log_dir=orders[1]).append(b"x")
        held = sorted(str(key) for key in store if store.log(*key).log_dir == orders[1])
    with owner_of(orders):
        run("take-offline", orders[1])
        os.rename(orders[1], orders[1] + ".dead")
        os.mkdir(orders[1])
        monkeypatch.setattr(operating, "is_at_a_terminal", lambda: is_at_a_terminal)
        refused = run("reopen", orders[1], "--format-new", stdin="n\n")
        assert refused.exit_code == 1
        assert all(name in refused.stderr for name in held)
        assert ("Give up" in refused.stderr) is is_at_a_terminal
        assert "--yes" in refused.stderr
        assert not os.listdir(orders[1]) and state_of(run, orders[1]) == "offline"
        assert "audit" in run("topics").stdout
        answer = {"stdin": "y\n"} if is_at_a_terminal else {}
        words = () if is_at_a_terminal else ("--yes",)
        done = run("reopen", orders[1], "--format-new", *words, **answer)
        assert done.exit_code == 0, done.output
        assert all(f"{name} is lost" in done.stdout for name in held)
        assert done.stdout.splitlines()[-1] == f"{orders[1]} is online"
        assert "audit" not in run("topics").stdout


def test_regression_the_socket_refuses_a_replacement_that_loses_replicas(
    orders: list[str],
) -> None:
    """A client of before does not know the question, and forgot replicas; now it is refused."""
    with LogStore.open(orders) as store:
        store.create("audit", 0, log_dir=orders[1]).append(b"x")
    with owner_of(orders) as _:
        owner = find_owner(orders)
        assert owner is not None
        owner.call("take_offline", {"path": orders[1]})
        os.rename(orders[1], orders[1] + ".dead")
        os.mkdir(orders[1])
        with pytest.raises(LogDirError, match="audit-0") as caught:
            owner.call("reopen_dir", {"path": orders[1], "format_new": True})
        assert ["audit", 0] in caught.value.facts["lost"]
        os.rmdir(orders[1])
        os.rename(orders[1] + ".dead", orders[1])  # the old disk again: nothing is lost, or asked
        row = owner.call("reopen_dir", {"path": orders[1], "format_new": True})
        assert row["lost"] == []


def test_a_dead_disk_is_given_up_and_another_replaced(run: Run, orders: list[str]) -> None:
    """By its path: what was on it is named. An empty disk in its place is taken when told so."""
    with LogStore.open(orders) as store:
        store.create("audit", 0, log_dir=orders[1]).append(b"x")
    with owner_of(orders):
        refused = run("remove-dir", "--lost", orders[1])
        assert refused.exit_code == 1 and "it serves" in refused.stderr
        run("take-offline", orders[1])
        os.rename(orders[1], orders[1] + ".dead")
        os.mkdir(orders[1])
        refused = run("reopen", orders[1])
        assert refused.exit_code == 1 and "not formatted" in refused.stderr
        result = run("reopen", orders[1], "--format-new", "--yes")
        assert result.exit_code == 0, result.output
        assert state_of(run, orders[1]) == "online"
        assert run("create", "audit", "0", "--log-dir", orders[1]).exit_code == 0
        run("take-offline", orders[1])
        result = run("remove-dir", "--lost", orders[1], "--yes")
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines() == [
            f"{orders[1]} is no longer a log dir of this store",
            "  lost: audit-0",
            f"now remove {orders[1]} from your configuration (--log-dirs)",
        ]
