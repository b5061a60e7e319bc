"""Stand in for the throttle of a mover, to hold a move before any chunk and let it go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

from logstore import LogStore
from mover import ReplicaMover

SECONDS_MAX = 60  # a test that waits longer has failed


class Gate:
    """Lets chunks pass one by one once it was closed; open at first.

    Attributes:
        chunk_bytes: how much a move may ask for at once.
        passed: the chunks that went.
        before: called in the move's thread before each chunk.
    """

    def __init__(self, chunk_bytes: int = 1024) -> None:
        self.chunk_bytes = chunk_bytes
        self.passed = 0
        self.before: Callable[[], object] | None = None
        self._changed = threading.Condition()
        self._allowed: int | None = None
        self._waiting = 0

    # --- what a mover calls -----------------------------------------------------------------------

    def for_move(self, log_dirs: Any = (), rate: Any = None) -> Gate:
        return self

    def close(self) -> None:
        """Go on letting moves pass."""

    def set_rate(self, rate: Any, log_dir: str | None = None) -> None:
        """Take any rate."""

    def set_dirs(self, log_dirs: Any) -> None:
        """Take any log dirs."""

    def rates_to_keep(self, before: Any) -> Any:
        return before

    def end(self) -> None:
        """Take the end of a move."""

    def stop(self) -> None:
        """Take the end of the mover."""

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def take(self, size_bytes: int, is_stopped: Callable[[], bool]) -> bool:
        if self.before is not None:
            self.before()
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            done = self._changed.wait_for(
                lambda: is_stopped() or self._allowed is None or self._allowed > 0, SECONDS_MAX
            )
            self._waiting -= 1
            if is_stopped() or not done:
                return False
            if self._allowed is not None:
                self._allowed -= 1
            self.passed += 1
            return True

    # --- what a test calls ------------------------------------------------------------------------

    def hold(self, after: int = 0) -> None:
        """Let so many chunks pass, then none."""
        with self._changed:
            self._allowed = after
            self._changed.notify_all()

    def open(self) -> None:
        """Let everything pass."""
        with self._changed:
            self._allowed = None
            self._changed.notify_all()

    def wait_until_held(self) -> None:
        """Wait until a move stands before the closed gate."""
        with self._changed:
            held = self._changed.wait_for(
                lambda: self._waiting > 0 and self._allowed == 0, SECONDS_MAX
            )
        assert held, "no move came to the gate"


@contextmanager
def gated(
    store: LogStore, *, is_held: bool = False, **options: Any
) -> Iterator[tuple[ReplicaMover, Gate]]:
    """Give a mover whose moves pass a gate.

    Args:
        is_held: the gate is closed before the mover resumes unfinished moves.
    """
    gate = Gate()
    if is_held:
        gate.hold()
    held = patch("mover.mover.Throttle", lambda *_, **__: gate) if is_held else nullcontext()
    with held:
        made = ReplicaMover(store, **options)
    with made as mover:
        mover._moves.throttle = gate  # type: ignore[assignment]
        yield mover, gate  # closing the mover pauses what is held: opening first would race it
