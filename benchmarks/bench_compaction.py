"""Measure the speed and memory of the compaction of a log with many records and few keys.

    python -m benchmarks.bench_compaction [--records N] [--keys N] [--batch N]

One process writes the log, and a second process compacts it. Only the memory that the compaction
adds to the second process counts. The records that are left are compared with the expected records:
for each key, its latest record with its offset and value. The program prints a line for each
layout. The exit code is 1 if a figure misses its goal.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

from logstore import LogConfig, LogStore, StoreConfig

# The goals: records per second, and bytes of memory above the idle process.
RATES_MIN = {"columnar": 1_500_000, "kafka": 800_000}
MEMORY_BYTES_MAX = 96 << 20
QUIET = StoreConfig(log_cleaner_enable=False, log_scrub_bytes_per_second=0)
CUTS = 12  # about how many segments the log has


class Task(NamedTuple):
    """Describe a log to compact."""

    directory: str
    layout: str
    records: int
    keys: int
    batch: int


class Result(NamedTuple):
    """Hold the figures of a compaction; `seconds_cpu` is the processor time of the process."""

    records: int
    kept: int
    seconds: float
    seconds_cpu: float
    memory_bytes: int


def keys_of(task: Task) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Draw a random key for each record, as an array of shape (records,)."""
    return np.random.default_rng(7).integers(0, task.keys, task.records)


def value_of(offset: int) -> bytes:
    """Return the value of the record at an offset."""
    return b"value %012d of a record with some 50 bytes" % offset


def write(task: Task) -> None:
    """Write the log; all segments except the last are sealed."""
    keys = keys_of(task)
    config = LogConfig(
        segment_bytes=max(task.records * 90 // CUTS, 4096),
        cleanup_policy="compact",
        record_format=task.layout,
    )
    with LogStore.open(task.directory, config=QUIET) as store:
        log = store.create("bench", 0, config=config)
        for first in range(0, task.records, task.batch):
            part = keys[first : first + task.batch].tolist()
            values = [value_of(offset) for offset in range(first, first + len(part))]
            log.extend(values, keys=[b"key of a record %010d" % key for key in part])


def compact(task: Task) -> Result:
    """Compact the log, and compare the records that are left with the expected records."""
    with LogStore.open(task.directory, config=QUIET) as store:
        log = store.log("bench", 0)
        gc.collect()
        before = peak_bytes(is_new=True)
        began, began_cpu = time.perf_counter(), time.process_time()
        report = log.compact()
        seconds, seconds_cpu = time.perf_counter() - began, time.process_time() - began_cpu
        memory_bytes = peak_bytes() - before
        end = report.clean_end_offset
        assert report.is_complete and report.records_read == end > task.records // 2, report
        latest = np.full(task.keys, -1)
        latest[keys_of(task)[:end]] = np.arange(end)  # if a key occurs twice, the last offset stays
        expected = np.sort(latest[latest >= 0])
        found = np.concatenate([batch.offsets for batch in log[:end].read_batches()])
        assert np.array_equal(found, expected)
        for record in log[:end]:
            assert record.value == value_of(record.offset)
    return Result(end, report.records_kept, seconds, seconds_cpu, memory_bytes)


def peak_bytes(*, is_new: bool = False) -> int:
    """Return the peak memory of this process; if `is_new` is True, first reset the peak."""
    if is_new:
        Path("/proc/self/clear_refs").write_text("5")
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) << 10
    raise AssertionError


def measure(task: Task) -> Result:
    """Write a log and compact it, each in a new process."""
    context = get_context("spawn")
    try:
        for work in (write, compact):
            with context.Pool(1) as pool:
                result = pool.apply(work, (task,))
    finally:
        shutil.rmtree(task.directory, ignore_errors=True)
    assert isinstance(result, Result)
    return result


def main() -> int:
    """Measure both layouts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=1000)
    wanted = parser.parse_args()
    is_good = True
    for layout, rate_min in RATES_MIN.items():
        task = Task(tempfile.mkdtemp(), layout, wanted.records, wanted.keys, wanted.batch)
        result = measure(task)
        rate = result.records / result.seconds
        print(
            f"compaction, {layout}: {result.records:,} records, {result.kept:,} kept, "
            f"{rate / 1e6:.2f} M records/s (bar {rate_min / 1e6:.1f}), "
            f"{result.records / result.seconds_cpu / 1e6:.2f} M a second of its processors, "
            f"{result.memory_bytes / 2**20:.0f} MiB above the idle process "
            f"(bar {MEMORY_BYTES_MAX >> 20})",
            flush=True,
        )
        is_good &= rate >= rate_min and result.memory_bytes <= MEMORY_BYTES_MAX
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
