"""Fifty generated queries give the same rows as over parquet, whatever the owner does meanwhile."""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from logstore import LogStore, TopicPartition
from mover import MoveState, ReplicaMover
from support.spark_data import FIRST_TIME_MS, PARTITIONS, append, make_batch

Load = Callable[..., Any]

SEED = int(os.environ.get("LOGSTORE_SPARK_SEED", "20261122"))
QUERIES = 50
# So often are some of them planned together, and every log moved before they run.
GROUPS = 5
# Retention takes what is below these; queries beside it begin there.
KEPT_FROM = 190

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
AGGREGATES = (
    "count(*)", "count(key)", "count(value)", "min(offset)", "max(offset)", "sum(length(value))",
    "max(timestamp)", "count(distinct key)", "sum(crc32(value))", "max(hex(value))",
    "sum(size(headers))",
)  # fmt: skip
SHAPES = ("plain", "group", "whole", "window", "join", "set")


def predicate(random_: random.Random) -> str:
    """Draw a condition."""
    instant = f"timestamp_millis({FIRST_TIME_MS + random_.randint(0, 30_000)})"
    return random_.choice(
        (
            f"offset % {random_.randint(2, 9)} = 1",
            f"offset between {random_.randint(0, 200)} and {random_.randint(200, 500)}",
            f"partition in (0, {random_.randint(1, 2)})",
            "key is null",
            f"key = binary('key-{random_.randint(0, 9)}')",
            f"timestamp >= {instant}",
            f"timestamp < {instant}",
            f"length(value) > {random_.randint(0, 60)}",
            "value is null or timestampType = 1",
            f"topic = '{random_.choice(('orders', 'clicks', 'none'))}'",
            "headers[0].key = 'trace'",
            "true",
        )
    )


def query(random_: random.Random) -> str:
    """Draw a query over the view `{t}`; its rows are compared as a bag."""
    where = f"{predicate(random_)} and ({predicate(random_)} or {predicate(random_)})"
    shape = random_.choice(SHAPES)
    if shape == "plain":
        columns = random_.sample(COLUMNS, random_.randint(1, len(COLUMNS)))
        return f"select {', '.join(columns)} from {{t}} where {where}"
    aggregates = ", ".join(random_.sample(AGGREGATES, 3))
    if shape == "whole":
        return f"select {aggregates} from {{t}} where {where}"
    if shape == "group":
        by = random_.choice(("topic, partition", "key", "date_trunc('second', timestamp)"))
        return f"select {by}, {aggregates} from {{t}} where {where} group by {by}"
    if shape == "window":
        return (
            "select topic, partition, offset, row_number() over (partition by key order by topic, "
            f"partition, offset) from {{t}} where {where}"
        )
    if shape == "join":
        return (
            f"select a.offset, b.offset, b.value from {{t}} a join {{t}} b on a.offset = b.offset "
            f"and a.partition < b.partition where a.{predicate_of_number(random_)}"
        )
    return (
        f"select key, value from {{t}} where {predicate(random_)} "
        f"{random_.choice(('except', 'intersect', 'union all'))} "
        f"select key, value from {{t}} where {predicate(random_)}"
    )


def predicate_of_number(random_: random.Random) -> str:
    """Draw a condition that begins with a column."""
    return f"offset % {random_.randint(2, 9)} = {random_.randint(0, 1)}"


def bounds(random_: random.Random, ends: dict[tuple[str, int], int], first: int) -> dict[str, str]:
    """Draw the range of offsets of each partition, as options."""
    starting: dict[str, dict[str, int]] = {}
    ending: dict[str, dict[str, int]] = {}
    for (topic, partition), end in ends.items():
        low = random_.randint(first, end)
        starting.setdefault(topic, {})[str(partition)] = low
        ending.setdefault(topic, {})[str(partition)] = random_.randint(low, end)
    return {"startingOffsets": json.dumps(starting), "endingOffsets": json.dumps(ending)}


def range_filter(options: dict[str, str]) -> str:
    """Say the same range in SQL."""
    low, high = json.loads(options["startingOffsets"]), json.loads(options["endingOffsets"])
    return " or ".join(
        f"(topic = '{topic}' and partition = {partition} and offset >= {of_topic[partition]} "
        f"and offset < {high[topic][partition]})"
        for topic, of_topic in low.items()
        for partition in of_topic
    )


