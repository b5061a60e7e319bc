"""Time in which the process did not run does not make a call older."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from logstore import LogStore
from logstore.disk import calls
from logstore.disk.calls import NAP_SECONDS_MIN, awake_seconds, call, longest_seconds, wait_awake
from logstore.store.dirs import dir_return
from logstore.store.state import OwnerState
from support.hanging import LATE, QUIET, Caller, Watch, hang


class Clock:
    """A monotonic clock that runs only during waits; some waits take longer."""

    def __init__(self) -> None:
        self.now, self.late = 1000.0, 0.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds + self.late
        return True

    sleep = wait


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return a clock for the register of calls, which has no nap yet."""
    one = Clock()
    monkeypatch.setattr(calls, "time", one)
    monkeypatch.setattr(calls, "naps", deque(maxlen=calls.NAPS_MAX))
    return one


def test_a_wait_that_takes_far_too_long_is_a_nap(clock: Clock) -> None:
    """A nap does not add to a call's age; a late wait on a busy machine does."""
    with call("/disk/orders-0"):
        clock.late = 7.5
        assert wait_awake(clock.wait, 0.5)
        assert longest_seconds("/disk") == 0.5
        clock.late = NAP_SECONDS_MIN
        wait_awake(clock.wait, 0.5)
        assert longest_seconds("/disk") == 1.0 + NAP_SECONDS_MIN
    with call("/disk/orders-0"):
        clock.late = 0.0
        wait_awake(clock.wait, 20.0)
        assert longest_seconds("/disk") == 20.0, "a nap of before is not this call's"


def test_a_nap_that_two_threads_see_is_one(clock: Clock) -> None:
    """Each waiter finds the same nap; it counts from the first start to the last end."""

    def wait_twice(seconds: float) -> None:
        clock.now += 0.25  # the other thread begins to wait a little later
        clock.late = 8.0
        wait_awake(clock.wait, seconds)
        clock.now += 0.25

    began = clock.now
    wait_awake(wait_twice, 0.5)
    assert len(calls.naps) == 1
    ((start, end),) = calls.naps
    assert (start, end) == (began + 0.5, began + 9.0)
    assert awake_seconds(began, clock.now) == 0.5
    assert awake_seconds(began + 1.0, began + 3.0) == 0.0
    assert awake_seconds(end, end + 2.0) == 2.0


def test_a_nap_that_spans_two_others_counts_once(clock: Clock) -> None:
    """One thread ran for a moment in between, the other did not."""

    def wait_through_both(seconds: float) -> None:
        for _ in range(2):
            clock.late = 5.0
            wait_awake(clock.wait, 0.1)

    began = clock.now
    wait_awake(wait_through_both, 0.5)
    assert list(calls.naps) == [(began + 0.1, clock.now)]
    assert awake_seconds(began, clock.now) == pytest.approx(0.1)


def test_naps_of_long_ago_are_forgotten(clock: Clock) -> None:
    """A process that is stopped repeatedly keeps a list of limited size."""
    clock.late = 2.0
    for _ in range(3 * calls.NAPS_MAX):
        wait_awake(clock.wait, 0.1)
        clock.now += 1.0
    assert len(calls.naps) == calls.NAPS_MAX


def test_a_return_that_was_stopped_goes_on_waiting(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier calls have as much time to return as without the nap."""
    monkeypatch.setattr(dir_return, "time", clock)
    looks = iter([True, True, False])
    monkeypatch.setattr(dir_return, "calls_to", lambda path: next(looks))
    store = SimpleNamespace(
        patience_seconds=10.0, replicas=SimpleNamespace(find_dir=lambda path: None)
    )
    clock.late = 100.0
    dir_return._wait_until_quiet(cast(OwnerState, store), "/disk")
    assert next(looks, None) is None


def test_a_process_that_was_stopped_blames_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that ran at the stop do not count as hanging; a call that hangs does."""
    monkeypatch.setattr(calls, "naps", deque(maxlen=calls.NAPS_MAX))
    with LogStore.open([tmp_path / "a"], config=QUIET) as store:
        log, watch = store.create("orders", 0), Watch(store)
        with hang(monkeypatch, str(tmp_path / "a"), "pwrite") as disk:
            stuck = Caller(lambda: log.append(b"x"))
            assert disk.began.wait(60)
            watch.look()
            now = time.monotonic()
            calls.naps.append((now, now + LATE))
            watch.look(later=LATE)
            assert not log._state.log_dir.is_suspect
            watch.look(later=2 * LATE)
            assert log._state.log_dir.is_suspect
            disk.released.set()
            assert stuck.outcome() == 0
