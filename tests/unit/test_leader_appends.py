"""A client's batches get offsets, an epoch and perhaps a time; wrong batches are refused."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from logstore import (
    AppendInfo,
    FencedLeaderEpochError,
    InvalidTimestampError,
    Log,
    LogConfig,
    LogDirFullError,
    LogStore,
)
from logstore.disk import files
from logstore.format.kafka import record_batch as kafka
from logstore.format.kafka import sound
from logstore.log.host import append_staged
from support.clock import Clock
from support.hanging import QUIET
from support.hostile import column, columnar_batch, kafka_batch, row

NOW_MS = 1_000_000_000_000
HOUR_MS = 3_600_000
KAFKA = LogConfig(record_format="kafka")


def batch_at(*times: int) -> bytes:
    """Make a Kafka batch with a record at each of the given times."""
    rows = b"".join(
        row(time_delta=time - times[0], offset_delta=at) for at, time in enumerate(times)
    )
    return kafka_batch(rows, len(times), base_timestamp=times[0], max_timestamp=max(times))


@pytest.fixture
def make(tmp_path: Path) -> Any:
    """Return a function that makes a log in a store whose clock stands still."""
    clock = Clock()
    clock.ms = NOW_MS
    with LogStore.open(tmp_path, config=QUIET, admin_socket=False, clock=clock) as store:
        yield lambda config=KAFKA: store.create("t", len(store), config=config)


Make = Callable[..., Log]


def test_the_answer_says_where_the_batches_are(make: Make) -> None:
    """The names are Kafka's; the answer equals a range."""
    log = make()
    log.append(b"first")
    log.append(b"second")
    log.delete_records_before(1)
    info = log.append_encoded(batch_at(5, 9) + batch_at(7))
    assert (info.base_offset, info.last_offset) == (2, 4)
    assert (info.log_append_time, info.max_timestamp, info.log_start_offset) == (-1, 9, 1)
    assert info == range(2, 5) and [*info] == [2, 3, 4] and len(info) == 3
    assert isinstance(info, AppendInfo) and "base_offset=2" in repr(info)


def test_no_batches_are_appended_as_nothing(make: Make) -> None:
    """The answer is empty, at the log end."""
    log = make()
    log.append(b"first")
    info = log.append_encoded(b"", durable=True)
    assert info == range(1, 1) and (info.base_offset, info.last_offset) == (1, 0)
    assert info.max_timestamp == info.log_append_time == -1


def test_the_time_of_an_append_is_in_the_answer(make: Make) -> None:
    """With LogAppendTime, timestamps that a client sent are not checked."""
    log = make(KAFKA.replace(message_timestamp_type="LogAppendTime"))
    info = log.append_encoded(batch_at(5) + batch_at(NOW_MS + 5 * HOUR_MS))
    assert info.log_append_time == info.max_timestamp == NOW_MS
    assert {record.timestamp for record in log} == {NOW_MS}


def test_a_replaced_leader_appends_nothing(make: Make) -> None:
    """A larger epoch becomes the log's epoch, and the batches get it."""
    log = make()
    log.append_encoded(batch_at(5), leader_epoch=4)
    assert log.leader_epoch == 4
    for raw in (batch_at(5), b""):
        with pytest.raises(FencedLeaderEpochError, match="leader epoch 3 is fenced") as caught:
            log.append_encoded(raw, leader_epoch=3)
        assert caught.value.is_written is False
    assert log.append_encoded(batch_at(5), leader_epoch=4) == range(1, 2)
    assert log.append_encoded(batch_at(5)) == range(2, 3)
    assert log.append_encoded(batch_at(5), leader_epoch=6) == range(3, 4)
    assert [batch.leader_epoch for batch in log.read_batches()] == [4, 4, 4, 6]
    for wrong in (-1, 2**31):
        with pytest.raises(ValueError, match="leader_epoch"):
            log.append_encoded(batch_at(5), leader_epoch=wrong)


