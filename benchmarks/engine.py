"""Drive the engine in the benchmarks: a store with a single log."""

from __future__ import annotations

from typing import Any

from benchmarks.peers import Batches, consume, remove
from logstore import Log, LogStore, StoreConfig

# The batch of one record of 100 bytes without key and headers: docs/FORMAT.md, section 4.
ONE_RECORD_BATCH_BYTES = 192
TOPIC = "bench"


class Engine:
    """Hold a store with one log, and define the loops that the benchmarks time."""

    def __init__(self, path: str, config: StoreConfig | None = None) -> None:
        self.path = path
        self.store = LogStore.open(path, config=config or StoreConfig())
        known = (TOPIC, 0) in self.store
        self.log: Log = self.store.log(TOPIC, 0) if known else self.store.create(TOPIC, 0)

    def extend(self, pool: Batches, batches: int) -> None:
        """Append batches from lists of bytes."""
        extend, size = self.log.extend, len(pool)
        for number in range(batches):
            extend(pool[number % size])

    def extend_arrow(self, pool: list[Any], batches: int) -> None:
        """Append batches from Arrow."""
        append_arrow, size = self.log.append_arrow, len(pool)
        for number in range(batches):
            append_arrow(pool[number % size])

    def append_encoded(self, raw: bytes, batches: int) -> None:
        """Append the same batch of a client many times."""
        append_encoded = self.log.append_encoded
        for _ in range(batches):
            append_encoded(raw)

    def append(self, value: bytes, records: int) -> None:
        """Append records one by one."""
        append = self.log.append
        for _ in range(records):
            append(value)

    def append_durable(self, value: bytes, records: int) -> None:
        """Append records one by one; wait for a sync after each record."""
        append = self.log.append
        for _ in range(records):
            append(value, durable=True)

    def append_through_appender(self, value: bytes, records: int) -> None:
        """Append values through an Appender, and close the Appender."""
        with self.log.appender() as appender:
            append = appender.append
            for _ in range(records):
                append(value)

    def append_keyed_through_appender(self, value: bytes, records: int) -> None:
        """Append values, keys and timestamps through an Appender, and close the Appender."""
        with self.log.appender() as appender:
            append = appender.append
            for number in range(records):
                append(value, key=b"key-0001", timestamp=1_700_000_000_000 + number)

    def scan_bytes(self) -> None:
        """Create every value as a bytes object."""
        for batch in self.log.read_batches():
            consume(batch.values.to_list())

    def scan_records(self) -> None:
        """Create every record as a Record object."""
        consume(self.log)

    def scan_batches(self, *, zero_copy: bool = False) -> None:
        """Read every batch with a check; get its offsets, and its values as one buffer."""
        for batch in self.log.read_batches(zero_copy=zero_copy):
            batch.offsets, batch.values.data  # noqa: B018

    def scan_arrow(self) -> None:
        """Read every batch with a check, and convert it to Arrow."""
        for batch in self.log.read_batches():
            batch.to_arrow()

    def get(self, offsets: list[int]) -> None:
        """Read records by offset, one by one."""
        log = self.log
        for offset in offsets:
            log[offset]

    def close(self) -> None:
        """Close the store; the data stays."""
        self.store.close()

    def drop(self) -> None:
        """Close the store, and remove its data."""
        self.close()
        remove(self.path)
