"""Readers of committed records never get records of open or aborted transactions."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from logstore import Log, LogConfig, LogStore, StoreConfig
from logstore.format.kafka import record_batch as kafka
from logstore.log.read import aborted_index, transactions
from logstore.log.read.transactions import CONTROL, TRANSACTIONAL, Event
from logstore.log.reader import ReadableLog
from logstore.log.replica import Replica
from logstore.log.segments.segment import Segment
from mover import ReplicaMover

CONFIG = LogConfig(record_format="kafka", segment_bytes=1024)


def batch(producer_id: int, values: list[bytes], attributes: int = TRANSACTIONAL) -> bytes:
    """Make a batch of a producer without a sequence, like a coordinator's batch."""
    keys = None if attributes & CONTROL == 0 else [values[0]]
    payload = kafka.build_payload(values, keys, 1, None)
    return stamped(b"".join(kafka.frame(payload, 0, 0)), producer_id, attributes)


def keyed_batch(producer_id: int, value: bytes) -> bytes:
    """Make a batch of a transaction with one record, which has a key."""
    payload = kafka.build_payload([value], [b"key"], 1, None)
    return stamped(b"".join(kafka.frame(payload, 0, 0)), producer_id, TRANSACTIONAL)


def stamped(raw: bytes, producer_id: int, attributes: int) -> bytes:
    """Give an encoded batch a producer and attributes."""
    data = bytearray(raw)
    struct.pack_into(">H", data, 21, attributes)
    struct.pack_into(">qhi", data, 43, producer_id, 0, -1)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def marker(producer_id: int, is_commit: bool) -> bytes:
    """Make the control batch that ends a producer's transaction."""
    return batch(producer_id, [struct.pack(">hh", 0, is_commit)], TRANSACTIONAL | CONTROL)


def committed(log: ReadableLog, offset: int) -> list[bytes | None]:
    """Read the committed values from an offset on."""
    batches = log.read_batches(offset, isolation_level="read_committed")
    return [value for each in batches for value in each.values.to_list()]


@pytest.mark.parametrize("seed", range(4))
def test_a_model_agrees_about_any_transactions(tmp_path: Path, seed: int) -> None:
    """Transactions are interleaved, across segments, empty or unfinished; reads begin anywhere."""
    rng = random.Random(seed)
    rows: list[list[Any]] = []  # producer, value, what became of it
    begun: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []  # first offset, producer, offset of the marker
    with LogStore.open(tmp_path) as store:
        log = store.create("t", 0, config=CONFIG)
        for _ in range(120):
            producer_id, kind = rng.randrange(4), rng.random()
            if kind < 0.4:
                is_commit = rng.random() < 0.5
                log.append_encoded(marker(producer_id, is_commit))
                for row in rows:
                    if row[0] == producer_id and row[2] is None:
                        row[2] = is_commit
                if producer_id in begun and not is_commit:
                    aborted.append((begun[producer_id], producer_id, len(rows)))
                begun.pop(producer_id, None)
                rows.append([-1, b"", False])
                continue
            values = [rng.randbytes(8) for _ in range(rng.randrange(1, 4))]
            is_plain = kind > 0.9
            log.append_encoded(batch(-1, values, 0) if is_plain else batch(producer_id, values))
            if not is_plain:
                begun.setdefault(producer_id, len(rows))
            rows += [[producer_id, value, True if is_plain else None] for value in values]
        assert len(log._state.segments) > 5 and log.log_end_offset == len(rows)
        stable = min((at for at, row in enumerate(rows) if row[2] is None), default=len(rows))
        for start in range(0, len(rows), 7):
            expected = [row[1] for row in rows[start : max(start, stable)] if row[2]]
            assert committed(log, start) == expected
            end = min(start + 20, stable)
            assert log.aborted_transactions(start, end) == [
                (producer_id, first)
                for first, producer_id, last in sorted(aborted)
                if first < end and last >= start
            ]
        with LogStore.open(tmp_path, read_only=True) as beside:
            assert committed(beside["t", 0], 0) == [row[1] for row in rows[:stable] if row[2]]


def test_regression_what_comes_while_a_reader_looks_is_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that begins after the walk for markers is not returned."""
    events_of = transactions.events_of

    with LogStore.open(tmp_path) as store:
        log: Log = store.create("t", 0, config=CONFIG)
        log.append(b"before")

        def meanwhile(state: Any, segment: Segment) -> list[Event]:
            events = events_of(state, segment)
            log.append_encoded(batch(7, [b"undecided"]))
            return events

        monkeypatch.setattr(transactions, "events_of", meanwhile)
        assert committed(log, 0) == [b"before"]
        monkeypatch.undo()
        log.append_encoded(marker(7, is_commit=False))
        assert committed(log, 0) == [b"before"]


def test_regression_a_corrupt_log_lists_its_aborted_transactions(tmp_path: Path) -> None:
    """Its producers are unknown, and a broker's clients would have read aborted records."""
    with LogStore.open(tmp_path) as store:
        log = store.create("t", 0, config=CONFIG)
        log.append_encoded(batch(7, [b"a", b"b"]))
        log.append_encoded(marker(7, is_commit=False))
        log.extend([b"x" * 60] * 3)
        for _ in range(60):
            log.append(b"x" * 60)
        path = Path(log._state.segments[2].log_path)
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with LogStore.open(tmp_path) as store:
        log = store.log("t", 0)
        assert log.recovery.problems and log.aborted_transactions(0, 9) == [(7, 0)]


