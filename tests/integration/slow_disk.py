"""Use a log on a disk of 4 operations a second while the main thread ticks: a program.

    python slow_disk.py LOG_DIR OTHER_DIR

Waits for a line on stdin once the log is written and its pages are dropped (the disk is slowed
down then), reads in every way in a thread, and prints the longest gap between two ticks, in ms,
for each way. The last way, a plain map, is what the engine must not do: it shows that a stall
would be seen.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from logstore import LogConfig, LogStore
from support.loop_disk import forget_pages

VALUE = bytes(4096)
TICK_SECONDS = 0.001


def ways(log: Any) -> dict[str, Callable[[], object]]:
    """List what is done on the slow disk; each touches pages of its own."""
    end = log.log_end_offset
    (path, *_) = sorted(Path(log.directory).glob("*.log"))
    return {
        "point read": lambda: log[end // 4].value,
        "columns": lambda: next(iter(log.read_batches(end // 2))).values[0],
        "zero-copy columns": lambda: next(iter(log.read_batches(end * 3 // 4, zero_copy=True))),
        "durable append": lambda: log.append(VALUE, durable=True),
        "a plain map": lambda: int(np.memmap(path, np.uint8)[4096 * 9]),
    }


def waited_for_a_core_seconds() -> float:
    """Give how long this process's threads stood ready to run and were not let run, in all."""
    total = 0
    for task in os.scandir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"{task.path}/schedstat") as file:
            total += int(file.read().split()[1])
    return total / 1e9


def longest_gap_ms(work: Callable[[], object]) -> tuple[float, float]:
    """Run work in a thread and tick meanwhile; the longest gap, and how long the work took.

    What a busy machine takes from a gap is taken off: a thread that holds the interpreter's lock
    while the disk works sleeps, and does not stand ready to run.
    """
    thread = threading.Thread(target=work)
    begun = last = time.perf_counter()
    waited = waited_for_a_core_seconds()
    longest = 0.0
    thread.start()
    is_running = True
    while is_running:  # and once more behind the end: the work may stall even `start`
        is_running = thread.is_alive()
        select.select([], [], [], TICK_SECONDS)
        now, before = time.perf_counter(), waited
        waited = waited_for_a_core_seconds()
        longest = max(longest, now - last - (waited - before))
        last = now
    return longest * 1e3, (time.perf_counter() - begun) * 1e3


def main() -> int:
    log_dir, other_dir = sys.argv[1:]
    with LogStore.open([log_dir, other_dir]) as store:
        log = store.create("slow", 0, log_dir=log_dir, config=LogConfig(segment_bytes="130KiB"))
        for start in range(0, 1024, 16):
            times = list(range(1_700_000_000_000 + start, 1_700_000_000_016 + start))
            log.extend([VALUE] * 16, timestamps=times)
        log.flush()
    gaps = {}
    with LogStore.open([log_dir, other_dir]) as store:
        log = store.log("slow", 0)
        todo = ways(log)
        forget_pages(Path(log_dir))
        print("ready", flush=True)
        sys.stdin.readline()
        for name, work in todo.items():
            gaps[name] = longest_gap_ms(work)
        print(json.dumps(gaps), flush=True)
        sys.stdin.readline()
    return 0


if __name__ == "__main__":
    sys.exit(main())
