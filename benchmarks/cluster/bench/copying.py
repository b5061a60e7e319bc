"""Copy a file through a socket of loopback with sendfile, and watch a follower's copy grow."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

COPY_SECONDS_MAX = 120.0
LOOK_SECONDS = 0.002
RECEIVE_BYTES = 1 << 20
MB = 1_000_000


def bare_copy(source: Path, target: Path) -> float:
    """Send a file with sendfile, receive 1 MiB at a time, and write it; return MB/s."""
    size = source.stat().st_size
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = threading.Thread(target=_send, args=(server, source, size))
        sender.start()
        try:
            started = time.perf_counter()
            with (
                socket.create_connection(server.getsockname()) as receiver,
                target.open("wb") as out,
            ):
                buffer = memoryview(bytearray(RECEIVE_BYTES))
                while taken := receiver.recv_into(buffer):
                    out.write(buffer[:taken])
            seconds = time.perf_counter() - started
        finally:
            sender.join()
    copied = target.stat().st_size
    target.unlink()
    if copied != size:
        raise RuntimeError(f"{copied:,} of {size:,} bytes were copied")
    return size / seconds / MB


def _send(server: socket.socket, source: Path, size: int) -> None:
    taken, _ = server.accept()
    with taken, source.open("rb") as file:
        at = 0
        while at < size:
            at += os.sendfile(taken.fileno(), file.fileno(), at, size - at)


def use_memory(path: Path, size: int) -> None:
    """Write and delete a file, so that the page cache has used the memory of the next file before.

    A virtual machine gets memory from its host at the first use, and this can take longer than the
    copy. Without this call, the first of two equal copies was up to four times slower.
    """
    piece = bytes(RECEIVE_BYTES)
    with path.open("wb") as out:
        for _ in range(0, size, len(piece)):
            out.write(piece)
    path.unlink()


def log_bytes(directory: Path) -> int:
    """Sum up the sizes of a replica's segments."""
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def growth_rate(
    size_of: Callable[[], int],
    end_bytes: int,
    clock: Callable[[], float] = time.perf_counter,
    pause: Callable[[float], object] = time.sleep,
) -> float:
    """Wait until a replica has this many bytes; return MB/s from its first growth on.

    Args:
        size_of: reads the present size of the replica.
    """
    deadline, before = clock() + COPY_SECONDS_MAX, size_of()
    begun, started, size = before, 0.0, before
    while size < end_bytes:
        now = clock()
        if now > deadline:
            raise RuntimeError(f"the replica has {size:,} of {end_bytes:,} bytes")
        if not started and size > before:
            begun, started = size, now
        pause(LOOK_SECONDS)
        size = size_of()
    if not started:
        raise RuntimeError("the replica had grown before it was watched")
    return (size - begun) / (clock() - started) / MB
