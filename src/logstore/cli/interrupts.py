"""Hold back Ctrl-C, SIGTERM and the loss of the terminal while a store is being changed.

An interrupt could come between a write and its bookkeeping. So the handler only notes it. It is
raised where the work allows it: while waiting for input, or between two batches. A second Ctrl-C is
raised at once; the store then recovers at its next open, as after a kill.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Record the interrupts of this process while they are held; `asked` counts them."""

    def __init__(self) -> None:
        """Start without any interrupt, and with none allowed to be raised."""
        self.asked = 0
        self.number: int = signal.SIGINT
        self.is_open = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Note a signal; raise if that is allowed now, or if it is the second."""
        self.asked += 1
        self.number = number
        if self.is_open or self.asked > 1:
            raise KeyboardInterrupt(number)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Raise KeyboardInterrupt in this block, for signals that came before or come in it."""
        self.is_open = True
        try:
            if self.asked:
                raise KeyboardInterrupt(self.number)
            yield
        finally:
            self.is_open = False


@contextmanager
def held() -> Iterator[Interrupts]:
    """Hold interrupts back in this block; raise a pending one at its end."""
    interrupts = Interrupts()
    try:
        is_tied = signal.getsignal(signal.SIGHUP) is signal.SIG_DFL  # not under nohup
        numbers = (*SIGNALS, signal.SIGHUP) if is_tied else SIGNALS
        previous = [(number, signal.signal(number, interrupts.handle)) for number in numbers]
    except ValueError:  # not the main thread, which alone gets signals
        previous = []
    try:
        yield interrupts
    finally:
        for number, handler in previous:
            signal.signal(number, handler)
    if interrupts.asked:
        raise KeyboardInterrupt(interrupts.number)
