"""Verify and describe a whole store with Spark."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import logstore.spark
from logstore import LogStore
from logstore.format.prefix import walk
from support.spark_data import rows_of

PLANTED = 100


def batches_of(root: Path) -> list[tuple[Path, int, int, int]]:
    """Give every batch of every segment: file, position, size, base offset."""
    return [
        (path, span.position, span.size_bytes, span.base_offset)
        for path in sorted(root.glob("*/*-*/*.log"))
        for span in walk(path.read_bytes())
    ]


def problems(spark: Any, root: Path) -> list[Any]:
    """Verify the store."""
    rows = logstore.spark.verify(spark, [root / "a", root / "b"]).collect()
    return sorted(rows, key=str)


def test_each_of_a_hundred_flipped_bits_is_found_and_nothing_else(spark: Any, root: Path) -> None:
    """One row for each damaged batch, with its place and offset, neighbours told apart."""
    assert problems(spark, root) == []
    random_ = random.Random(4)
    planted = random_.sample(batches_of(root), PLANTED)
    for path, position, size, _ in planted:
        data = bytearray(path.read_bytes())
        # Behind the prefix: a prefix that lies about lengths hides where the next batch begins.
        data[position + random_.randint(17, size - 1)] ^= 1 << random_.randint(0, 7)
        path.write_bytes(data)
    expected = Counter(
        (str(path.parents[1]), path.parent.name, int(path.stem), position, offset)
        for path, position, _, offset in planted
    )
    found = problems(spark, root)
    assert expected == Counter(
        (row.dir, f"{row.topic}-{row.partition}", row.segment, row.position, row.offset)
        for row in found
    )
    assert all(row.reason for row in found)


def test_what_is_missing_is_told(spark: Any, root: Path) -> None:
    """A segment out of the middle, the end of the last one, a log dir that is away."""
    _, *middle, last = sorted((root / "b" / "orders-2").glob("*.log"))
    middle[1].unlink()
    last.write_bytes(last.read_bytes()[:-96])
    (shortened, missing) = sorted(problems(spark, root), key=lambda row: -row.segment)
    assert shortened.segment == int(last.stem) and shortened.reason
    assert missing.segment == int(middle[0].stem) and "the next one begins at" in missing.reason
    (root / "a").rename(root / "away")
    assert (
        "the log dir is offline"
        in {row.dir: row.reason for row in problems(spark, root)}[str(root / "a")]
    )


def test_a_live_writer_and_a_torn_tail_are_no_damage(spark: Any, root: Path) -> None:
    """What is on its way, or was cut by a crash beyond what was flushed, is not corruption."""
    with LogStore.open([root / "a", root / "b"], admin_socket=False) as store:
        store["clicks", 0].extend([b"not flushed"] * 10)
        assert problems(spark, root) == []
        path = Path(store["clicks", 0].directory)
        newest = max(path.glob("*.log"))
        with newest.open("ab") as file:
            file.write(newest.read_bytes()[:50])
        assert problems(spark, root) == []


def test_partitions_are_described(spark: Any, root: Path) -> None:
    """Sizes from the files; records, keys and times from what they hold."""
    rows = logstore.spark.describe(spark, [root / "a", root / "b"]).collect()
    with LogStore.open([root / "a", root / "b"], read_only=True) as store:
        records = rows_of(store)
        for row in rows:
            log = store[row.topic, row.partition]
            mine = [
                r for r in records if (r["topic"], r["partition"]) == (row.topic, row.partition)
            ]
            keys = Counter(r["key"] for r in mine if r["key"] is not None)
            assert (row.dir, row.bytes) == (log.log_dir, log.size_bytes)
            assert (row.records, row.keys) == (len(mine), len(keys))
            assert row.null_keys == len(mine) - keys.total()
            assert row.key_skew == pytest.approx(max(keys.values()) / keys.total())
            times = [r["timestamp"] / 1e6 for r in mine]
            assert (row.min_timestamp.timestamp(), row.max_timestamp.timestamp()) == pytest.approx(
                (min(times), max(times))
            )
    assert len(rows) == 4
