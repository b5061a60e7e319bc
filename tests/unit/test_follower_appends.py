"""Append a leader's batches unchanged, unless the leader was replaced."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from logstore import FencedLeaderEpochError, Log, LogConfig, LogStore, OffsetOutOfRangeError
from logstore.format import layouts
from logstore.log import host
from logstore.log.encoded.raw_batches import parse
from support.compacting import batch_of
from support.hanging import QUIET
from support.hostile import column, columnar_batch
from support.inside import abandon
from support.producers import sent

COMPACTED = LogConfig(
    record_format="kafka", segment_bytes=900, cleanup_policy="compact", index_interval_bytes=128
)


def batch(offset: int, epoch: int) -> bytes:
    """Make a batch of one record at an offset."""
    cells = column([b"%d" % offset])
    return columnar_batch(cells, 1, base_offset=offset, leader_epoch=epoch)


@pytest.fixture
def log(tmp_path: Path) -> Any:
    """Return the log of a follower."""
    with LogStore.open(tmp_path, config=QUIET, admin_socket=False) as store:
        yield store.create("t", 0)


def test_many_batches_come_at_once_and_unchanged(log: Log) -> None:
    """The batches have several epochs; the result is the range of their offsets."""
    raw = batch(0, 1) + batch(1, 1) + batch(2, 3)
    offsets = log.append_as_follower(raw, leader_epoch=5, durable=True)
    assert offsets == range(3) and type(offsets) is range
    assert log.read_raw(0) == raw and log.recovery_point == 3
    assert log._state.replication.epochs.entries == [(1, 0), (3, 2)]


def test_a_replaced_leader_is_refused(log: Log) -> None:
    """If the leader sends nothing, it is refused, too: the follower must ask for the new leader."""
    log.append_as_follower(batch(0, 1), leader_epoch=5)
    assert log.leader_epoch == 5
    for raw in (batch(1, 1), b""):
        with pytest.raises(FencedLeaderEpochError) as caught:
            log.append_as_follower(raw, leader_epoch=4)
        assert (caught.value.leader_epoch, caught.value.current_epoch) == (4, 5)
        assert caught.value.is_written is False
    assert log.append_as_follower(batch(1, 1), leader_epoch=5) == range(1, 2)


def test_a_new_leader_sends_what_its_predecessors_wrote(log: Log) -> None:
    """No batch has the new leader's epoch yet; without it, the log's epoch is the limit."""
    log.leader_epoch = 9
    with pytest.raises(ValueError, match="epoch 2 follows a batch of the higher leader epoch 9"):
        log.append_as_follower(batch(0, 2))
    assert log.append_as_follower(batch(0, 2) + batch(1, 3), leader_epoch=9) == range(2)
    assert log.leader_epoch == 9


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (batch(1, 2), "leader epoch 2 follows a batch of the higher leader epoch 3"),
        (batch(1, 4) + batch(2, 3), "leader epoch 3 follows a batch of the higher leader epoch 4"),
        (batch(1, 6), "a leader of epoch 5 cannot send a batch of epoch 6"),
    ],
)
def test_epochs_that_no_leader_can_have_are_refused(log: Log, raw: bytes, message: str) -> None:
    """The epochs fall, or are higher than the leader's; nothing is written."""
    log.append_as_follower(batch(0, 3), leader_epoch=5)
    with pytest.raises(ValueError, match=message) as caught:
        log.append_as_follower(raw, leader_epoch=5)
    assert vars(caught.value)["is_written"] is False
    assert log.log_end_offset == 1


def test_the_epoch_of_a_batch_becomes_the_logs(log: Log) -> None:
    """This happens if the leader's epoch is not given."""
    log.append_as_follower(batch(0, 3))
    assert log.leader_epoch == 3 and log.append(b"own") == 1
    assert [each.leader_epoch for each in log.read_batches()] == [3, 3]


