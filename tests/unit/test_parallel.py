"""The same work is done for several items at the same time."""

from __future__ import annotations

import threading

import pytest

from logstore.disk.threads import Thread
from logstore.store.dirs.parallel import for_each


def test_all_items_are_worked_on_at_once() -> None:
    """All threads pass a barrier that waits for all of them."""
    barrier = threading.Barrier(4, timeout=10)
    assert all(outcome.is_finished for outcome in for_each(range(4), lambda _: barrier.wait()))


def test_an_error_of_one_does_not_stop_the_others() -> None:
    """Each outcome is reported separately."""
    done: list[int] = []

    def work(item: int) -> None:
        if item == 1:
            raise ValueError("one")
        done.append(item)

    outcomes = for_each([0, 1, 2], work)
    assert sorted(done) == [0, 2]
    assert [type(outcome.error) for outcome in outcomes] == [type(None), ValueError, type(None)]


def test_one_that_hangs_is_left_behind() -> None:
    """The others are waited for within the same time."""
    release = threading.Event()

    def work(item: int) -> None:
        if item == 0:
            release.wait(30)

    outcomes = for_each([0, 1], work, timeout=0.2)
    assert [outcome.is_finished for outcome in outcomes] == [False, True]
    release.set()


def test_no_items_are_no_work() -> None:
    """Nothing happens."""
    assert for_each([], lambda item: None) == []


def test_regression_a_start_without_memory_waits_for_the_threads_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The caller returned, and the next close worked at the same time as the old threads."""
    real, may_end, ended = Thread.start, threading.Event(), []

    def start(thread: Thread) -> None:
        if thread.name == "logstore-1":
            raise MemoryError
        real(thread)

    def work(item: int) -> None:
        assert may_end.wait(60)
        ended.append(item)

    monkeypatch.setattr(Thread, "start", start)
    with pytest.raises(MemoryError):
        for_each([1, 2], work, on_break=may_end.set)
    assert ended == [1]
