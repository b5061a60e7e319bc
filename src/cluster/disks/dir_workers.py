"""Give each log dir threads that do the work on its replicas.

If a disk hangs, only the thread of its log dir waits. The process does not wait for its disk
threads when it ends, because a disk thread may wait for ever.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable

LOG = logging.getLogger("cluster")

Work = Callable[[], object]


class Piece:
    """A piece of work. When the work has ended, even with an error, `is_over` is set."""

    __slots__ = ("_work", "is_over")

    def __init__(self, work: Work) -> None:
        self._work = work
        self.is_over = threading.Event()

    def do(self) -> None:
        """Do the work, and log its error, because the caller may no longer wait."""
        try:
            self._work()
        except Exception:
            LOG.exception("work on the replicas of a log dir failed")
        finally:
            self.is_over.set()


class DirWorkers:
    """The threads of the log dirs. A log dir gets its threads together with its first work.

    Threads: any thread may call any method.
    """

    def __init__(self, name: str = "replicas", threads: int = 1) -> None:
        """Begin without threads.

        Args:
            name: the first part of the names of the threads.
            threads: how many threads a log dir has. If it has one, it does one piece of work after
                another.
        """
        self._name, self._threads = name, threads
        self._lock = threading.Lock()  # guards the next two fields
        self._queues: dict[str, queue.SimpleQueue[Piece | None]] = {}
        self._is_closed = False

    def submit(self, log_dir: str, work: Work) -> Piece:
        """Let a thread of a log dir do this work. After `close`, drop the work."""
        piece = Piece(work)
        with self._lock:
            if self._is_closed:
                piece.is_over.set()
                return piece
            pieces = self._queues.get(log_dir)
            if pieces is None:
                pieces = self._queues[log_dir] = queue.SimpleQueue()
                for _ in range(self._threads):
                    threading.Thread(
                        target=_run, args=(pieces,), name=f"{self._name}-{log_dir}", daemon=True
                    ).start()
            pieces.put(piece)
        return piece

    def abandon(self, log_dir: str) -> None:
        """Let the thread of a log dir end after its queued work; later work gets a new thread.

        A thread that hangs may never return. Then later work in the same queue would never begin.
        """
        with self._lock:
            pieces = self._queues.pop(log_dir, None)
            if pieces is not None:
                self._end(pieces)

    def close(self) -> None:
        """Let the threads end after their queued work."""
        with self._lock:
            self._is_closed = True
            for pieces in self._queues.values():
                self._end(pieces)
            self._queues.clear()

    def _end(self, pieces: queue.SimpleQueue[Piece | None]) -> None:
        for _ in range(self._threads):
            pieces.put(None)


def _run(pieces: queue.SimpleQueue[Piece | None]) -> None:
    while (piece := pieces.get()) is not None:
        piece.do()


def wait_for(pieces: Iterable[Piece], seconds: float) -> None:
    """Wait until all pieces of work have ended, or the time is over."""
    deadline = time.monotonic() + seconds
    for piece in pieces:
        piece.is_over.wait(max(0.0, deadline - time.monotonic()))
