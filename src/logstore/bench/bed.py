"""Hold the directories under test: calibrate them, make stores in them, leave them as found."""

from __future__ import annotations

import os
import time
from typing import Any, Self

from logstore import LogConfig, LogStore, StoreConfig
from logstore.bench.cases import FLUSH_MS, Case
from logstore.disk import files

PREFIX = "logstore-bench-"
CALIBRATION_BYTES = 32 << 20
BUDGET_BYTES_MAX = 1 << 30  # of one round on one dir, whatever its speed
TOPIC = "bench"


class Bed:
    """Directories that the cases run on, one a disk.

    Attributes:
        log_dirs: as the user named them.
        store_dirs: where the stores of the cases are.
        bytes_per_second: what all of them together take, written and synced.
        left_behind: what could not be removed, with the reason.
    """

    def __init__(self, log_dirs: list[str], bytes_per_second: float | None = None) -> None:
        self.log_dirs = [files.real_path(path) for path in log_dirs]
        self._own = [os.path.join(path, f"{PREFIX}{os.getpid()}") for path in self.log_dirs]
        self.store_dirs = [os.path.join(path, "store") for path in self._own]
        self._is_made = False
        self.left_behind: dict[str, str] = {}
        self.bytes_per_second = bytes_per_second or 0.0

    def __enter__(self) -> Self:
        """Make a directory of its own in each, and calibrate."""
        for path in self.log_dirs:
            files.entries(path)  # before anything is made
        self._is_made = True
        for path in self._own:
            files.make_dir(path)
        if not self.bytes_per_second:
            self.bytes_per_second = sum(self._speed_of(path) for path in self._own)
        return self

    def __exit__(self, *_: Any) -> None:
        """Remove what was made."""
        self.clear(is_end=True)

    def _speed_of(self, directory: str) -> float:
        """Write and sync so much, and give bytes per second."""
        path = os.path.join(directory, "calibration")
        began = time.perf_counter()
        files.write_new(path, os.urandom(CALIBRATION_BYTES))
        seconds = time.perf_counter() - began
        files.unlink(path)
        return CALIBRATION_BYTES / seconds

    def budget_bytes(self, case: Case) -> int:
        """Give how much one round of a case is to write so that it takes `case.seconds`."""
        wanted = int(self.bytes_per_second * case.seconds)
        return max(4 * case.batch_bytes, min(wanted, BUDGET_BYTES_MAX * len(self._own)))

    def open_store(self, case: Case) -> LogStore:
        """Open the store of a case, or make it."""
        config = LogConfig(
            segment_bytes=64 << 20,
            max_message_bytes=max(case.batch_bytes * 2, 1 << 20),
            flush_ms=FLUSH_MS if case.sync == "interval" else None,
        )
        return LogStore.open(
            self.store_dirs,
            config=StoreConfig(log_config=config, log_flush_scheduler_interval_ms=FLUSH_MS // 2),
            admin_socket=False,
        )

    def drop_cache(self) -> None:
        """Have the kernel forget the segments, so that reads go to the disks."""
        for directory in self.store_dirs:
            for replica in files.entries(directory):
                if not replica.is_dir:
                    continue
                folder = os.path.join(directory, replica.name)
                for entry in files.entries(folder):
                    files.drop_cache(os.path.join(folder, entry.name))

    def clear(self, *, is_end: bool = False) -> None:
        """Remove what the last case left; a disk that has failed keeps it."""
        if not self._is_made:
            return
        for path in self._own if is_end else self.store_dirs:
            try:
                if files.exists(path):
                    files.remove_tree(path)
            except OSError as error:
                self.left_behind[path] = str(error)
