"""Measure how fast records are appended if each append returns only after a sync."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import peers
from benchmarks.compare import APPENDS, Side
from benchmarks.conftest import Ledger
from benchmarks.engine import ONE_RECORD_BATCH_BYTES, Engine
from benchmarks.report import at_least
from benchmarks.workload import RECORD_BYTES, Sizes, equal_values

NewDir = Callable[[], str]


def bench_durable_threads(ledger: Ledger, sizes: Sizes, new_dir: NewDir) -> None:
    """Append durably from 32 threads; the engine syncs once for all waiting threads."""
    value, threads, each = equal_values()[0][0], sizes.durable_threads, sizes.durable_each
    few = max(each // sizes.slow_share, 1)
    engine = Side(
        "engine",
        lambda engine: peers.in_threads(threads, lambda _: engine.append_durable(value, each)),
        threads * each,
        prepare=lambda: Engine(new_dir()),
        finish=Engine.drop,
    )
    others = []
    if peers.has("lmdb"):
        others.append(
            Side(
                "LMDB sync",
                lambda db: peers.in_threads(threads, lambda _: db.append(value, few)),
                threads * few,
                prepare=lambda: peers.Lmdb(new_dir(), sync=True),
                finish=peers.Lmdb.drop,
                goal=at_least(8),
            )
        )
    ledger.compare(
        f"durable append, {threads} threads", APPENDS, engine, others, sizes.rounds,
        records=threads * each, bytes=threads * each * RECORD_BYTES, sync="group commit",
    )  # fmt: skip


def bench_durable_one_thread(ledger: Ledger, sizes: Sizes, new_dir: NewDir) -> None:
    """Append durably from one thread; only the disk should limit the speed."""
    value, records = equal_values()[0][0], sizes.durable_single
    few = max(records // sizes.slow_share, 1)
    data, space = bytes(ONE_RECORD_BATCH_BYTES), records * ONE_RECORD_BATCH_BYTES
    others = [
        Side(
            "pwrite + fdatasync, growing file",
            lambda file: file.write_and_sync(data, records),
            records,
            prepare=lambda: peers.RawFile(new_dir()),
            finish=peers.RawFile.drop,
            goal=at_least(0.85),
        ),
        Side(
            "pwrite + fdatasync, fallocated file",
            lambda file: file.write_and_sync(data, records),
            records,
            prepare=lambda: peers.RawFile(new_dir(), space),
            finish=peers.RawFile.drop,
        ),
        Side(
            "SQLite WAL, synchronous FULL",
            lambda db: db.append(value, few),
            few,
            prepare=lambda: peers.Sqlite(new_dir(), sync=True),
            finish=peers.Sqlite.drop,
        ),
    ]
    if peers.has("lmdb"):
        others.append(
            Side(
                "LMDB sync",
                lambda db: db.append(value, few),
                few,
                prepare=lambda: peers.Lmdb(new_dir(), sync=True),
                finish=peers.Lmdb.drop,
            )
        )
    if peers.has("rocksdict"):
        others.append(
            Side(
                "RocksDB sync",
                lambda db: db.append(value, few),
                few,
                prepare=lambda: peers.RocksDb(new_dir(), sync=True),
                finish=peers.RocksDb.drop,
            )
        )
    engine = Side(
        "engine",
        lambda engine: engine.append_durable(value, records),
        records,
        prepare=lambda: Engine(new_dir()),
        finish=Engine.drop,
    )
    ledger.compare(
        "durable append, one thread", APPENDS, engine, others, sizes.rounds,
        records=records, bytes=records * RECORD_BYTES, sync="each append",
    )  # fmt: skip