@pytest.mark.parametrize(
    ("changes", "times", "is_taken"),
    [
        ({}, (0, NOW_MS + HOUR_MS), True),
        ({}, (0, NOW_MS + HOUR_MS + 1), False),
        ({"message_timestamp_after_max_ms": 10}, (NOW_MS + 11,), False),
        ({"message_timestamp_after_max_ms": None}, (2**62,), True),
        ({"message_timestamp_before_max_ms": None}, (-64, -70), True),  # the answer said -1
        ({"message_timestamp_before_max_ms": 10}, (NOW_MS, NOW_MS - 10), True),
        ({"message_timestamp_before_max_ms": 10}, (NOW_MS, NOW_MS - 11), False),
        ({"message_timestamp_before_max_ms": 10}, (NOW_MS, -1), True),
    ],
)
def test_timestamps_are_near_enough(
    make: Make, changes: dict[str, Any], times: tuple[int, ...], is_taken: bool
) -> None:
    """Each record's timestamp is checked, as in Kafka; without `before`, the past is allowed."""
    log = make(KAFKA.replace(**changes))
    raw = batch_at(1) * ("message_timestamp_before_max_ms" not in changes) + batch_at(*times)
    if is_taken:
        assert log.append_encoded(raw).max_timestamp == max(times)
        return
    with pytest.raises(InvalidTimestampError, match="message_timestamp_") as caught:
        log.append_encoded(raw)
    assert caught.value.timestamp in times and caught.value.is_written is False
    assert log.size_bytes == 0
    append_staged(log, raw)  # Spark's: what was staged is appended
    assert log.log_end_offset > 0


def test_a_batch_without_records_has_no_time(make: Make) -> None:
    """The batch is accepted, with the timestamp -1."""
    log = make(KAFKA.replace(message_timestamp_before_max_ms=10))
    assert log.append_encoded(kafka.hole(0, 5, 0)).max_timestamp == -1


def test_a_durable_append_is_on_the_disk(make: Make) -> None:
    """All its records are below the recovery point."""
    log = make()
    assert log.append_encoded(batch_at(5, 6), durable=True).last_offset == 1
    assert log.recovery_point == 2


@pytest.mark.parametrize("count", [1, 5])
def test_one_write_and_one_checksum_each(
    make: Make, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Kafka's checksum does not cover the offset, so it stays valid at the new offset."""
    log = make()
    calls: list[str] = []

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any) -> Any:
            calls.append(name)
            return call(*arguments)

        return count

    monkeypatch.setattr(files, "pwritev", counted("write", files.pwritev))
    for module in (sound, kafka):
        monkeypatch.setattr(module, "crc32c", counted("checksum", crc32c))
    log.append_encoded(batch_at(5, 6) * count)
    assert calls == ["checksum"] * count + ["write"]


def test_a_buffer_that_changes_later_is_copied(make: Make) -> None:
    """A view of bytes is not copied, because bytes cannot change."""
    log, data = make(), bytearray(batch_at(5))
    log.append_encoded(data)  # type: ignore[arg-type]
    log.append_encoded(memoryview(b"!" + bytes(data))[1:])
    assert [record.value for record in log] == [b"v", b"v"]
    for wrong in ("text", None, 5):
        with pytest.raises(TypeError, match="raw"):
            log.append_encoded(wrong)  # type: ignore[arg-type]


def test_a_batch_that_would_leave_the_offsets_of_a_segment_begins_one(make: Make) -> None:
    """The offset in an index entry has 31 bits."""
    log = make()
    log.append_encoded(kafka.hole(0, 2**31 - 10, 0))
    assert log.append_encoded(kafka.hole(0, 20, 0)) == range(2**31 - 10, 2**31 + 10)
    assert [segment.base_offset for segment in log._state.segments] == [0, 2**31 - 10]
    assert log.verify() == []


@pytest.mark.parametrize("count", [1, 3])
def test_the_error_says_that_nothing_was_written(
    make: Make, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The error of a full disk says this; after that, the same batches can be appended."""
    log, raw = make(), columnar_batch(column([b"a"]), 1) * count
    real = files.pwritev

    def pwritev(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "pwritev", pwritev)
    with pytest.raises(LogDirFullError) as caught:
        log.append_encoded(raw, leader_epoch=7)
    assert caught.value.is_written is False
    monkeypatch.setattr(files, "pwritev", real)
    assert log.append_encoded(raw, leader_epoch=7) == range(count)
