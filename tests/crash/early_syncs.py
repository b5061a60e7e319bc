"""Let a copy be synced beside the copying in a short history too, in an order that a seed has.

A move begins such a sync each 64 MiB, which is more than a history holds: here at each chunk where
none is under way. It goes on for as long as the dice have it, while the next chunks are copied, and
ends at the latest when somebody waits for it; one may fail. All of it is done in one thread.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from logstore.disk import files
from mover.copying import copy_segments, early_sync
from support.crash_model import Op
from support.recorder import Recorder

STEP_BYTES = 1
NEVER = -1


class EarlySyncs:
    """Stands for the threads of early syncs.

    Args:
        fails_at: the number of the one that fails, from 0; what it was to write is dropped.

    Attributes:
        count: so many were begun.
    """

    def __init__(self, recorder: Recorder, seed: int, fails_at: int) -> None:
        self.recorder = recorder
        self.rng = random.Random(seed)
        self.fails_at = fails_at
        self.count = 0

    def thread(self, *, target: Callable[[], None], **_: Any) -> _Beside:
        """Make what stands for one thread."""
        self.count += 1
        return _Beside(self, target, is_failing=self.count - 1 == self.fails_at)


class _Beside:
    """One early sync: begun when it is started, made when it is to end."""

    def __init__(self, syncs: EarlySyncs, make: Callable[[], None], *, is_failing: bool) -> None:
        self._syncs, self._make, self._is_failing = syncs, make, is_failing
        self._fd: int = make.__self__._handle.fd  # type: ignore[attr-defined]
        self._is_over = False

    def start(self) -> None:
        """Begin; one that fails has dropped everything before anybody hears of it."""
        recorder = self._syncs.recorder
        if self._is_failing:
            recorder.fail_sync(self._fd)
        else:
            recorder.begin_sync(self._fd)

    def is_alive(self) -> bool:
        """Tell whether it goes on, which the dice decide."""
        if self._syncs.rng.random() < 0.3:
            self.join()
        return not self._is_over

    def join(self, timeout: float | None = None) -> None:
        """Let it end."""
        if self._is_over:
            return
        self._is_over = True
        if self._is_failing:
            with patch.object(files, "sync_data", _fail):
                self._make()
        else:
            self._syncs.recorder.end_sync(self._make)


def _fail(fd: int) -> None:
    raise files.SyncError(errno.EIO, os.strerror(errno.EIO))


@contextmanager
def syncing_early(recorder: Recorder, seed: int, fails_at: int = NEVER) -> Iterator[EarlySyncs]:
    """Have the moves of a history sync early."""
    syncs = EarlySyncs(recorder, seed, fails_at)
    with (
        patch.object(early_sync, "Thread", syncs.thread),
        patch.object(copy_segments, "EARLY_SYNC_BYTES", STEP_BYTES),
    ):
        yield syncs


def count_overtaken(ops: list[Op]) -> int:
    """Count the early syncs that ended well and beside which more was copied to their file."""
    overtaken, written = 0, dict[int, bool]()
    for kind, target, *_ in ops:
        if kind == "begin sync":
            written[target] = False
        elif kind == "write" and target in written:
            written[target] = True
        elif kind == "end sync":
            overtaken += written.pop(target)
    return overtaken
