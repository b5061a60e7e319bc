"""Give the tests of single rooms a store whose clock they turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import LogStore
from support.clock import Clock


@pytest.fixture
def clock() -> Clock:
    """Give the clock of the store."""
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[LogStore]:
    """Give a new store of one log dir."""
    with LogStore.open(tmp_path / "logs", clock=clock) as store:
        yield store
