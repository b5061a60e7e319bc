"""Measure how fast records are appended if no append waits for the disk.

The peers also leave flushing to the kernel. LMDB can write its memory map in place (`writemap`).
Then its small transactions are cheaper, but stray pointers can damage its data. This mode is
measured, too.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import peers
from benchmarks.compare import GIGABYTES, MILLION_RECORDS, Side
from benchmarks.conftest import Ledger
from benchmarks.engine import ONE_RECORD_BATCH_BYTES, Engine
from benchmarks.report import Goal, at_least
from benchmarks.workload import BATCH_RECORDS, RECORD_BYTES, Sizes, equal_values
from logstore import LogConfig, StoreConfig

NewDir = Callable[[], str]
ENCODED_VALUE_BYTES = 1000


def lmdb_extend(new_dir: NewDir, sizes: Sizes, goal: Goal | None) -> list[Side]:
    """Describe LMDB's part in a comparison of batches."""
    pool, batches = equal_values(), sizes.extend_batches
    if not peers.has("lmdb"):
        return []
    return [
        Side(
            "LMDB putmulti(append)",
            lambda db: db.extend(pool, batches),
            batches * BATCH_RECORDS,
            prepare=lambda: peers.Lmdb(new_dir()),
            finish=peers.Lmdb.drop,
            goal=goal,
        )
    ]


