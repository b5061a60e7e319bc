"""Call callbacks one after another, on a separate thread."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

_log = logging.getLogger(__name__)


class Callbacks:
    """A queue of calls, and a thread that makes the queued calls. `close` ends the thread."""

    def __init__(self, name: str) -> None:
        """Start the thread now, so that later calls need not do it. Raises RuntimeError."""
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Queue a call. After `close`, do nothing."""
        with self._lock:
            if not self._is_closed:
                self._calls.put(lambda: callback(*arguments))

    def call_even_if_closed(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Queue a call. After `close`, start a new thread that makes the call."""
        with self._lock:
            is_closed = self._is_closed
        one = Callbacks(self._name) if is_closed else self
        one.call(callback, *arguments)
        if is_closed:
            one.close()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except Exception:  # noqa: BLE001 - the callback is not ours; later callbacks must run
                _log.exception("a callback of %s failed", self._name)

    def close(self) -> None:
        """Let the thread end after the queued calls. Do not wait for its end."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._calls.put(None)

    def join(self, seconds_max: float) -> None:
        """After `close`, wait until the thread has ended. The thread itself does not wait."""
        if self._thread is not threading.current_thread():
            self._thread.join(seconds_max)
