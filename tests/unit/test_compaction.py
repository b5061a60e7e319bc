"""Compact logs on a disk: what is left, what is never touched, and what ends a compaction."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logstore import CorruptRecordBatchError, Log, LogDirFullError, LogStore
from logstore.disk import files
from logstore.errors import OffsetOutOfRangeError, ReadOnlyStoreError
from logstore.format.columnar import record_batch as columnar
from logstore.log.compaction import compaction
from logstore.log.compaction.compaction import CompactionReport, compact, plan_of
from logstore.log.compaction.replacement import put_in_place
from logstore.log.metadata import SPARSE_OFFSETS, PartitionMetadata
from support.clock import Clock
from support.keyed_logs import COMPACTED, Keyed

LAYOUTS = ("columnar", "kafka")
DAY_MS = 86_400_000


def keyed(store: LogStore, layout: str, count: int = 150, **config: Any) -> Keyed:
    """Make a log of many small segments."""
    config = {"record_format": layout, **config}
    log = Keyed(store.create("orders", 0, config=COMPACTED.replace(**config)))
    log.append(count)
    return log


def state_of(log: Log) -> Any:
    return log._state


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in state_of(log).segments]


def names(log: Log) -> set[str]:
    """Give the names in the log's directory, but for those of segments."""
    return {name for name in os.listdir(log.directory) if not name[:20].isdigit()}


