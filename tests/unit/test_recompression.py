"""Encoded batches get the codec of the log (`compression.type`), and nothing else changes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from logstore import Log, LogConfig, LogStore
from logstore.errors import RecordExpansionError, RecordTooLargeError
from logstore.format.compression import CODEC_IDS
from logstore.format.kafka.header import CONTROL, TRANSACTIONAL
from logstore.log.encoded.raw_batches import parse
from support.hanging import QUIET
from support.producers import sent

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TARGETS = ("uncompressed", *CODECS[1:])
PRODUCER_FIELDS = ("producer_id", "producer_epoch", "base_sequence")


def config(target: str, **settings: Any) -> LogConfig:
    return LogConfig(record_format="kafka", encoded_compression_type=target, **settings)


def encoded(store: LogStore, codec: str, values: list[bytes]) -> bytes:
    """Encode a batch with keys, headers and timestamps, by means of another log."""
    given = LogConfig(record_format="kafka", compression_type=codec)
    log = store.create(f"source-{codec}-{len(store)}", 0, config=given)
    keys = [b"k%d" % number if number % 3 else None for number in range(len(values))]
    headers = [{"h": b"%d" % number} for number in range(len(values))]
    log.extend(values, keys=keys, timestamps=list(range(7, 7 + len(values))), headers=headers)
    return log.read_raw(0, 1 << 24)


def rows(log: Log) -> list[tuple[object, ...]]:
    """Return all records, with all fields but the topic."""
    return [(record.offset, *record[1:5]) for record in log]


def codecs_in(log: Log) -> list[int]:
    return [header.attributes & 7 for _, header in parse(log.read_raw(0, 1 << 24))]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("codec", CODECS)
def test_records_stay_and_the_codec_changes(tmp_path: Path, codec: str, target: str) -> None:
    """This holds for every pair of codecs and for two batches; a recovery changes nothing."""
    values = [b"value %d " % number * 20 for number in range(50)]
    with LogStore.open(tmp_path, config=QUIET) as store:
        raw = encoded(store, codec, values)
        kept = store.create("kept", 0, config=config("producer"))
        log = store.create("orders", 0, config=config(target))
        for one in (kept, log):
            info = one.append_encoded(raw + raw)
            assert (info.base_offset, info.last_offset) == (0, 99)
        wanted = 0 if target == "uncompressed" else CODEC_IDS[target]
        assert codecs_in(log) == [wanted] * 2 and codecs_in(kept) == [CODEC_IDS[codec]] * 2
        assert rows(log) == rows(kept) and log.verify() == []
        expected = rows(kept)
    with LogStore.open(tmp_path, config=QUIET) as store:
        assert rows(store["orders", 0]) == expected


def test_producers_and_the_time_of_the_append_stay(tmp_path: Path) -> None:
    """A repeated batch is still a duplicate, and LogAppendTime is in the new batch."""
    raw = sent(5, 0, (b"a" * 100, b"b" * 100))
    with LogStore.open(tmp_path, config=QUIET) as store:
        given = config("zstd", message_timestamp_type="LogAppendTime")
        log = store.create("orders", 0, config=given)
        first, again = log.append_encoded(raw), log.append_encoded(raw)
        assert first == range(2) == again and log.log_end_offset == 2
        assert first.log_append_time == again.log_append_time > 0
        ((_, header),) = parse(log.read_raw(0, 1 << 20))
        assert header.attributes & 7 == CODEC_IDS["zstd"]
        assert [getattr(header, name) for name in PRODUCER_FIELDS] == [5, 0, 0]
        assert {record.timestamp for record in log} == {first.log_append_time}
        log.append_encoded(sent(5, 2, (b"c",)))
        assert log.log_end_offset == 3


def test_transactions_keep_their_batches(tmp_path: Path) -> None:
    """The batch still belongs to its transaction, and the marker has no codec."""
    with LogStore.open(tmp_path, config=QUIET) as store:
        log = store.create("orders", 0, config=config("lz4"))
        log.append_encoded(sent(5, 0, (b"a" * 100,), transactional=True))
        log.append_marker(5, 0, commit=True, coordinator_epoch=0)
        batch, marker = (header for _, header in parse(log.read_raw(0, 1 << 20)))
        assert batch.attributes == CODEC_IDS["lz4"] | TRANSACTIONAL
        assert marker.attributes == CONTROL | TRANSACTIONAL
        assert [record.value for record in log] == [b"a" * 100]


def test_a_batch_that_grows_too_large_is_refused(tmp_path: Path) -> None:
    """Its size is checked before and after the compression, as in Kafka; it is not appended."""
    with LogStore.open(tmp_path, config=QUIET) as store:
        raw = encoded(store, "zstd", [bytes(10_000)])
        log = store.create("orders", 0, config=config("uncompressed", max_message_bytes=5000))
        assert len(raw) < 5000
        with pytest.raises(RecordTooLargeError) as raised:
            log.append_encoded(raw)
        assert raised.value.facts["size_bytes"] > 10_000 and len(log) == 0


def test_a_batch_that_expands_too_much_is_refused(tmp_path: Path) -> None:
    """The memory limit of the store also holds for a batch that is compressed again."""
    small = QUIET.replace(record_expansion_bytes_max=1 << 20)
    with LogStore.open(tmp_path / "a", config=QUIET) as store:
        raw = encoded(store, "zstd", [bytes(4 << 20)])
    with LogStore.open(tmp_path / "b", config=small) as store:
        log = store.create("orders", 0, config=config("gzip"))
        with pytest.raises(RecordExpansionError):
            log.append_encoded(raw)
        assert len(log) == 0


def test_damage_is_found_before_anything_is_compressed(tmp_path: Path) -> None:
    """A new checksum would hide the damage."""
    with LogStore.open(tmp_path, config=QUIET) as store:
        raw = bytearray(encoded(store, "lz4", [os.urandom(500)] * 4))
        log = store.create("orders", 0, config=config("zstd"))
        for position in range(21, len(raw), 37):
            raw[position] ^= 1
            with pytest.raises(ValueError, match="batch at position 0"):
                log.append_encoded(bytes(raw))
            raw[position] ^= 1
        assert len(log) == 0
        log.append_encoded(bytes(raw))


def test_the_codec_can_be_changed_and_followers_copy_it(tmp_path: Path) -> None:
    """A change counts from the next append; a follower stores what its leader stored."""
    with LogStore.open(tmp_path, config=QUIET) as store:
        raw = encoded(store, "none", [b"value" * 50] * 10)
        log = store.create("orders", 0, config=config("producer"))
        follower = store.create("follower", 0, config=config("gzip"))
        for target in ("zstd", "snappy", "uncompressed", "producer"):
            store.set_config("orders", 0, {"encoded_compression_type": target})
            log.append_encoded(raw)
        follower.append_as_follower(log.read_raw(0, 1 << 20))
        wanted = [CODEC_IDS["zstd"], CODEC_IDS["snappy"], 0, 0]
        assert codecs_in(log) == codecs_in(follower) == wanted


def test_a_columnar_log_keeps_what_it_gets() -> None:
    """A batch with another codec would not be a batch of Kafka there."""
    with pytest.raises(ValueError, match="encoded_compression_type='lz4' needs record_format"):
        LogConfig(encoded_compression_type="lz4")
