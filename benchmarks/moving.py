"""Provide the parts of the benchmarks of moves: replicas, moves, bare copies, steady appends."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.peers import segment_files
from benchmarks.workload import BATCH_RECORDS, equal_values
from logstore import Log, LogConfig, LogStore
from mover import ReplicaMover

TOPIC = "moved"
BARE_CHUNK_BYTES = 4 << 20
PURGED_SECONDS_MAX = 600


def fill(
    store: LogStore,
    log_dir: str,
    partition: int,
    size_bytes: int,
    batch_records: int = BATCH_RECORDS,
) -> Log:
    """Create a replica of a given size, and flush it; its batches have records of 100 bytes."""
    config = LogConfig(segment_bytes="1GiB", max_message_bytes="2MiB")
    log = store.create(TOPIC, partition, log_dir=log_dir, config=config)
    pool, number = [values[:batch_records] for values in equal_values()], 0
    while log.size_bytes < size_bytes:
        log.extend(pool[number % len(pool)])
        number += 1
    log.flush()
    return log


def move(mover: ReplicaMover, log: Log, target: str) -> None:
    """Move a replica, and wait for the end; call `wait_purged` before the next measurement."""
    done = mover.move(log.topic, log.partition, target)
    done.wait()
    if done.error is not None:
        raise done.error


def wait_purged(log_dirs: Sequence[str], suffix: str = ".delete") -> None:
    """Wait until the old copies of moved replicas are removed."""
    deadline = time.monotonic() + PURGED_SECONDS_MAX
    while any(name.endswith(suffix) for path in log_dirs for name in os.listdir(path)):
        if time.monotonic() > deadline:
            raise RuntimeError("the old copies of moved replicas were not removed in time")
        time.sleep(0.02)


def read_through(source: str) -> None:
    """Read a replica's files, so that they are in memory when they are copied.

    The machine may have dropped files from memory that were not used for some seconds.
    """
    buffer = bytearray(BARE_CHUNK_BYTES)
    for path in segment_files(source):
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def bare_copy(source: str, target: str) -> None:
    """Copy a replica's files with sendfile, and sync each file; no move can be faster."""
    for path in segment_files(source):
        read = os.open(path, os.O_RDONLY)
        write = os.open(
            os.path.join(target, os.path.basename(path)), os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        )
        try:
            position, size = 0, os.fstat(read).st_size
            while position < size:
                position += os.sendfile(write, read, position, BARE_CHUNK_BYTES)
            os.fdatasync(write)
        finally:
            os.close(read)
            os.close(write)


def bare_swap(source: str, target: str, number: int) -> float:
    """Sync the last bytes and rename two directories, as a swap does; return the seconds."""
    old, new = (os.path.join(path, f"bare-{number}") for path in (source, target))
    os.mkdir(old)
    os.mkdir(new)
    file = os.path.join(new, "file")
    fds = [os.open(path, os.O_RDONLY) for path in (source, target)]
    fds.append(os.open(file, os.O_WRONLY | os.O_CREAT))
    try:
        os.pwrite(fds[2], bytes(4096), 0)
        for fd in reversed(fds):
            os.fsync(fd)
        os.pwrite(fds[2], bytes(2048), 4096)
        started = time.perf_counter()
        os.fdatasync(fds[2])
        for fd, path in zip(fds, (old, new), strict=False):
            os.rename(path, f"{path}.renamed")
            os.fsync(fd)
        return time.perf_counter() - started
    finally:
        for fd in fds:
            os.close(fd)
        shutil.rmtree(f"{old}.renamed", ignore_errors=True)
        shutil.rmtree(f"{new}.renamed", ignore_errors=True)


class Foreground:
    """Append to a log at a steady rate in a thread, and keep the latency of each append."""

    def __init__(self, log: Log, appends_per_second: int) -> None:
        self._log = log
        self._interval = 1 / appends_per_second
        self._values = equal_values()[0][:10]
        self._is_over = False
        self._seconds: list[float] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        extend, clock = self._log.extend, time.perf_counter
        due = clock()
        while not self._is_over:
            started = clock()
            extend(self._values)
            self._seconds.append(clock() - started)
            due += self._interval
            left = due - clock()
            if left > 0:
                time.sleep(left)
            else:
                due = clock()

    def take(self) -> list[float]:
        """Return the latencies since the last call."""
        taken, self._seconds = self._seconds, []
        return taken

    def for_seconds(self, seconds: float) -> list[float]:
        """Wait for some seconds; return the latencies of the appends during this time."""
        self.take()
        time.sleep(seconds)
        return self.take()

    def stop(self) -> None:
        """End the thread."""
        self._is_over = True
        self._thread.join()


@contextmanager
def appending(log: Log, appends_per_second: int) -> Iterator[Foreground]:
    """Append to a log in the background while the block runs."""
    foreground = Foreground(log, appends_per_second)
    foreground._thread.start()
    try:
        yield foreground
    finally:
        foreground.stop()


def quantile(values: Sequence[float], part: float) -> float:
    """Return a quantile of the values; a `part` of 0.99 is the 99th percentile."""
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


def bytes_in(mover: ReplicaMover, logs: Sequence[Log], target: str, seconds: float) -> int:
    """Move replicas at the same time; count the bytes copied in some seconds; cancel the moves.

    The time begins when the first bytes are copied.
    """
    moves = [mover.move(log.topic, log.partition, target) for log in logs]
    while not any(each.bytes_done for each in moves):
        time.sleep(0.001)
    started = time.perf_counter()
    before = sum(each.bytes_done for each in moves)
    time.sleep(seconds - (time.perf_counter() - started))
    copied = sum(each.bytes_done for each in moves) - before
    for each in moves:
        each.cancel()
    return copied
