"""Give the tests of moves a store of three log dirs, and a log in the first; and a command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from logstore import Log, LogStore
from logstore.cli.app import app
from support.moving import CONFIG, fill
from support.places import fast_directory

Run = Callable[..., Result]
COUNT = 6


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


@pytest.fixture
def store(base: Path) -> Iterator[LogStore]:
    with LogStore.open([base / "a", base / "b", base / "c"]) as store:
        yield store


@pytest.fixture
def log(store: LogStore, base: Path) -> Log:
    log = store.create("orders", 0, log_dir=base / "a", config=CONFIG)
    fill(log, 60)
    return log


@pytest.fixture
def log_dirs(tmp_path: Path) -> list[str]:
    """Make a store with six equal partitions of `orders` on the first of two log dirs."""
    dirs = [str(tmp_path / "disk1"), str(tmp_path / "disk2")]
    with LogStore.open(dirs, admin_socket=False) as store:
        for partition in range(COUNT):
            log = store.create("orders", partition, log_dir=dirs[0])
            log.extend([b"%d" % number * 100 for number in range(500)])
    return dirs


@pytest.fixture
def run(log_dirs: list[str]) -> Run:
    """Give the function that runs a command in this process."""

    def invoke(*args: str) -> Result:
        environment = {"LOGSTORE_LOG_DIRS": ",".join(log_dirs)}
        result = CliRunner().invoke(app, list(args), env=environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke
