"""Read stores of mutated batches with Spark itself; `make spark-fuzz` takes 20,000 batches.

`tests/media/batch_fuzz.py` sends a million mutants through the part of the source that turns
batches into Arrow. Here the JVM, its Python workers and the planning take part. What an append
accepts, Spark reads as `read` does. What is on the disk and cannot be read raises an error with its
name and its file, `verify` of Spark finds it, and after `repair` Spark reads everything else.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import logstore.spark
from logstore import Log, LogConfig, LogStore, RecordExpansionError
from logstore.format import layouts
from logstore.format.batch_parts import BatchHeader
from media.batch_fuzz import (
    BOUND_BYTES,
    HELD_BYTES_MAX,
    SPAN_MAX,
    US_MAX,
    held_bytes,
    look_at,
)
from media.mutant_logs import REFUSALS, Rows, is_watched, moved, rows_of
from support.hanging import QUIET
from support.hostile import BOMBS, UNREADABLE, plant
from support.mutants import mutant, seeds

COUNT = int(os.environ.get("LOGSTORE_SPARK_MUTANTS", "300"))  # `make spark-fuzz`: 20,000
SEED = int(os.environ.get("LOGSTORE_SPARK_SEED", str(int(time.time()))))
ROUND = 2000  # mutants of one seed are in one store
READS = int(os.environ.get("LOGSTORE_SPARK_READS", "2"))  # of batches that cannot be read
PARTITIONS = 4  # of each topic
# More than 2 GiB, which is the bound of the views that Spark's processes open.
LARGE_BOMBS = ("2^32 - 1 cells", "10^8 cells", "record headers", "a payload of 4 GiB")
NAMED = re.compile(r"(CorruptRecordBatchError|RecordExpansionError|UnsupportedFormatError): (.*)")

Load = Callable[..., Any]


class Mutant(NamedTuple):
    """A batch, what the checks say of it, and its records."""

    kind: str
    data: bytes
    rows: Rows

    @property
    def header(self) -> BatchHeader:
        return layouts.read_header(self.data, 0)


class Planted(NamedTuple):
    """Offsets of a log that one batch on the disk has; without rows if it cannot be read."""

    offsets: range
    is_readable: bool
    rows: Rows


def is_bomb(data: bytes) -> bool:
    """Tell whether a batch is refused for what it expands to: Spark's bound is a larger one."""
    try:
        layouts.check_run(data, [(0, layouts.read_header(data, 0))], BOUND_BYTES)
    except RecordExpansionError:
        return True
    except REFUSALS:
        return False
    return False


def is_far(rows: Rows) -> bool:
    """Tell whether Spark has no timestamp for a record: its microseconds need more than 64 bits."""
    return any(not -US_MAX < row[1] < US_MAX for row in rows)


def make_mutants(seed: int, count: int) -> tuple[list[Mutant], Counter[str]]:
    """Mutate; leave out what no log dir can have, or what would take too long."""
    rng, batches = random.Random(seed), seeds()
    kept, kinds = [], Counter[str]()
    for _ in range(count):
        data = mutant(rng, batches)
        kind, rows = look_at(data, rng)
        kinds[kind] += 1
        if kind == "damaged" or held_bytes(rows) > HELD_BYTES_MAX or not layouts.has_header(data):
            continue
        header = layouts.read_header(data, 0)
        if header.last_offset - header.base_offset <= SPAN_MAX and not is_bomb(data):
            kept.append(Mutant(kind, data, rows))
    return kept, kinds


# --- what Spark reads -----------------------------------------------------------------------------


def read(load: Load, root: Path, topic: str, **options: str) -> dict[int, Rows]:
    """Give the rows of each partition, in the form of records."""
    names = options.get("columns", "partition,offset,timestamp,key,value,headers")
    options = {"assign": json.dumps({topic: list(range(PARTITIONS))}), **options}
    frame = load(root, **{**options, "columns": names, "includeHeaders": "true"})
    table: pa.Table = frame.toArrow()
    table.validate(full=True)
    cells = {name: table.column(name) for name in table.schema.names}
    if "timestamp" in cells:
        cells["timestamp"] = cells["timestamp"].cast(pa.timestamp("us")).cast(pa.int64())
    found: dict[int, Rows] = {}
    for row in pa.table(cells).to_pylist():
        headers = tuple((pair["key"], pair["value"]) for pair in row["headers"] or ())
        ms, rest = divmod(row.get("timestamp", 0), 1000)
        assert rest == 0
        found.setdefault(row["partition"], []).append(
            (row["offset"], ms, row["key"], row["value"], headers)
        )
    return {partition: sorted(rows, key=lambda row: row[0]) for partition, rows in found.items()}


