"""Compare writes and reads of Kafka's own layout with Kafka's engine and with bare system calls."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

from benchmarks.kafka import java
from benchmarks.report import Row, at_least
from benchmarks.workload import BATCH_RECORDS, equal_values
from logstore import LogConfig, LogStore
from logstore.format.kafka import record_batch as kafka

if TYPE_CHECKING:
    from benchmarks.kafka.__main__ import Comparison

BATCH_BYTES = 1 << 20
TURNS, TURN_BATCHES = 16, 25
CONFIG = LogConfig(record_format="kafka", segment_bytes="1GiB")


def compare_layout(comparison: Comparison) -> None:
    """Measure extend, scan, verify and append_encoded, each in turn with its peer."""
    records = comparison.scale.append_records
    ours: dict[str, list[float]] = {"extend": [], "scan": [], "verify": []}
    theirs: dict[str, list[float]] = {"extend": [], "scan": []}
    encoded, bare = [], []
    for _ in range(comparison.scale.rounds + 1):
        path = comparison._topic_dir()
        words = (str(records), str(records // 2))
        (seconds,) = java.engine(comparison.home, "append", path, *words)
        theirs["extend"].append(records / seconds / 1e6)
        shutil.rmtree(os.path.dirname(path))
        path = comparison._topic_dir()
        (seconds,) = java.engine(comparison.home, "scan", path, str(records))
        theirs["scan"].append(records / seconds / 1e6)
        ours["verify"].append(run_verify(os.path.dirname(path)))
        shutil.rmtree(os.path.dirname(path))
        place = comparison.new_dir()
        with LogStore.open(place) as store:
            extend, scan = run_rows(store, records)
            ours["extend"].append(extend)
            ours["scan"].append(scan)
            one, other = run_encoded(store, place)
            encoded.append(one)
            bare.append(other)
        shutil.rmtree(place)
    for name, goal in (("extend", 1.2), ("scan", 0.25)):
        question = f"Kafka's layout: {name}, batches of 1,000"
        comparison.compare(question, "M records/s", ours[name][1:], theirs[name][1:], goal)
    verified = sorted(ours["verify"][1:])[len(ours["verify"][1:]) // 2]
    comparison.rows.append(
        Row("kafka verify of what its engine wrote", "GB/s", verified, "goal", 2.0)
    )
    ratio = sorted(a / b for a, b in zip(encoded[1:], bare[1:], strict=True))[len(bare[1:]) // 2]
    comparison.rows.append(
        Row(
            "Kafka's layout: append_encoded of 1 MiB", "GB/s", max(encoded), "bare write",
            max(bare), ratio, at_least(0.7),
        )
    )  # fmt: skip


def run_rows(store: LogStore, records: int) -> tuple[float, float]:
    """Extend a log, then scan it; return the rates of both in M records/s."""
    log, pool = store.create("rows", 0, config=CONFIG), equal_values()
    started = time.perf_counter()
    for number in range(records // BATCH_RECORDS):
        log.extend(pool[number % len(pool)])
    extend = records / (time.perf_counter() - started) / 1e6
    started = time.perf_counter()
    count = sum(batch.count for batch in log.read_batches())
    scan = count / (time.perf_counter() - started) / 1e6
    assert count == records
    return extend, scan


def run_verify(place: str) -> float:
    """Verify a Kafka log dir and its indexes in one thread, as `kafka verify` does; return GB/s."""
    with LogStore.open_kafka(place) as store:
        (log,) = [store[key] for key in store]
        started = time.perf_counter()
        problems = log.verify()
        seconds = time.perf_counter() - started
        assert not problems, problems
        return log.size_bytes / seconds / 1e9


def run_encoded(store: LogStore, place: str) -> tuple[float, float]:
    """Append a client's batches, and write the same bytes with bare calls; return both GB/s."""
    log = store.create("encoded", 0, config=CONFIG)
    values = [os.urandom(1000)] * (BATCH_BYTES // 1010)
    payload = kafka.build_payload(values, None, 5, None)
    raw = b"".join(kafka.frame(payload, 0, 0))
    fd = os.open(os.path.join(place, "bare"), os.O_CREAT | os.O_RDWR)
    seconds = [0.0, 0.0]
    os.sync()
    try:
        # The second side of a turn finds more dirty pages. So the sides swap places in each turn.
        for turn in range(TURNS):
            for is_bare in (turn % 2, 1 - turn % 2):
                started = time.perf_counter()
                for number in range(TURN_BATCHES):
                    if is_bare:
                        os.pwrite(fd, raw, (turn * TURN_BATCHES + number) * len(raw))
                    else:
                        log.append_encoded(raw)
                seconds[is_bare] += time.perf_counter() - started
    finally:
        os.close(fd)
    size_bytes = TURNS * TURN_BATCHES * len(raw)
    return size_bytes / seconds[0] / 1e9, size_bytes / seconds[1] / 1e9
