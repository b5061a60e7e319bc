"""Do the same work on several log dirs in parallel, and do not wait for log dirs that hang.

Openings, returns, flushes and closes use this module, so a slow disk delays only its own work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from logstore.disk.calls import SYNCING, call, longest_seconds, wait_awake
from logstore.disk.threads import Thread

Item = TypeVar("Item")

LOOK_SECONDS = 0.1
# In an open store, background work is mostly Python code.
# After a quick system call, the background thread takes the interpreter's lock again.
# At that moment, a thread that waits for the lock is not awake yet.
# Without a pause, the append of this other thread would wait for a whole part of the work.
# So the background thread sleeps `TURN_SECONDS` between the parts of its work.
TURN_SECONDS = 0.001


class Outcome(NamedTuple, Generic[Item]):
    """The result of the work for one item. If the work was given up, `is_finished` is False."""

    item: Item
    error: Exception | None
    is_finished: bool


def for_each(
    items: Sequence[Item],
    work: Callable[[Item], object],
    *,
    timeout: float | None = None,
    name: str = "logstore",
    on_break: Callable[[], None] | None = None,
    is_given_up: Callable[[Item], bool] | None = None,
) -> list[Outcome[Item]]:
    """Run `work` for each item in its own thread; wait for all, at most `timeout` seconds.

    The wait for an item also ends if `is_given_up` returns True for the item. If a thread has not
    finished when the wait for its item ends, the thread is abandoned.

    If Ctrl-C interrupts the wait, `on_break` asks the threads to end. After Ctrl-C, this function
    waits for all threads, except for those that are given up. If the process can start no more
    threads, the calling thread does the rest of the work, one item after the other.
    """
    errors: dict[int, Exception] = {}
    ends: list[BaseException] = []
    finished: set[int] = set()

    def run(number: int) -> None:
        try:
            work(items[number])
        except Exception as error:  # noqa: BLE001 - the caller gets the error
            errors[number] = error
        except BaseException as error:  # noqa: BLE001 - the caller gets this too
            ends.append(error)
            return
        finished.add(number)

    if len(items) == 1 and timeout is None and is_given_up is None:
        run(0)
    else:
        threads = [
            Thread(target=run, args=(number,), name=f"{name}-{number}", daemon=True)
            for number in range(len(items))
        ]
        deadline = None if timeout is None else time.monotonic() + timeout
        lanes = [
            (thread, partial(is_given_up, item) if is_given_up else None)
            for item, thread in zip(items, threads, strict=True)
        ]
        try:
            _start_all(threads, run)
            for thread, is_hopeless in lanes:
                _wait(thread, deadline, is_hopeless)
        except BaseException:
            if on_break is not None:
                on_break()
                for thread, is_hopeless in lanes:
                    _wait(thread, None, is_hopeless)
            raise
        if not ends:
            _note_the_dead(threads, errors, finished)
    if ends:
        raise ends[0]
    done = set(finished)
    return [Outcome(item, errors.get(n), n in done) for n, item in enumerate(items)]


def _note_the_dead(
    threads: Sequence[threading.Thread], errors: dict[int, Exception], finished: set[int]
) -> None:
    """For each thread that ended without a result, store a MemoryError."""
    for number, thread in enumerate(threads):
        if thread.is_alive():  # the thread may still write its result
            continue
        if number not in finished and number not in errors:
            errors[number] = MemoryError("a thread ended for lack of memory")
            finished.add(number)


def _start_all(threads: Sequence[threading.Thread], run: Callable[[int], None]) -> None:
    """Start the threads; for a thread that cannot be started, the calling thread does the work."""
    undone = []
    for number, thread in enumerate(threads):
        try:
            thread.start()
        except RuntimeError:  # the process can start no more threads
            undone.append(number)
    for number in undone:
        run(number)


def in_time(
    items: Sequence[Item],
    work: Callable[[Item], object],
    path_of: Callable[[Item], str],
    patience_seconds: float | None,
    *,
    name: str,
) -> list[Outcome[Item]]:
    """Run `work` for each item as a disk call to the item's path; abandon calls that hang.

    A call counts as hanging if the oldest call to its path has run for longer than
    `patience_seconds`. Time in which the process gets no CPU is not counted. If `patience_seconds`
    is None, no call is abandoned.
    """

    def run(item: Item) -> None:
        with call(path_of(item), SYNCING):
            work(item)

    def is_late(item: Item) -> bool:
        return patience_seconds is not None and longest_seconds(path_of(item)) > patience_seconds

    is_given_up = None if patience_seconds is None else is_late
    return for_each(items, run, name=name, is_given_up=is_given_up)


def _wait(
    thread: threading.Thread, deadline: float | None, is_given_up: Callable[[], bool] | None
) -> None:
    """Wait for a thread until the deadline, or until its item is given up."""
    while thread.is_alive():
        try:
            seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
            if is_given_up is None:
                thread.join(seconds)
            else:
                look = LOOK_SECONDS if seconds is None else min(seconds, LOOK_SECONDS)
                wait_awake(thread.join, look)
            if deadline is not None and time.monotonic() >= deadline:
                return
            if is_given_up is not None and is_given_up():
                return
        except MemoryError:  # the thread still works, so this function must continue to wait
            time.sleep(LOOK_SECONDS)
