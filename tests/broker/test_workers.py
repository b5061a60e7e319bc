"""Test that each task runs in a thread at once, up to the limit of threads."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from broker.net.workers import THREADS_BUSY, Workers

SECONDS = 20.0


class Later:
    """Call `relieve` from a thread, as the poller does."""

    def __call__(self, seconds: float, workers: Workers) -> None:
        timer = threading.Timer(seconds, workers.relieve)
        timer.daemon = True
        timer.start()


def workers_of(threads_max: int, **options: float) -> Workers:
    """Make workers that look for a stall themselves."""
    return Workers(threads_max, Later(), **options)


def wait_for(event: threading.Event) -> None:
    """Hang until an event."""
    event.wait(SECONDS)


def test_a_task_that_hangs_keeps_no_other_from_running() -> None:
    """Each task hangs in its own thread; afterwards the threads are used again."""
    workers, released = workers_of(100), threading.Event()
    began = [threading.Event() for _ in range(20)]
    ended = threading.Barrier(21)

    def hang(number: int) -> None:
        began[number].set()
        released.wait(SECONDS)
        ended.wait(SECONDS)

    for number in range(20):
        workers.submit(lambda number=number: hang(number))  # type: ignore[misc]
    assert all(event.wait(SECONDS) for event in began) and workers.count == 20
    released.set()
    ended.wait(SECONDS)
    ran = threading.Semaphore(0)
    for _ in range(50):
        workers.submit(ran.release)
    assert all(ran.acquire(timeout=SECONDS) for _ in range(50))
    workers.end()


def test_beyond_the_limit_tasks_wait_for_a_thread() -> None:
    """No task is lost, and the tasks run in order."""
    workers, released, order = workers_of(1), threading.Event(), list[int]()
    done = threading.Event()
    workers.submit(partial(wait_for, released))
    for number in range(10):
        workers.submit(lambda number=number: order.append(number))  # type: ignore[misc]
    workers.submit(done.set)
    assert workers.count == 1
    released.set()
    assert done.wait(SECONDS) and order == list(range(10))
    workers.end()


def test_many_tasks_at_once_share_a_few_threads() -> None:
    """No task hangs, so no thread is added, although a check for a stall is due."""
    looks: list[Workers] = []
    workers, ran = Workers(5000, lambda _, one: looks.append(one)), threading.Semaphore(0)
    gate = threading.Event()
    for _ in range(THREADS_BUSY):
        workers.submit(partial(wait_for, gate))
    for _ in range(3000):
        workers.submit(ran.release)
    assert workers.count == THREADS_BUSY and looks == [workers]
    gate.set()
    assert all(ran.acquire(timeout=SECONDS) for _ in range(3000))
    workers.relieve()
    assert workers.count == THREADS_BUSY and looks == [workers]
    workers.end()


def test_a_stall_starts_more_threads_each_time() -> None:
    """So even with hundreds of hanging tasks, the next task waits for a few checks only."""
    workers, gate, began = Workers(5000, lambda *_: None), threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        began.release()
        gate.wait(SECONDS)

    for _ in range(THREADS_BUSY + 100):
        workers.submit(hang)
    done = threading.Event()
    workers.submit(done.set)
    counts = [workers.count - THREADS_BUSY]
    while workers.count <= THREADS_BUSY + 100:
        workers.relieve()
        counts.append(workers.count - THREADS_BUSY)
    assert counts == [0, 1, 3, 7, 15, 31, 63, 101]
    assert done.wait(SECONDS)
    assert all(began.acquire(timeout=SECONDS) for _ in range(THREADS_BUSY + 100))
    gate.set()
    workers.end()


def test_an_idle_thread_ends() -> None:
    """A thread ends after a time without a task; a task at that moment is not lost."""
    workers = workers_of(8, idle_seconds=0.001)
    ran = threading.Semaphore(0)
    for _ in range(300):
        workers.submit(ran.release)
        assert ran.acquire(timeout=SECONDS)
    workers.end()
    waited = threading.Event()
    for _ in range(2000):
        if not workers.count:
            break
        waited.wait(0.01)
    assert workers.count == workers.waiting == 0


def test_a_process_that_can_start_no_thread_uses_those_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The task waits until a thread is free."""
    workers, released, done = workers_of(8), threading.Event(), threading.Event()
    workers.submit(partial(wait_for, released))

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        workers.submit(done.set)
    assert workers.count == 1 and not done.is_set()
    released.set()
    assert done.wait(SECONDS)
    workers.end()
