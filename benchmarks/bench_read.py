"""Measure how fast records are read: all records in order, and single records by offset.

The data is in the page cache. A scan "after open" verifies every batch, because the store has just
been opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from benchmarks import peers
from benchmarks.compare import GIGABYTES, MICROSECONDS, MILLION_RECORDS, Side
from benchmarks.conftest import Ledger
from benchmarks.engine import Engine
from benchmarks.report import Goal, at_least, at_most
from benchmarks.workload import (
    BATCH_RECORDS,
    RECORD_BYTES,
    Sizes,
    equal_values,
    mixed_values,
    offsets_at_random,
)

NewDir = Callable[[], str]


@dataclass
class DataSet:
    """Hold the same records in the files of the engine and of every peer.

    LMDB verifies and loads nothing when it is opened, so it stays open during all rounds.
    """

    records: int
    engine: str
    lmdb: peers.Lmdb | None
    peers: dict[str, str]
    segments: list[str]

    @property
    def segment_bytes(self) -> int:
        """The size of all segments in total."""
        return sum(os.path.getsize(path) for path in self.segments)


def fill(new_dir: NewDir, pool: peers.Batches, batches: int) -> DataSet:
    """Write the same records into every store."""
    engine = Engine(new_dir())
    engine.extend(pool, batches)
    engine.close()
    paths = {}
    lmdb = None
    if peers.has("lmdb"):
        lmdb = peers.Lmdb(new_dir())
        lmdb.extend(pool, batches)
    sqlite = peers.Sqlite(new_dir())
    sqlite.extend(pool, batches)
    sqlite.close()
    paths["sqlite"] = sqlite.path
    if peers.has("rocksdict"):
        rocks = peers.RocksDb(new_dir())
        rocks.extend(pool, batches)
        rocks.close()
        paths["rocksdb"] = rocks.path
    if peers.has("pyarrow"):
        arrow = peers.ArrowIpc(new_dir())
        arrow.extend(pool, batches)
        paths["arrow"] = arrow.path
    segments = peers.segment_files(engine.path)
    return DataSet(batches * BATCH_RECORDS, engine.path, lmdb, paths, segments)


def drop(data: DataSet) -> None:
    """Remove the files."""
    if data.lmdb is not None:
        data.lmdb.drop()
    for path in (data.engine, *data.peers.values()):
        peers.remove(path)


@pytest.fixture(scope="module")
def equal(new_dir: NewDir, sizes: Sizes) -> Iterator[DataSet]:
    """Provide records of the same size."""
    data = fill(new_dir, equal_values(), sizes.scan_batches)
    yield data
    drop(data)


@pytest.fixture(scope="module")
def mixed(new_dir: NewDir, sizes: Sizes) -> Iterator[DataSet]:
    """Provide records of 50 to 150 bytes."""
    data = fill(new_dir, mixed_values(), sizes.scan_batches)
    yield data
    drop(data)


def lmdb_side(
    data: DataSet, name: str, run: Callable[[peers.Lmdb], object], goal: Goal | None = None
) -> list[Side]:
    """Describe a scan or look-up by LMDB; return no side if LMDB is not installed."""
    lmdb = data.lmdb
    return [] if lmdb is None else [Side(name, lambda _: run(lmdb), data.records, goal=goal)]


def lmdb_scan(data: DataSet, goal: Goal | None) -> list[Side]:
    """Describe scans by LMDB's cursor.

    One scan reads keys and values, because the engine's records also have offsets. The other scan
    reads only values.
    """
    return lmdb_side(data, "LMDB cursor", peers.Lmdb.scan, goal) + lmdb_side(
        data, "LMDB cursor, values alone", peers.Lmdb.scan_values
    )


def lmdb_gets(data: DataSet, offsets: list[int], goal: Goal | None) -> list[Side]:
    """Describe look-ups in LMDB: all in one transaction, and each in its own transaction."""
    sides = lmdb_side(
        data, "LMDB get in one transaction", lambda db: db.get_in_one(offsets), goal
    ) + lmdb_side(data, "LMDB get, a transaction each", lambda db: db.get_each(offsets))
    for side in sides:
        side.amount = len(offsets)
    return sides


def other_scans(data: DataSet) -> list[Side]:
    """Describe the scans without a goal, which are measured for information."""
    sides = [
        Side(
            "SQLite",
            peers.Sqlite.scan,
            data.records,
            prepare=lambda: peers.Sqlite(data.peers["sqlite"]),
            finish=peers.Sqlite.close,
        )
    ]
    if "rocksdb" in data.peers:
        sides.append(
            Side(
                "RocksDB",
                peers.RocksDb.scan,
                data.records,
                prepare=lambda: peers.RocksDb(data.peers["rocksdb"]),
                finish=peers.RocksDb.close,
            )
        )
    if "arrow" in data.peers:
        sides.append(
            Side(
                "pyarrow IPC to_pylist",
                peers.ArrowIpc.scan,
                data.records,
                prepare=lambda: peers.ArrowIpc(data.peers["arrow"]),
            )
        )
    return sides


def opened(data: DataSet, run: Callable[[Engine], object]) -> Side:
    """Describe a scan of a store that has just been opened."""
    return Side(
        "engine", run, data.records, prepare=lambda: Engine(data.engine), finish=Engine.close
    )


def bench_scan_bytes_equal(ledger: Ledger, sizes: Sizes, equal: DataSet) -> None:
    """Scan records of the same size as bytes objects."""
    others = lmdb_scan(equal, at_least(2)) + other_scans(equal)
    ledger.compare(
        "scan as bytes, equal sizes, after open", MILLION_RECORDS,
        opened(equal, Engine.scan_bytes), others, sizes.rounds, records=equal.records,
    )  # fmt: skip


def bench_scan_bytes_mixed(ledger: Ledger, sizes: Sizes, mixed: DataSet) -> None:
    """Scan records of 50 to 150 bytes as bytes objects."""
    ledger.compare(
        "scan as bytes, mixed sizes, after open", MILLION_RECORDS,
        opened(mixed, Engine.scan_bytes), lmdb_scan(mixed, at_least(1.2)), sizes.rounds,
        records=mixed.records,
    )  # fmt: skip


def bench_scan_records(ledger: Ledger, sizes: Sizes, mixed: DataSet) -> None:
    """Scan as Record objects."""
    ledger.compare(
        "scan as Record objects, mixed sizes", MILLION_RECORDS,
        opened(mixed, Engine.scan_records), lmdb_scan(mixed, None), sizes.rounds,
        records=mixed.records,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["equal", "mixed"])
def bench_scan_batches(
    ledger: Ledger, sizes: Sizes, kind: str, request: pytest.FixtureRequest
) -> None:
    """Scan as verified batches."""
    data = request.getfixturevalue(kind)
    ledger.compare(
        f"scan as verified batches, {kind} sizes", MILLION_RECORDS,
        opened(data, Engine.scan_batches), lmdb_scan(data, at_least(8)), sizes.rounds,
        records=data.records, bytes=data.segment_bytes,
    )  # fmt: skip


def bench_scan_arrow(ledger: Ledger, sizes: Sizes, mixed: DataSet) -> None:
    """Scan as verified Arrow batches."""
    if not peers.has("pyarrow"):
        return
    bare = Side(
        "pyarrow IPC, not verified",
        peers.ArrowIpc.scan_batches,
        mixed.records,
        prepare=lambda: peers.ArrowIpc(mixed.peers["arrow"]),
    )
    ledger.compare(
        "scan as verified Arrow batches, mixed", MILLION_RECORDS,
        opened(mixed, Engine.scan_arrow), [*lmdb_scan(mixed, at_least(8)), bare], sizes.rounds,
        records=mixed.records, bytes=mixed.segment_bytes,
    )  # fmt: skip


@pytest.mark.parametrize("zero_copy", [False, True], ids=["copied", "zero_copy"])
def bench_scan_against_hash(ledger: Ledger, sizes: Sizes, equal: DataSet, zero_copy: bool) -> None:
    """Compare a scan as verified batches with loading and hashing a memory map of the files."""
    size = equal.segment_bytes
    engine = opened(equal, lambda engine: engine.scan_batches(zero_copy=zero_copy))
    engine.amount = size
    bare = Side("populate + xxh3", lambda _: peers.populate_and_hash(equal.segments), size)
    ledger.compare(
        f"verified batches{', zero_copy' if zero_copy else ''}", GIGABYTES, engine, [bare],
        sizes.rounds, records=equal.records, bytes=size,
    )  # fmt: skip


# --- single records -------------------------------------------------------------------------------


def bench_point_read(ledger: Ledger, sizes: Sizes, equal: DataSet) -> None:
    """Read records at random offsets, from batches that were verified before."""
    offsets = offsets_at_random(sizes.point_reads, equal.records)
    held = Engine(equal.engine)
    held.scan_batches()
    held.get(offsets)
    engine = Side("engine", lambda _: held.get(offsets), len(offsets))
    ledger.compare(
        "point read by offset, verified", MICROSECONDS, engine,
        lmdb_gets(equal, offsets, at_most(3)), sizes.rounds, records=len(offsets),
    )  # fmt: skip
    held.close()


def bench_point_read_first_touch(ledger: Ledger, sizes: Sizes, equal: DataSet) -> None:
    """Read one record of each batch directly after an open; each read verifies 100 KB."""
    count = min(sizes.first_touches, sizes.scan_batches)
    offsets = [number * BATCH_RECORDS + BATCH_RECORDS // 2 for number in range(count)]
    engine = opened(equal, lambda engine: engine.get(offsets))
    engine.amount = count
    ledger.compare(
        "point read, first touch of a batch", MICROSECONDS, engine,
        lmdb_gets(equal, offsets, None)[:1], sizes.rounds, records=count,
    )  # fmt: skip


def bench_point_read_large_set(ledger: Ledger, sizes: Sizes, new_dir: NewDir) -> None:
    """Read records at random offsets from more data than `read_cache_bytes`."""
    pool, batches = equal_values(), sizes.large_set_batches
    records = batches * BATCH_RECORDS
    offsets = offsets_at_random(sizes.point_reads // 4, records)
    held = Engine(new_dir())
    held.extend(pool, batches)
    held.scan_batches()
    engine = Side("engine", lambda _: held.get(offsets), len(offsets))
    others = []
    lmdb = peers.Lmdb(new_dir()) if peers.has("lmdb") else None
    if lmdb is not None:
        lmdb.extend(pool, batches)
        run = lmdb.get_in_one
        others.append(Side("LMDB get in one transaction", lambda _: run(offsets), len(offsets)))
    ledger.compare(
        "point read, set larger than the cache", MICROSECONDS, engine, others, sizes.rounds,
        records=len(offsets), bytes=records * RECORD_BYTES,
    )  # fmt: skip
    held.drop()
    if lmdb is not None:
        lmdb.drop()
