"""A log appends each batch of a producer once and in order, whatever fails in between."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import (
    InvalidTransactionStateError,
    Log,
    LogConfig,
    LogDirFullError,
    LogStore,
    OutOfOrderSequenceError,
    ProducerFencedError,
)
from logstore.disk import files
from logstore.format.producers import NO_EPOCH, stamp
from logstore.log.host import append_staged
from logstore.log.producers.producer_state import Producers
from support.clock import Clock
from support.hanging import QUIET
from support.producers import known, marker_of, sent, snapshots_of, told

KAFKA = LogConfig(record_format="kafka")
EXPIRATION_MS = 1000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[LogStore]:
    config = QUIET.replace(producer_id_expiration_ms=EXPIRATION_MS)
    with LogStore.open(tmp_path / "d", config=config, admin_socket=False, clock=clock) as made:
        yield made


@pytest.fixture(params=["columnar", "kafka"])
def is_columnar(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "columnar")


@pytest.fixture
def log(store: LogStore, is_columnar: bool) -> Log:
    return store.create("t", 0, config=LogConfig() if is_columnar else KAFKA)


@pytest.fixture
def kafka(store: LogStore) -> Log:
    return store.create("k", 0, config=KAFKA)


def test_a_batch_that_is_sent_again_is_answered_and_not_written(
    log: Log, is_columnar: bool
) -> None:
    """The answer has the batch's offsets; if it must be durable, it is on the disk (KIP-98)."""
    batches = [sent(7, 2 * n, (b"a", b"b"), columnar=is_columnar) for n in range(3)]
    log.append(b"of nobody")
    for number, raw in enumerate(batches):
        assert log.append_encoded(raw) == range(1 + 2 * number, 3 + 2 * number)
    for number, raw in enumerate(batches):
        assert log.append_encoded(raw) == range(1 + 2 * number, 3 + 2 * number)
    assert log.append_encoded(b"".join(batches)) == range(1, 7)
    assert log.log_end_offset == 7 and log.recovery_point == 0
    assert log.append_encoded(batches[1], durable=True) == range(3, 5)
    assert log.recovery_point == 7


def test_a_batch_that_is_sent_again_has_the_time_that_it_got(store: LogStore, clock: Clock) -> None:
    """With LogAppendTime, the answer has the time of the first append; otherwise it has none."""
    log = store.create("t", 0, config=KAFKA.replace(message_timestamp_type="LogAppendTime"))
    first = log.append_encoded(sent(7, 0))
    clock.ms += 50
    assert log.append_encoded(sent(7, 0)).log_append_time == first.log_append_time == clock.ms - 50


def test_batches_of_which_the_log_has_some_are_refused(log: Log, is_columnar: bool) -> None:
    """No Kafka client sends such requests."""
    first, second = (sent(7, n, columnar=is_columnar) for n in range(2))
    log.append_encoded(first)
    with pytest.raises(ValueError, match=r"1 of 2 .* offset 0: append only the others") as caught:
        log.append_encoded(first + second)
    assert getattr(caught.value, "is_written", None) is False
    assert log.append_encoded(second) == range(1, 2)


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (sent(7, 2), OutOfOrderSequenceError),
        (sent(7, 1, epoch=1), OutOfOrderSequenceError),
        (sent(7, 0, epoch=1) + sent(7, 1), ProducerFencedError),
        (sent(8, 0, transactional=True) + sent(8, 1), InvalidTransactionStateError),
    ],
)
def test_what_may_not_follow_is_not_written(kafka: Log, raw: bytes, error: type[Exception]) -> None:
    """All batches are written or none; then the next correct batch is appended."""
    kafka.append_encoded(sent(7, 0))
    before = known(kafka)
    with pytest.raises(error) as caught:
        kafka.append_encoded(raw)
    assert getattr(caught.value, "is_written", None) is False
    assert kafka.log_end_offset == 1 and known(kafka) == before
    assert kafka.append_encoded(sent(7, 1)) == range(1, 2)


