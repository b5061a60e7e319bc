"""A command that gives replicas up names them and asks, with an owner and without one."""

from __future__ import annotations

import contextlib
import os

import pytest

from logstore import LogStore
from logstore.cli.commands import operate as operating
from support.command_line import Run, owner_of

GIVING_UP = {
    "reopen": ("reopen", "{path}", "--format-new"),
    "remove-dir": ("remove-dir", "--lost", "{path}"),
    "remove-dir-by-id": ("remove-dir", "--lost", "{lost}"),
}


def contents(orders: list[str]) -> dict[str, bytes]:
    """Read the roster of every log dir, to see that nothing changes."""
    found = {}
    for path in orders:
        name = os.path.join(path, "meta.properties")
        if os.path.exists(name):
            with open(name, "rb") as file:
                found[path] = file.read()
    return found


@pytest.mark.parametrize("is_at_a_terminal", [False, True], ids=["script", "terminal"])
@pytest.mark.parametrize("is_owned", [True, False], ids=["owner", "no owner"])
@pytest.mark.parametrize("way", GIVING_UP)
def test_regression_replicas_are_named_and_asked_about_before_they_are_given_up(
    run: Run,
    orders: list[str],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    is_owned: bool,
    is_at_a_terminal: bool,
) -> None:
    """`remove-dir --lost` never asked, and `reopen --format-new` not without an owner."""
    with LogStore.open(orders) as store:
        store.create("audit", 0, log_dir=orders[1]).append(b"x")
        store.create("audit", 1, log_dir=orders[1]).append(b"x")
        lost = store.host.replicas.dir_of(orders[1]).directory_id
    os.rename(orders[1], orders[1] + ".dead")
    os.mkdir(orders[1])
    monkeypatch.setattr(operating, "is_at_a_terminal", lambda: is_at_a_terminal)
    command = [word.format(path=orders[1], lost=lost) for word in GIVING_UP[way]]
    with owner_of(orders) if is_owned else contextlib.nullcontext():
        before = contents(orders)
        refused = run(*command, stdin="n\n")
        assert refused.exit_code == 1 and not refused.stdout
        assert all(name in refused.stderr for name in ("audit-0", "audit-1", "--yes"))
        assert ("Give up 2 replicas" in refused.stderr) is is_at_a_terminal
        assert contents(orders) == before
        for told in (run("dirs").stdout, run("topics").stderr):
            assert told.count(f"logstore reopen {orders[1]} --format-new") == 1
        words, answer = ((), "y\n") if is_at_a_terminal else (("--yes",), "")
        done = run(*command, *words, stdin=answer)
        assert done.exit_code == 0, done.output
        assert "audit-0" in done.stdout and "audit-1" in done.stdout
        assert "is still missing" not in done.output
        assert done.stderr.count(" opened") <= 1  # the report of an opening, told once
        named = orders if way == "reopen" or not is_owned else orders[:1]
        assert "audit" not in run("topics", "--log-dirs", ",".join(named)).output
    with LogStore.open(orders if way == "reopen" else orders[:1]) as store:
        assert not store.host.replicas.missing_ids


def test_regression_what_was_given_up_is_to_leave_the_configuration(
    run: Run, orders: list[str]
) -> None:
    """Nothing said so, and the next start with the old configuration missed the log dir."""
    with owner_of(orders):
        assert run("take-offline", orders[1]).exit_code == 0
        done = run("remove-dir", "--lost", orders[1])
    assert done.exit_code == 0, done.output
    assert f"now remove {orders[1]} from your configuration" in done.stdout


def test_a_log_dir_without_replicas_is_given_up_without_a_question(
    run: Run, orders: list[str]
) -> None:
    """Nothing is lost by it."""
    os.rename(orders[1], orders[1] + ".dead")
    result = run("remove-dir", "--lost", orders[1], "--log-dirs", orders[0])
    assert result.exit_code == 0, result.output
    assert run("topics", "--log-dirs", orders[0]).exit_code == 0


@pytest.mark.parametrize("is_owned", [True, False], ids=["owner", "no owner"])
@pytest.mark.parametrize("options", [("--format-new", "--yes"), ()], ids=["format-new", "plain"])
def test_regression_reopen_makes_no_directory_where_the_disk_is_not_mounted(
    run: Run, orders: list[str], options: tuple[str, ...], is_owned: bool
) -> None:
    """`--format-new` made the directory on the disk below the mount point, and gave replicas up."""
    with LogStore.open(orders) as store:
        store.create("audit", 0, log_dir=orders[1]).append(b"x")
    os.rename(orders[1], orders[1] + ".dead")
    with owner_of(orders) if is_owned else contextlib.nullcontext():
        before = contents(orders)
        refused = run("reopen", orders[1], *options)
        assert refused.exit_code == 1 and not refused.stdout
        last = refused.stderr.splitlines()[-1]
        assert "there is no such directory, most likely because its disk is not mounted" in last
        assert "mount the disk, or" in last and "make the directory" in last
        assert not os.path.exists(orders[1]) and contents(orders) == before
        os.rename(orders[1] + ".dead", orders[1])
        assert run("reopen" if is_owned else "topics", *(orders[1:] * is_owned)).exit_code == 0
        assert "audit" in run("topics").stdout
