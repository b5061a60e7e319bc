"""Measure how fast `read_range` with `sendfile` sends a log to a socket, against bare `sendfile`.

The socket is TCP on the loopback, and another process receives. Both sides send the same bytes of
the same files from the page cache, from the same positions. The ranges are verified or cold. If
they are cold, the store has just been opened, and each batch is verified before `read_range`
returns its range.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from benchmarks.compare import GIGABYTES, Side
from benchmarks.conftest import Ledger
from benchmarks.report import at_least
from benchmarks.workload import Sizes
from logstore import Log, LogConfig, LogStore

RECORDS, RECORD_BYTES = 160, 100  # a batch has about 16 KiB
RECEIVER = """
import socket, sys
end, share = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
buffer, done = bytearray(1 << 20), 0
while count := end.recv_into(buffer):
    done += count
    while done >= share:
        done -= share
        end.send(b".")
"""
GOALS = {("verified", 1 << 20): 0.9, ("verified", 64 << 10): 0.7, ("cold", 1 << 20): 0.5}


class Sink:
    """Hold a socket; another process receives at the other end, and acknowledges each round."""

    def __init__(self, near: socket.socket) -> None:
        self.near = near
        self.fd = near.fileno()

    def take(self, fd: int, position: int, size_bytes: int) -> None:
        """Send a range of a file."""
        while size_bytes:
            sent = os.sendfile(self.fd, fd, position, size_bytes)
            position += sent
            size_bytes -= sent

    def wait(self) -> None:
        """Wait until all bytes of a round have arrived."""
        assert self.near.recv(1) == b"."


@contextmanager
def sink_of(share: int) -> Iterator[Sink]:
    """Provide a sink whose other end reports each time `share` bytes have arrived."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    with near:
        code = [sys.executable, "-c", RECEIVER, str(far.fileno()), str(share)]
        child = subprocess.Popen(code, pass_fds=[far.fileno()])
        far.close()
        yield Sink(near)
    child.wait()


def ranges_of(log: Log, max_bytes: int) -> list[tuple[int, int, int]]:
    """List the ranges of a log: descriptor, position, size; the caller closes the descriptors."""
    found, offset = [], 0
    while offset < log.log_end_offset:
        with log.read_range(offset, max_bytes) as one:
            found.append((os.dup(one.fileno()), one.position, one.size_bytes))
            offset = one.next_offset
    return found


def send_bare(sink: Sink, ranges: list[tuple[int, int, int]]) -> None:
    """Send the ranges of open files."""
    for fd, position, size_bytes in ranges:
        sink.take(fd, position, size_bytes)
    sink.wait()


def send_log(sink: Sink, log: Log, max_bytes: int) -> None:
    """Send a log, range by range."""
    offset, end = 0, log.log_end_offset
    while offset < end:
        with log.read_range(offset, max_bytes) as found:
            sink.take(found.fileno(), found.position, found.size_bytes)
            offset = found.next_offset
    sink.wait()


@pytest.mark.parametrize("record_format", ["columnar", "kafka"])
@pytest.mark.parametrize(("state", "max_bytes"), list(GOALS))
def bench_ranges(
    ledger: Ledger,
    sizes: Sizes,
    new_dir: Callable[[], str],
    record_format: str,
    state: str,
    max_bytes: int,
) -> None:
    """Send a whole log in ranges of at most `max_bytes`."""
    path, values = new_dir(), [os.urandom(RECORD_BYTES) for _ in range(RECORDS)]
    config = LogConfig(
        record_format=record_format, segment_bytes=sizes.range_bytes // 2 + (1 << 20)
    )
    stores = [LogStore.open(path)]
    log = stores[0].create("bench", 0, config=config)
    while log.size_bytes < sizes.range_bytes:
        log.extend(values)
    size_bytes = log.size_bytes
    ranges = ranges_of(log, max_bytes)

    def opened() -> Log:
        if state == "cold":
            stores.pop().close()
            stores.append(LogStore.open(path))
        return stores[0].log("bench", 0)

    with sink_of(size_bytes) as sink:
        engine = Side(
            "engine", lambda log: send_log(sink, log, max_bytes), size_bytes, prepare=opened
        )
        bare = Side(
            "bare sendfile",
            lambda _: send_bare(sink, ranges),
            size_bytes,
            goal=at_least(GOALS[state, max_bytes]),
        )
        question = f"{state} ranges of {max_bytes >> 10} KiB to a socket, {record_format}"
        ledger.compare(question, GIGABYTES, engine, [bare], sizes.rounds * 2, bytes=size_bytes)
    stores.pop().close()
    for fd, _, _ in ranges:
        os.close(fd)
