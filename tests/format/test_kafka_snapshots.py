"""Producers come with a log that is adopted from a broker, and go with one that is exported."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore import LogConfig, LogStore, OutOfOrderSequenceError, StoreConfig, TopicPartition
from logstore.format.kafka.snapshots import decode_snapshot, encode_snapshot
from logstore.format.producer_file import name_of, offset_of
from logstore.log.producers.kafka_snapshots import SUFFIX
from logstore.log.producers.producer_state import Producers
from logstore.store.kafka.adoption import adopt
from logstore.store.kafka.export import export
from support.kafka_golden import log_dirs
from support.producers import NOW, add, header, known, sent

KEY = TopicPartition("transactions", 0)
GONE = 987_654  # no batch of it is in the golden log


def broker_of(place: Path) -> tuple[list[Path], Path]:
    """Lay out a broker that was stopped; give also the last snapshot of a log with producers."""
    dirs = log_dirs("stopped", place / "broker")
    paths = (place / "broker").glob(f"*/{KEY}/*{SUFFIX}")
    return dirs, max(paths, key=lambda path: path.name)


def with_one_more(path: Path, producer_id: int, sequence: int) -> None:
    """Let the broker know a producer whose batches retention deleted."""
    end = offset_of(path.name, SUFFIX)
    assert end is not None
    producers = Producers(decode_snapshot(path.read_bytes(), str(path), end, NOW))
    producers.take(header(producer_id, sequence), 0, NOW)
    path.write_bytes(encode_snapshot(producers.snapshot(end)))


def test_regression_a_producer_whose_batches_are_gone_counts_on(tmp_path: Path) -> None:
    """Its retry was appended a second time, and a gap in its sequence was accepted."""
    dirs, path = broker_of(tmp_path)
    with_one_more(path, GONE, 41)
    ours = tmp_path / "ours"
    with LogStore.open_kafka(dirs) as source, LogStore.open(ours) as store:
        adopt(store, source, KEY, id)
    for _ in range(2):  # also after an orderly close
        with LogStore.open(ours) as store:
            log = store[KEY]
            end = log.log_end_offset
            retry = log.append_encoded(sent(GONE, 41))
            assert retry.base_offset == 0 and log.log_end_offset == end
            with pytest.raises(OutOfOrderSequenceError):
                log.append_encoded(sent(GONE, 43))
    with LogStore.open(ours) as store:
        assert store[KEY].append_encoded(sent(GONE, 42)).base_offset == end


def test_what_a_replay_finds_goes_before_what_the_snapshot_says(tmp_path: Path) -> None:
    """All batches of a producer are known, and a snapshot that lies about one is not believed."""
    dirs, path = broker_of(tmp_path)
    with LogStore.open_kafka(dirs) as source, LogStore.open(tmp_path / "plain") as store:
        adopt(store, source, KEY, id)
        expected = known(store[KEY])
    (some, *_) = expected
    with_one_more(path, some.producer_id, 1 + some.last_sequence)
    with LogStore.open_kafka(dirs) as source, LogStore.open(tmp_path / "ours") as store:
        adopt(store, source, KEY, id)
        assert known(store[KEY]) == expected and len(expected) > 1


@pytest.mark.parametrize("data", [b"", b"junk", b"\0" * 56])
def test_a_damaged_snapshot_is_passed_over(tmp_path: Path, data: bytes) -> None:
    """An older one is used instead; without one, the batches of the log tell what they can."""
    dirs, path = broker_of(tmp_path)
    with_one_more(path, GONE, 7)
    older = path.with_name(name_of(3, SUFFIX))
    producers = Producers()
    add(producers, header(GONE + 1, 3))
    older.write_bytes(encode_snapshot(producers.snapshot(3)))
    path.write_bytes(data)
    with LogStore.open_kafka(dirs) as source, LogStore.open(tmp_path / "ours") as store:
        adopt(store, source, KEY, id)
        ids = {state.producer_id for state in known(store[KEY])}
        assert GONE + 1 in ids and GONE not in ids and len(ids) > 1


def test_no_more_producers_are_taken_over_than_a_log_may_know(tmp_path: Path) -> None:
    """Those that were used last stay; the producers of the log itself are not pushed out."""
    dirs, path = broker_of(tmp_path)
    end = offset_of(path.name, SUFFIX)
    assert end is not None
    producers = Producers(decode_snapshot(path.read_bytes(), str(path), end, NOW))
    own = len(producers)
    for number in range(8):
        producers.take(header(GONE + number, 0), number, NOW)
    path.write_bytes(encode_snapshot(producers.snapshot(end)))
    config = StoreConfig(producers_max=own + 3)
    with (
        LogStore.open_kafka(dirs, config=config) as source,
        LogStore.open(tmp_path / "ours", config=config) as store,
    ):
        adopt(store, source, KEY, id)
        ids = {state.producer_id for state in known(store[KEY])}
    assert {GONE + number for number in (5, 6, 7)} < ids and len(ids) == own + 3


def test_an_export_of_an_adopted_log_has_the_brokers_snapshot(tmp_path: Path) -> None:
    """Byte for byte but for the order of the producers, also from a process that only reads."""
    dirs, path = broker_of(tmp_path)
    with_one_more(path, GONE, 41)
    with LogStore.open_kafka(dirs) as source, LogStore.open(tmp_path / "ours") as store:
        adopt(store, source, KEY, id)
        export(source[KEY], str(tmp_path / "0" / str(KEY)))
        export(store[KEY], str(tmp_path / "1" / str(KEY)))
    with LogStore.open(tmp_path / "ours", read_only=True) as store:
        export(store[KEY], str(tmp_path / "2" / str(KEY)))
    for number in range(3):
        (exported,) = (tmp_path / str(number)).rglob(f"*{SUFFIX}")
        assert exported.name == path.name
        theirs, data = path.read_bytes(), exported.read_bytes()
        assert len(theirs) == len(data) > 10 + 46
        assert {theirs[at : at + 46] for at in range(10, len(theirs), 46)} == {
            data[at : at + 46] for at in range(10, len(data), 46)
        }
        with LogStore.open_kafka(tmp_path / str(number)) as store:
            assert store[KEY].verify() == []


@pytest.mark.parametrize("layout", ["kafka", "columnar"])
def test_regression_producers_cross_from_store_to_store(tmp_path: Path, layout: str) -> None:
    """Exported and adopted, also if deleted batches told of one; columnar ones lost theirs."""
    config = LogConfig(record_format=layout)
    columnar = layout == "columnar"
    with LogStore.open(tmp_path / "ours") as store:
        log, plain = store.create(*KEY, config=config), store.create("plain", 0, config=config)
        plain.extend([b"v"] * 3)
        log.append_encoded(sent(7, 0, (b"a", b"b"), columnar=columnar))
        log.append_encoded(sent(8, 0, columnar=columnar))
        for sequence in (1, 2):
            log.append_encoded(sent(8, sequence, columnar=columnar))
        log.delete_records_before(3)
        expected = {state.producer_id: state.last_sequence for state in log.producer_states()}
        export(log, str(tmp_path / "out" / str(KEY)))
        export(plain, str(tmp_path / "out" / "plain-0"))
    assert expected == {7: 1, 8: 2}
    assert not list((tmp_path / "out" / "plain-0").glob(f"*{SUFFIX}"))
    with LogStore.open_kafka(tmp_path / "out") as source, LogStore.open(tmp_path / "b") as store:
        adopt(store, source, KEY, id)
        log = store[KEY]
        states = {state.producer_id: state for state in log.producer_states()}
        assert {each: state.last_sequence for each, state in states.items()} == expected
        assert len(states[8].batches) == 2  # a snapshot of Kafka has one
        assert log.append_encoded(sent(7, 0, (b"a", b"b"))).base_offset == 0
