"""Hold back Ctrl-C, SIGTERM and the loss of the terminal while a store is being changed.

An interrupt could come after a write, but before the matching update of the state in memory. So the
signal handler only remembers the interrupt. The interrupt is raised later, where the work allows an
interrupt: while the command waits for input, or between two batches. A second Ctrl-C is raised
immediately. After a second Ctrl-C, the store recovers at its next open, as after a kill.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
WAKE_SECONDS = 0.5


class Interrupts:
    """Remember the interrupts that are held back in this process; `asked` is their number."""

    def __init__(self) -> None:
        """Start without a recorded interrupt, and hold interrupts back outside `allowed`."""
        self.asked = 0
        self.number: int = signal.SIGINT
        self.is_open = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Remember a signal. At the second signal, or if it is allowed, raise KeyboardInterrupt."""
        self.asked += 1
        self.number = number
        if self.is_open or self.asked > 1:
            raise KeyboardInterrupt(number)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Raise KeyboardInterrupt for signals that came before this block or come during it."""
        self.is_open = True
        try:
            if self.asked:
                raise KeyboardInterrupt(self.number)
            yield
        finally:
            self.is_open = False

    def wait(self) -> None:
        """Wait for a signal, which raises KeyboardInterrupt.

        Only the main thread runs Python's signal handlers. If a signal comes just before the main
        thread blocks, the signal may not wake the main thread. The main thread may be waiting for
        the interpreter's lock, or another thread may have received the signal. So the main thread
        wakes regularly.
        """
        with self.allowed():
            while True:
                time.sleep(WAKE_SECONDS)


@contextmanager
def held() -> Iterator[Interrupts]:
    """Hold back interrupts in this block, and raise a held-back interrupt after the block."""
    interrupts = Interrupts()
    try:
        is_tied = signal.getsignal(signal.SIGHUP) is signal.SIG_DFL  # False under nohup
        numbers = (*SIGNALS, signal.SIGHUP) if is_tied else SIGNALS
        previous = [(number, signal.signal(number, interrupts.handle)) for number in numbers]
    except ValueError:  # this is not the main thread, and only the main thread gets signals
        previous = []
    try:
        yield interrupts
    finally:
        for number, handler in previous:
            signal.signal(number, handler)
    if interrupts.asked:
        raise KeyboardInterrupt(interrupts.number)
