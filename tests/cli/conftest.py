"""Give the tests of the command line a store of two log dirs and ways to call the program."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from logstore import LogStore
from logstore.cli.app import app
from support.command_line import Run, Start


@pytest.fixture
def log_dirs(tmp_path: Path) -> list[str]:
    """Name two log dirs that do not exist yet."""
    return [str(tmp_path / "disk1"), str(tmp_path / "disk2")]


@pytest.fixture
def run(log_dirs: list[str]) -> Run:
    """Give the function that runs a command in this process on the two log dirs."""

    def invoke(*args: str, stdin: bytes | str | None = None) -> Result:
        environment = {"LOGSTORE_LOG_DIRS": ",".join(log_dirs)}
        result = CliRunner().invoke(app, list(args), input=stdin, env=environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@pytest.fixture
def start(log_dirs: list[str]) -> Iterator[Start]:
    """Give the function that starts `logstore` as a process; all are ended afterwards."""
    children: list[subprocess.Popen[bytes]] = []

    def popen(*args: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-m", "logstore.cli", *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LOGSTORE_LOG_DIRS": ",".join(log_dirs)},
        )
        children.append(child)
        return child

    yield popen
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture
def orders(log_dirs: list[str]) -> list[str]:
    """Make a store with orders-0 of ten records, five a batch, one second between them."""
    with LogStore.open(log_dirs) as store:
        log = store.create("orders", 0, log_dir=log_dirs[0])
        for first in (0, 5):
            numbers = range(first, first + 5)
            log.extend(
                [b"value %d" % number for number in numbers],
                keys=[b"key %d" % number for number in numbers],
                timestamps=[1_000_000 + number * 1000 for number in numbers],
            )
    return log_dirs
