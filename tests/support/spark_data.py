"""A store of two topics and the same records as parquet, for the Spark tests."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from logstore import LogConfig, LogStore, Record

FIRST_TIME_MS = 1_760_000_000_000
PARTITIONS = (("clicks", 0), ("orders", 0), ("orders", 1), ("orders", 2))
BATCHES = 30

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def make_batch(random_: random.Random, first_time_ms: int) -> list[Record]:
    """Make the records of one batch: some keys, some nulls, some headers."""
    count = random_.choice((1, 2, 7, 40, 100))
    has_keys, has_headers = random_.random() < 0.7, random_.random() < 0.3
    return [
        Record(
            0,
            first_time_ms + number * random_.randint(0, 3),
            b"key-%d" % random_.randint(0, 9) if has_keys and random_.random() < 0.9 else None,
            None if random_.random() < 0.05 else random_.randbytes(random_.randint(0, 60)),
            (("trace", random_.randbytes(4)), ("empty", None)) if has_headers else (),
        )
        for number in range(count)
    ]


def fill(store: LogStore, random_: random.Random) -> None:
    """Create the partitions, in small segments, and append to them."""
    for number, (topic, partition) in enumerate(PARTITIONS):
        codec = ("none", "lz4", "zstd", "none")[number]
        config = LogConfig(
            segment_bytes=8192,
            index_interval_bytes=512,
            compression_type=codec,
            message_timestamp_type="LogAppendTime" if topic == "clicks" else "CreateTime",
        )
        log = store.create(topic, partition, config=config, log_dir=store.log_dirs[number % 2])
        for batch in range(BATCHES):
            append(log, make_batch(random_, FIRST_TIME_MS + 1000 * batch))


def append(log: Any, records: list[Record]) -> None:
    """Append records as one batch."""
    log.extend(
        [record.value for record in records],
        keys=[record.key for record in records],
        timestamps=[record.timestamp for record in records],
        headers=[record.headers for record in records],
    )


def rows_of(store: LogStore) -> list[dict[str, Any]]:
    """Read everything record by record, the slow way that Spark does not take."""
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": key.topic,
            "partition": key.partition,
            "offset": record.offset,
            "timestamp": record.timestamp * 1000,
            "timestampType": int(key.topic == "clicks"),
            "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
        }
        for key in store
        for record in store[key]
    ]


def write_parquet(rows: list[dict[str, Any]], path: Path) -> None:
    """Write the same records as parquet."""
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)