def read_range(load: Load, root: Path, topic: str, partition: int, offsets: range) -> Rows:
    """Read some offsets of one partition."""
    options = {
        "assign": json.dumps({topic: [partition]}),
        "startingOffsets": json.dumps({topic: {str(partition): offsets.start}}),
        "endingOffsets": json.dumps({topic: {str(partition): offsets.stop}}),
    }
    return read(load, root, topic, **options).get(partition, [])


def problems(spark: Any, root: Path) -> Counter[tuple[str, int, int]]:
    """Have Spark verify the store; give the place of each problem."""
    rows = logstore.spark.verify(spark, [root / "a", root / "b"]).collect()
    assert all(row.reason and row.position is not None for row in rows), rows
    return Counter((row.topic, row.partition, row.offset) for row in rows)


def check_unreadable(load: Load, root: Path, log: Log, offsets: range) -> str:
    """Read a batch that cannot be read; give the name of the error."""
    with pytest.raises(PySparkException) as caught:
        read_range(load, root, log.topic, log.partition, offsets)
    found = NAMED.search(str(caught.value))
    assert found is not None, caught.value
    assert str(log.directory) in found[2], found[0]
    return found[1]


# --- stores ---------------------------------------------------------------------------------------


def dirs_of(root: Path) -> list[Path]:
    """Name the log dirs that `load` reads."""
    return [root / "a", root / "b"]


def open_store(root: Path) -> LogStore:
    """Own a store whose bound is that of the fuzzer."""
    config = QUIET.replace(record_expansion_bytes_max=BOUND_BYTES)
    return LogStore.open(dirs_of(root), config=config, admin_socket=False)


def shares(mutants: list[Mutant]) -> list[list[Mutant]]:
    """Deal mutants out to partitions."""
    return [mutants[number::PARTITIONS] for number in range(PARTITIONS)]


def append_accepted(
    store: LogStore, topic: str, mutants: list[Mutant], config: LogConfig
) -> dict[int, Rows]:
    """Append what the checks accept; give what `read` gives of each partition."""
    expected = {}
    for partition, share in enumerate(shares(mutants)):
        log = store.create(topic, partition, config=config)
        if share:
            log.append_encoded(b"".join(each.data for each in share))
        expected[partition] = moved([each[1:] for each in share])
        offset, found = log.log_start_offset, []
        while offset < log.log_end_offset and (records := log.read(offset)):
            found += rows_of(records)
            offset = records[-1].offset + 1
        assert found == expected[partition]
    return {partition: rows for partition, rows in expected.items() if rows}


def plant_all(store: LogStore, topic: str, mutants: list[Mutant]) -> dict[int, list[Planted]]:
    """Put batches on the disks unseen."""
    placed: dict[int, list[Planted]] = {}
    for partition, share in enumerate(shares(mutants)):
        log = store.create(topic, partition, config=LogConfig(segment_bytes=16 << 10))
        entries, end = [], 0
        for each in share:
            header = each.header
            start, end = end, end + header.last_offset - header.base_offset + 1
            is_readable = not each.kind.startswith("unreadable")
            rows = moved_to(each, start) if is_readable else []
            entries.append(Planted(range(start, end), is_readable, rows))
        if share:
            assert plant(log, b"".join(each.data for each in share)) == range(end)
        placed[partition] = entries
    return placed


def moved_to(each: Mutant, start: int) -> Rows:
    """Give the rows of a batch that begins at `start`."""
    return [(row[0] - each.header.base_offset + start, *row[1:]) for row in each.rows]


def good_runs(entries: list[Planted]) -> list[list[Planted]]:
    """Group neighbours that can all be read."""
    runs: list[list[Planted]] = [[]]
    for each in entries:
        if each.is_readable:
            runs[-1].append(each)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


# --- tests ----------------------------------------------------------------------------------------