class Comparison:
    """Run one query over the store and over parquet."""

    def __init__(self, spark: Any, load: Load, root: Path) -> None:
        self.spark, self.load, self.root = spark, load, root
        self.parquet = spark.read.parquet(str(root / "records.parquet")).cache()
        self.ends = self._ends(pq.read_table(root / "records.parquet").to_pylist())

    @staticmethod
    def _ends(rows: list[dict[str, Any]]) -> dict[tuple[str, int], int]:
        ends = dict.fromkeys(PARTITIONS, 0)
        for row in rows:
            key = (row["topic"], row["partition"])
            ends[key] = max(ends[key], row["offset"] + 1)
        return ends

    def plan(self, random_: random.Random, first: int = 0) -> tuple[str, Any, Any]:
        """Draw a query and plan its read of the store; give both frames."""
        text, options = query(random_), bounds(random_, self.ends, first)
        logs = self.load(self.root, includeHeaders="true", **options)
        logs.createOrReplaceTempView("logs")
        self.parquet.where(range_filter(options)).createOrReplaceTempView("records")
        ours, theirs = (self.spark.sql(text.format(t=view)) for view in ("logs", "records"))
        ours._jdf.queryExecution().toRdd().getNumPartitions()
        return text, ours, theirs

    @staticmethod
    def compare(planned: tuple[str, Any, Any]) -> int:
        """Run both and compare the rows as bags; give how many there are."""
        text, ours, theirs = planned
        got = Counter(map(repr, ours.collect()))
        assert got == Counter(map(repr, theirs.collect())), text
        return got.total()

    def compare_all(self, planned: Iterable[tuple[str, Any, Any]]) -> int:
        """Compare two at a time: one query alone leaves the processors idle half of the time."""
        with ThreadPoolExecutor(2) as pool:
            return sum(pool.map(self.compare, planned))


def test_fifty_queries_give_the_rows_of_parquet(spark: Any, load: Load, example: Path) -> None:
    """The same rows for each of fifty generated queries over a store that stands still."""
    random_, comparison = random.Random(SEED), Comparison(spark, load, example)
    assert comparison.compare_all(comparison.plan(random_) for _ in range(QUERIES)) > 1000


class Moving:
    """Append to every log and move one to the other log dir, in a thread, again and again."""

    def __init__(self, store: LogStore, mover: ReplicaMover) -> None:
        self._store, self._mover = store, mover
        self._rows = random.Random(SEED + 2)
        self._changed = threading.Condition()
        self._is_stopped = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self.moves = 0

    def _run(self) -> None:
        try:
            while not self._is_stopped:
                self._step(TopicPartition(*PARTITIONS[self.moves % len(PARTITIONS)]))
                with self._changed:
                    self.moves += 1
                    self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - it is raised in the test
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _step(self, moved: TopicPartition) -> None:
        (target,) = set(self._store.log_dirs) - {self._store[moved].log_dir}
        move = self._mover.move(*moved, target)
        for key in PARTITIONS:
            append(self._store[key], make_batch(self._rows, FIRST_TIME_MS))
        assert move.wait() is MoveState.DONE, move.error

    def wait_for_all(self) -> None:
        """Wait until every log was moved once more."""
        with self._changed:
            wanted = self.moves + len(PARTITIONS)
            self._changed.wait_for(lambda: self.moves >= wanted or self._error is not None)

    def __enter__(self) -> Moving:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped = True
        self._thread.join()
        if self._error is not None:
            raise self._error


def test_queries_beside_an_owner_give_the_rows_of_parquet(
    spark: Any, load: Load, root: Path
) -> None:
    """Appends, rolls, retention and moves, before and while a query runs, change no row of it."""
    random_, comparison, seen = random.Random(SEED + 1), Comparison(spark, load, root), 0
    with (
        LogStore.open([root / "a", root / "b"], admin_socket=False) as store,
        ReplicaMover(store) as mover,
    ):
        ends = {key: store[key].log_end_offset for key in PARTITIONS}
        with Moving(store, mover) as moving:
            for number in range(GROUPS):
                planned = [comparison.plan(random_, KEPT_FROM) for _ in range(QUERIES // GROUPS)]
                if number == GROUPS // 2:
                    for key in PARTITIONS:
                        store[key].delete_records_before(KEPT_FROM)
                moving.wait_for_all()
                seen += comparison.compare_all(planned)
        for key in PARTITIONS:
            bases = [int(path.stem) for path in Path(store[key].directory).glob("*.log")]
            assert store[key].log_start_offset == KEPT_FROM > min(bases) > 0
            assert max(bases) > ends[key]
        assert moving.moves >= GROUPS * len(PARTITIONS)
    assert seen > 100
