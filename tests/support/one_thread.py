"""Do in the caller's thread what has threads of its own, where there are thousands to look at.

Most of the time of opening a store of one small log goes into its some twenty threads: one for
each log dir at each step of the start, the keepers, the watchdog. The steps are the same without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from unittest.mock import patch

from logstore.store.dirs import parallel
from logstore.store.dirs.watchdog import Watchdog
from logstore.store.upkeep.keeper import DirKeeper


class _AtOnce:
    """Stands for a thread, and is done when it has been started."""

    def __init__(
        self,
        target: Callable[..., object],
        args: tuple[object, ...] = (),
        name: str = "",
        daemon: bool = True,
    ) -> None:
        self._target, self._args = target, args

    def start(self) -> None:
        self._target(*self._args)

    def is_alive(self) -> bool:
        return False

    def join(self, timeout: float | None = None) -> None:
        """Nothing is left to wait for."""


@contextmanager
def threads_at_once(module: ModuleType) -> Iterator[None]:
    """Let the threads that a module starts do their work in the start."""
    with patch.object(module, "Thread", _AtOnce):
        yield


@contextmanager
def steps_in_one_thread() -> Iterator[None]:
    """Let what is done for several log dirs at once be done for one after the other."""
    with threads_at_once(parallel):
        yield


@contextmanager
def nothing_behind() -> Iterator[None]:
    """Open stores without keepers and watchdog: nothing happens but what the caller does."""
    with (
        patch.object(DirKeeper, "start", lambda _: None),
        patch.object(Watchdog, "start", lambda _: None),
    ):
        yield
