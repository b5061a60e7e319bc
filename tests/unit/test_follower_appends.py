"""A leader's batches are appended as they are, if the leader is not a replaced one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logstore import FencedLeaderEpochError, Log, LogStore
from support.hanging import QUIET
from support.hostile import column, columnar_batch


def batch(offset: int, epoch: int) -> bytes:
    """Make a batch of one record at an offset."""
    cells = column([b"%d" % offset])
    return columnar_batch(cells, 1, base_offset=offset, leader_epoch=epoch)


@pytest.fixture
def log(tmp_path: Path) -> Any:
    """Give a log that follows."""
    with LogStore.open(tmp_path, config=QUIET, admin_socket=False) as store:
        yield store.create("t", 0)


def test_many_batches_come_at_once_and_unchanged(log: Log) -> None:
    """Of several epochs; what is given back is their range."""
    raw = batch(0, 1) + batch(1, 1) + batch(2, 3)
    offsets = log.append_as_follower(raw, leader_epoch=5, durable=True)
    assert offsets == range(3) and type(offsets) is range
    assert log.read_raw(0) == raw and log.recovery_point == 3
    assert log._state.replication.epochs.entries == [(1, 0), (3, 2)]


def test_a_replaced_leader_is_refused(log: Log) -> None:
    """Also if it sends nothing: a follower then knows that it has to ask for the new one."""
    log.append_as_follower(batch(0, 1), leader_epoch=5)
    assert log.leader_epoch == 5
    for raw in (batch(1, 1), b""):
        with pytest.raises(FencedLeaderEpochError) as caught:
            log.append_as_follower(raw, leader_epoch=4)
        assert (caught.value.leader_epoch, caught.value.current_epoch) == (4, 5)
        assert caught.value.is_written is False
    assert log.append_as_follower(batch(1, 1), leader_epoch=5) == range(1, 2)


def test_a_new_leader_sends_what_its_predecessors_wrote(log: Log) -> None:
    """Its own epoch is in no batch yet. If it is not given, the log's bounds the batches."""
    log.leader_epoch = 9
    with pytest.raises(ValueError, match="leader epoch 2 follows the higher leader epoch 9"):
        log.append_as_follower(batch(0, 2))
    assert log.append_as_follower(batch(0, 2) + batch(1, 3), leader_epoch=9) == range(2)
    assert log.leader_epoch == 9


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (batch(1, 2), "leader epoch 2 follows the higher leader epoch 3"),
        (batch(1, 4) + batch(2, 3), "leader epoch 3 follows the higher leader epoch 4"),
        (batch(1, 6), "a leader of epoch 5 cannot send a batch of epoch 6"),
    ],
)
def test_epochs_that_no_leader_can_have_are_refused(log: Log, raw: bytes, message: str) -> None:
    """They fall, or are above the leader's own; nothing is written."""
    log.append_as_follower(batch(0, 3), leader_epoch=5)
    with pytest.raises(ValueError, match=message) as caught:
        log.append_as_follower(raw, leader_epoch=5)
    assert vars(caught.value)["is_written"] is False
    assert log.log_end_offset == 1


def test_the_epoch_of_a_batch_becomes_the_logs(log: Log) -> None:
    """If the leader's is not given."""
    log.append_as_follower(batch(0, 3))
    assert log.leader_epoch == 3 and log.append(b"own") == 1
    assert [each.leader_epoch for each in log.read_batches()] == [3, 3]
