"""Where records without a partition of their own go."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from logstore import LogConfig, LogStore, RecordTooLargeError, UnknownPartitionError
from logstore.spark.write.partitioner import by_key, murmur2
from logstore.spark.write.staging import Stage


def plain_murmur2(key: bytes) -> int:
    """Compute MurmurHash2 of Kafka's clients, a byte at a time."""
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    value = 0x9747B28C ^ len(key)
    for at in range(0, len(key) & ~3, 4):
        word = int.from_bytes(key[at : at + 4], "little") * multiplier & mask
        value = (value * multiplier & mask) ^ ((word ^ word >> 24) * multiplier & mask)
    for at in reversed(range(len(key) & ~3, len(key))):
        value ^= key[at] << 8 * (at & 3)
    if len(key) & 3:
        value = value * multiplier & mask
    value = (value ^ value >> 13) * multiplier & mask
    return value ^ value >> 15


def test_keys_hash_as_in_kafka() -> None:
    """Values that Kafka's own tests name, and a thousand more against the plain form."""
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    got = murmur2(pa.array(list(known))).astype("i4").tolist()
    assert got == list(known.values())
    random_ = random.Random(3)
    keys = [random_.randbytes(random_.randint(0, 21)) for _ in range(1000)]
    assert murmur2(pa.array(keys)).tolist() == [plain_murmur2(key) for key in keys]
    assert murmur2(pa.array(keys).slice(10, 50)).tolist() == [
        plain_murmur2(key) for key in keys[10:60]
    ]


def test_records_without_key_take_turns() -> None:
    """The next batch goes on where the last one stopped; keys stay where they belong."""
    assert by_key(None, [0, 1, 2], 4, 4).tolist() == [1, 2, 0, 1]
    keys = pa.array([b"21", None, b"21", None])
    place = (plain_murmur2(b"21") & 0x7FFFFFFF) % 3
    assert by_key(keys, [0, 1, 2], 0, 4).tolist() == [place, 1, place, 0]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a store with two partitions of `t`, the second for small batches only."""
    with LogStore.open(tmp_path, admin_socket=False) as store:
        store.create("t", 0)
        store.create("t", 1, config=LogConfig(max_message_bytes=1000))
    return tmp_path


def test_a_column_says_where_and_batches_fit(root: Path) -> None:
    """Rows are sorted by their partition, in order, and cut to what the log takes."""
    rows = pa.record_batch(
        {"value": [b"%04d" % n for n in range(1000)], "partition": [n % 2 for n in range(1000)]}
    )
    with LogStore.open(root, read_only=True) as store:
        runs = Stage(store, "query", "t", 0).write([rows]).runs
    assert {run.partition for run in runs} == {0, 1}
    assert all(run.size_bytes <= 1000 for run in runs if run.partition == 1)
    assert sum(run.record_count for run in runs) == 1000


def test_what_cannot_be_written_is_refused_and_leaves_nothing(root: Path) -> None:
    """A partition that is not there, a record that is too large."""
    for values, partitions, error in (
        ([b"x"], [7], UnknownPartitionError),
        ([bytes(2000)], [1], RecordTooLargeError),
    ):
        rows = pa.record_batch({"value": values, "partition": partitions})
        with LogStore.open(root, read_only=True) as store, pytest.raises(error):
            Stage(store, "query", "t", 0).write([rows])
    assert not list(root.rglob("*.batches"))
