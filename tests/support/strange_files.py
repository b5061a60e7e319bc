"""Put what is no sane file in the place of a file, and stop a test that hangs on it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

SPARSE_BYTES = 1 << 40


def remove(path: Path) -> None:
    """Remove whatever has a name."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def fifo(path: Path) -> None:
    """Put a FIFO there: an open that waits for its other end never returns."""
    remove(path)
    os.mkfifo(path)


def directory(path: Path) -> None:
    """Put a directory there."""
    remove(path)
    path.mkdir()
    (path / "inside").write_bytes(b"kept")


def symlink(path: Path) -> None:
    """Put a symlink there, to a file of somebody else's."""
    target = path.parent.parent / f"precious-{path.name}"
    target.write_bytes(b"precious")
    remove(path)
    path.symlink_to(target)


def unix_socket(path: Path) -> None:
    """Put a socket there."""
    remove(path)
    with socket.socket(socket.AF_UNIX) as bound:
        here = os.getcwd()
        try:  # the path of a socket has 107 bytes at most
            os.chdir(path.parent)
            bound.bind(path.name)
        finally:
            os.chdir(here)


def sparse(path: Path) -> None:
    """Let the file end in a hole of 1 TiB."""
    with path.open("r+b" if path.exists() else "wb") as file:
        file.truncate(SPARSE_BYTES)


STRANGE: tuple[Callable[[Path], None], ...] = (fifo, directory, symlink, unix_socket, sparse)


@contextmanager
def stopped_after(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in the main thread when the block takes longer."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
