"""End in order when asked to: Ctrl-C, SIGTERM, a terminal that goes away.

The first interrupt is raised where it falls, and what it unwinds undoes the disks. The undoing
itself holds interrupts back, so that an impatient second one leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

SIGNALS = [signal.SIGINT, signal.SIGTERM]
if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # and not under nohup
    SIGNALS.append(signal.SIGHUP)

_asked: list[int] = []


def obey() -> None:
    """Raise KeyboardInterrupt for each of the signals from now on, also where they were ignored."""
    for number in SIGNALS:
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _asked.append(number)
    raise KeyboardInterrupt(number)


def check() -> None:
    """Raise again an interrupt that fell where Python drops it, as in the end of an object."""
    if _asked:
        raise KeyboardInterrupt(_asked[0])


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Note interrupts inside this block, and raise them behind it."""
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
