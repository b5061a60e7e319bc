"""Compare with Apache Kafka 4.1 on this machine: moves, throttles, appends, recovery.

Run as `python -m benchmarks.kafka [--scale small|full] [--bench-dir DIR] [--only WORD]`. The engine
and Kafka take turns. Both move the same number of bytes between the same two file systems (see
`benchmarks/disks.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from types import FrameType
from typing import NamedTuple

from benchmarks import children
from benchmarks.disks import Disks, two_images
from benchmarks.engine import Engine
from benchmarks.kafka import java
from benchmarks.kafka.broker import TOPIC, Broker
from benchmarks.moving import appending, bytes_in, fill, move, quantile, wait_purged
from benchmarks.peers import segment_files
from benchmarks.report import REPOSITORY, Row, at_least, machine, table
from benchmarks.workload import BATCH_RECORDS, RECORD_BYTES, equal_values
from logstore import LogConfig, LogStore
from mover import ReplicaMover

MB = 1_000_000
RECORD_BYTES_MOVED = 1000


class Batches(NamedTuple):
    """Define the batches of a moved log: the bytes of Kafka's batches, the records of ours."""

    words: str
    kafka_bytes: int
    records: int


LARGE = Batches("batches of 1 MiB, ours of 100 kB", 1 << 20, BATCH_RECORDS)
DEFAULT = Batches("batches of 16 KiB, a producer's default", 16 << 10, (16 << 10) // RECORD_BYTES)


@dataclass(frozen=True)
class Scale:
    """Define how much work each part does, and for how many rounds or seconds."""

    move_bytes: int
    rounds: int
    throttle_seconds: float
    append_records: int
    recover_bytes: int
    foreground_seconds: float


SCALES = {
    "tiny": Scale(20 * MB, 1, 0.5, 100_000, 20 * MB, 1),
    "short": Scale(1000 * MB, 4, 1, 2_000_000, 200 * MB, 2),  # parts without a broker: 2 minutes
    "small": Scale(1000 * MB, 3, 4, 2_000_000, 500 * MB, 6),
    "full": Scale(4300 * MB, 5, 10, 5_000_000, 1200 * MB, 15),
}
RATES = (50 * MB, 200 * MB)
APPENDS_PER_SECOND = 2000
Part = Callable[[Broker, LogStore, list[str]], None]
PARTS = ("moves", "appends", "layout", "recovery")


class Comparison:
    """Compare both systems on the same two file systems, and hold the measured rows."""

    def __init__(self, home: Path, disks: Disks, scale: Scale) -> None:
        self.home, self.disks, self.scale = home, disks, scale
        self.rows: list[Row] = []
        self._fresh = 0

    def new_dir(self, disk: str | None = None) -> str:
        """Create an empty directory."""
        return tempfile.mkdtemp(prefix="run-", dir=disk or self.disks.source)

    def compare(
        self,
        question: str,
        unit: str,
        ours: list[float],
        theirs: list[float],
        least: float | None = None,
    ) -> None:
        """Add a row; its ratio is the median of the rounds' ratios, because both took turns."""
        ratio = median(one / other for one, other in zip(ours, theirs, strict=True))
        goal = None if least is None else at_least(least)
        self.rows.append(
            Row(question, unit, median(ours), "Kafka 4.1", median(theirs), ratio, goal)
        )

    # --- with a broker --------------------------------------------------------------------------

    def moves(self) -> None:
        """Move the same bytes, unthrottled and throttled; append during a move."""
        self._with_broker(
            LARGE, partial(self._unthrottled, LARGE.words), self._throttled, self._foreground
        )
        self._with_broker(DEFAULT, partial(self._unthrottled, DEFAULT.words))

    def unthrottled(self) -> None:
        """Move the same bytes, unthrottled."""
        self._with_broker(LARGE, partial(self._unthrottled, LARGE.words))
        self._with_broker(DEFAULT, partial(self._unthrottled, DEFAULT.words))

    def _with_broker(self, batches: Batches, *parts: Part) -> None:
        kafka_dirs = [self.new_dir(), self.new_dir(self.disks.target)]
        log_dirs = [self.new_dir(), self.new_dir(self.disks.target)]
        broker = Broker(self.home, kafka_dirs)
        try:
            broker.create(TOPIC)
            records = self.scale.move_bytes // RECORD_BYTES_MOVED
            broker.produce(TOPIC, records, RECORD_BYTES_MOVED, -1, batches.kafka_bytes)
            with LogStore.open(log_dirs) as store:
                log = fill(store, log_dirs[0], 0, self.scale.move_bytes, batches.records)
                for part in parts:
                    part(broker, store, log_dirs)
                assert log.log_end_offset
        finally:
            broker.stop()
            for path in (*kafka_dirs, *log_dirs, str(broker.work)):
                shutil.rmtree(path, ignore_errors=True)

    def _unthrottled(
        self, batches: str, broker: Broker, store: LogStore, log_dirs: list[str]
    ) -> None:
        """Time moves in turn; time Kafka's moves until the copy is live, and until it is synced."""
        log, ours, theirs, synced = store.log("moved", 0), [], [], []
        with ReplicaMover(store, 1) as mover:
            for number in range(self.scale.rounds + 1):  # the first round is not counted
                size = sum(
                    map(os.path.getsize, segment_files(broker.log_dirs[broker.home_of(TOPIC)]))
                )
                live_seconds = broker.move(TOPIC)
                durable_seconds = live_seconds + broker.sync(TOPIC)
                theirs.append(size / live_seconds / MB)
                synced.append(size / durable_seconds / MB)
                broker.wait_purged()
                os.sync()
                started = time.perf_counter()
                move(mover, log, log_dirs[1 - number % 2])
                ours.append(log.size_bytes / (time.perf_counter() - started) / MB)
                wait_purged(log_dirs)
                os.sync()
        what = f"move {self.scale.move_bytes / 1e9:.1f} GB, {batches}, durable"
        self.compare(f"{what}; Kafka: not durable", "MB/s", ours[1:], theirs[1:], 3)
        self.compare(f"{what}; Kafka: synced after it", "MB/s", ours[1:], synced[1:])

    def _throttled(self, broker: Broker, store: LogStore, log_dirs: list[str]) -> None:
        log, seconds = store.log("moved", 0), self.scale.throttle_seconds
        for rate in RATES:
            os.sync()  # so that no side is slowed by writes that the other side left
            theirs = broker.throttled_rate(TOPIC, rate, seconds) / rate - 1
            broker.wait_purged()
            os.sync()
            with ReplicaMover(store, 1, rate) as mover:
                target = log_dirs[1] if log.log_dir == log_dirs[0] else log_dirs[0]
                ours = bytes_in(mover, [log], target, seconds) / seconds / rate - 1
            note = f"{ours:+.1%}, Kafka {theirs:+.1%}"
            self.rows.append(
                Row(
                    f"throttle {rate // MB} MB/s over {seconds:g} s: off by", "%",
                    abs(ours) * 100, "Kafka 4.1", abs(theirs) * 100, note=note,
                )
            )  # fmt: skip

    def _foreground(self, broker: Broker, store: LogStore, log_dirs: list[str]) -> None:
        """Append to another partition 2,000 times per second, without and during a move."""
        seconds = self.scale.foreground_seconds
        count = int(APPENDS_PER_SECOND * seconds)
        broker.create("foreground")
        broker.produce("foreground", count, RECORD_BYTES, APPENDS_PER_SECOND, 16384)
        idle = broker.produce("foreground", count, RECORD_BYTES, APPENDS_PER_SECOND, 16384)
        mover_thread = Beside(lambda: broker.move(TOPIC))
        beside = broker.produce("foreground", count, RECORD_BYTES, APPENDS_PER_SECOND, 16384)
        mover_thread.wait()
        config = LogConfig(segment_bytes="1GiB")
        foreground_log = store.create("foreground", 0, log_dir=log_dirs[0], config=config)
        log = store.log("moved", 0)
        with (
            appending(foreground_log, APPENDS_PER_SECOND) as foreground,
            ReplicaMover(store, 1) as mover,
        ):
            foreground.for_seconds(seconds / 3)
            quiet = foreground.for_seconds(seconds)
            loud: list[float] = []
            for _ in range(2):
                foreground.take()
                move(mover, log, log_dirs[log.log_dir == log_dirs[0]])
                loud += foreground.take()
                wait_purged(log_dirs)
        for words, ours, theirs in (("idle", quiet, idle), ("beside a move", loud, beside)):
            self.rows.append(
                Row(
                    f"append p99, 2,000/s, {words} (Kafka: with its client)", "ms",
                    quantile(ours, 0.99) * 1e3, "Kafka 4.1", theirs["99"],
                )
            )  # fmt: skip

    # --- the engines alone ----------------------------------------------------------------------

    def appends(self) -> None:
        """Append 1,000 records of 100 bytes at a time, from lists of bytes and from Arrow."""
        import pyarrow

        lists, arrow, theirs, records = [], [], [], self.scale.append_records
        pool = equal_values()
        batches = [pyarrow.record_batch({"value": pyarrow.array(each)}) for each in pool]
        for _ in range(self.scale.rounds + 1):
            path = self._topic_dir()
            (seconds,) = java.engine(self.home, "append", path, str(records), str(records // 2))
            theirs.append(records / seconds / 1e6)
            shutil.rmtree(os.path.dirname(path))
            lists.append(self._appended(lambda engine, count: engine.extend(pool, count)))
            arrow.append(self._appended(lambda engine, count: engine.extend_arrow(batches, count)))
        for words, ours in (("1,000", lists), ("1,000 from Arrow", arrow)):
            question = f"append {words} at a time, Kafka's engine in its own JVM"
            self.compare(question, "M records/s", ours[1:], theirs[1:], 3)

    def _appended(self, append: Callable[[Engine, int], None]) -> float:
        """Append as many records as Kafka does; return the rate in M records/s.

        Half as many records are appended before the measurement, to warm up.
        """
        records = self.scale.append_records
        engine = Engine(self.new_dir())
        append(engine, records // BATCH_RECORDS // 2)
        started = time.perf_counter()
        append(engine, records // BATCH_RECORDS)
        seconds = time.perf_counter() - started
        engine.drop()
        os.sync()
        return records / seconds / 1e6

    def layout(self) -> None:
        """Compare the work in Kafka's own layout; see `benchmarks/kafka/layout.py`."""
        from benchmarks.kafka.layout import compare_layout

        compare_layout(self)

    def recovery(self) -> None:
        """Open a log whose writer was killed; no record counts as flushed."""
        ours, theirs = [], []
        batch_bytes = 64 << 10
        for _ in range(self.scale.rounds):
            path = self._topic_dir()
            size = str(self.scale.recover_bytes)
            java.engine(self.home, "fill", path, size, str(batch_bytes // RECORD_BYTES))
            os.sync()
            seconds, found = java.engine(self.home, "recover", path)
            theirs.append(found / seconds / 1e9)
            shutil.rmtree(os.path.dirname(path))
            path = self.new_dir()
            children.run("fill_and_die", path, size, str(batch_bytes))
            os.sync()
            found = sum(map(os.path.getsize, segment_files(path)))
            started = time.perf_counter()
            store = LogStore.open(path)
            ours.append(found / (time.perf_counter() - started) / 1e9)
            store.close()
            shutil.rmtree(path)
        self.compare("recovery after SIGKILL", "GB/s", ours, theirs, 2)

    def _topic_dir(self) -> str:
        path = os.path.join(self.new_dir(), "engine-0")
        os.mkdir(path)
        return path


class Beside:
    """Run a function in a thread; `wait` raises the function's exception."""

    def __init__(self, work: Callable[[], object]) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._pool = ThreadPoolExecutor(1)
        self._done = self._pool.submit(work)

    def wait(self) -> None:
        """Wait for the end of the function."""
        self._done.result()
        self._pool.shutdown()


def stop(number: int, frame: FrameType | None) -> None:
    """End this process in order, so that the broker ends, too."""
    raise KeyboardInterrupt


def main() -> int:
    """Compare and print the table; return exit code 2 if the comparison cannot run here."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka", description=__doc__)
    parser.add_argument("--scale", choices=sorted(SCALES), default="full")
    parser.add_argument("--bench-dir", default=os.path.dirname(REPOSITORY))
    parser.add_argument("--only", choices=[*PARTS, "unthrottled"], action="append")
    parser.add_argument("--json", help="write the rows there")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    try:
        home = java.fetch_engine()
    except java.MissingError as error:
        print(f"cannot compare with Kafka: {error}", file=sys.stderr)
        return 2
    scale = SCALES[chosen.scale]
    base = tempfile.mkdtemp(prefix="logstore-kafka-", dir=chosen.bench_dir)
    try:
        with two_images(base, 3 * scale.move_bytes) as disks:
            comparison = Comparison(home, disks, scale)
            for name in chosen.only or PARTS:
                getattr(comparison, name)()
            print(machine(base))
            print(f"{time.strftime('%Y-%m-%d')}, {disks.words}, load {os.getloadavg()[0]:.1f}\n")
            print("\n".join(table(comparison.rows)))
        if chosen.json:
            Path(chosen.json).write_text(json.dumps([row.to_dict() for row in comparison.rows]))
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
