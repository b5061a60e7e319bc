"""Beside a running owner the command line has the owner do what changes the store."""

from __future__ import annotations

import json
import os

import pytest

from logstore import LogStore
from support.command_line import Run, damage, owner_of, segment_path


def test_a_running_owner_creates(run: Run, orders: list[str]) -> None:
    """The partition is in the owner's store at once, on the log dir wished for."""
    with owner_of(orders) as owner:
        result = run("create", "orders", "1", "--log-dir", orders[1], "--format", "json")
        assert result.exit_code == 0, result.output
        (row,) = json.loads(result.stdout)
        assert row == {"topic": "orders", "partition": 1, "log_dir": orders[1]}
        twice = run("create", "orders", "1")
        assert twice.exit_code == 1 and "orders-1 exists already" in twice.stderr
        assert len(twice.stderr.splitlines()) == 1
        found = run("create", "orders", "1", "--exist-ok")
        assert found.exit_code == 0 and found.stdout.startswith("found orders-1 in")
        other = run("create", "orders", "1", "--exist-ok", "-c", "segment_bytes=1MiB")
        assert other.exit_code == 1 and "segment_bytes is" in other.stderr
        wrong = run("create", "orders", "2", "-c", "segment_bytes=1")
        assert wrong.exit_code == 2
        assert owner.append(b"goes on") == 10


def test_a_path_is_the_callers(
    run: Run, orders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative log dir is taken from where the command runs, not from where the owner does."""
    monkeypatch.chdir(os.path.dirname(orders[1]))
    with owner_of(orders):
        monkeypatch.chdir(orders[1])
        assert run("create", "orders", "1", "--log-dir", ".").exit_code == 0
        chosen = json.loads(run("log-dirs", "--describe", "--only", ".").stdout)
    assert [each["path"] for each in chosen["log_dirs"]] == [orders[1]]
    assert len(chosen["log_dirs"][0]["partitions"]) == 1


def test_a_running_owner_describes_itself(run: Run, orders: list[str]) -> None:
    """The document has what only the owner knows, and each path asked for has an entry."""
    with owner_of(orders):
        document = json.loads(run("log-dirs", "--describe").stdout)
        assert [each["path"] for each in document["log_dirs"]] == orders
        assert document["log_dirs"][0]["directory_id"]
        both = json.loads(
            run("log-dirs", "--describe", "--only", orders[0], "--only", "/no/where").stdout
        )
        assert [each["is_live"] for each in both["log_dirs"]] == [True, False]
        assert both["log_dirs"][1]["error"] == "it is not one of the log dirs of this store"
        rows = json.loads(run("dirs", "--format", "json").stdout)
        assert [row["state"] for row in rows] == ["online", "online"]


def test_without_an_owner_the_files_are_described(run: Run, orders: list[str]) -> None:
    """A path that is no log dir of the store is an entry with an error there as well."""
    both = json.loads(
        run("log-dirs", "--describe", "--only", "/no/where", "--only", orders[0]).stdout
    )
    assert [each["is_live"] for each in both["log_dirs"]] == [False, True]


def test_a_running_owner_repairs(run: Run, orders: list[str]) -> None:
    """Damage is taken out by who has the store open; the files kept are named."""
    damage(segment_path(orders), 100)
    with owner_of(orders):
        result = run("repair", "orders", "0")
        assert result.exit_code == 0, result.output
        assert "kept: " in result.stdout and ".quarantine" in result.stdout
        assert "lost: offsets 0 to 4" in result.stdout


def test_format_and_append_are_refused_beside_an_owner(run: Run, orders: list[str]) -> None:
    """One line says who has the store and what to do instead."""
    with owner_of(orders) as owner:
        result = run("format", "--log-dirs", orders[0] + "," + orders[0] + "-new")
        assert result.exit_code == 1
        assert str(owner.pid) in result.stderr and "add-dir" in result.stderr
        assert not os.path.exists(orders[0] + "-new")
        result = run("append", "orders", "0", stdin=b"x\n")
        assert result.exit_code == 1 and str(owner.pid) in result.stderr


def test_a_killed_owner_is_none(run: Run, orders: list[str]) -> None:
    """Its socket is stale, and the command does the work itself."""
    with owner_of(orders) as owner:
        owner.child.kill()
        owner.child.wait()
        assert run("create", "orders", "1").exit_code == 0
    with LogStore.open(orders, read_only=True) as store:
        assert ("orders", 1) in store


def test_regression_topics_asks_the_owner_which_partitions_are_offline(
    run: Run, orders: list[str]
) -> None:
    """They were missing, and their topic was online, if the disk died within a minute after them.

    A log dir that the owner gave up for one failed flush can be read again: it was online, too.
    """
    with owner_of(orders):
        for partition in ("1", "2"):
            assert run("create", "orders", partition, "--log-dir", orders[1]).exit_code == 0
        assert run("take-offline", orders[1]).exit_code == 0
        for is_gone in (False, True):
            if is_gone:
                os.rename(orders[1], orders[1] + ".gone")
            done = run("topics", "--format", "json")
            (row,) = json.loads(done.stdout)
            assert (row["partitions"], row["state"]) == (3, "2 offline")
            assert done.exit_code == 1
            assert f"offline with {orders[1]}: orders-1, orders-2" in run("topics").stderr
            rows = json.loads(run("topics", "orders", "--format", "json").stdout)
            assert ["the user took it offline" in row["state"] for row in rows] == [
                False, True, True,
            ]  # fmt: skip
        os.rename(orders[1] + ".gone", orders[1])
