"""A batch is sound for all who read it or for none: appends refuse it, `verify` finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logstore import (
    CorruptRecordBatchError,
    Log,
    LogConfig,
    LogStore,
    RecordExpansionError,
    StoreConfig,
    UnsupportedFormatError,
)
from logstore.config import StoreConfig as Config
from logstore.errors import RecordTooLargeError
from logstore.format import compression, expansion, layouts
from support.hostile import (
    BOMB_BYTES_MAX,
    BOMBS,
    LIES,
    UNREADABLE,
    column,
    columnar_batch,
    kafka_batch,
    plant,
    row,
    zigzag,
)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Give a log of a store in which a batch may need 1 MiB."""
    config = StoreConfig(record_expansion_bytes_max=BOMB_BYTES_MAX)
    with LogStore.open(tmp_path, config=config, admin_socket=False) as store:
        yield store.create("t", 0)


READS: dict[str, Callable[[Log, int], object]] = {
    "read": lambda log, at: log.read(at),
    "log[i]": lambda log, at: log[at],
    "read_batches": lambda log, at: next(log.read_batches(at)),
    "a slice": lambda log, at: list(log[at : at + 1]),
    "Arrow": lambda log, at: log[at : at + 1].to_arrow(),
    "truncate_to": lambda log, at: log.truncate_to(at + 1),
}


def append_kinds(log: Log) -> list[Callable[[bytes], object]]:
    """Give both ways in for encoded batches."""
    return [log.append_encoded, log.append_as_follower]


@pytest.mark.parametrize("name", UNREADABLE)
def test_regression_what_cannot_be_read_is_not_taken(log: Log, name: str) -> None:
    """Its records are decoded before one byte is written; the error is a ValueError."""
    for append in append_kinds(log):
        with pytest.raises(ValueError, match="the batch at position 0 cannot be read"):
            append(UNREADABLE[name]())
    assert log.log_end_offset == 0 and log.size_bytes == 0


@pytest.mark.parametrize("name", UNREADABLE)
def test_regression_what_cannot_be_read_is_found_and_taken_out(log: Log, name: str) -> None:
    """On a disk: every reader names path and position, `verify` too, and `repair` takes it out."""
    good = log.extend([b"first", b"second"])
    size = log.size_bytes
    bad = plant(log, UNREADABLE[name]())
    last = plant(log, kafka_batch(row(b"last"), 1) if "Kafka" in name else last_columnar())
    for number, read in enumerate(READS.values()):
        if number == len(READS) - 1 and len(bad) == 1:
            continue  # between two batches nothing is cut
        with pytest.raises(CorruptRecordBatchError) as caught:
            read(log, bad.start)
        assert caught.value.path.endswith(".log")
        assert caught.value.position == (0 if "Kafka" in name else size)
    assert [record.value for record in log.read(0)] == [b"first", b"second"]
    assert [record.value for record in log.read(last.start)] == [b"last"]
    (problem,) = log.verify()
    assert (problem.offset, problem.end_offset) == (bad.start, bad.stop)
    report = log.repair()
    assert report.lost == [bad] and len(report.quarantined) == 1
    assert log.verify() == []
    assert [record.value for record in log] == [b"first", b"second", b"last"]
    assert log.log_end_offset == last.stop and good.stop == bad.start


def test_regression_no_records_in_an_unknown_codec_are_found(log: Log) -> None:
    """Readers refused such a batch, and `verify` took it for one whose library is missing."""
    log.append(b"good")
    bad = plant(log, columnar_batch(b"", 0, bits=2, max_timestamp=-1))
    with pytest.raises(UnsupportedFormatError):
        next(log.read_batches(bad.start))
    (problem,) = log.verify()
    assert (problem.offset, problem.end_offset) == (bad.start, bad.stop)
    assert log.repair().lost == [bad] and log.verify() == []
    assert [record.value for record in log] == [b"good"]


@pytest.mark.parametrize("length", [2**63 - 1, 2**62, 2**31, 200, 6, 5, 0, -1, -(2**63)])
@pytest.mark.parametrize("count", [1, 40])
def test_a_length_that_leads_astray_is_refused(log: Log, length: int, count: int) -> None:
    """It is a ValueError, in a small batch and in a large one."""
    rows = b"".join(row(offset_delta=at) for at in range(count))
    for data in (zigzag(length) + rows[1:], rows + zigzag(length) + row(offset_delta=count)[1:]):
        with pytest.raises(ValueError, match="cannot be read"):
            log.append_encoded(kafka_batch(data, count + (data[:1] == rows[:1])))


