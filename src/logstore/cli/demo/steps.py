"""Run the steps of the demo; each step returns its figures, and `command` runs them in order."""

from __future__ import annotations

import fcntl
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from logstore import Log, LogConfig, LogStore
from logstore.cli.demo.checks import Checked, check_log
from logstore.cli.demo.flights import AIRPORTS, Flights, departure_delay, timestamp_of
from logstore.cli.demo.second_load import TOPIC

BATCH_RECORDS = 1000
SEGMENT_BYTES = "4MiB"
POINT_READS = 3000
SEED = 2013

# For each day: midnight in New York (UTC-5, in summer UTC-4), and the number of scheduled flights.
DAYS = (
    ("1 January", "2013-01-01T05:00:00Z", "2013-01-02T05:00:00Z", 842),
    ("4 July", "2013-07-04T04:00:00Z", "2013-07-05T04:00:00Z", 737),
)


class Loaded(NamedTuple):
    """Hold the figures of the first load."""

    records: int
    value_bytes: int
    stored_bytes: int
    seconds: float


class ReadBack(NamedTuple):
    """Hold the figures of the reads after the first load."""

    scan_seconds: float
    scanned_records: int
    point_reads: int
    point_seconds: float
    wrong: int
    days: list[tuple[str, int, int]]  # name, flights found, flights expected
    worst: tuple[int, str]  # the delay in minutes, and the flight


class Killed(NamedTuple):
    """Hold how many records the killed child had acknowledged, according to its own output."""

    acknowledged_ends: list[int]
    acknowledged: int
    seconds: float
    exit_code: int


class Recovered(NamedTuple):
    """Hold the figures of the open after the kill, and of the check of every record."""

    seconds: float
    report: str
    checked: list[Checked]
    check_seconds: float
    problems: int
    dirs: list[tuple[str, str, int]]  # path, airports, bytes


def load(store: LogStore, parts: Sequence[Flights], until: int) -> Loaded:
    """Create the partitions, append the flights of each airport up to number `until`, and flush."""
    config = LogConfig(segment_bytes=SEGMENT_BYTES)
    logs = [store.create(TOPIC, n, config=config, exist_ok=True) for n in range(len(parts))]
    started = time.perf_counter()
    append_flights(logs, parts, until=until)
    store.flush()
    seconds = time.perf_counter() - started
    return Loaded(
        records=sum(log.log_end_offset for log in logs),
        value_bytes=sum(len(value) for flights in parts for value in flights.values[:until]),
        stored_bytes=sum(log.size_bytes for log in logs),
        seconds=seconds,
    )


def append_flights(
    logs: Sequence[Log],
    parts: Sequence[Flights],
    start: int = 0,
    until: int | None = None,
    pace: Callable[[], object] = lambda: None,
) -> None:
    """Append the flights of all airports, one batch at a time; the airports take turns."""
    longest = max(len(flights.values) for flights in parts)
    end = longest if until is None else min(until, longest)
    for first in range(start, end, BATCH_RECORDS):
        stop = min(first + BATCH_RECORDS, end)
        for log, flights in zip(logs, parts, strict=True):
            if first < len(flights.values):
                log.extend(
                    flights.values[first:stop],
                    keys=flights.keys[first:stop],
                    timestamps=flights.timestamps[first:stop],
                )
        pace()