def compacted_leader(store: LogStore) -> Log:
    """Make a compacted log of Kafka's layout, with producers, epochs and many gaps."""
    log = store.create("leader", 0, config=COMPACTED)
    for number in range(300):
        log.leader_epoch = number // 100
        if number % 7 == 0:
            log.append_encoded(sent(number % 3, number // 21, keys=[b"p%d" % (number % 3)]))
        else:
            log.append(b"%d" % number, key=b"%d" % (number % 40))
    log.flush()
    log.compact()
    assert len(list(log)) < 80 < log.log_end_offset
    return log


def state_of(log: Log) -> tuple[object, ...]:
    """Return what a reader, a follower and a producer see of a log."""
    level = "read_committed"
    with log.read_range(log.log_start_offset, 1 << 20) as found:
        first = found.first_offset
    raw, offset = [], log.log_start_offset
    while data := log.read_raw(offset):
        raw.append(data)
        offset = parse(data)[-1][1].last_offset + 1
    records = [record[:5] for record in log.read(0, max_records=999, isolation_level=level)]
    last = {each.producer_id: (each.epoch, each.last_sequence) for each in log.producer_states()}
    epochs = [epoch for epoch, _ in log.leader_epochs]  # a gap may hide where an epoch began
    return b"".join(raw), records, last, epochs, (log.log_start_offset, log.log_end_offset), first


@pytest.mark.parametrize("max_bytes", [1, 500, 1 << 20])
def test_regression_a_compacted_log_is_copied_with_its_gaps(tmp_path: Path, max_bytes: int) -> None:
    """A follower refused the first batch after a gap, so compacted topics could not be copied."""
    with LogStore.open(tmp_path, config=QUIET, admin_socket=False) as store:
        leader = compacted_leader(store)
        follower = store.create("follower", 0, config=COMPACTED.replace(segment_bytes=700))
        while follower.log_end_offset < leader.log_end_offset:
            raw = leader.read_raw(follower.log_end_offset, max_bytes)
            if max_bytes == 1:
                raw = raw[: layouts.read_header(raw, 0).size_bytes]
            follower.append_as_follower(raw, leader_epoch=2)
        expected = state_of(leader)
        assert state_of(follower) == expected and follower.verify() == []
        segments = host.segments_of(follower)
        assert len(segments) > 5
        assert all(a.end_offset == b.base_offset for a, b in pairwise(segments))
        follower.flush()
        abandon(store)
    with LogStore.open(tmp_path, config=QUIET, admin_socket=False) as store:
        follower = store.log("follower", 0)
        assert store.recovery_report.is_sound and not follower.recovery.warnings
        assert state_of(follower) == expected and follower.verify() == []
        follower.compact()
        assert [r[:5] for r in follower][-1] == expected[1][-1]  # type: ignore[index]
        follower.truncate_to(150)
        assert follower.log_end_offset == 150 and follower.verify() == []


def test_gaps_that_compaction_cannot_leave_are_refused(store: LogStore) -> None:
    """In a log that is not compacted, in the columnar layout, and if a gap is too wide."""
    first, later = (batch_of("kafka", at, [(b"k", b"v", 1)]) for at in (0, 5))
    far = batch_of("kafka", 2**31 + 1, [(b"k", b"v", 1)])
    plain, compacted = store.create("plain", 0), store.create("t", 0, config=COMPACTED)
    for log, raw in (
        (plain, first + later), (compacted, batch(0, 0) + batch(2, 0)), (compacted, first + far),
    ):  # fmt: skip
        with pytest.raises(OffsetOutOfRangeError, match="but the next offset is 1"):
            log.append_as_follower(raw)
        assert log.log_end_offset == 0
    assert compacted.append_as_follower(first + later) == range(6)
    assert [record.offset for record in compacted] == [0, 5]


def test_regression_gaps_that_the_leader_knows_are_taken(store: LogStore) -> None:
    """A topic that was compacted before could not be copied after a change to "delete"."""
    first, later = (batch_of("kafka", at, [(b"k", b"v", 1)]) for at in (0, 5))
    log, columnar = store.create("t", 0), store.create("columnar", 0)
    assert not log.may_lack_offsets
    assert log.append_as_follower(first + later, may_lack_offsets=True) == range(6)
    assert [record.offset for record in log] == [0, 5] and log.may_lack_offsets
    with pytest.raises(OffsetOutOfRangeError, match="but the next offset is 1"):
        columnar.append_as_follower(batch(0, 0) + batch(2, 0), may_lack_offsets=True)
    abandon(store)
    with LogStore.open(store.log_dirs, config=QUIET, admin_socket=False) as opened:
        again = opened.log("t", 0)
        assert again.may_lack_offsets and [record.offset for record in again] == [0, 5]


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_an_empty_compacted_log_keeps_its_start_if_nothing_is_deleted(
    store: LogStore, policy: str
) -> None:
    """Otherwise, a consumer would be refused at offsets that the leader accepts."""
    config = COMPACTED.replace(cleanup_policy=policy, retention_ms=10**12)
    log = store.create("t", 0, config=config)
    log.append_as_follower(batch_of("kafka", 7, [(b"k", b"v", 1)]))
    assert (log.log_start_offset, log.log_end_offset) == (0 if policy == "compact" else 7, 8)
    assert next(iter(log)).offset == 7
    with log.read_range(log.log_start_offset, 1000) as found:
        assert (found.first_offset, found.next_offset) == (7, 8)
