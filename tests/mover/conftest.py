"""Give the tests of moves a store of three log dirs, and a log in the first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import Log, LogStore
from support.moving import CONFIG, fill
from support.places import fast_directory


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
