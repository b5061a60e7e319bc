"""Offsets at a segment's end are missing only if compaction can have removed them."""

from __future__ import annotations

from pathlib import Path

from logstore import LogConfig, LogStore
from logstore.log.metadata import SPARSE_OFFSETS, PartitionMetadata
from logstore.log.recovery.sparse_ends import lacks_end
from support.hanging import QUIET
from support.inside import abandon

KAFKA = PartitionMetadata("t", 0, bytes(range(16)), config=LogConfig(record_format="kafka"))
COMPACTED = KAFKA._replace(config=LogConfig(cleanup_policy="compact"))
CLEANED = KAFKA._replace(extra={"cleaned": [20, None]})


def test_below_the_recovery_point_it_may_lack_its_end() -> None:
    """A crash does not remove flushed records."""
    for metadata in (KAFKA, COMPACTED, CLEANED):
        assert lacks_end(metadata, 30, 30, -1)
    assert lacks_end(CLEANED, 20, 0, -1)  # it was compacted up to there, and so was flushed


def test_after_it_only_kafkas_segments_lack_their_end() -> None:
    """They lack it if more follows; our own compaction keeps the last batch of a segment."""
    assert lacks_end(KAFKA, 31, 30, 31)
    assert not lacks_end(KAFKA, 31, 30, 30)
    assert not lacks_end(COMPACTED, 31, 30, 31)
    assert not lacks_end(CLEANED, 31, 30, 31)


def crashed(tmp_path: Path, lost: int) -> LogStore:
    """Lose what a crash can lose: unflushed records of a compacted log, but no file name."""
    store = LogStore.open(tmp_path, config=QUIET)
    config = LogConfig(cleanup_policy="compact", segment_bytes=256, record_format="kafka")
    log = store.create("t", 0, config=config)
    for number in range(12):
        log.append(b"v%d" % number, key=b"key" if number < 6 else b"k%d" % number)
    log.flush()
    log.compact()
    metadata = PartitionMetadata.read(str(tmp_path / "t-0"))
    assert metadata is not None and metadata.extra[SPARSE_OFFSETS]
    end = log.log_end_offset
    for number in range(9):
        log.append(b"w%d" % number, key=b"later")
    abandon(store)
    new = sorted(path for path in (tmp_path / "t-0").glob("*.log") if int(path.stem) >= end)
    assert len(new) > 2
    for path in new[-lost:]:
        path.write_bytes(b"")
    return LogStore.open(tmp_path, config=QUIET)


def test_regression_lost_records_leave_no_gap(tmp_path: Path) -> None:
    """The log ended at its last, empty segment, as if compaction had removed the records."""
    with crashed(tmp_path, 2) as store:
        log = store["t", 0]
        assert log.recovery.state == "recovered"
        offsets = [record.offset for record in log]
        assert log.log_end_offset == offsets[-1] + 1
        assert log.append(b"next", key=b"k") == offsets[-1] + 1
        assert store.repair("t", 0).lost == []
        assert log.verify() == []