def check_round(
    spark: Any, load: Load, root: Path, mutants: list[Mutant], rng: random.Random
) -> Counter[str]:
    """Put mutants of one seed through a store and Spark."""
    seen = Counter[str]()
    # A batch of a producer is taken only in its turn: `batch_fuzz` sees to these.
    taken = [each for each in mutants if each.kind == "accepted"]
    accepted = [each for each in taken if not is_watched(each.data)]
    near = [each for each in accepted if not is_far(each.rows)]
    far = [each for each in accepted if is_far(each.rows)]
    planted = [each for each in mutants if not is_far(each.rows)]
    segment_bytes = rng.choice((16 << 10, 1 << 20, 1 << 30))
    config = LogConfig(segment_bytes=segment_bytes, message_timestamp_after_max_ms=None)
    with open_store(root) as store:
        expected = append_accepted(store, "near", near, config)
        assert read(load, root, "near", minPartitions=str(rng.choice((1, 8)))) == expected
        expected = append_accepted(store, "far", far, config)
        timeless = {
            partition: [(row[0], 0, *row[2:]) for row in rows]
            for partition, rows in expected.items()
        }
        assert read(load, root, "far", columns="partition,offset,key,value,headers") == timeless
        seen["accepted"] = len(accepted)

        placed = plant_all(store, "planted", planted)
        logs = {partition: store["planted", partition] for partition in placed}
        assert problems(spark, root) == Counter(
            ("planted", partition, problem.offset)
            for partition, log in logs.items()
            for problem in log.verify()
        )
        every = [(p, each) for p, entries in placed.items() for each in entries]
        bad = [(p, each) for p, each in every if not each.is_readable]
        seen["planted"], seen["unreadable"] = len(planted), len(bad)
        for partition, each in rng.sample(bad, min(READS, len(bad))):
            if not is_control_at(planted, partition, each, placed):
                name = check_unreadable(load, root, logs[partition], each.offsets)
                seen[f"raised {name}"] += 1
        runs = [(p, run) for p, entries in placed.items() for run in good_runs(entries)]
        for partition, run in rng.sample(runs, min(READS, len(runs))):
            offsets = range(run[0].offsets.start, run[-1].offsets.stop)
            rows = [row for each in run for row in each.rows]
            assert read_range(load, root, "planted", partition, offsets) == rows
        for log in logs.values():
            log.repair()
        assert problems(spark, root) == Counter()
        left = {p: [row for each in entries for row in each.rows] for p, entries in placed.items()}
        assert read(load, root, "planted") == {p: rows for p, rows in left.items() if rows}
    return seen


def is_control_at(
    planted: list[Mutant], partition: int, each: Planted, placed: dict[int, list[Planted]]
) -> bool:
    """Tell whether an unreadable batch is one that ends a transaction: readers are not given it."""
    return shares(planted)[partition][placed[partition].index(each)].kind != "unreadable"


@pytest.mark.timeout(7200)
def test_spark_reads_mutated_batches_as_read_does_or_names_the_damage(
    spark: Any, load: Load, tmp_path: Path
) -> None:
    """Of both layouts; checksums hold after the mutation."""
    kinds, seen, began = Counter[str](), Counter[str](), time.monotonic()
    for number, start in enumerate(range(0, COUNT, ROUND)):
        seed = SEED + number
        print(f"seed {seed}", flush=True)
        mutants, more = make_mutants(seed, min(ROUND, COUNT - start))
        kinds += more
        seen += check_round(spark, load, tmp_path / str(seed), mutants, random.Random(seed))
    seconds = time.monotonic() - began
    print(f"{kinds.total()} batches in {seconds:.0f} s: {dict(kinds)}; in Spark: {dict(seen)}")
    assert seen["accepted"] and seen["unreadable"]


def test_spark_names_each_hostile_batch(spark: Any, load: Load, tmp_path: Path) -> None:
    """One that cannot be read, or that would need more memory than the bound allows."""
    batches = list(UNREADABLE.values()) + [BOMBS[name] for name in LARGE_BOMBS]
    names = [*UNREADABLE, *LARGE_BOMBS]
    with open_store(tmp_path) as store:
        log = store.create("hostile", 0, config=LogConfig(segment_bytes=16 << 10))
        offsets = {}
        for name, make in zip(names, batches, strict=True):
            offsets[name] = plant(log, make())
        log.append(b"good")
        found = problems(spark, tmp_path)
        assert found == Counter(("hostile", 0, each.start) for each in offsets.values())
        for name in ("starts that wrap", "Kafka: gzip cut short"):
            assert check_unreadable(load, tmp_path, log, offsets[name]) == "CorruptRecordBatchError"
        bomb = offsets["10^8 cells"]
        assert check_unreadable(load, tmp_path, log, bomb) == "RecordExpansionError"
        last = range(log.log_end_offset - 1, log.log_end_offset)
        assert [row[3] for row in read_range(load, tmp_path, "hostile", 0, last)] == [b"good"]
