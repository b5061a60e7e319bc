"""A coordinator reads the batches of open transactions, and appends batches to one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import InvalidTransactionStateError, Log, LogConfig, LogStore, ProducerFencedError


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with LogStore.open(tmp_path, admin_socket=False) as store:
        yield store.create("t", 0, config=LogConfig(record_format="kafka", segment_bytes=4096))


def append(
    log: Log, producer_id: int, value: bytes, epoch: int = 0, token: int | None = None
) -> int:
    """Append one record of a transaction; return its offset."""
    info = log.append_of_transaction(producer_id, epoch, [value], [b"k"], 1000, token=token)
    return info.base_offset


def end(log: Log, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
    log.append_marker(producer_id, epoch, commit=commit, coordinator_epoch=0)


def fates(log: Log, offset: int = 0) -> list[tuple[bytes | None, str]]:
    return [
        (value, fate)
        for batch, fate in log.transactions_after(offset)
        for value in batch.values.to_list()
    ]


def test_each_batch_has_the_fate_of_its_own_transaction(log: Log) -> None:
    """Transactions may overlap, one producer may have several, over several segments."""
    append(log, 1, b"open")
    append(log, 2, b"committed")
    append(log, 3, b"aborted")
    log.append(b"plain", key=b"k")
    end(log, 2, commit=True)
    end(log, 3, commit=False)
    append(log, 2, b"aborted later")
    log.extend([b"x" * 900] * 9, keys=[b"k"] * 9)
    end(log, 2, commit=False)
    append(log, 3, b"open later")
    found = [row for row in fates(log) if row[0] != b"x" * 900]
    assert found == [
        (b"open", "open"), (b"committed", "committed"), (b"aborted", "aborted"),
        (b"plain", "committed"), (b"aborted later", "aborted"), (b"open later", "open"),
    ]  # fmt: skip
    assert fates(log, log.log_end_offset) == []
    assert fates(log, log.log_end_offset - 1) == [(b"open later", "open")]


def test_the_transaction_is_open_until_its_marker(log: Log) -> None:
    """Readers of committed records wait for the marker; the batch has no sequence number."""
    append(log, 5, b"a")
    assert log.last_stable_offset == 0
    assert append(log, 5, b"b", token=log.transaction_token(5, 0, -1)) == 1
    end(log, 5, commit=True)
    assert log.last_stable_offset == 3
    (state,) = log.producer_states()
    assert (state.producer_id, state.open_offset, state.last_sequence) == (5, -1, -1)


def test_a_token_permits_one_transaction(log: Log) -> None:
    """A marker makes the token invalid, and an older epoch is fenced."""
    token = log.transaction_token(5, 1, -1)
    end(log, 5, commit=False, epoch=1)
    with pytest.raises(InvalidTransactionStateError):
        append(log, 5, b"late", epoch=1, token=token)
    with pytest.raises(ProducerFencedError):
        append(log, 5, b"zombie", epoch=0)
    assert append(log, 5, b"new", epoch=1, token=log.transaction_token(5, 1, -1)) == 1


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (1, -1), (1, 2**15)])
def test_a_producer_must_have_an_id_and_an_epoch(log: Log, producer_id: int, epoch: int) -> None:
    """Otherwise nothing is written."""
    with pytest.raises(ValueError, match=r"producer_id|epoch"):
        append(log, producer_id, b"x", epoch)
    assert log.log_end_offset == 0
