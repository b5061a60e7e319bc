"""Put the bytes that a cleaning leaves in place of a segment, and read them as a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore import LogConfig, LogStore
from logstore.log.metadata import SPARSE_OFFSETS, PartitionMetadata
from support.compacting import NOW, clean, headers_of, rows_of, split


def say_that_offsets_may_be_missing(directory: Path) -> None:
    """Write what a compaction in Kafka's layout writes before it replaces a segment."""
    metadata = PartitionMetadata.read(str(directory))
    assert metadata is not None
    metadata._replace(extra=metadata.extra | {SPARSE_OFFSETS: True}).write(str(directory))


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("layout", ["columnar", "kafka"])
def test_a_log_with_a_cleaned_segment_is_whole(tmp_path: Path, layout: str, codec: str) -> None:
    """Every record that is left is read, by scan, by offset and by time; the end stays."""
    config = LogConfig(record_format=layout, compression_type=codec, index_interval_bytes=64)
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=config)
        for number in range(60):
            keys = [b"k%d" % (number // 9), b"only %d" % (number % 31), b"gone"]
            values = [b"v%d" % number, b"", None]
            log.extend(values, keys=keys, timestamps=[NOW + number] * 3)
        end_offset = log.log_end_offset
    (path,) = (tmp_path / "orders-0").glob("*.log")
    before = split(path.read_bytes())
    last = headers_of(before)[-1].last_offset
    done = clean(before, kept_empty=frozenset({last}))
    assert len(done.batches) < len(before) and done.cleaner.is_changed
    path.write_bytes(b"".join(done.batches))
    for name in (".index", ".timeindex"):
        path.with_suffix(name).unlink(missing_ok=True)
    if layout == "kafka":
        say_that_offsets_may_be_missing(path.parent)
    (tmp_path / ".clean-shutdown").unlink()
    left = rows_of(done.batches)
    for _ in range(2):  # after a scan, and after an orderly close
        with LogStore.open(tmp_path) as store:
            assert store.recovery_report.is_sound and store.verify().is_sound
            log = store.log("orders", 0)
            assert log.log_end_offset == end_offset
            assert [(r.offset, r.timestamp, r.key, r.value) for r in log] == left
            for row in left:
                record = log.read(row.offset, max_records=1)[0]
                assert (record.offset, record.key, record.value) == (row[0], row[2], row[3])
            for offset in range(end_offset):
                found = log.read(offset, max_records=1)
                expected = [row.offset for row in left if row.offset >= offset][:1]
                assert [record.offset for record in found] == expected
            assert log.offset_for_timestamp(NOW + 59) == left[-3].offset
