"""Take from this process what it needs: descriptors, threads, space in files."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def no_descriptors(left: int = 0) -> Iterator[None]:
    """Leave so many descriptors to this process as it has open, and a few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, highest + 1 + left), hard))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(min(left, len(taken))):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


@contextlib.contextmanager
def no_threads(first: int = 1) -> Iterator[list[int]]:
    """Let no thread start from the n-th on, as at RLIMIT_NPROC; give how many were asked for."""
    real, asked = threading.Thread.start, [0]

    def start(thread: threading.Thread) -> None:
        asked[0] += 1
        if asked[0] >= first:
            raise RuntimeError("can't start new thread")
        real(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        yield asked


@contextlib.contextmanager
def small_files(size_bytes: int) -> Iterator[None]:
    """Let no file grow above a size: a write that would gives EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