def last_columnar() -> bytes:
    """Make one good batch."""
    return columnar_batch(column([b"last"]), 1)


@pytest.mark.parametrize("name", BOMBS)
def test_regression_a_bomb_is_refused_everywhere(log: Log, name: str) -> None:
    """Before it takes memory: at an append, at each read, by `verify`; `repair` takes it out."""
    bomb = BOMBS[name]()
    for append in append_kinds(log):
        with pytest.raises(RecordExpansionError) as caught:
            append(bomb)
        assert caught.value.record_expansion_bytes_max == BOMB_BYTES_MAX
        assert caught.value.size_bytes > BOMB_BYTES_MAX
    log.append(b"good")
    bad = plant(log, bomb)
    for read in list(READS.values())[:-1]:
        with pytest.raises(RecordExpansionError) as caught:
            read(log, bad.start)
        assert caught.value.path.endswith(".log")
    (problem,) = log.verify()
    assert "record_expansion_bytes_max" in problem.reason
    assert log.repair().lost and log.verify() == []
    assert [record.value for record in log] == [b"good"]


@pytest.mark.parametrize("name", LIES)
def test_regression_headers_that_lie_are_refused(log: Log, name: str) -> None:
    """No reader would mind; retention, `offset_for_timestamp` or the offsets would."""
    for append in append_kinds(log):
        with pytest.raises(ValueError, match="cannot be read"):
            append(LIES[name]())
    assert log.log_end_offset == 0


def test_regression_a_span_of_2_to_the_32_offsets_is_no_damage(log: Log) -> None:
    """A hole may be so large; `verify` took the log for damaged."""
    log.append(b"before")
    plant(log, LIES["a span of 2^32 offsets"]())
    log.append(b"behind")
    assert log.verify() == [] and log[2**32 + 1].value == b"behind"


def test_regression_the_size_is_looked_at_before_the_contents(tmp_path: Path) -> None:
    """A batch beyond `max_message_bytes` is not decoded to find that out."""
    config = LogConfig(max_message_bytes=1000)
    with LogStore.open(tmp_path, admin_socket=False) as store:
        log = store.create("t", 0, config=config)
        bomb = columnar_batch(column([bytes(64 << 20)]), 1, codec_id=4)
        assert len(bomb) > 1000
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compression, "decompress", lambda *_: pytest.fail("it was decoded"))
            with pytest.raises(RecordTooLargeError):
                log.append_encoded(bomb)


@pytest.mark.parametrize("record_format", ["columnar", "kafka"])
def test_an_append_takes_nothing_that_cannot_be_read_again(
    tmp_path: Path, record_format: str
) -> None:
    """The bound holds for the store's own appends, small ones gathered too."""
    config = StoreConfig(record_expansion_bytes_max=64_000)
    with LogStore.open(tmp_path, config=config, admin_socket=False) as store:
        log = store.create("t", 0, config=LogConfig(record_format=record_format))
        for refused in (
            lambda: log.append(bytes(63_900)),
            lambda: log.append(bytes(63_900), durable=True),
            lambda: log.extend([b""] * 300),
            lambda: log.append(b"", headers=[("", None)] * 300),
        ):
            with pytest.raises(RecordExpansionError):
                refused()
        log.append(bytes(63_000))
        log.extend([b""] * 150)
        with log.appender(linger=60) as appender:
            for _ in range(1000):
                appender.append(b"", headers=[("h", None)])
        assert len(list(log)) == 1151 and log.verify() == []


def test_regression_timestamps_far_apart_are_read_again(tmp_path: Path) -> None:
    """Kafka's layout took them, and could not read them."""
    with LogStore.open(tmp_path, admin_socket=False) as store:
        log = store.create("t", 0, config=LogConfig(record_format="kafka"))
        times = [0, 2**63 - 1]
        log.extend([b"a", b"b"], timestamps=times)
        assert [record.timestamp for record in log] == times and log.verify() == []


def test_the_default_is_the_settings() -> None:
    """The format's own default and the configuration's are one number."""
    assert Config().record_expansion_bytes_max == expansion.EXPANSION_BYTES_MAX


def test_a_batch_at_the_bound_is_taken() -> None:
    """One more byte of bound, one byte less: the bound itself is allowed."""
    data = columnar_batch(column([b"x" * 8]), 1)
    needed = expansion.expansion_bytes(16, 1)
    header = layouts.read_header(data, 0)
    layouts.check_run(data, [(0, header)], needed)
    with pytest.raises(RecordExpansionError):
        layouts.check_run(data, [(0, header)], needed - 1)
