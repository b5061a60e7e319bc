"""Ctrl-C and SIGTERM wait while a store is being changed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from logstore.cli.interrupts import Interrupts, held


def test_a_signal_waits_until_it_is_allowed() -> None:
    """A signal that comes amid the work is raised at the next place that allows it."""
    done = []

    def work() -> None:
        with held() as interrupts:
            signal.raise_signal(signal.SIGTERM)
            done.append("batch")
            with interrupts.allowed():
                done.append("read")

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert done == ["batch"]
    assert caught.value.args == (signal.SIGTERM,)


def test_a_signal_is_raised_at_once_where_it_is_allowed() -> None:
    """Waiting for input ends with the signal."""

    def work() -> None:
        with held() as interrupts, interrupts.allowed():
            signal.raise_signal(signal.SIGINT)
            pytest.fail("it was held back")

    with pytest.raises(KeyboardInterrupt):
        work()


def test_regression_a_wait_notices_a_signal_that_did_not_wake_it() -> None:
    """Another thread gets the signal while the main thread is blocked, and so it is not woken."""
    is_waiting = threading.Event()

    class Watched(Interrupts):
        """Interrupts that report when the wait begins."""

        @contextmanager
        def allowed(self) -> Iterator[None]:
            with super().allowed():
                is_waiting.set()
                yield

    def signal_itself() -> None:
        is_waiting.wait(20)
        threading.Event().wait(0.1)  # the main thread blocks meanwhile
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    interrupts = Watched()
    previous = signal.signal(signal.SIGTERM, interrupts.handle)
    other = threading.Thread(target=signal_itself)
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupts.wait()
    finally:
        other.join()
        signal.signal(signal.SIGTERM, previous)


def test_a_signal_is_not_forgotten() -> None:
    """One that no place allowed is raised when the work is over."""
    done = []

    def work() -> None:
        with held():
            signal.raise_signal(signal.SIGINT)
            done.append("closed")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["closed"]


def test_a_second_signal_is_obeyed() -> None:
    """Who asks twice does not want to wait."""

    def work() -> None:
        with held():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            pytest.fail("it was held back")

    with pytest.raises(KeyboardInterrupt):
        work()


def test_handlers_are_put_back() -> None:
    """After the work signals mean what they meant before, also after an error in it."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ValueError, match="work"), held():
        raise ValueError("the work failed")
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_have_no_signals() -> None:
    """In a thread that is not the main one nothing is held, and nothing breaks."""
    found: list[Interrupts] = []

    def work() -> None:
        with held() as interrupts:
            found.append(interrupts)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[0].asked == 0
