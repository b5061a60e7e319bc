"""A marker ends its producer's transaction once; only the newest coordinator may write it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore import (
    CoordinatorFencedError,
    FencedLeaderEpochError,
    InvalidTransactionStateError,
    Log,
    LogConfig,
    LogDirFullError,
    LogStore,
    OutOfOrderSequenceError,
    ProducerFencedError,
    ReadOnlyStoreError,
)
from logstore.disk import files
from support.hanging import QUIET
from support.producers import known, sent, told


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with LogStore.open(tmp_path, config=QUIET, admin_socket=False) as store:
        yield store.create("t", 0, config=LogConfig(record_format="kafka"))


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_decides_a_transaction(log: Log, commit: bool) -> None:
    """Committed records are read, aborted ones are not; a view finds the same in the batches."""
    log.append_encoded(sent(7, 0, (b"a", b"b"), transactional=True), durable=True)
    assert log.last_stable_offset == 0
    info = log.append_marker(7, 0, commit=commit, coordinator_epoch=3, durable=True)
    assert info == range(2, 3) and log.recovery_point == 3 and info.log_append_time == -1
    assert log.last_stable_offset == 3
    records = log.read(0, isolation_level="read_committed")
    assert [record.value for record in records] == ([b"a", b"b"] if commit else [])
    assert known(log) == told(log) and known(log)[0].coordinator_epoch == 3


def test_an_old_marker_is_refused(log: Log) -> None:
    """The marker is from an earlier epoch, or from a replaced coordinator or leader."""
    log.append_encoded(sent(7, 0, epoch=2, transactional=True))
    with pytest.raises(ProducerFencedError) as caught:
        log.append_marker(7, 1, commit=True, coordinator_epoch=3)
    assert caught.value.is_written is False
    with pytest.raises(ProducerFencedError):
        log.append_marker(7, 2, commit=True, coordinator_epoch=3, is_epoch_raised=True)
    log.append_marker(7, 3, commit=True, coordinator_epoch=3, is_epoch_raised=True)
    with pytest.raises(CoordinatorFencedError):
        log.append_marker(7, 3, commit=True, coordinator_epoch=2)
    log.leader_epoch = 5
    with pytest.raises(FencedLeaderEpochError):
        log.append_marker(7, 3, commit=True, coordinator_epoch=3, leader_epoch=4)
    assert log.log_end_offset == 2
    with pytest.raises(OutOfOrderSequenceError):
        log.append_encoded(sent(7, 1, epoch=3))  # the marker began the epoch
    assert log.append_encoded(sent(7, 0, epoch=3)) == range(2, 3)


@pytest.mark.parametrize(
    ("epoch", "is_raised", "is_kept"),
    [(1, False, True), (2, True, True), (2, False, False), (3, True, False), (3, False, False)],
)
def test_a_marker_cancels_only_batches_of_its_transaction(
    log: Log, epoch: int, is_raised: bool, is_kept: bool
) -> None:
    """A verified batch of a later transaction is appended after the marker (KIP-890)."""
    log.append_encoded(sent(7, 0, epoch=1, transactional=True))
    token = log.transaction_token(7, 2, 0)
    assert token > 0
    log.append_marker(7, epoch, commit=True, coordinator_epoch=3, is_epoch_raised=is_raised)
    batch = sent(7, 0, epoch=2, transactional=True)
    if is_kept:
        assert log.append_encoded(batch, token=token) == range(2, 3)
    else:
        with pytest.raises((InvalidTransactionStateError, ProducerFencedError)):
            log.append_encoded(batch, token=token)


def test_a_marker_that_cannot_be_written_decides_nothing(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction stays open."""
    log.append_encoded(sent(7, 0, transactional=True))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched, pytest.raises(LogDirFullError) as caught:
        patched.setattr(files, "pwritev", full)
        log.append_marker(7, 0, commit=True, coordinator_epoch=0)
    assert caught.value.is_written is False and log.last_stable_offset == 0
    log.append_marker(7, 0, commit=True, coordinator_epoch=0)
    assert log.last_stable_offset == 2


def test_wrong_numbers_are_refused(log: Log, tmp_path: Path) -> None:
    """Nothing is written; a log of another process accepts no marker at all."""
    right: dict[str, Any] = {"producer_id": 7, "epoch": 0, "coordinator_epoch": 0}
    for name, wrong in (
        ("producer_id", -1), ("producer_id", 2**63), ("epoch", -1), ("epoch", 2**15),
        ("coordinator_epoch", -2), ("coordinator_epoch", 2**31),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=name):
            log.append_marker(**{**right, name: wrong, "commit": True})
    with pytest.raises(TypeError):
        log.append_marker(**right | {"commit": 1})
    assert log.log_end_offset == 0
    with LogStore.open(tmp_path, read_only=True) as beside:
        view: Any = beside["t", 0]
        with pytest.raises(ReadOnlyStoreError) as caught:
            view.append_marker(**right, commit=True)
        assert caught.value.is_written is False
