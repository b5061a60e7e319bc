"""Work that Ctrl-C must not stop in the middle completes; then the interrupt is raised."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from logstore.disk.uninterrupted import AbandonedError, uninterrupted, uninterruptible
from support.shortage import no_threads

WAIT_SECONDS = 60


class Keyboard:
    """Press Ctrl-C from another thread, and wait until the main thread has received it."""

    def __init__(self) -> None:
        self._came = threading.Semaphore(0)

    def handle(self, *_: object) -> None:
        self._came.release()
        raise KeyboardInterrupt

    def press(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        assert self._came.acquire(timeout=WAIT_SECONDS)


@pytest.fixture
def keyboard() -> Iterator[Keyboard]:
    """Return a keyboard whose Ctrl-C reaches the main thread."""
    one = Keyboard()
    before = signal.signal(signal.SIGINT, one.handle)
    yield one
    signal.signal(signal.SIGINT, before)


def test_it_completes_and_the_interrupt_comes_then(keyboard: Keyboard) -> None:
    """An interrupt during the work is raised after all of it is done."""
    done: list[int] = []

    def work(_: Callable[[], None]) -> None:
        done.append(1)
        keyboard.press()
        done.append(2)

    with pytest.raises(KeyboardInterrupt):
        uninterrupted(work)
    assert done == [1, 2]


def test_a_second_interrupt_leaves_at_once(keyboard: Keyboard) -> None:
    """If the work has changed nothing by then, it changes nothing later."""
    has_left, outcome = threading.Event(), list[object]()
    is_over = threading.Event()

    def work(go_on: Callable[[], None]) -> None:
        keyboard.press()
        keyboard.press()
        assert has_left.wait(WAIT_SECONDS)
        try:
            go_on()
        except AbandonedError as error:
            outcome.append(error)
        is_over.set()

    with pytest.raises(KeyboardInterrupt):
        uninterrupted(work)
    has_left.set()
    assert is_over.wait(WAIT_SECONDS)
    assert len(outcome) == 1


def test_results_and_errors_come_through() -> None:
    """The method's result is returned, and its errors are raised."""

    class Counter:
        @uninterruptible
        def add(self, one: int, *, other: int = 1) -> int:
            if one < 0:
                raise ValueError("negative")
            assert threading.current_thread() is not threading.main_thread()
            return one + other

    assert Counter().add(1, other=2) == 3
    with pytest.raises(ValueError, match="negative"):
        Counter().add(-1)


def test_without_a_thread_the_caller_does_it() -> None:
    """If no thread can be started, the work is done anyway."""
    with no_threads():
        assert uninterrupted(lambda _: threading.current_thread()) is threading.main_thread()
