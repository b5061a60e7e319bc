"""What is exported is what was in the log, and no more, in either layout."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore import LogConfig, LogStore, TopicPartition
from logstore.format.kafka import record_batch as kafka
from logstore.store.kafka import export as kafka_exporting
from logstore.store.kafka.export import export

KEY = TopicPartition("t", 0)


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("layout", ["kafka", "columnar"])
def test_regression_what_was_deleted_is_not_exported(
    tmp_path: Path, layout: str, codec: str
) -> None:
    """Wherever the log starts, a broker that loads what was exported starts there too."""
    config = LogConfig(record_format=layout, compression_type=codec, segment_bytes=1024)
    with LogStore.open(tmp_path / "ours") as store:
        log = store.create(*KEY, config=config)
        for number in range(12):
            keys, headers = [b"%d" % number] * 5, [(("h", b"x"),)] * 5
            log.extend([bytes([number]) * 40] * 5, keys=keys, headers=headers)
        assert len(log._state.segments) > 1
        for start in (0, 3, 5, 9, 14, 41, 58, 60):
            log.delete_records_before(start)
            place = tmp_path / str(start)
            place.mkdir()
            size_bytes = export(log, str(place / str(KEY)))
            assert size_bytes == sum(path.stat().st_size for path in place.rglob("*.log"))
            with LogStore.open_kafka(place) as exported:
                copy = exported[KEY]
                assert (copy.log_start_offset, copy.log_end_offset) == (start, 60)
                assert [record[:5] for record in copy] == [record[:5] for record in log]
                assert copy.verify() == []


def test_a_cut_batch_keeps_its_producer_and_sequence() -> None:
    """A broker that loads it counts the producer's next batch from where this one ends."""
    payload = kafka.build_payload([b"%d" % number for number in range(9)], None, 1, None)
    data = kafka.stamp(b"".join(kafka.frame(payload, 20, 4)), 77, 0, 2**31 - 3)
    batch = kafka.decode(data, 0)
    cut = b"".join(kafka_exporting._laid_out(batch, 24))
    part = kafka.decode(cut, 0)
    header = part.header
    assert kafka.checksum_holds(cut, 0, len(cut))
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (24, 28, 4)
    assert (header.producer_id, header.base_sequence) == (77, 1)
    assert part.values.to_list() == [b"%d" % number for number in range(4, 9)]


def test_what_no_reader_would_restore_is_not_compressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A columnar batch of any size may be compressed; one of Kafka's is restored up to a bound."""
    config = LogConfig(compression_type="zstd")
    with LogStore.open(tmp_path / "ours") as store:
        log = store.create(*KEY, config=config)
        log.extend([bytes(10_000)] * 10)
        for most, codec_id in ((1 << 20, 4), (100_000, 0)):
            monkeypatch.setattr(kafka_exporting, "COMPRESSED_BYTES_MAX", most)
            (tmp_path / str(most)).mkdir()
            export(log, str(tmp_path / str(most) / str(KEY)))
            with LogStore.open_kafka(tmp_path / str(most)) as exported:
                (batch,) = exported[KEY].read_batches()
                assert batch.header.attributes & 7 == codec_id and batch.count == 10
