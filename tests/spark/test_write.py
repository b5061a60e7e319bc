"""Batches and streams written to a store by Spark."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from logstore import LogConfig, LogStore
from support.spark_data import rows_of

Load = Callable[..., Any]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Make an empty store with a topic of three partitions, the last one in Kafka's layout."""
    root = tmp_path / "target"
    root.mkdir()
    with LogStore.open([root / "a", root / "b"], admin_socket=False) as store:
        for partition in range(3):
            layout = "kafka" if partition == 2 else "columnar"
            store.create("copy", partition, config=LogConfig(record_format=layout))
    return root


def save(frame: Any, root: Path, **options: str) -> None:
    """Append a DataFrame to a store."""
    writer = frame.write.format("logstore").mode("append")
    writer.option("logDirs", f"{root / 'a'},{root / 'b'}").options(**options).save()


def test_a_topic_is_copied_whole(load: Load, example: Path, target: Path) -> None:
    """Keys, values, headers, times and chosen partitions arrive as they were read."""
    source = load(example, subscribe="orders", includeHeaders="true")
    columns = ("key", "value", "partition", "timestamp", "headers")
    save(source.select(*columns).orderBy("partition", "offset").coalesce(1), target, topic="copy")
    with LogStore.open([target / "a", target / "b"], read_only=True) as store:
        got = [{**row, "topic": "orders"} for row in rows_of(store)]
    with LogStore.open([example / "a", example / "b"], read_only=True) as store:
        assert got == [row for row in rows_of(store) if row["topic"] == "orders"]


def test_a_frame_that_was_read_is_written_as_it_is(load: Load, example: Path, target: Path) -> None:
    """Columns that the log gives are left out, options of Kafka's sink mean what they do there."""
    save(load(example, subscribe="orders"), target, topic=" copy ", includeHeaders="true")
    with (
        LogStore.open([target / "a", target / "b"], read_only=True) as copy,
        LogStore.open([example / "a", example / "b"], read_only=True) as store,
    ):
        for partition in range(3):
            found, wanted = copy["copy", partition], store["orders", partition]
            assert Counter(r.value for r in found) == Counter(r.value for r in wanted)


def test_topics_from_a_column_and_partitions_by_key(spark: Any, target: Path) -> None:
    """Equal keys stand in one partition; each row goes to its own topic."""
    with LogStore.open([target / "a", target / "b"], admin_socket=False) as store:
        store.create("other", 0)
    frame = spark.range(3000).selectExpr(
        "cast(id % 11 as string) key", "cast(id as string) value",
        "if(id % 3 = 0, 'other', 'copy') topic",
    )  # fmt: skip
    save(frame, target)
    with LogStore.open([target / "a", target / "b"], read_only=True) as store:
        rows = rows_of(store)
    assert Counter(row["topic"] for row in rows) == {"other": 1000, "copy": 2000}
    homes = {(row["key"], row["partition"]) for row in rows if row["topic"] == "copy"}
    assert len(homes) == 11 and len({partition for _, partition in homes}) > 1
    assert len({row["value"] for row in rows}) == 3000
    assert not list(target.rglob("*.batches"))


def test_a_new_topic_is_created_with_numPartitions(spark: Any, target: Path) -> None:
    """Records without a key take turns."""
    frame = spark.range(100).selectExpr("cast(cast(id as string) as binary) value")
    save(frame, target, topic="fresh", numPartitions="4")
    with LogStore.open([target / "a", target / "b"], read_only=True) as store:
        sizes = [len(store["fresh", partition]) for partition in range(4)]
    assert sum(sizes) == 100 and min(sizes) > 0


