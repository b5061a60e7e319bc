"""What a compaction must not pass, must not wait for, and must leave to know the producers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore import CorruptRecordBatchError, Log, LogConfig, LogStore, TopicPartition
from logstore.log import host
from logstore.log.compaction import compaction
from logstore.log.compaction.compaction import compact, plan_of
from logstore.store.upkeep.compactor import Compactor
from support.clock import Clock
from support.compacting import batch_of
from support.hanging import QUIET
from support.producers import NOW, known, marker_of, sent, told

OFF = QUIET.replace(log_cleaner_enable=False)
CONFIG = LogConfig(
    record_format="kafka", segment_bytes=900, cleanup_policy="compact", min_cleanable_dirty_ratio=0
)
RUNS_MAX = 5


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[LogStore]:
    """Open a store that compacts nothing by itself."""
    with LogStore.open(tmp_path, config=OFF, clock=clock, admin_socket=False) as opened:
        yield opened


def fill(log: Log, count: int = 60) -> None:
    """Append records of one key, and flush."""
    for _ in range(count):
        log.append(b"x" * 60, key=b"k")
    log.flush()


def harm(log: Log) -> None:
    """Change a byte in the third segment, which nobody has read since the opening."""
    path = Path(host.segments_of(log)[2].log_path)
    data = path.read_bytes()
    path.write_bytes(data[:300] + bytes([data[300] ^ 1]) + data[301:])


def run_of(store: LogStore, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> tuple[Compactor, int]:
    """Let the background compact; give it, and how many compactions it began."""
    (log_dir,) = store.host.replicas.log_dirs
    compactor, count, real = Compactor(log_dir, store.host.replicas, OFF, clock), 0, compact

    def counting(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        assert count < RUNS_MAX, "it does not end"
        return real(*arguments)

    monkeypatch.setattr(compaction, "compact", counting)
    compactor.run_due()
    return compactor, count


def test_regression_an_open_transaction_does_not_keep_the_thread_busy(
    store: LogStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log was due, a compaction stopped before the transaction, and the log was due again."""
    log = store.create("held", 0, config=CONFIG)
    log.append_encoded(sent(7, 0, transactional=True, keys=[b"k"]))
    fill(log)
    other = store.create("other", 0, config=CONFIG)
    fill(other)
    compactor, count = run_of(store, clock, monkeypatch)
    assert count == 1 and not compactor.set_aside
    assert host.metadata_of(other).cleaned.end_offset == host.segments_of(other)[-1].base_offset
    log.append_marker(7, 0, commit=True, coordinator_epoch=0)
    assert host.compaction_plan(log).is_due


def test_regression_damage_in_kafkas_layout_is_reported_and_ends_the_compaction(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for transactions met the damage first, and the log was compacted up to it."""
    with LogStore.open(tmp_path, config=OFF, clock=clock) as store:
        fill(store.create("bad", 0, config=CONFIG))
    with LogStore.open(tmp_path, config=OFF, clock=clock) as store:
        log = store.log("bad", 0)
        harm(log)
        before = host.segments_of(log)[2:]
        compactor, count = run_of(store, clock, monkeypatch)
        assert count <= 2
        assert "checksum" in compactor.set_aside[TopicPartition("bad", 0)].reason
        assert host.segments_of(log)[-len(before) :] == before
        with pytest.raises(CorruptRecordBatchError, match="checksum"):
            log.compact()


def test_regression_a_transaction_of_no_producer_stops_nobody(store: LogStore) -> None:
    """A peer may send such a batch; no marker can ever end its transaction."""
    log = store.create("t", 0, config=CONFIG)
    log.append_encoded(batch_of("kafka", 0, [(b"k", b"v", NOW)], attributes=0x10))
    fill(log)
    assert log.last_stable_offset == 61
    found = log.read(0, max_records=99, isolation_level="read_committed")
    assert len(found) == 61 and log.compact().records_read


def test_regression_no_group_is_replaced_after_the_policy_changed(store: LogStore) -> None:
    """`set_config` takes effect at once: a running compaction ends."""
    log, calls, left = store.create("t", 0, config=CONFIG), 0, 0
    for number in range(200):
        log.append(b"v%d" % number, key=b"k%d" % (number % 150))
    log.flush()

    def pace(_: int) -> None:
        nonlocal calls, left
        calls += 1
        if not left and calls > len(host.segments_of(log)) + 2:
            store.set_config("t", 0, {"cleanup_policy": "delete"})
            left = len(list(log))

    report = compact(log._state, pace)
    assert left and not report.is_complete and len(list(log)) == left


def test_regression_the_last_sequence_stays_although_a_marker_follows(store: LogStore) -> None:
    """A follower that copies the compacted log must know each producer's next sequence."""
    log = store.create("t", 0, config=CONFIG)
    log.append_encoded(sent(7, 0, (b"v",) * 3, transactional=True, keys=[b"k"] * 3))
    log.append_marker(7, 0, commit=True, coordinator_epoch=0)
    log.append_encoded(sent(8, 0, (b"v",), transactional=True, keys=[b"k"]))
    log.append_encoded(marker_of(8, commit=True, epoch=2))  # it begins a new epoch
    fill(log)
    log.compact()
    assert next(iter(log)).offset > 6 and told(log) == known(log)


def test_regression_a_full_table_leaves_the_last_batches_of_producers(store: LogStore) -> None:
    """The table is full within a chunk of batches, and the last batch is in this chunk."""
    log = store.create("t", 0, config=CONFIG.replace(segment_bytes=100_000))
    log.append_encoded(sent(7, 0, keys=[b"k0"]))
    for number in range(3000):
        log.append(bytes(90), key=b"k%d" % number)
    log.flush()
    assert 0 < compact(log._state, table_bytes=2000).clean_end_offset < 3000
    assert {s.producer_id for s in told(log)} == {s.producer_id for s in known(log)} == {7}


@pytest.mark.parametrize("timestamp", [-(2**63) + 1, -(2**62), 2**62])
def test_regression_a_tombstone_of_any_time_is_compacted(
    store: LogStore, clock: Clock, timestamp: int
) -> None:
    """The distance to the delete horizon may need more than 64 bits; then the batch has none."""
    config = CONFIG.replace(message_timestamp_after_max_ms=None)
    log = store.create("t", 0, config=config)
    log.append_encoded(batch_of("kafka", 0, [(b"t", None, timestamp)]))
    fill(log)
    for _ in range(2):
        log.compact()
        clock.ms += 2 * config.delete_retention_ms
    first = next(iter(log))
    is_kept = timestamp == -(2**63) + 1
    assert (first.offset == 0) == is_kept and log.verify() == []
    assert not is_kept or first[:2] == (0, timestamp)


def test_tombstones_stay_while_the_owner_of_the_store_needs_them(
    store: LogStore, clock: Clock
) -> None:
    """A cluster needs them while a replica is away; no compaction is due only for them."""
    log, needed = store.create("orders", 0, config=CONFIG), {("orders", 0)}
    store.host.keep_deletions_if(lambda topic, partition: (topic, partition) in needed)
    log.append(None, key=b"deleted")
    for _ in range(3):  # the first compaction sets the delete horizon, and the next ones are later
        fill(log)
        log.compact()
        assert log.read(0)[0].key == b"deleted"
        clock.ms += log.config.delete_retention_ms
    log._set_config(lambda config: config.replace(min_cleanable_dirty_ratio=0.99))
    assert not plan_of(log._state).is_due
    needed.clear()
    assert plan_of(log._state).is_due
    log.compact()
    assert log.read(0)[0].key == b"k" and not plan_of(log._state).is_due
