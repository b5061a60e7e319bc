"""Let calls to one log dir hang until they are released, and look with a watchdog by hand."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from logstore import StoreConfig
from logstore.disk import files
from logstore.disk.calls import calls_under_way
from logstore.store.dirs import parallel, watchdog
from logstore.store.store import LogStore
from support.faulty import CALLS, fd_path
from support.inside import watchdog_of

HOUR_MS = 3_600_000
LATE = 13.0 * HOUR_MS / 1000
QUIET = StoreConfig(
    log_flush_scheduler_interval_ms=HOUR_MS,
    log_flush_offset_checkpoint_interval_ms=HOUR_MS,
    log_retention_check_interval_ms=HOUR_MS,
    log_dir_probe_interval_ms=HOUR_MS,
    log_dir_suspect_ms=HOUR_MS,
    log_scrub_bytes_per_second=0,
)


class DeadDisk:
    """A disk that hangs for good from its n-th call on, and has done so for hours at once.

    What hangs is made to look old, everything else is young: so whoever gives up does so because
    of this disk, and at its next look, however fast or slow the machine is.

    Attributes:
        began: set once a call hangs.
    """

    def __init__(self, under: str, nth: int) -> None:
        self.under, self.nth = os.path.realpath(under), nth
        self.count = 0
        self.began, self.released = threading.Event(), threading.Event()
        self._counting = threading.Lock()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in {*CALLS, "real_path"}:
            monkeypatch.setattr(files, name, self._wrapper(getattr(files, name)))
        monkeypatch.setattr(parallel, "LOOK_SECONDS", 0.001)
        monkeypatch.setattr(watchdog, "LOOK_SECONDS_MAX", 0.002)

    def _is_here(self, path: str) -> bool:
        return path == self.under or path.startswith(self.under + "/")

    def _wrapper(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            first = arguments[0]
            path = fd_path(first) if isinstance(first, int) else os.path.abspath(first)
            if self._is_here(path) and not self.released.is_set():
                with self._counting:
                    self.count += 1
                    is_stuck = self.count >= self.nth
                if is_stuck:
                    for one in calls_under_way():
                        if self._is_here(one.path):
                            one.since -= LATE
                    self.began.set()
                    assert self.released.wait(120)
            return real(*arguments, **options)

        return call


class Hang:
    """A disk that hangs: every call of some kinds below a path waits until it is released.

    Attributes:
        began: set once a call hangs.
    """

    def __init__(self, under: str, *names: str) -> None:
        self.under, self.names = under, names
        self.began, self.released = threading.Event(), threading.Event()
        self.count = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in self.names:
            monkeypatch.setattr(files, name, self._wrapper(getattr(files, name)))

    def _wrapper(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            first = arguments[0]
            path = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else str(first)
            if path == self.under or path.startswith(self.under + "/"):
                self.count += 1
                self.began.set()
                assert self.released.wait(60)
            return real(*arguments, **options)

        return call


@contextlib.contextmanager
def hang(monkeypatch: pytest.MonkeyPatch, under: str, *names: str) -> Iterator[Hang]:
    """Have some kinds of calls hang below a path; they are released at the end at the latest."""
    one = Hang(under, *names)
    with monkeypatch.context() as patch:
        one.install(patch)
        try:
            yield one
        finally:
            one.released.set()


class Caller:
    """A thread that makes one call, and what came of it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._call()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def is_back(self) -> bool:
        return not self._thread.is_alive()

    def outcome(self) -> Any:
        """Wait for the call; give its result or its error."""
        self._thread.join(60)
        assert self.is_back(), "the call never came back"
        return self.error if self.error is not None else self.result


class Watch:
    """The watchdog of a store, driven by hand: its own thread is stopped."""

    def __init__(self, store: LogStore) -> None:
        self.watchdog = watchdog_of(store)
        self.watchdog.stop()

    def look(self, count: int = 1, *, later: float = 0.0) -> None:
        """Look some times, as if it were `later` seconds later than it is."""
        for _ in range(count):
            self.watchdog.look(time.monotonic() + later)

    def suspect(self) -> None:
        """Look once now and once so late that whatever hangs is noticed, long work included."""
        self.look()
        self.look(later=LATE)
