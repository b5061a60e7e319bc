"""Hold Ctrl-C, SIGTERM and a lost terminal back while a store is being changed.

An interrupt between two bytecodes could fall between a write and the bookkeeping of it. So the
handler only notes it, and it is raised where the work says that it may be: while waiting for
input, between two batches. A second Ctrl-C is raised wherever it falls; the store then recovers
at its next open, as after a kill.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """The interrupts of this process while `held`; `asked` counts those that came."""

    def __init__(self) -> None:
        """Start with none asked for and none allowed to be raised."""
        self.asked = 0
        self.number: int = signal.SIGINT
        self.is_open = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Note a signal; raise where that is allowed, and from the second on in any case."""
        self.asked += 1
        self.number = number
        if self.is_open or self.asked > 1:
            raise KeyboardInterrupt(number)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Raise KeyboardInterrupt inside this block, for signals before and in it."""
        self.is_open = True
        try:
            if self.asked:
                raise KeyboardInterrupt(self.number)
            yield
        finally:
            self.is_open = False


@contextmanager
def held() -> Iterator[Interrupts]:
    """Hold interrupts back inside this block; one still waiting at its end is raised there."""
    interrupts = Interrupts()
    try:
        is_tied = signal.getsignal(signal.SIGHUP) is signal.SIG_DFL  # and not under nohup
        numbers = (*SIGNALS, signal.SIGHUP) if is_tied else SIGNALS
        previous = [(number, signal.signal(number, interrupts.handle)) for number in numbers]
    except ValueError:  # not the main thread: signals go elsewhere
        previous = []
    try:
        yield interrupts
    finally:
        for number, handler in previous:
            signal.signal(number, handler)
    if interrupts.asked:
        raise KeyboardInterrupt(interrupts.number)