def logs_on_disk(log: Log) -> list[int]:
    return sorted(int(n[:20]) for n in os.listdir(log.directory) if n.endswith(".log"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_latest_record_of_each_key_is_left(tmp_path: Path, clock: Clock, layout: str) -> None:
    """Records keep their offsets, also in the next process and in a read-only view."""
    with LogStore.open(tmp_path, clock=clock) as store:
        keep = keyed(store, layout)
        log = keep.log
        end, active = log.log_end_offset, bases(log)[-1]
        report = log.compact()
        assert report.is_complete and report.clean_end_offset == active
        assert report.records_read == active > report.records_kept
        assert report.bytes_kept < report.bytes_read
        keep.check_compacted(active)
        assert log.log_end_offset == end and log.recovery_point == end
        assert not [n for n in os.listdir(log.directory) if n.endswith((".cleaned", ".swap"))]
        assert log.compact() == CompactionReport("orders", 0, clean_end_offset=active)
        with LogStore.open(tmp_path, read_only=True) as view:
            keep.check(view.log("orders", 0))
            assert view.log("orders", 0).verify() == []
            with pytest.raises(ReadOnlyStoreError):
                view.log("orders", 0).compact()
        keep.append(60)
        log.compact()
        keep.check_compacted(log.compact().clean_end_offset)
        assert len(bases(log)) < 10, "small segments were merged"
        assert logs_on_disk(log) == bases(log)
    with LogStore.open(tmp_path, clock=clock) as store:
        assert store.recovery_report.is_sound and not store.recovery_report.entries[0].warnings
        keep.log = store.log("orders", 0)
        keep.check_compacted(store.log("orders", 0).compact().clean_end_offset)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_removed_record_is_out_of_range_and_readers_go_on_after_it(
    store: LogStore, layout: str
) -> None:
    """Reading the removed offset raises; a walk that begins there gives the next record."""
    keep = keyed(store, layout)
    keep.log.compact()
    left = [record.offset for record in keep.log]
    for offset in keep.appended:
        if offset in left:
            assert keep.log[offset].value == keep.appended[offset][1]
            continue
        with pytest.raises(OffsetOutOfRangeError, match="some of these offsets have no record"):
            keep.log[offset]
        following = next(iter(keep.log[offset:]))
        assert following.offset == min(at for at in left if at > offset)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_what_is_sealed_and_flushed_is_compacted(store: LogStore, layout: str) -> None:
    """The active segment, and records after the recovery point, are never compacted."""
    keep = keyed(store, layout)
    log = keep.log
    flushed = log.recovery_point
    while len(bases(log)) < 30:
        offset = log.append(b"later", key=b"key 1")
        keep.appended[offset] = (b"key 1", b"later")
    before = {base: (Path(log.directory) / f"{base:020}.log").read_bytes() for base in bases(log)}
    report = log.compact()
    last = max(base for base in bases(log) if base <= flushed)
    assert report.clean_end_offset == last
    for base in bases(log):
        if base >= last:
            assert (Path(log.directory) / f"{base:020}.log").read_bytes() == before[base]
    keep.check()
    log.flush()
    assert log.compact().clean_end_offset == bases(log)[-1]
    keep.check_compacted(bases(log)[-1])


def test_tombstones_stay_for_their_time_and_a_plan_is_due_for_them(
    store: LogStore, clock: Clock
) -> None:
    """No new record is needed: the horizon is in `partition.metadata`."""
    keep = keyed(store, "columnar", min_cleanable_dirty_ratio=0.9)
    log, active = keep.log, bases(keep.log)[-1]
    log.compact()
    tombstones = [r for r in log if r.value is None and r.offset < active]
    assert tombstones and not plan_of(state_of(log)).is_due
    metadata = PartitionMetadata.read(log.directory)
    assert metadata is not None
    assert metadata.cleaned == (active, clock.ms + DAY_MS)
    clock.ms += DAY_MS - 1
    assert not plan_of(state_of(log)).is_due and log.compact().records_read == 0
    clock.ms += 1
    assert plan_of(state_of(log)).is_due and log.compact().records_read > 0
    keep.check()
    assert [r for r in log if r.value is None and r.offset < active] == []
    assert not plan_of(state_of(log)).is_due


def test_a_small_table_takes_several_compactions(store: LogStore) -> None:
    """Each compaction gets further than the previous one."""
    keep = keyed(store, "kafka")
    keep.key_count = 500
    keep.append(200)
    log, ends = keep.log, [0]
    while ends[-1] < bases(log)[-1]:
        report = compact(state_of(log), table_bytes=2000)
        assert report.clean_end_offset > ends[-1]
        ends.append(report.clean_end_offset)
        keep.check()
    assert len(ends) > 4
    keep.check_compacted(ends[-1])


def test_a_young_record_and_the_segments_after_it_are_left_alone(
    store: LogStore, clock: Clock
) -> None:
    """`min_compaction_lag_ms` says what is young; `max_compaction_lag_ms` what must not wait."""
    keep = keyed(store, "columnar", min_compaction_lag_ms=1000)
    log, active = keep.log, bases(keep.log)[-1]
    assert log.compact().clean_end_offset == 0
    clock.ms += 1001
    keep.append(30)
    assert active <= log.compact().clean_end_offset < bases(log)[-1]
    changes = {"min_cleanable_dirty_ratio": 1, "max_compaction_lag_ms": 5000}
    store.set_config("orders", 0, changes)
    assert not plan_of(state_of(log)).is_due
    clock.ms += 5001
    assert plan_of(state_of(log)).is_overdue


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("part", [0.2, 1.2, 1.8])
def test_a_truncation_ends_a_compaction(store: LogStore, layout: str, part: float) -> None:
    """Records that superseded others may be gone, so the others must not be removed."""
    keep = keyed(store, layout)
    log, half = keep.log, bases(keep.log)[len(bases(keep.log)) // 2]
    when, calls = int(part * len(bases(log))), 0

    def pace(_: int) -> None:
        nonlocal calls
        calls += 1
        if calls == when:
            keep.truncate(half)

    report = compact(state_of(log), pace)
    assert calls == when and not report.is_complete
    assert not [n for n in os.listdir(log.directory) if n.endswith((".cleaned", ".swap"))]
    before = {offset for offset in keep.appended if offset < half}
    if part < 1:  # nothing was replaced yet
        keep.check()
        assert {record.offset for record in log} == before
    assert log.compact().is_complete
    assert log.verify() == [] and {r.offset for r in log} <= before


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_truncation_of_later_records_does_not_end_a_compaction(
    store: LogStore, layout: str
) -> None:
    """A follower truncates only unreplicated records, which are never compacted."""
    keep = keyed(store, layout)
    log, active, calls = keep.log, bases(keep.log)[-1], 0

    def pace(_: int) -> None:
        nonlocal calls
        calls += 1
        if calls % 5 == 0 and log.log_end_offset > active:
            keep.truncate(max(active, log.log_end_offset - 1))

    report = compact(state_of(log), pace)
    assert report.is_complete and report.clean_end_offset == active < keep.number
    keep.check_compacted(active)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_after_the_high_watermark_is_compacted(store: LogStore, layout: str) -> None:
    """A record that is not replicated may be truncated, so it must not replace a replicated one."""
    keep = keyed(store, layout)
    log, active = keep.log, bases(keep.log)[-1]
    replicated = bases(log)[len(bases(log)) // 2] + 1  # in the middle of a segment
    log.advance_high_watermark(replicated)
    later = [record for record in log if record.offset >= replicated]
    assert log.compact().clean_end_offset == replicated - 1 and log.compact().records_read == 0
    assert [record for record in log if record.offset >= replicated] == later
    keep.check_compacted(replicated - 1)
    keep.truncate(replicated)
    keep.check()
    log.advance_high_watermark(replicated)
    keep.append(60)
    log.advance_high_watermark(log.log_end_offset)
    assert log.compact().clean_end_offset == bases(log)[-1] > replicated and active
    keep.check_compacted(bases(log)[-1])


def test_offsets_far_apart_are_compacted_once(store: LogStore) -> None:
    """Gaps of 2^31 offsets, also at the point where the next compaction begins."""
    keep = keyed(store, "columnar", 40)
    log = keep.log
    for _ in range(3):
        end = log.log_end_offset
        log.append_as_follower(columnar.hole(end, end + 2**31 - 1, log.leader_epoch))
        keep.append(20)
        assert log.compact().clean_end_offset == bases(log)[-1]
        assert not plan_of(state_of(log)).is_due and log.compact().records_read == 0
        keep.check_compacted(bases(log)[-1])
    assert log.log_end_offset > 3 * 2**31


def test_what_was_compacted_is_dirty_again_after_a_truncation(store: LogStore) -> None:
    """Other records may get the offsets."""
    keep = keyed(store, "columnar")
    keep.log.compact()
    half = bases(keep.log)[len(bases(keep.log)) // 2]
    keep.log.truncate_to(half)
    assert state_of(keep.log).metadata.cleaned.end_offset == half
    metadata = PartitionMetadata.read(keep.log.directory)
    assert metadata is not None and metadata.cleaned.end_offset == half


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.delete_records_before(bases(log)[5]),
        lambda log: log.repair(),
        lambda log: log.close(),
    ],
)
def test_other_changes_beside_a_compaction(
    store: LogStore, change: Callable[[Log], object]
) -> None:
    """Retention removes segments, and a repair reloads them: no wrong segment replaces them."""
    keep = keyed(store, "columnar")
    log, calls = keep.log, 0

    def pace(_: int) -> None:
        nonlocal calls
        calls += 1
        if calls == len(bases(log)) + 4:
            change(log)

    try:
        report = compact(state_of(log), pace)
    except Exception as error:  # noqa: BLE001 - closed
        assert "closed" in str(error)
        return
    start = log.log_start_offset
    assert {r.key: r.value for r in log if r.value is not None}.items() >= {
        key: value
        for key, value in keep.state().items()
        if any(at >= start and row == (key, value) for at, row in keep.appended.items())
    }.items()
    assert log.verify() == [] and logs_on_disk(log) == bases(log)
    assert report.clean_end_offset in (0, bases(log)[-1])


def test_offsets_may_be_missing_after_compaction_of_kafkas_layout(store: LogStore) -> None:
    """`partition.metadata` and the epochs' file say so, before the first segment is replaced."""
    keep = keyed(store, "kafka")
    assert SPARSE_OFFSETS not in state_of(keep.log).metadata.extra
    keep.log.compact()
    metadata = PartitionMetadata.read(keep.log.directory)
    assert metadata is not None and metadata.extra[SPARSE_OFFSETS] is True
    text = (Path(keep.log.directory) / "leader-epoch-checkpoint").read_text()
    assert '"sparse_offsets": true' in text
    columnar = Keyed(store.create("plain", 0, config=COMPACTED))
    columnar.append(100)
    columnar.log.compact()
    assert SPARSE_OFFSETS not in state_of(columnar.log).metadata.extra


def test_a_damaged_batch_ends_a_compaction(store: LogStore) -> None:
    """The error names the batch; its segment and all later ones are unchanged."""
    keep = keyed(store, "columnar")
    log, segment = keep.log, state_of(keep.log).segments[7]
    path = Path(segment.log_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptRecordBatchError) as caught:
        log.compact()
    assert caught.value.path == str(path)
    assert state_of(log).metadata.cleaned.end_offset == 0 and path.read_bytes() == data


def test_the_first_group_that_fails_ends_a_compaction(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later groups may have tombstones for records in this group."""
    keep, replaced = keyed(store, "columnar"), []

    def failing(state: Any, replacement: Any) -> bool:
        replaced.append(replacement.new.base_offset)
        if len(replaced) == 3:
            raise LogDirFullError(path="here", reason="for a moment")
        return put_in_place(state, replacement)

    monkeypatch.setattr(compaction, "put_in_place", failing)
    with pytest.raises(LogDirFullError):
        keep.log.compact()
    assert replaced == bases(keep.log)[:3] and state_of(keep.log).metadata.cleaned == (0, None)
    keep.check()
    keep.log.compact()
    keep.check_compacted(bases(keep.log)[-1])


def test_a_reader_that_comes_late_to_a_segment_looks_again(store: LogStore) -> None:
    """Another file has the segment's name, so the reader does not open it as the old segment."""
    keep = keyed(store, "columnar")
    before = state_of(keep.log).segments[:-1]
    for segment in before:
        segment.forget(state_of(keep.log).environment)
    keep.log.compact()
    for segment in before:
        with pytest.raises(FileNotFoundError):
            segment.handle(state_of(keep.log).environment)


def test_a_full_disk_leaves_the_log_as_it_was(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The written files are removed; when there is room, the compaction works."""
    keep = keyed(store, "columnar")
    before = bases(keep.log)

    def write(fd: int, buffers: Any, position: int) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "pwritev", write)
        with pytest.raises(LogDirFullError):
            keep.log.compact()
    assert bases(keep.log) == before == logs_on_disk(keep.log)
    assert not [n for n in os.listdir(keep.log.directory) if n.endswith(".cleaned")]
    keep.check()
    keep.log.compact()
    keep.check_compacted(before[-1])


def test_a_log_that_deletes_is_not_compacted(store: LogStore) -> None:
    """The error names the key to set."""
    log = store.create("orders", 0)
    with pytest.raises(ValueError, match="cleanup_policy of orders-0 is 'delete'"):
        log.compact()
