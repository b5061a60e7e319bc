"""A command prints each warning once, however often it opens the store."""

from __future__ import annotations

import logging
import os

import pytest

from logstore.cli import warnings_once
from support.command_line import Run


@pytest.mark.parametrize("is_replaced", [False, True], ids=["missing", "empty disk"])
@pytest.mark.parametrize(
    "command", [("dirs",), ("topics",), ("create", "orders", "2", "--is-new"), ("verify",)]
)
def test_regression_a_missing_log_dir_is_reported_once(
    run: Run, orders: list[str], command: tuple[str, ...], is_replaced: bool
) -> None:
    """The line of 200 characters was printed up to three times."""
    os.rename(orders[1], orders[1] + ".dead")
    if is_replaced:
        os.mkdir(orders[1])
    lines = run(*command).stderr.splitlines()
    assert sum(f"log dir {orders[1]} is offline: " in line for line in lines) == 1
    remedy = f"logstore reopen {orders[1]} --format-new" if is_replaced else "remove-dir --lost"
    assert any(remedy in line for line in lines)


def test_a_second_command_reports_again(run: Run, orders: list[str]) -> None:
    """What one command printed is news in the next."""
    os.rename(orders[1], orders[1] + ".dead")
    first, second = run("dirs").stderr, run("dirs").stderr
    assert first == second and "is offline: " in first


def test_a_report_gives_only_what_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    """The lines that were printed as warnings are left out; without others nothing is left."""
    with warnings_once.each_once():
        logging.getLogger("logstore").warning("disk %s hangs", "a")
        warnings_once.tell("disk a hangs")
        assert warnings_once.news_of("opened\n  disk a hangs") == []
        assert warnings_once.news_of("opened\n  disk a hangs\n  b was cut") == [
            "opened",
            "  b was cut",
        ]
        assert warnings_once.news_of("opened") == ["opened"]
    assert capsys.readouterr().err == "disk a hangs\n"
