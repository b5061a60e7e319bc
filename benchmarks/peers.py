"""Drive the peers: LMDB, SQLite, RocksDB, pyarrow's IPC stream, and bare system calls.

Each peer is used as its own documents advise for a log: the keys are big-endian offsets, appended
in order. The keys are created inside the timed work, because a user has to create them, too. A peer
whose library is not installed is left out. SQLite and the system calls are always available.
"""

from __future__ import annotations

import ctypes
import importlib.util
import mmap
import os
import shutil
import sqlite3
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

import numpy as np
import xxhash

pack_key = struct.Struct(">Q").pack
consume: Callable[[Iterable[Any]], None] = deque(maxlen=0).extend
Batches = list[list[bytes]]


def has(*modules: str) -> bool:
    """Report whether the libraries of a peer are installed."""
    return all(importlib.util.find_spec(module) is not None for module in modules)


def remove(path: str) -> None:
    """Remove a directory of data, so that the kernel does not write it to the disk later."""
    shutil.rmtree(path, ignore_errors=True)


def each_batch(pool: Batches, batches: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield batches of the pool in turn, each with the offset of its first record."""
    base = 0
    for number in range(batches):
        values = pool[number % len(pool)]
        yield base, values
        base += len(values)


def in_threads(threads: int, work: Callable[[int], object]) -> None:
    """Run `work` in several threads and wait for all; if threads fail, raise the first error."""
    errors: list[Exception] = []
    barrier = threading.Barrier(threads)

    def body(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except Exception as error:  # noqa: BLE001 - raised below, in the caller's thread
            errors.append(error)

    crew = [threading.Thread(target=body, args=(number,)) for number in range(threads)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    if errors:
        raise errors[0]


class Lmdb:
    """Use one LMDB environment; with `sync=False`, only the kernel flushes, as for our appends."""

    def __init__(self, path: str, *, sync: bool = False, writemap: bool = False) -> None:
        import lmdb

        self.path = path
        self.env = lmdb.open(
            path, map_size=2 << 30, sync=sync, metasync=sync, writemap=writemap,
            map_async=writemap and not sync, max_spare_txns=2,
        )  # fmt: skip
        self._offsets = count()

    def extend(self, pool: Batches, batches: int) -> None:
        """Append batches, each in a transaction of its own."""
        for base, values in each_batch(pool, batches):
            with self.env.begin(write=True) as transaction:
                keys = map(pack_key, range(base, base + len(values)))
                transaction.cursor().putmulti(zip(keys, values, strict=True), append=True)

    def extend_numpy_keys(self, pool: Batches, batches: int) -> None:
        """Append batches with keys that NumPy encodes; no faster way was found."""
        for base, values in each_batch(pool, batches):
            with self.env.begin(write=True) as transaction:
                keys = np.arange(base, base + len(values), dtype=">u8").view("V8").tolist()
                transaction.cursor().putmulti(zip(keys, values, strict=True), append=True)

    def append(self, value: bytes, records: int) -> None:
        """Append records, each in its own transaction; any number of threads may call this."""
        begin, offsets = self.env.begin, self._offsets
        for _ in range(records):
            with begin(write=True) as transaction:
                transaction.put(pack_key(next(offsets)), value, append=True)

    def scan(self) -> None:
        """Create every key and value as a bytes object, with the cursor's own iterator."""
        with self.env.begin() as transaction:
            consume(transaction.cursor())

    def scan_values(self) -> None:
        """Create every value as a bytes object, but no keys."""
        with self.env.begin() as transaction:
            consume(transaction.cursor().iternext(keys=False, values=True))

    def get_in_one(self, offsets: list[int]) -> None:
        """Look up offsets in one read transaction, which does not see later changes."""
        with self.env.begin() as transaction:
            get = transaction.get
            for offset in offsets:
                get(pack_key(offset))

    def get_each(self, offsets: list[int]) -> None:
        """Look up each offset in a new transaction, which sees the newest state."""
        begin = self.env.begin
        for offset in offsets:
            with begin() as transaction:
                transaction.get(pack_key(offset))

    def close(self) -> None:
        """Close the environment; the data stays."""
        self.env.close()

    def drop(self) -> None:
        """Close the peer, and remove its data."""
        self.close()
        remove(self.path)


class Sqlite:
    """Use SQLite with a write-ahead log; `FULL` syncs every commit, `OFF` syncs no commit."""

    def __init__(self, path: str, *, sync: bool = False) -> None:
        self.path = path
        self.db = sqlite3.connect(os.path.join(path, "log.db"), isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute(f"PRAGMA synchronous = {'FULL' if sync else 'OFF'}")
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS records (offset INTEGER PRIMARY KEY, value BLOB NOT NULL)"
        )

    def extend(self, pool: Batches, batches: int) -> None:
        """Append batches, each in a transaction of its own."""
        for base, values in each_batch(pool, batches):
            self.db.execute("BEGIN")
            self.db.executemany(
                "INSERT INTO records VALUES (?, ?)", zip(count(base), values, strict=False)
            )
            self.db.execute("COMMIT")

    def append(self, value: bytes, records: int) -> None:
        """Append records, each in a transaction of its own."""
        execute = self.db.execute
        for offset in range(records):
            execute("INSERT INTO records VALUES (?, ?)", (offset, value))

    def scan(self) -> None:
        """Create every value as a bytes object."""
        consume(self.db.execute("SELECT value FROM records ORDER BY offset"))

    def close(self) -> None:
        """Close the database; the data stays."""
        self.db.close()

    def drop(self) -> None:
        """Close the peer, and remove its data."""
        self.close()
        remove(self.path)


class RocksDb:
    """Use RocksDB through rocksdict; in raw mode, it stores bytes. Its write-ahead log is on."""

    def __init__(self, path: str, *, sync: bool = False) -> None:
        import rocksdict

        self.path = path
        self._new_batch = rocksdict.WriteBatch
        self.db = rocksdict.Rdict(path, rocksdict.Options(raw_mode=True))
        options = rocksdict.WriteOptions()
        options.sync = sync
        self.db.set_write_options(options)

    def extend(self, pool: Batches, batches: int) -> None:
        """Append batches, each as one write batch of RocksDB."""
        for base, values in each_batch(pool, batches):
            batch = self._new_batch(raw_mode=True)
            put = batch.put
            for offset, value in enumerate(values, base):
                put(pack_key(offset), value)
            self.db.write(batch)

    def append(self, value: bytes, records: int) -> None:
        """Append records one by one."""
        put = self.db.put
        for offset in range(records):
            put(pack_key(offset), value)

    def scan(self) -> None:
        """Create every value as a bytes object."""
        consume(self.db.values())

    def close(self) -> None:
        """Close the database; the data stays."""
        self.db.close()

    def drop(self) -> None:
        """Close the peer, and remove its data."""
        self.close()
        remove(self.path)


class ArrowIpc:
    """Use pyarrow's IPC stream in one file: no offsets, no checksums, no recovery."""

    def __init__(self, path: str) -> None:
        import pyarrow

        self._pyarrow = pyarrow
        self.path = path
        self._file = os.path.join(path, "log.arrows")
        self._schema = pyarrow.schema([("value", pyarrow.binary())])

    def extend(self, pool: Batches, batches: int) -> None:
        """Append batches, each as one IPC message."""
        pa = self._pyarrow
        with (
            open(self._file, "wb", buffering=0) as sink,
            pa.ipc.new_stream(sink, self._schema) as writer,
        ):
            for _, values in each_batch(pool, batches):
                column = pa.array(values, pa.binary())
                writer.write(pa.record_batch([column], schema=self._schema))

    def scan(self) -> None:
        """Create every value as a bytes object."""
        pa = self._pyarrow
        with pa.memory_map(self._file) as source, pa.ipc.open_stream(source) as reader:
            for batch in reader:
                consume(batch.column(0).to_pylist())

    def scan_batches(self) -> None:
        """Read every batch; no batch is verified."""
        pa = self._pyarrow
        with pa.memory_map(self._file) as source, pa.ipc.open_stream(source) as reader:
            for batch in reader:
                len(batch)

    def drop(self) -> None:
        """Remove the data."""
        remove(self.path)


# --- bare system calls ----------------------------------------------------------------------------


class RawFile:
    """Write a file with bare system calls; the file grows, or its space is allocated before."""

    def __init__(self, path: str, preallocated_bytes: int = 0) -> None:
        self.path = path
        self._fd = os.open(os.path.join(path, "raw"), os.O_RDWR | os.O_CREAT, 0o644)
        if preallocated_bytes:
            os.posix_fallocate(self._fd, 0, preallocated_bytes)
            os.fsync(self._fd)

    def write(self, data: bytes, writes: int) -> None:
        """Write the same bytes many times, one after the other."""
        fd, size = self._fd, len(data)
        for position in range(0, writes * size, size):
            os.pwrite(fd, data, position)

    def checksum_and_write(self, batch: bytes, writes: int) -> None:
        """Check the CRC-32C of a Kafka batch and write the batch, many times."""
        from crc32c import crc32c

        fd, size, crc = self._fd, len(batch), int.from_bytes(batch[17:21], "big")
        for position in range(0, writes * size, size):
            if crc32c(memoryview(batch)[21:]) != crc:
                raise AssertionError("the checksum does not hold")
            os.pwritev(fd, [batch], position)

    def write_and_sync(self, data: bytes, writes: int) -> None:
        """Write the same bytes many times, and sync after each write."""
        fd, size = self._fd, len(data)
        for position in range(0, writes * size, size):
            os.pwrite(fd, data, position)
            os.fdatasync(fd)

    def drop(self) -> None:
        """Close and remove the file."""
        os.close(self._fd)
        remove(self.path)


_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
MADV_POPULATE_READ = 22


def populate_and_hash(paths: Iterable[str]) -> None:
    """Map files into memory, load their pages, and hash all their bytes."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        size = os.fstat(fd).st_size
        mapped = mmap.mmap(fd, size, prot=mmap.PROT_READ)
        os.close(fd)
        view = np.frombuffer(mapped, np.uint8)
        _libc.madvise(view.__array_interface__["data"][0], size, MADV_POPULATE_READ)
        xxhash.xxh3_64_intdigest(view.data)
        del view
        mapped.close()


def segment_files(log_dir: str) -> list[str]:
    """List the files that hold record batches below a log dir."""
    return sorted(
        os.path.join(folder, name)
        for folder, _, names in os.walk(log_dir)
        for name in names
        if name.endswith(".log")
    )
