"""Let Ctrl-C come before the n-th line that this thread runs in some modules.

A tracer raises KeyboardInterrupt where the interpreter might: at the beginning of a line. It leaves
out lines where it never does so: the return to a `with` that is about to let go of its lock, single
calls into C in a `finally`, and plain assignments behind one another.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any

import pytest

from logstore.disk.uninterrupted import Work
from logstore.log import replication, state
from logstore.log.write import appending, roll

WRITING = (state, replication, appending, roll)  # the modules that write a batch

WITHOUT_A_CHECK = (
    (
        "with ",
        "try:",
        "self._committing, group.is_done = ",
        "del group",
        "if group.is_done and",
        "group.is_open = True",
    )
    + ("group.gate.release()", "self._in_use.discard(me)")
    + ("active.max_timestamp = ", "active.last_position = ", "active.size_bytes = ")
    + ("active.end_offset = ", "if last_offset_delta and", "if timing is not None")
    + ("if receipt is", "receipt[0] = ")
)


class InterruptAt:
    """Interrupts a block at its n-th line, once; `was_hit` tells whether there were so many.

    `watch` is called with the text of every line that comes.
    """

    def __init__(
        self, number: int, *modules: ModuleType, watch: Callable[[str], object] | None = None
    ) -> None:
        self.number, self.lines, self.was_hit = number, 0, False
        self.watch = watch
        self.files = {module.__file__ for module in modules}
        self._outer: Any = None

    def __enter__(self) -> InterruptAt:
        self._outer = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._outer)

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._line if frame.f_code.co_filename in self.files else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            if self.watch is not None:
                self.watch(text)
            if not self.was_hit and not text.startswith(WITHOUT_A_CHECK):
                self.lines += 1
                if self.lines == self.number:
                    self.was_hit = True
                    raise KeyboardInterrupt
        return self._line


@contextlib.contextmanager
def in_own_thread() -> Iterator[None]:
    """Do in the calling thread what a second one does else, as if no thread could be had."""

    def start(work: object) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Work, "start", start)
        yield