def test_regression_a_truncation_during_a_read_shows_no_open_transaction(tmp_path: Path) -> None:
    """A reader continues after the cut with the transactions that are in the log then."""
    with LogStore.open(tmp_path, admin_socket=False) as store:
        log = store.create("t", 0, config=LogConfig(record_format="kafka"))
        for number in range(20):
            log.append_encoded(batch(1, [b"old %d" % number]))
        log.append_encoded(marker(1, is_commit=True))
        batches = log.read_batches(isolation_level="read_committed")
        values = next(batches).values.to_list()
        log.truncate_to(10)
        log.append_encoded(marker(1, is_commit=True))
        log.append_encoded(batch(2, [b"aborted"]))
        log.append_encoded(marker(2, is_commit=False))
        log.append_encoded(batch(3, [b"committed"]))
        log.append_encoded(marker(3, is_commit=True))
        log.append_encoded(batch(2, [b"open"]))
        values += [value for each in batches for value in each.values.to_list()]
    expected = [*(b"old %d" % number for number in range(10)), b"committed"]
    assert [value for value in values if value and value[0]] == expected  # markers begin with 0


@pytest.mark.parametrize("is_commit", [True, False])
def test_regression_the_log_start_is_moved_over_a_marker_that_no_reader_has_seen(
    tmp_path: Path, *, is_commit: bool
) -> None:
    """The transaction does not count as open, so readers and compaction continue."""
    config = LogConfig(record_format="kafka", cleanup_policy="compact,delete")
    with LogStore.open(tmp_path, config=StoreConfig(log_cleaner_enable=False)) as store:
        log = store.create("t", 0, config=config)
        log.append_encoded(keyed_batch(1, b"of the transaction"))
        assert committed(log, 0) == []
        log.append_encoded(marker(1, is_commit=is_commit))
        log.delete_records_before(2)
        log.append(b"after", key=b"key")
        assert committed(log, 2) == [b"after"]
        assert [each.value for each in log.tail(2, 0, isolation_level="read_committed")] == [
            b"after"
        ]
        log.roll_if_due(2**62)
        log.append(b"latest", key=b"key")
        log.flush()
        assert log.compact().clean_end_offset == 3


def test_the_last_stable_offset_is_never_before_the_log_start(tmp_path: Path) -> None:
    """The first records of an open transaction are deleted, and another process looks."""
    with LogStore.open(tmp_path, admin_socket=False) as store:
        log = store.create("t", 0, config=LogConfig(record_format="kafka"))
        log.append_encoded(batch(1, [b"1", b"2", b"3"]))
        log.delete_records_before(2)
        with LogStore.open(tmp_path, read_only=True) as view:
            assert view["t", 0].last_stable_offset == log.last_stable_offset == 2


def look_committed(log: Log) -> None:
    assert list(log.read_batches(isolation_level="read_committed"))


def look_aborted(log: Log) -> None:
    assert log.aborted_transactions(log.log_start_offset, log.log_end_offset)


def look_range(log: Log) -> None:
    found, aborted = log.read_committed_range(log.log_end_offset - 9)
    found.close()
    assert aborted


def look_fates(log: Log) -> None:
    fates = {fate for _, fate in log.transactions_after(log.log_end_offset - 9)}
    assert fates == {"committed", "aborted"}


def delete_some(store: LogStore, log: Log) -> None:
    log.delete_records_before(log.log_end_offset - 10)


def compact(store: LogStore, log: Log) -> None:
    assert log.compact().segments_replaced > 4


def move(store: LogStore, log: Log) -> None:
    present = Path(log.log_dir)
    target = present.with_name("1" if present.name == "2" else "2")
    with ReplicaMover(store) as mover:
        assert mover.move("t", 0, target).wait(60)


@pytest.mark.parametrize("change", [delete_some, compact, move])
@pytest.mark.parametrize("look", [look_committed, look_aborted, look_range, look_fates])
def test_regression_segments_are_removed_while_a_reader_looks_for_transactions(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    look: Callable[[Log], None],
    change: Callable[[LogStore, Log], None],
) -> None:
    """The reader looks again, instead of reporting that the replica is offline."""
    config = CONFIG.replace(cleanup_policy="compact,delete")
    paths = [tmp_path / "1", tmp_path / "2"]
    with LogStore.open(paths, config=StoreConfig(log_cleaner_enable=False)) as store:
        log = store.create("t", 0, config=config)
        for number in range(60):
            for producer_id in (1, 2):
                log.append_encoded(keyed_batch(producer_id, b"v%d" % number * 20))
                log.append_encoded(marker(producer_id, is_commit=producer_id == 1))
        log.flush()
        found = transactions.events_of
        changed: list[bool] = []

        def events_of(state: Replica, segment: Segment) -> list[Event]:
            events = found(state, segment)
            if not changed:
                changed.append(True)
                change(store, log)
            return events

        monkeypatch.setattr(transactions, "events_of", events_of)
        monkeypatch.setattr(aborted_index, "events_of", events_of)
        look(log)
        assert changed
        log.aborted_transactions(0, log.log_end_offset)
        assert not set(log._state.transaction_events) - set(log._state.segments)