@pytest.mark.parametrize(
    ("expression", "options", "message"),
    [
        (["'x' value"], {}, "the topic is missing"),
        (["'x' value"], {"topic": "none"}, "there is no topic 'none'"),
        (["'x' value"], {"topic": "copy", "topics": "x"}, "did you mean 'topic'"),
        (["'x' value", "1 size"], {"topic": "copy"}, "column 'size' cannot be written"),
        (["'x' value", "'copy' topic"], {"numPartitions": "2"}, "needs the option topic"),
        (["1 value"], {"topic": "copy"}, "column value must be binary or string, not int"),
        (["'x' key"], {"topic": "copy"}, "the column value is missing"),
        (["'x' value", "9 partition"], {"topic": "copy"}, "no partition copy-9"),
    ],
)
def test_what_cannot_be_written_is_said(
    spark: Any, target: Path, expression: list[str], options: dict[str, str], message: str
) -> None:
    """Nothing of it is appended."""
    with pytest.raises(PySparkException) as caught:
        save(spark.range(1).selectExpr(*expression), target, **options)
    assert message in str(caught.value)
    with LogStore.open([target / "a", target / "b"], read_only=True) as store:
        assert not rows_of(store)


def test_a_store_that_is_owned_names_its_owner(spark: Any, target: Path) -> None:
    """The error says which process has it, and nothing was appended."""
    frame = spark.range(10).selectExpr("cast(cast(id as string) as binary) value")
    with LogStore.open([target / "a", target / "b"]) as store:
        with pytest.raises(PySparkException) as caught:
            save(frame, target, topic="copy")
        assert f"owned by process {os.getpid()}" in str(caught.value)
        assert not rows_of(store)
    save(frame, target, topic="copy")
    with LogStore.open([target / "a", target / "b"], read_only=True) as store:
        assert len(rows_of(store)) == 10


def test_a_stream_of_whole_results_appends_each(
    spark: Any, root: Path, target: Path, tmp_path: Path
) -> None:
    """Output mode complete, as into Kafka."""
    reader = spark.readStream.format("logstore").option("startingOffsets", "earliest")
    reader = reader.options(logDirs=f"{root / 'a'},{root / 'b'}", subscribe="orders")
    frame = reader.load().groupBy("partition").count()
    frame = frame.selectExpr("cast(partition as string) key", "cast(count as string) value")
    writer = frame.writeStream.format("logstore").outputMode("complete")
    writer = writer.options(logDirs=f"{target / 'a'},{target / 'b'}", topic="copy")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    with LogStore.open([root / "a", root / "b"], read_only=True) as store:
        sizes = {b"%d" % p: b"%d" % len(store["orders", p]) for p in range(3)}
    with LogStore.open([target / "a", target / "b"], read_only=True) as store:
        assert sizes == {row["key"]: row["value"] for row in rows_of(store)}


def test_a_stream_is_copied_once_across_restarts(
    spark: Any, root: Path, target: Path, tmp_path: Path
) -> None:
    """A batch whose end Spark forgot is not appended again."""

    def run() -> None:
        reader = spark.readStream.format("logstore").option("startingOffsets", "earliest")
        reader = reader.option("logDirs", f"{root / 'a'},{root / 'b'}").option(
            "subscribe", "orders"
        )
        frame = reader.option("maxOffsetsPerTrigger", "600").load()
        writer = frame.selectExpr("key", "value").writeStream.format("logstore")
        writer = writer.option("logDirs", f"{target / 'a'},{target / 'b'}").option("topic", "copy")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def contents(place: Path, topic: str) -> Counter[tuple[Any, ...]]:
        with LogStore.open([place / "a", place / "b"], read_only=True) as store:
            return Counter(
                (row["key"], row["value"]) for row in rows_of(store) if row["topic"] == topic
            )

    run()
    assert contents(target, "copy") == contents(root, "orders")
    commits = sorted(
        (tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda p: int(p.name)
    )
    for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        path.unlink(missing_ok=True)
    run()
    assert contents(target, "copy") == contents(root, "orders")
    with LogStore.open([root / "a", root / "b"], admin_socket=False) as store:
        store["orders", 0].extend([b"more"] * 7)
    run()
    assert contents(target, "copy") == contents(root, "orders")
