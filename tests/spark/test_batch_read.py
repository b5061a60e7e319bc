"""What a batch read gives and refuses."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from logstore import LogStore
from support.spark_data import FIRST_TIME_MS, rows_of

Load = Callable[..., Any]
KAFKA_COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_columns_are_those_of_the_kafka_source(load: Load, example: Path) -> None:
    """Names, order and types are Spark's own for Kafka; headers come when asked for."""
    frame = load(example)
    assert frame.columns == KAFKA_COLUMNS
    types = ["binary", "binary", "string", "int", "bigint", "timestamp", "int"]
    assert [kind for _, kind in frame.dtypes] == types
    with_headers = load(example, includeHeaders="true")
    assert with_headers.columns == [*KAFKA_COLUMNS, "headers"]
    assert with_headers.dtypes[-1][1] == "array<struct<key:string,value:binary>>"


def test_every_record_comes_once_as_it_was_appended(load: Load, example: Path) -> None:
    """All columns of all records equal those of the parquet file."""
    order = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
    got = load(example, includeHeaders="true").toArrow().sort_by(order).to_pylist()
    assert got == pq.read_table(example / "records.parquet").sort_by(order).to_pylist()


def test_the_option_columns_prunes_and_orders(load: Load, example: Path) -> None:
    """Only the named columns are made, in the order of their names."""
    frame = load(example, columns="offset, timestampType,topic")
    assert frame.columns == ["offset", "timestampType", "topic"]
    assert frame.count() == pq.read_metadata(example / "records.parquet").num_rows


def test_ranges_by_offset_and_by_time(spark: Any, load: Load, example: Path) -> None:
    """Offsets and timestamps bound what is read, per partition."""
    options = {"assign": '{"orders": [0, 2]}', "columns": "partition,offset,timestamp"}
    frame = load(
        example,
        startingOffsets='{"orders": {"0": 100, "2": -2}}',
        endingOffsets='{"orders": {"0": 200, "2": 50}}',
        **options,
    )
    rows = [(row.partition, row.offset) for row in frame.collect()]
    assert sorted(rows) == [(0, o) for o in range(100, 200)] + [(2, o) for o in range(50)]
    middle, late = FIRST_TIME_MS + 10_000, FIRST_TIME_MS + 20_000
    with LogStore.open([example / "a", example / "b"], read_only=True) as store:
        logs = [store["orders", 0], store["orders", 2]]
        counts = [
            (log.offset_for_timestamp(late) or 0) - (log.offset_for_timestamp(middle) or 0)
            for log in logs
        ]
    assert load(example, startingTimestamp=middle, endingTimestamp=late, **options).count() == sum(
        counts
    )
    by_time = {"startingOffsetsByTimestamp": f'{{"orders": {{"0": {middle}, "2": {middle}}}}}'}
    by_time["endingOffsetsByTimestamp"] = by_time["startingOffsetsByTimestamp"].replace(
        str(middle), str(late)
    )
    assert load(example, **by_time, **options).count() == sum(counts)


def test_pieces_are_cut_by_size(load: Load, example: Path) -> None:
    """`minPartitions` gives at least so many tasks, and every record stays exactly once."""
    frame = load(example, minPartitions="12", columns="topic,partition,offset")
    assert frame.rdd.getNumPartitions() >= 12
    rows = {tuple(row) for row in frame.collect()}
    assert len(rows) == frame.count() == pq.read_metadata(example / "records.parquet").num_rows