def other_extends(new_dir: NewDir, sizes: Sizes) -> list[Side]:
    """Describe the peers without a goal, which are measured for information."""
    pool, batches = equal_values(), sizes.extend_batches
    few = max(batches // sizes.slow_share, 1)
    sides = [
        Side(
            "SQLite WAL",
            lambda db: db.extend(pool, few),
            few * BATCH_RECORDS,
            prepare=lambda: peers.Sqlite(new_dir()),
            finish=peers.Sqlite.drop,
        ),
        Side(
            "write of the same bytes",
            lambda file: file.write(bytes(BATCH_RECORDS * RECORD_BYTES), batches),
            batches * BATCH_RECORDS,
            prepare=lambda: peers.RawFile(new_dir()),
            finish=peers.RawFile.drop,
        ),
    ]
    if peers.has("lmdb"):
        sides.append(
            Side(
                "LMDB, keys by NumPy",
                lambda db: db.extend_numpy_keys(pool, batches),
                batches * BATCH_RECORDS,
                prepare=lambda: peers.Lmdb(new_dir()),
                finish=peers.Lmdb.drop,
            )
        )
    if peers.has("rocksdict"):
        sides.append(
            Side(
                "RocksDB",
                lambda db: db.extend(pool, few),
                few * BATCH_RECORDS,
                prepare=lambda: peers.RocksDb(new_dir()),
                finish=peers.RocksDb.drop,
            )
        )
    if peers.has("pyarrow"):
        sides.append(
            Side(
                "pyarrow IPC stream",
                lambda file: file.extend(pool, batches),
                batches * BATCH_RECORDS,
                prepare=lambda: peers.ArrowIpc(new_dir()),
                finish=peers.ArrowIpc.drop,
            )
        )
    return sides


def bench_extend_list(ledger: Ledger, sizes: Sizes, new_dir: NewDir) -> None:
    """Append 1,000 records at a time from a list of bytes."""
    pool, batches = equal_values(), sizes.extend_batches
    records = batches * BATCH_RECORDS
    engine = Side(
        "engine",
        lambda engine: engine.extend(pool, batches),
        records,
        prepare=lambda: Engine(new_dir()),
        finish=Engine.drop,
    )
    others = lmdb_extend(new_dir, sizes, at_least(2.5)) + other_extends(new_dir, sizes)
    ledger.compare(
        "extend 1,000 from a list", MILLION_RECORDS, engine, others, sizes.rounds,
        records=records, bytes=records * RECORD_BYTES,
    )  # fmt: skip


def bench_extend_arrow(ledger: Ledger, sizes: Sizes, new_dir: NewDir) -> None:
    """Append 1,000 records at a time from Arrow."""
    if not peers.has("pyarrow"):
        return
    import pyarrow

    batches = sizes.extend_batches
    records = batches * BATCH_RECORDS
    pool = [
        pyarrow.record_batch({"value": pyarrow.array(values, pyarrow.binary())})
        for values in equal_values()
    ]
    engine = Side(
        "engine",
        lambda engine: engine.extend_arrow(pool, batches),
        records,
        prepare=lambda: Engine(new_dir()),
        finish=Engine.drop,
    )
    ledger.compare(
        "extend 1,000 from Arrow", MILLION_RECORDS, engine,
        lmdb_extend(new_dir, sizes, at_least(3.5)), sizes.rounds,
        records=records, bytes=records * RECORD_BYTES,
    )  # fmt: skip


def one_by_one_peers(new_dir: NewDir, sizes: Sizes, goal: Goal) -> list[Side]:
    """Describe the peers that take one record at a time."""
    value, records = equal_values()[0][0], sizes.single_appends
    few = max(records // sizes.slow_share, 1)
    sides = []
    if peers.has("lmdb"):
        sides += [
            Side(
                "LMDB, one put a transaction",
                lambda db: db.append(value, few),
                few,
                prepare=lambda: peers.Lmdb(new_dir()),
                finish=peers.Lmdb.drop,
                goal=goal,
            ),
            Side(
                "LMDB writemap, map_async",
                lambda db: db.append(value, records),
                records,
                prepare=lambda: peers.Lmdb(new_dir(), writemap=True),
                finish=peers.Lmdb.drop,
            ),
        ]
    return sides


def bench_append_one(ledger: Ledger, sizes: Sizes, new_dir: NewDir) -> None:
    """Append one record at a time."""
    value, records = equal_values()[0][0], sizes.single_appends
    few = max(records // sizes.slow_share, 1)
    others = one_by_one_peers(new_dir, sizes, at_least(1.5))
    others += [
        Side(
            "SQLite WAL",
            lambda db: db.append(value, few),
            few,
            prepare=lambda: peers.Sqlite(new_dir()),
            finish=peers.Sqlite.drop,
        ),
        Side(
            "pwrite of the same bytes",
            lambda file: file.write(bytes(ONE_RECORD_BATCH_BYTES), records),
            records,
            prepare=lambda: peers.RawFile(new_dir()),
            finish=peers.RawFile.drop,
        ),
    ]
    if peers.has("rocksdict"):
        others.append(
            Side(
                "RocksDB",
                lambda db: db.append(value, few),
                few,
                prepare=lambda: peers.RocksDb(new_dir()),
                finish=peers.RocksDb.drop,
            )
        )
    engine = Side(
        "engine",
        lambda engine: engine.append(value, records),
        records,
        prepare=lambda: Engine(new_dir()),
        finish=Engine.drop,
    )
    ledger.compare(
        "append one record", MILLION_RECORDS, engine, others, sizes.rounds,
        records=records, bytes=records * RECORD_BYTES,
    )  # fmt: skip


def bench_appender_values(ledger: Ledger, sizes: Sizes, new_dir: NewDir) -> None:
    """Append one record at a time through an Appender, with a value only."""
    value, records = equal_values()[0][0], sizes.single_appends * 5
    engine = Side(
        "engine",
        lambda engine: engine.append_through_appender(value, records),
        records,
        prepare=lambda: Engine(new_dir()),
        finish=Engine.drop,
    )
    ledger.compare(
        "Appender, values alone", MILLION_RECORDS, engine,
        one_by_one_peers(new_dir, sizes, at_least(3)), sizes.rounds,
        records=records, bytes=records * RECORD_BYTES,
    )  # fmt: skip


def bench_appender_keyed(ledger: Ledger, sizes: Sizes, new_dir: NewDir) -> None:
    """Append one record at a time through an Appender, with value, key and timestamp."""
    value, records = equal_values()[0][0], sizes.single_appends * 5
    engine = Side(
        "engine",
        lambda engine: engine.append_keyed_through_appender(value, records),
        records,
        prepare=lambda: Engine(new_dir()),
        finish=Engine.drop,
    )
    ledger.compare(
        "Appender, value + key + timestamp", MILLION_RECORDS, engine,
        one_by_one_peers(new_dir, sizes, at_least(2)), sizes.rounds,
        records=records, bytes=records * RECORD_BYTES,
    )  # fmt: skip


def compare_encoded(
    ledger: Ledger, sizes: Sizes, new_dir: NewDir, name: str, batch_bytes: int, goal: Goal
) -> None:
    """Compare appends of a client's Kafka batches with the least work that a broker must do."""
    if not peers.has("crc32c"):
        return
    from logstore.format.kafka import record_batch as kafka

    values = [bytes(ENCODED_VALUE_BYTES)] * (batch_bytes // (ENCODED_VALUE_BYTES + 10))
    raw = b"".join(kafka.frame(kafka.build_payload(values, None, 5, None), 0, 0))
    batches = sizes.encoded_bytes // len(raw)
    config = StoreConfig(log_config=LogConfig(record_format="kafka"))
    bare = Side(
        "CRC-32C and pwritev of the same bytes",
        lambda file: file.checksum_and_write(raw, batches),
        batches * len(raw),
        prepare=lambda: peers.RawFile(new_dir()),
        finish=peers.RawFile.drop,
        goal=goal,
    )
    engine = Side(
        "engine",
        lambda engine: engine.append_encoded(raw, batches),
        batches * len(raw),
        prepare=lambda: Engine(new_dir(), config),
        finish=Engine.drop,
    )
    ledger.compare(
        f"append_encoded, batches of {name}", GIGABYTES, engine, [bare], sizes.rounds,
        bytes=batches * len(raw),
    )  # fmt: skip


def bench_append_encoded_large(ledger: Ledger, sizes: Sizes, new_dir: NewDir) -> None:
    """Append batches of 1 MiB that a client encoded."""
    compare_encoded(ledger, sizes, new_dir, "1 MiB", 1 << 20, at_least(0.9))


def bench_append_encoded_small(ledger: Ledger, sizes: Sizes, new_dir: NewDir) -> None:
    """Append batches of 16 KiB that a client encoded."""
    compare_encoded(ledger, sizes, new_dir, "16 KiB", 16 << 10, at_least(0.55))
