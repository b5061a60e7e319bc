"""Measure how fast Spark reads a store, against a plain data source, and the delay of a stream.

    python -m benchmarks.bench_spark [--records N] [--rounds N] [--master local[2]] [--dir PATH]

Every side counts the same 2 million records of 100 bytes, once to warm up and then in turns. A
ratio is the ratio of two medians. The data is in the page cache. The figures of every side include
the costs of the JVM, of the sockets to the JVM, and of the Python workers.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import logstore.spark
from benchmarks.report import machine
from logstore import LogStore

PARTITIONS, FILES = 4, 8
RECORD_BYTES, BATCH_RECORDS = 100, 1000
TIME_MS = 1_760_000_000_000
SAME_COLUMNS = "partition,offset,timestamp,value"

# Each row: the question, the numerator, the denominator, the kind of goal, and the goal.
GOALS = (
    ("the same four columns, against the plain source", "logstore", "plain", "most", 1.15),
    ("against a source that yields tuples", "tuples", "logstore", "least", 2.5),
    ("offset and timestamp alone, against all columns", "all columns", "two columns", "least", 1.5),
)
LATENCY_SECONDS_MAX = 0.5


def write_both(root: Path, records: int) -> None:
    """Write the same records into a store and into files of plain rows."""
    from benchmarks.spark_peer import write_rows

    random = np.random.default_rng(1)
    each = records // FILES
    (root / "rows").mkdir()
    with LogStore.open(root / "store", admin_socket=False) as store:
        logs = [store.create("t", partition) for partition in range(PARTITIONS)]
        for number in range(FILES):
            partition = number % PARTITIONS
            values = random.integers(97, 122, (each, RECORD_BYTES), dtype=np.uint8)
            log = logs[partition]
            write_rows(root / "rows" / f"{partition}-{number}", log.log_end_offset, values, TIME_MS)
            cells = values.tobytes()
            for start in range(0, each, BATCH_RECORDS):
                stop = min(start + BATCH_RECORDS, each)
                batch = [
                    cells[at : at + RECORD_BYTES]
                    for at in range(start * RECORD_BYTES, stop * RECORD_BYTES, RECORD_BYTES)
                ]
                log.extend(batch, timestamps=[TIME_MS] * len(batch))


def sides(spark: Any, root: Path) -> dict[str, Callable[[], int]]:
    """Return each side of the comparison as a function that counts the records."""

    def count(**options: str) -> int:
        reader = spark.read.format("logstore").option("logDirs", str(root / "store"))
        frame = reader.option("subscribe", "t").options(**options).load()
        return int(frame.count())

    def plain(mode: str) -> int:
        reader = spark.read.format("plain").option("mode", mode)
        return int(reader.load(str(root / "rows")).count())

    return {
        "plain": lambda: plain("arrow"),
        "logstore": lambda: count(columns=SAME_COLUMNS),
        "all columns": count,
        "two columns": lambda: count(columns="offset,timestamp"),
        "tuples": lambda: plain("tuples"),
    }


def measure(all_sides: dict[str, Callable[[], int]], records: int, rounds: int) -> dict[str, Any]:
    """Time all sides in turns; return the seconds of each side."""
    seconds: dict[str, list[float]] = {name: [] for name in all_sides}
    for number in range(rounds + 1):
        for name, run in all_sides.items():
            if name == "tuples" and number > max(rounds // 2, 1):
                continue
            began = time.perf_counter()
            found = run()
            took = time.perf_counter() - began
            assert found == records, (name, found)
            if number:
                seconds[name].append(took)
    return seconds


def latencies(spark: Any, root: Path, appends: int) -> list[float]:
    """Append to a log that a stream follows; return the seconds until each append was seen."""
    seen: dict[int, float] = {}
    changed = threading.Condition()

    def see(frame: Any, _batch: int) -> None:
        ends = [row[0] for row in frame.groupBy().max("offset").collect() if row[0] is not None]
        with changed:
            for end in ends:
                seen[end] = time.perf_counter()
            changed.notify_all()

    found = []
    with LogStore.open(root / "followed", admin_socket=False) as store:
        log = store.create("t", 0)
        reader = spark.readStream.format("logstore").option("logDirs", str(root / "followed"))
        frame = reader.options(
            subscribe="t", columns="offset,value", startingOffsets="earliest"
        ).load()
        query = frame.writeStream.foreachBatch(see).start()
        try:
            for number in range(appends + 3):
                offset = log.extend([bytes(RECORD_BYTES)] * 1000)[-1]
                began = time.perf_counter()
                with changed:
                    is_seen = changed.wait_for(functools.partial(seen.__contains__, offset), 60)
                assert is_seen, "an append was not seen"
                if number >= 3:
                    found.append(seen[offset] - began)
        finally:
            query.stop()
    return found


def report(
    seconds: dict[str, list[float]], delays: list[float], records: int, where: str
) -> list[dict[str, Any]]:
    """Print the table; return the rows with their goals."""
    print(f"\n{records:,} records of {RECORD_BYTES} bytes, {where}\n")
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    for name, median in medians.items():
        low, high = min(seconds[name]), max(seconds[name])
        rate = records / median / 1e6
        print(f"  {name:12} {median:6.2f} s ({low:.2f} to {high:.2f}), {rate:.2f} M records/s")
    rows: list[dict[str, Any]] = []
    for question, upper, lower, kind, goal in GOALS:
        ratio = medians[upper] / medians[lower]
        is_met = ratio <= goal if kind == "most" else ratio >= goal
        rows.append(
            {"question": question, "ratio": ratio, "goal": f"at {kind} {goal}", "met": is_met}
        )
    median = statistics.median(delays)
    rows.append(
        {
            "question": "append to visible in a stream, median seconds",
            "ratio": median,
            "goal": f"at most {LATENCY_SECONDS_MAX}",
            "met": median <= LATENCY_SECONDS_MAX,
        }
    )
    print()
    for row in rows:
        mark = "met" if row["met"] else "MISSED"
        print(f"  {row['question']}: {row['ratio']:.2f} ({row['goal']}: {mark})")
    print(f"  slowest of {len(delays)} appends: {max(delays):.2f} s")
    return rows


def main() -> int:
    """Run the comparison; return exit code 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--dir", default=None)
    parser.add_argument("--json", default=None, help="where to write the figures")
    arguments = parser.parse_args()
    records = arguments.records // FILES * FILES
    with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="logstore-bench-") as directory:
        root, where = Path(directory), machine(directory)
        write_both(root, records)
        spark = logstore.spark.session(arguments.master)
        from benchmarks.spark_peer import PlainSource

        logstore.spark.register(spark)
        spark.dataSource.register(PlainSource)
        seconds = measure(sides(spark, root), records, arguments.rounds)
        delays = latencies(spark, root, 20)
        spark.stop()
    rows = report(seconds, delays, records, where)
    if arguments.json:
        document = {"machine": where, "seconds": seconds, "delays": delays, "goals": rows}
        Path(arguments.json).write_text(json.dumps(document, indent=1, default=str))
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
