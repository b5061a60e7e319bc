"""A store that is used wrongly says so at once, and takes nothing with it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from logstore.errors import LogClosedError, ReadOnlyStoreError
from logstore.store.store import LogStore


def test_regression_with_on_a_closed_store_says_that_it_is_closed(tmp_path: Path) -> None:
    """Not its first use inside the block."""
    store = LogStore.open(tmp_path)
    store.close()
    with pytest.raises(LogClosedError, match="the store was closed"), store:
        raise AssertionError("the block ran")


@pytest.mark.parametrize("read_only", [False, True])
def test_regression_a_clock_of_a_wrong_type_is_refused(tmp_path: Path, read_only: bool) -> None:
    """Before a log dir is locked."""
    LogStore.open(tmp_path).close()
    for clock in (time.time, 5, "now"):
        with pytest.raises(TypeError, match="clock is an object whose now_ms"):
            LogStore.open(tmp_path, clock=clock, read_only=read_only)  # type: ignore[arg-type]
    LogStore.open(tmp_path).close()


def test_regression_a_reader_beside_the_owner_guesses_no_recovery_point(tmp_path: Path) -> None:
    """It said the log start offset."""
    with LogStore.open(tmp_path) as store, LogStore.open(tmp_path, read_only=True) as view:
        store.create("orders", 0).append(b"x", durable=True)
        with pytest.raises(ReadOnlyStoreError, match="only the process that owns the store"):
            _ = view["orders", 0].recovery_point