def read_back(store: LogStore, parts: Sequence[Flights]) -> ReadBack:
    """Read all records once as columns, some records by offset, and two days by time."""
    logs = [store.log(TOPIC, partition) for partition in range(len(parts))]
    started = time.perf_counter()
    scanned = sum(batch.count for log in logs for batch in log.read_batches(0))
    scan_seconds = time.perf_counter() - started

    chance = random.Random(SEED)
    wanted = [chance.randrange(len(logs)) for _ in range(POINT_READS)]
    places = [(at, chance.randrange(len(parts[at].values))) for at in wanted]
    started = time.perf_counter()
    found = [logs[at][offset] for at, offset in places]
    point_seconds = time.perf_counter() - started
    wrong = sum(
        record.value != parts[at].values[offset] or record.offset != offset
        for record, (at, offset) in zip(found, places, strict=True)
    )
    days = []
    for name, midnight, next_midnight, expected in DAYS:
        since, until = timestamp_of(midnight.encode()), timestamp_of(next_midnight.encode())
        days.append((name, sum(count_between(log, since, until) for log in logs), expected))
    worst = max((departure_delay(value), value) for log in logs for value in values_of(log))
    return ReadBack(
        scan_seconds=scan_seconds,
        scanned_records=scanned,
        point_reads=len(found),
        point_seconds=point_seconds,
        wrong=wrong,
        days=days,
        worst=(worst[0], worst[1].decode()),
    )


def values_of(log: Log) -> list[bytes]:
    """Read the values of a log; the demo appends no nulls."""
    return [value for batch in log.read_batches(0) for value in batch.values if value is not None]


def count_between(log: Log, since: int, until: int) -> int:
    """Count the records of a time range, with one look-up in the time index and then a scan."""
    start, end = log.offset_for_timestamp(since), log.offset_for_timestamp(until)
    if start is None:
        return 0
    count = 0
    for batch in log.read_batches(start, end_offset=end):
        times = batch.timestamps
        count += int(np.count_nonzero((times >= since) & (times < until)))
    return count


def kill_second_load(log_dirs: Sequence[str], parts: Sequence[Flights]) -> Killed:
    """Load the flights again in a child process, and SIGKILL the child somewhere in the middle."""
    counts = [len(flights.values) for flights in parts]
    kill_at = round(sum(counts) * random.uniform(0.4, 0.6))
    ends = list(counts)
    started = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-m", "logstore.cli.demo.second_load", *log_dirs],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # only this process gets Ctrl-C, and then ends the child
    )
    assert child.stdout is not None
    # A small pipe keeps the child from printing many lines that this process has not read.
    fcntl.fcntl(child.stdout.fileno(), fcntl.F_SETPIPE_SZ, 4096)
    first_ack: float | None = None
    is_killed = False
    try:
        # Even after the kill, the loop reads the lines that the child wrote before the kill.
        for line in child.stdout:
            if not line.endswith("\n"):
                break
            first_ack = first_ack or time.perf_counter()
            partition, end = map(int, line.split())
            ends[partition] = end
            if not is_killed and sum(ends) - sum(counts) >= kill_at:
                child.send_signal(signal.SIGKILL)
                is_killed = True
    finally:
        child.kill()
        exit_code = child.wait()
    return Killed(
        acknowledged_ends=ends,
        acknowledged=sum(ends) - sum(counts),
        seconds=time.perf_counter() - (first_ack or started),
        exit_code=exit_code,
    )


def recover_and_check(
    log_dirs: Sequence[str], parts: Sequence[Flights], killed: Killed
) -> Recovered:
    """Open the store that the child left, and compare every record with its flight."""
    started = time.perf_counter()
    with LogStore.open(list(log_dirs)) as store:
        seconds = time.perf_counter() - started
        logs = [store.log(TOPIC, partition) for partition in range(len(parts))]
        started = time.perf_counter()
        checked = [
            check_log(log, flights, end)
            for log, flights, end in zip(logs, parts, killed.acknowledged_ends, strict=True)
        ]
        check_seconds = time.perf_counter() - started
        problems = len(store.verify().problems)
        dirs = [
            (
                path,
                ", ".join(AIRPORTS[log.partition] for log in logs if log.log_dir == path),
                sum(log.size_bytes for log in logs if log.log_dir == path),
            )
            for path in log_dirs
        ]
        report = str(store.recovery_report)
    return Recovered(seconds, report, checked, check_seconds, problems, dirs)
