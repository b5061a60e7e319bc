"""Hold a log against a plain list: every operation, reopening and crashing in any order.

The model is a dict from offset to record, a start and an end. A crash is a copy of the directory
as it is on disk at that moment: records that were never flushed may stay, and here all do, because
the kernel has them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from logstore import LogConfig, LogStore, OffsetOutOfRangeError, Record
from logstore.format.columnar import record_batch as columnar
from support.places import SHARED_MEMORY
from support.reader import batches, read_partition
from support.samples import facts

SMALL = st.one_of(st.none(), st.binary(max_size=40), st.just(b"x" * 300))
KEYS = st.one_of(st.none(), st.binary(max_size=8))
TIMES = st.integers(min_value=0, max_value=60)
HEADER = st.tuples(st.sampled_from(["a", "é"]), st.one_of(st.none(), st.binary(max_size=3)))
HEADERS = st.lists(HEADER, max_size=2)
ROWS = st.lists(st.tuples(TIMES, KEYS, SMALL, HEADERS.map(tuple)), min_size=1, max_size=12)
PLACE = st.floats(min_value=0, max_value=1)
CODECS = st.sampled_from(["none", "none", "lz4", "zstd"])

Row = tuple[Any, ...]


class LogMachine(RuleBasedStateMachine):
    """A log and its model; every rule changes both or compares them."""

    def __init__(self) -> None:
        super().__init__()
        parent = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        self.base = Path(tempfile.mkdtemp(prefix="logstore-model-", dir=parent))
        self.lives = 0
        self.records: dict[int, Row] = {}
        self.start = self.end = self.flushed = 0
        self.epoch = 0

    @initialize(codec=CODECS, segment_bytes=st.sampled_from([512, 2048, 1 << 20]))
    def create(self, codec: str, segment_bytes: int) -> None:
        config = LogConfig(
            segment_bytes=segment_bytes, index_interval_bytes=256, compression_type=codec
        )
        self.config = config
        self.store = LogStore.open(self.root)
        self.log = self.store.create("orders", 0, config=config)
        self.followers = LogStore.open(self.base / "followers")
        self.follower = self.followers.create("orders", 0, config=config)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.read_the_files()
            self.store.close()
            self.followers.close()
        shutil.rmtree(self.base, ignore_errors=True)

    @property
    def root(self) -> Path:
        return self.base / f"life{self.lives}"

    def place(self, fraction: float) -> int:
        """Give an offset of the log's range, end included."""
        return self.start + round(fraction * (self.end - self.start))

    def add(self, offsets: range, rows: list[Row]) -> None:
        assert offsets == range(self.end, self.end + len(rows))
        self.records.update((o, (o, *row)) for o, row in zip(offsets, rows, strict=True))
        self.end = offsets.stop

    def rows(self, start: int, end: int) -> list[Row]:
        return [self.records[offset] for offset in range(start, end)]

    # --- writing --------------------------------------------------------------------------------

    @rule(row=ROWS, durable=st.booleans())
    def append(self, row: list[Row], durable: bool) -> None:
        time, key, value, headers = row[0]
        offset = self.log.append(value, key=key, timestamp=time, headers=headers, durable=durable)
        self.add(range(offset, offset + 1), row[:1])
        if durable:
            assert self.log.recovery_point >= self.end

    @rule(rows=ROWS, durable=st.booleans(), as_records=st.booleans())
    def extend(self, rows: list[Row], durable: bool, as_records: bool) -> None:
        times, keys, values, headers = (list(column) for column in zip(*rows, strict=True))
        if as_records:
            records = [Record(0, t, k, v, h) for t, k, v, h in rows]
            offsets = self.log.extend(records, durable=durable)
        else:
            offsets = self.log.extend(
                values, keys=keys, timestamps=times, headers=headers, durable=durable
            )
        self.add(offsets, rows)

    @rule(rows=ROWS)
    def append_arrow(self, rows: list[Row]) -> None:
        times, keys, values, _ = (list(column) for column in zip(*rows, strict=True))
        columns = {
            "value": pa.array(values, pa.binary()),
            "key": pa.array(keys, pa.binary()),
            "timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
        }
        offsets = self.log.append_arrow(pa.RecordBatch.from_pydict(columns))
        self.add(offsets, [(t, k, v, ()) for t, k, v, _ in rows])

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.end
        assert self.log.recovery_point == self.end

    @rule(fraction=PLACE)
    def truncate_to(self, fraction: float) -> None:
        offset = self.place(fraction)
        self.log.truncate_to(offset)
        self.end = offset
        self.records = {o: r for o, r in self.records.items() if o < offset}

    @rule(fraction=PLACE)
    def delete_records_before(self, fraction: float) -> None:
        offset = self.place(fraction)
        self.log.delete_records_before(offset)
        self.start = offset
        self.records = {o: r for o, r in self.records.items() if o >= offset}

    @precondition(lambda self: self.end > self.start)
    @rule(fraction=PLACE)
    def append_encoded(self, fraction: float) -> None:
        raw = self.log.read_raw(min(self.place(fraction), self.end - 1), 600)
        rows = [tuple(r)[1:] for batch in batches(raw) for r in batch.records]
        self.add(self.log.append_encoded(raw).offsets, rows)

    @rule(rows=ROWS)
    def append_as_follower_in_a_new_epoch(self, rows: list[Row]) -> None:
        self.epoch += 1
        self.follower.truncate_to(self.follower.log_start_offset)
        source = self.scratch(rows)
        raw = columnar.reframe(source, self.end, self.epoch)
        self.log.append_as_follower(raw)
        self.add(range(self.end, self.end + len(rows)), rows)
        assert batch_at(self.log, self.end - 1).leader_epoch == self.epoch

    def scratch(self, rows: list[Row]) -> bytes:
        """Encode rows as one batch, by another log."""
        log = self.follower
        times, keys, values, headers = (list(column) for column in zip(*rows, strict=True))
        offsets = log.extend(values, keys=keys, timestamps=times, headers=headers)
        return bytes(log.read_raw(offsets[0], 1))

    # --- reading --------------------------------------------------------------------------------

    @rule(fraction=PLACE, count=st.integers(1, 30), max_bytes=st.sampled_from([1, 500, 1 << 20]))
    def read(self, fraction: float, count: int, max_bytes: int) -> None:
        offset = self.place(fraction)
        found = list(map(facts, self.log.read(offset, max_records=count, max_bytes=max_bytes)))
        assert found == self.rows(offset, min(offset + len(found), self.end))
        assert len(found) <= count
        assert found or offset == self.end

    @rule(fraction=PLACE, other=PLACE, zero_copy=st.booleans())
    def read_batches(self, fraction: float, other: float, zero_copy: bool) -> None:
        start, end = sorted((self.place(fraction), self.place(other)))
        found = [
            facts(record)
            for batch in self.log.read_batches(start, end_offset=end, zero_copy=zero_copy)
            for record in batch
        ]
        assert found == self.rows(start, end)

    @rule(fraction=PLACE, other=PLACE)
    def slice(self, fraction: float, other: float) -> None:
        start, end = self.place(fraction), self.place(other)
        part = self.log[start:end]
        assert len(part) == max(end - start, 0)
        assert list(map(facts, part)) == self.rows(start, end)
        if self.end > self.start:
            back = self.end - min(start, self.end - 1)
            assert facts(self.log[-back]) == self.records[self.end - back]
            assert list(map(facts, self.log[-back:])) == self.rows(self.end - back, self.end)

    @rule(fraction=PLACE)
    def read_one(self, fraction: float) -> None:
        offset = self.place(fraction)
        if offset < self.end:
            assert facts(self.log[offset]) == self.records[offset]
        outside = [self.end, self.end + 5, -len(self.log) - 1]
        for beyond in [*outside, self.start - 1] if self.start else outside:
            with pytest.raises(OffsetOutOfRangeError):
                self.log[beyond]
        with pytest.raises(OffsetOutOfRangeError):
            self.log.read(self.end + 1)

    @rule(timestamp=st.integers(0, 62))
    def by_timestamp(self, timestamp: int) -> None:
        later = [o for o in range(self.start, self.end) if self.records[o][1] >= timestamp]
        assert self.log.offset_for_timestamp(timestamp) == (later[0] if later else None)

    @rule(fraction=PLACE)
    def tail(self, fraction: float) -> None:
        offset = self.place(fraction)
        assert list(map(facts, self.log.tail(offset, timeout=0))) == self.rows(offset, self.end)

    @rule()
    def iterate(self) -> None:
        assert list(map(facts, self.log)) == self.rows(self.start, self.end)

    @rule()
    def read_beside_the_writer(self) -> None:
        with LogStore.open(self.root, read_only=True) as store:
            log = store.log("orders", 0)
            assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
            assert list(map(facts, log)) == self.rows(self.start, self.end)

    @rule(max_bytes=st.sampled_from([1, 700, 1 << 20]))
    def follow(self, max_bytes: int) -> None:
        """A second log that is fed raw batches equals the first."""
        with LogStore.open(self.base / "fed") as store:
            follower = store.create("fed", len(store), config=self.config)
            while self.start < self.end and follower.log_end_offset < self.end:
                offset = max(follower.log_end_offset, self.start)
                follower.append_as_follower(self.log.read_raw(offset, max_bytes))
            found = [facts(r) for r in follower if r.offset >= self.start]
            assert found == self.rows(self.start, self.end)

    # --- lives ----------------------------------------------------------------------------------

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = LogStore.open(self.root)
        assert self.store.recovery_report.scanned_bytes == 0
        self.log = self.store.log("orders", 0)

    @rule()
    def crash(self) -> None:
        before = self.root
        self.lives += 1
        shutil.copytree(before, self.root)
        self.store.close()
        shutil.rmtree(before)
        self.store = LogStore.open(self.root)
        assert not self.store.recovery_report.problems, str(self.store.recovery_report)
        self.log = self.store.log("orders", 0)

    @rule()
    def read_the_files(self) -> None:
        """The independent reader finds the same records."""
        found = read_partition(self.root / "orders-0")
        rows = [tuple(r) for batch in found for r in batch.records if r.offset >= self.start]
        assert rows == self.rows(self.start, self.end)

    @invariant()
    def ends_agree(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
            assert len(self.log) == self.end - self.start
            assert self.log.recovery_point <= self.end


def batch_at(log: Any, offset: int) -> Any:
    """Give the batch that holds an offset."""
    return next(iter(log.read_batches(offset)))


TestLog = LogMachine.TestCase
TestLog.settings = settings(
    max_examples=int(os.environ.get("LOGSTORE_EXAMPLES", "60")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
