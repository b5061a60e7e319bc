"""End in order after Ctrl-C, SIGTERM or the loss of the terminal.

The first interrupt is raised at once, and the `finally` blocks remove the disks. During the
removal, further interrupts are held back, so that a second Ctrl-C does not leave disks.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

SIGNALS = [signal.SIGINT, signal.SIGTERM]
if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # this is False under nohup
    SIGNALS.append(signal.SIGHUP)

_asked: list[int] = []


def obey() -> None:
    """From now on, raise KeyboardInterrupt for each of the signals, even an ignored signal."""
    for number in SIGNALS:
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _asked.append(number)
    raise KeyboardInterrupt(number)


def check() -> None:
    """Raise an interrupt again that Python has ignored, for example in a `__del__` method."""
    if _asked:
        raise KeyboardInterrupt(_asked[0])


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Hold back interrupts in this block, and raise the first of them after the block."""
    came: list[int] = []
    before = [(number, signal.signal(number, lambda number, _: came.append(number)))
              for number in SIGNALS]  # fmt: skip
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt(came[0])