def test_a_transaction_needs_the_token_if_one_is_given(kafka: Log) -> None:
    """A token from before a marker permits nothing (KIP-890)."""
    token = kafka.transaction_token(7, 0, 0)
    assert token > 0
    kafka.append_encoded(marker_of(7, commit=False))
    with pytest.raises(InvalidTransactionStateError):
        kafka.append_encoded(sent(7, 0, transactional=True), token=token)
    token = kafka.transaction_token(7, 0, 0)
    assert kafka.append_encoded(sent(7, 0, transactional=True), token=token) == range(1, 2)
    assert kafka.transaction_token(7, 0, 1) == 0


def test_a_write_that_fails_leaves_no_trace(
    log: Log, is_columnar: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When there is room again, the same batch can be appended."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    raw = sent(7, 0, columnar=is_columnar)
    with monkeypatch.context() as patched, pytest.raises(LogDirFullError) as caught:
        patched.setattr(files, "pwritev", full)
        log.append_encoded(raw)
    assert caught.value.is_written is False
    assert not log._state.producers.are_known and known(log) == []
    assert log.append_encoded(raw) == range(1) and log.append_encoded(raw) == range(1)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_between_the_write_and_the_record_of_it_is_made_good(
    log: Log, is_columnar: bool, monkeypatch: pytest.MonkeyPatch, kind: type, is_first: bool
) -> None:
    """The batch is in the log, and is not appended a second time."""
    if not is_first:
        log.append_encoded(sent(7, 0, columnar=is_columnar), durable=True)
        log.append_encoded(sent(8, 0, columnar=is_columnar))
    take, at = Producers.take, log.log_end_offset

    def broken(self: Producers, *arguments: object) -> None:
        take(self, *arguments)  # type: ignore[arg-type]
        raise kind

    raw = sent(7, 0 if is_first else 1, columnar=is_columnar)
    with monkeypatch.context() as patched, pytest.raises(kind) as caught:
        patched.setattr(Producers, "take", broken)
        log.append_encoded(raw)
    assert getattr(caught.value, "is_written", None) is True
    assert log.append_encoded(raw) == range(at, at + 1)
    assert known(log) == told(log) and log.log_end_offset == at + 1
    log.flush()
    assert snapshots_of(log)


def test_a_follower_takes_what_its_leader_has(kafka: Log, store: LogStore) -> None:
    """A follower appends without checks, with markers; as a leader, it knows all producers."""
    for raw in (sent(7, 5), sent(8, 3, transactional=True), marker_of(8, commit=True), sent(7, 9)):
        follower_end = kafka.log_end_offset
        data = bytearray(raw)
        data[:8] = follower_end.to_bytes(8, "big")
        data[12:16] = bytes(4)  # its leader epoch
        kafka.append_as_follower(bytes(data))
    assert [state.open_offset for state in known(kafka)] == [-1, -1]
    assert known(kafka) == told(kafka)
    assert kafka.append_encoded(sent(7, 9)) == range(3, 4)
    with pytest.raises(OutOfOrderSequenceError):
        kafka.append_encoded(sent(7, 5 + 1))


def test_a_batch_without_an_epoch_is_its_programs_own_affair(log: Log, is_columnar: bool) -> None:
    """Each commit of Spark has its own id: the ids would fill the memory of the log."""
    raw = stamp(sent(7, 0, columnar=is_columnar), 7, 0, NO_EPOCH)
    append_staged(log, raw)
    append_staged(log, raw)
    log.flush()
    assert log.log_end_offset == 2 and known(log) == [] and snapshots_of(log) == []


def test_a_producer_that_was_not_used_is_forgotten(kafka: Log, clock: Clock) -> None:
    """The log's clock counts; a producer with an open transaction is kept (KIP-98)."""
    kafka.append_encoded(sent(7, 0) + sent(8, 0, transactional=True))
    clock.ms += EXPIRATION_MS
    kafka.append_encoded(sent(9, 0))
    kafka.expire_producers(clock.ms)
    assert [state.producer_id for state in known(kafka)] == [8, 9]
    assert kafka.append_encoded(sent(7, 41)) == range(3, 4)  # whatever it sends (KIP-360)


def test_the_wrong_numbers_of_a_token_are_refused(kafka: Log) -> None:
    """The numbers are checked before any lookup."""
    for wrong in ((-1, 0, 0), (2**63, 0, 0), (1, -1, 0), (1, 2**15, 0), (1, 0, -2), (1, 0, 2**31)):
        with pytest.raises(ValueError, match="less than"):
            kafka.transaction_token(*wrong)
