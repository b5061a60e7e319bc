"""Streams: every record once, in batches of the wanted size, across restarts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from logstore import LogStore
from logstore.spark.read.offsets import short_id, to_document
from support.spark_data import rows_of

Start = Callable[..., Any]
NAMES = ("topic", "partition", "offset", "value")


@pytest.fixture
def start(spark: Any, root: Path, tmp_path: Path) -> Start:
    """Give a function that starts a stream from the store into a parquet sink."""

    def start(*, available_now: bool = False, **options: Any) -> Any:
        reader = spark.readStream.format("logstore").options(
            logDirs=f"{root / 'a'},{root / 'b'}",
            **{"subscribePattern": ".*", "startingOffsets": "earliest"} | options,
        )
        writer = (
            reader.load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    return start


def sunk(spark: Any, tmp_path: Path) -> Counter[tuple[Any, ...]]:
    """Read what the sink has committed, and nothing else that lies there."""
    frame = spark.read.parquet(str(tmp_path / "out")).select(*NAMES)
    return Counter(tuple(row) for row in frame.collect())


def stored(store: LogStore) -> Counter[tuple[Any, ...]]:
    """Read what the store has."""
    return Counter(
        (row["topic"], row["partition"], row["offset"], row["value"]) for row in rows_of(store)
    )


def test_available_now_reads_all_in_limited_batches_and_goes_on_from_there(
    spark: Any, start: Start, root: Path, tmp_path: Path
) -> None:
    """The sink has each record once, no batch is over the limit, a restart adds what is new."""
    total = pq.read_metadata(root / "records.parquet").num_rows
    query = start(available_now=True, maxOffsetsPerTrigger=total // 3 + 1)
    query.awaitTermination()
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    assert sum(sizes) == total and len([size for size in sizes if size]) == 3
    assert max(sizes) <= total // 3 + 1
    with LogStore.open([root / "a", root / "b"], admin_socket=False) as store:
        assert sunk(spark, tmp_path) == stored(store)
        store["orders", 2].extend([b"new"] * 10)
        store.create("added", 0).extend([b"a partition of later"] * 5)
        start(available_now=True).awaitTermination()
        assert sunk(spark, tmp_path) == stored(store)
        ends = {key: store[key].log_end_offset for key in store}
        ids = {key: short_id(store[key].topic_id) for key in store}
    newest = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda p: int(p.name))
    assert json.loads(newest.read_text().splitlines()[-1]) == to_document(ends, ids)


def test_a_stream_follows_appends_rolls_and_new_partitions(
    spark: Any, start: Start, root: Path, tmp_path: Path
) -> None:
    """What the owner appends while the stream runs is in the sink, each record once."""
    with LogStore.open([root / "a", root / "b"], admin_socket=False) as store:
        query = start()
        try:
            for step in range(3):
                for key in list(store):
                    store[key].extend([b"step %d" % step] * 300)
                store.create("later", step).append(b"first")
                query.processAllAvailable()
            assert sunk(spark, tmp_path) == stored(store)
        finally:
            query.stop()


def test_a_stream_begins_at_the_end_unless_told(
    spark: Any, root: Path, start: Start, tmp_path: Path
) -> None:
    """Like Kafka's: what was there before is not read."""
    with LogStore.open([root / "a", root / "b"], admin_socket=False) as store:
        query = start(startingOffsets="latest", subscribePattern="orders")
        try:
            query.processAllAvailable()
            store["orders", 1].extend([b"one", b"two"])
            query.processAllAvailable()
        finally:
            query.stop()
        assert sorted(row[3] for row in sunk(spark, tmp_path)) == [b"one", b"two"]


def test_records_removed_under_a_stream_stop_it_unless_told(
    spark: Any, start: Start, root: Path, tmp_path: Path
) -> None:
    """Between two runs retention took what was not read yet."""
    start(available_now=True, subscribePattern="clicks").awaitTermination()
    with LogStore.open([root / "a", root / "b"], admin_socket=False) as store:
        log = store["clicks", 0]
        log.extend([b"lost"] * 10)
        log.delete_records_before(log.log_end_offset)
        log.extend([b"kept"] * 10)
    with pytest.raises(StreamingQueryException, match="failOnDataLoss=false"):
        start(available_now=True, subscribePattern="clicks").awaitTermination()
    start(available_now=True, subscribePattern="clicks", failOnDataLoss="false").awaitTermination()
    values = Counter(row[3] for row in sunk(spark, tmp_path))
    assert values[b"kept"] == 10 and values[b"lost"] == 0
