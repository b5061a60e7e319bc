"""Manage the directories under test: calibrate them, make stores in them, and clean them up."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self

from logstore import LogConfig, LogDirFullError, LogStore, StoreConfig
from logstore.bench.cases import FLUSH_MS, Case
from logstore.disk import bulk, files
from logstore.names import BENCH_PREFIX

CALIBRATION_BYTES = 32 << 20
CALIBRATION_BYTES_MAX = 128 << 20
CALIBRATION_SECONDS = 0.5
BUDGET_BYTES_MAX = 1 << 30  # the most bytes of one round in one dir, even on a fast disk
READ_CACHE_BYTES = 64 << 20
ROOM_SHARE = 1.25  # bytes of disk for each byte of values, with headers, indexes and journals
TOPIC = "bench"


class Bed:
    """Manage the directories in which the cases run: one new directory in each log dir.

    Attributes:
        log_dirs: the real paths of the directories that the user named.
        store_dirs: the directories of the cases' stores, one in each log dir.
        bytes_per_second: the rate at which all disks together write and sync.
        read_bytes_per_second: the rate at which all disks together read.
        left_behind: the paths that could not be removed, each with the reason.
    """

    def __init__(self, log_dirs: list[str], bytes_per_second: float | None = None) -> None:
        self.log_dirs = [files.real_path(path) for path in log_dirs]
        self._own = [os.path.join(path, f"{BENCH_PREFIX}{os.getpid()}") for path in self.log_dirs]
        self.store_dirs = [os.path.join(path, "store") for path in self._own]
        self._is_made = False
        self.left_behind: dict[str, str] = {}
        self.bytes_per_second = self.read_bytes_per_second = bytes_per_second or 0.0

    def __enter__(self) -> Self:
        """Create a new directory in each log dir, and measure the speed of the disks.

        Raises:
            OSError: a directory is missing or cannot be written; no directory is changed.
            LogDirFullError: there is no room to calibrate.
        """
        self.check_room(CALIBRATION_BYTES_MAX)
        self._is_made = True
        try:
            for named, path in zip(self.log_dirs, self._own, strict=True):
                try:
                    files.make_dir(path)
                except OSError as error:
                    raise OSError(
                        error.errno, f"cannot write here: {error.strerror}", named
                    ) from error
            if not self.bytes_per_second:
                speeds = [self._speeds_of(path) for path in self._own]
                self.bytes_per_second = sum(write for write, _ in speeds)
                self.read_bytes_per_second = sum(read for _, read in speeds)
        except BaseException:
            self.clear(is_end=True)
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        """Remove everything that was created."""
        self.clear(is_end=True)

    def check_room(self, size_bytes: int) -> None:
        """Raise LogDirFullError if a disk has no room for `size_bytes` in each of its log dirs."""
        wanted = int(size_bytes * ROOM_SHARE)
        devices = [files.stat(path).st_dev for path in self.log_dirs]
        for path, device in zip(self.log_dirs, devices, strict=True):
            facts = files.statvfs(path)
            free = facts.f_bavail * facts.f_frsize
            needed = wanted * devices.count(device)
            if free < needed:
                raise LogDirFullError(
                    path=path,
                    reason=f"{free >> 20} MiB are free, but up to {needed >> 20} MiB are written",
                )

    def check_room_for(self, cases: Sequence[Case]) -> None:
        """Raise LogDirFullError if the largest case would fill a disk."""
        self.check_room(max(map(self.budget_bytes, cases)) // len(self._own))

    def _speeds_of(self, directory: str) -> tuple[float, float]:
        """Write, sync and then read a file, and return both speeds of the disk.

        The speeds are bytes per second, first of writing, then of reading. The writing takes half a
        second, so that a higher speed at the beginning changes the result little.
        """
        path = os.path.join(directory, "calibration")
        data = os.urandom(CALIBRATION_BYTES)
        size_bytes, written = 0, 0.0
        began = time.perf_counter()
        try:
            fd = files.open_file(path, files.REPLACE)
            try:
                while written < CALIBRATION_SECONDS and size_bytes < CALIBRATION_BYTES_MAX:
                    size_bytes += files.write_fully(fd, [data], size_bytes)
                    files.sync_file(fd)
                    written = time.perf_counter() - began
                bulk.drop_cache(path)
                began = time.perf_counter()
                for position in range(0, size_bytes, CALIBRATION_BYTES):
                    files.read_up_to(fd, CALIBRATION_BYTES, position)
                read = time.perf_counter() - began
            finally:
                files.close(fd)
            files.unlink(path)
        except OSError as error:
            raise OSError(error.errno, f"cannot measure here: {error.strerror}", path) from error
        return size_bytes / written, size_bytes / read

    def budget_bytes(self, case: Case) -> int:
        """Compute how many bytes one round of a case must handle to take `case.seconds`."""
        is_read = case.phase in ("read", "recover")
        rate = self.read_bytes_per_second if is_read else self.bytes_per_second
        return max(4 * case.batch_bytes, min(int(rate * case.seconds), self._budget_bytes_max))

    @property
    def _budget_bytes_max(self) -> int:
        return BUDGET_BYTES_MAX * len(self._own)

    def open_store(self, case: Case) -> LogStore:
        """Open the store of a case, or create it."""
        config = LogConfig(
            segment_bytes=64 << 20,
            max_message_bytes=max(case.batch_bytes * 2, 1 << 20),
            flush_ms=FLUSH_MS if case.sync == "interval" else None,
        )
        return LogStore.open(
            self.store_dirs,
            config=StoreConfig(
                log_config=config,
                log_flush_scheduler_interval_ms=FLUSH_MS // 2,
                read_cache_bytes=0 if case.phase == "point-read" else READ_CACHE_BYTES,
            ),
            admin_socket=False,
        )

    def drop_cache(self) -> None:
        """Drop the segments from the page cache, so that the next reads come from the disks."""
        for directory in self.store_dirs:
            for replica in files.entries(directory):
                if replica.is_dir:
                    drop_cache_of(os.path.join(directory, replica.name))

    def clear(self, *, is_end: bool = False) -> None:
        """Remove the files of the case that has ended, but not from a disk that has failed."""
        if not self._is_made:
            return
        for path in self._own if is_end else self.store_dirs:
            try:
                with suppress(FileNotFoundError):
                    bulk.remove_tree(path)
            except OSError as error:
                if is_end:
                    self.left_behind[path] = str(error)


def drop_cache_of(replica: str) -> None:
    """Drop the files of one partition from the page cache."""
    for entry in files.entries(replica):
        bulk.drop_cache(os.path.join(replica, entry.name))
