"""If a store is used wrongly, an error says so at once, and nothing else is affected."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore import Log, LogConfig, StoreConfig
from logstore.errors import LogClosedError, ReadOnlyStoreError
from logstore.store.store import LogStore


def test_regression_with_on_a_closed_store_says_that_it_is_closed(tmp_path: Path) -> None:
    """The error comes at the `with`, not at the first use inside the block."""
    store = LogStore.open(tmp_path)
    store.close()
    with pytest.raises(LogClosedError, match="the store was closed"), store:
        raise AssertionError("the block ran")


@pytest.mark.parametrize("read_only", [False, True])
def test_regression_a_clock_of_a_wrong_type_is_refused(tmp_path: Path, read_only: bool) -> None:
    """The clock is refused before a log dir is locked."""
    LogStore.open(tmp_path).close()
    for clock in (time.time, 5, "now"):
        with pytest.raises(TypeError, match="clock must be an object whose now_ms"):
            LogStore.open(tmp_path, clock=clock, read_only=read_only)  # type: ignore[arg-type]
    LogStore.open(tmp_path).close()


class BadClock:
    """Return whole ms until the test requests another value, at one of the next calls."""

    def __init__(self) -> None:
        self.bad: object = None
        self.good_calls = 0

    def now_ms(self) -> int:
        if self.bad is not None:
            self.good_calls -= 1
            if self.good_calls < 0:
                return self.bad  # type: ignore[return-value]
        return 1_760_000_000_000


BAD_TIMES = [1.5, "1760000000000", True, -1, 2**63 - 1, 2**70]


@pytest.mark.parametrize("bad", BAD_TIMES, ids=repr)
def test_regression_a_clock_that_gives_no_whole_ms_is_refused(tmp_path: Path, bad: object) -> None:
    """The open refuses the clock before it makes anything; an append raised struct.error."""
    clock = BadClock()
    clock.bad = bad
    with pytest.raises((TypeError, ValueError), match="the clock's now_ms"):
        LogStore.open(tmp_path / "new", clock=clock)
    assert not (tmp_path / "new").exists()


APPENDS: dict[str, Callable[[Log], object]] = {
    "append": lambda log: log.append(b"x"),
    "with key": lambda log: log.append(b"x", key=b"k"),
    "durable": lambda log: log.append(b"x", durable=True),
    "extend": lambda log: log.extend([b"x", b"y"]),
    "appender": lambda log: log.appender(linger=0).append(b"x").result(),
    "flush": lambda log: log.flush(),
}


@pytest.mark.parametrize("good_calls", range(4))
@pytest.mark.parametrize("name", APPENDS)
@pytest.mark.parametrize("bad", [1.5, True, -1])
def test_regression_a_clock_that_goes_wrong_stops_the_call_that_asks_it(
    tmp_path: Path, bad: object, name: str, good_calls: int
) -> None:
    """The error names the clock, and nothing is appended; after that, a good clock works."""
    clock, config = BadClock(), LogConfig(flush_ms=3_600_000, segment_ms=3_600_000)
    with LogStore.open(tmp_path, clock=clock, config=StoreConfig(log_config=config)) as store:
        log = store.create("orders", 0)
        clock.bad, clock.good_calls = bad, good_calls
        before = 0
        try:
            APPENDS[name](log)
        except (TypeError, ValueError) as error:
            assert "the clock's now_ms" in str(error)
        else:
            before = log.log_end_offset
        clock.bad = None
        if "durable" not in name:
            assert log.log_end_offset == before
        offset = log.append(b"z", durable=True)
        assert [record.value for record in log.read(offset)] == [b"z"]
        assert log.verify() == []


def test_regression_a_reader_beside_the_owner_guesses_no_recovery_point(tmp_path: Path) -> None:
    """The reader returned the log start offset as the recovery point."""
    with LogStore.open(tmp_path) as store, LogStore.open(tmp_path, read_only=True) as view:
        store.create("orders", 0).append(b"x", durable=True)
        with pytest.raises(ReadOnlyStoreError, match="only the process that owns the store"):
            _ = view["orders", 0].recovery_point