def test_a_live_writer_is_read_beside(load: Load, root: Path) -> None:
    """The owner keeps the store open; what it appended is in the next load."""
    with LogStore.open([root / "a", root / "b"], admin_socket=False) as store:
        log = store["orders", 1]
        before = load(root, subscribe="orders").count()
        log.extend([b"one", b"two"])
        assert load(root, subscribe="orders").count() == before + 2
        assert load(root).count() == len(rows_of(store))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        (
            {"subscribe": "orders", "assign": '{"orders":[0]}'},
            "exactly one of the options assign, subscribe",
        ),
        ({"subscribe": "order"}, "there is no topic 'order' in this store; it has clicks, orders"),
        ({"columns": "offset,valu"}, "there is no 'valu'"),
        ({"startingOffsets": "latest"}, "cannot begin at the latest"),
        ({"startingOffsets": '{"orders": {"0": 1}}'}, "does not name clicks-0"),
        ({"startingOffsets": '{"orders"'}, "startingOffsets must be like"),
        ({"failOnDataLoss": "maybe"}, 'failOnDataLoss must be "true" or "false"'),
        ({"startingTimestamp": str(2**60)}, "no record at or after the timestamp"),
    ],
)
def test_a_bad_option_is_named(
    load: Load, example: Path, options: dict[str, str], message: str
) -> None:
    """The error says what is wrong and what would be right."""
    with pytest.raises(PySparkException) as caught:
        load(example, **options).count()
    assert message in str(caught.value)


def test_options_of_a_broker_connection_mean_nothing(load: Load, example: Path) -> None:
    """A job that comes from Kafka may leave them in."""
    frame = load(example, **{"kafka.bootstrap.servers": "nowhere:9092", "groupIdPrefix": "x"})
    assert frame.limit(1).count() == 1


def test_removed_records_are_an_error_or_left_out(load: Load, root: Path) -> None:
    """Retention took the range: the error tells both ranges; failOnDataLoss=false reads on."""
    wanted = {"assign": '{"orders": [0]}', "startingOffsets": '{"orders": {"0": 10}}'}
    planned, lenient = load(root, **wanted), load(root, failOnDataLoss="false", **wanted)
    for frame in (planned, lenient):
        frame.rdd.getNumPartitions()
    with LogStore.open([root / "a", root / "b"], admin_socket=False) as store:
        log = store["orders", 0]
        log.delete_records_before(100)
        left = log.log_end_offset - 100
    with pytest.raises(
        PySparkException, match=r"orders-0: a task wants offset 10, the log has 100"
    ):
        planned.count()
    assert lenient.count() == left
    with pytest.raises(PySparkException, match="startingOffsets wants offset 10"):
        load(root, **wanted).count()


def test_a_recreated_topic_is_not_the_one_that_was_planned(load: Load, root: Path) -> None:
    """A topic that was deleted and made anew under the same name is an error."""
    frame = load(root, subscribe="clicks")
    frame.rdd.getNumPartitions()
    with LogStore.open([root / "a", root / "b"], admin_socket=False) as store:
        store.delete("clicks", 0)
        store.create("clicks", 0).extend([b"other"] * 5000)
    with pytest.raises(PySparkException, match="deleted and created again"):
        frame.count()


def test_a_log_dir_that_is_not_seen_is_named(load: Load, root: Path) -> None:
    """Planning and tasks say which log dir they miss, and on which host."""
    frame = load(root, subscribe="orders")
    frame.rdd.getNumPartitions()
    os.rename(root / "b", root / "elsewhere")
    for again in (frame, load(root, subscribe="orders")):
        with pytest.raises(PySparkException) as caught:
            again.count()
        assert str(root / "b") in str(caught.value)
    assert load(root, subscribe="orders", failOnDataLoss="false").count() > 0


def test_a_log_dir_that_was_left_out_is_noticed(spark: Any, root: Path) -> None:
    """Half of a store is not taken for all of it."""
    reader = spark.read.format("logstore").option("logDirs", str(root / "a"))
    with pytest.raises(PySparkException, match="name all of them"):
        reader.option("subscribe", "orders").load().count()


def test_a_damaged_batch_stops_the_read(load: Load, root: Path) -> None:
    """No record of a batch whose checksum does not hold reaches a query."""
    path = min((root / "b" / "orders-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(PySparkException, match="CorruptRecordBatchError"):
        load(root, assign='{"orders": [0]}').count()
    assert load(root, assign='{"orders": [1, 2]}').count() > 0


def test_a_query_sees_what_its_own_filter_lets_through(load: Load, example: Path) -> None:
    """A filter of one query is not applied to the next one over the same DataFrame."""
    frame = load(example, columns="offset")
    total = frame.count()
    few = frame.where("offset < 5").count()
    assert few == 20 and frame.count() == total
    assert frame.where("offset < 5").union(frame).count() == few + total
