"""Change the configuration of a partition in use: first on the disk, then in memory."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from logstore import LogConfig, LogStore, StoreConfig
from logstore.errors import (
    ReadOnlyStoreError,
    RecordTooLargeError,
    UnknownPartitionError,
)
from logstore.log import host
from logstore.log.metadata import PartitionMetadata
from logstore.log.write import appending
from support.clock import Clock
from support.crashing import crash_at

OTHER: dict[str, Any] = {
    "segment_bytes": "1MiB",
    "segment_ms": "1h",
    "segment_index_bytes": 4096,
    "index_interval_bytes": 512,
    "max_message_bytes": "1MiB",
    "flush_messages": 3,
    "flush_ms": "2s",
    "retention_ms": "7d",
    "retention_bytes": "1GiB",
    "compression_type": "zstd",
    "encoded_compression_type": "zstd",
    "message_timestamp_after_max_ms": 77_000,
    "message_timestamp_before_max_ms": 78_000,
    "message_timestamp_type": "LogAppendTime",
    "record_format": "kafka",
    "cleanup_policy": "compact,delete",
    "min_compaction_lag_ms": "1h",
    "max_compaction_lag_ms": "1d",
    "delete_retention_ms": "2h",
    "min_cleanable_dirty_ratio": 0.1,
    "retention_pressure": True,
}


def stored(directory: str) -> LogConfig:
    """Return the configuration on the disk."""
    metadata = PartitionMetadata.read(directory)
    assert metadata is not None
    return metadata.config


def test_every_key_is_among_those_tried() -> None:
    """If LogConfig gets a new key, this test must try the key, too."""
    assert set(OTHER) == set(LogConfig().to_dict())


@pytest.mark.parametrize("key", OTHER)
def test_each_key_changes_alone_and_is_reset(tmp_path: Path, key: str) -> None:
    """The log, the disk and the next start have the new value; None restores the default."""
    layout = "kafka" if key == "encoded_compression_type" else "columnar"
    before = LogConfig(record_format=layout)
    wanted = before.replace(**{key: OTHER[key]})
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=before)
        log.append(b"a")
        assert store.set_config("orders", 0, {key: OTHER[key]}) == wanted
        assert log.config == stored(log.directory) == wanted
        log.append(b"b", key=b"k")
        log.append(b"c", key=b"l")
    with LogStore.open(tmp_path) as store:
        assert store.recovery_report.is_sound
        log = store.log("orders", 0)
        assert log.config == wanted
        assert [record.value for record in log] == [b"a", b"b", b"c"]
        assert store.set_config("orders", 0, {key: None}) == before
        assert log.append(b"d") == 3 and log.verify() == []


def test_a_reset_key_takes_the_default_of_the_store(tmp_path: Path) -> None:
    """-1 means no limit; None means the store's value for new partitions."""
    config = StoreConfig(log_config=LogConfig(retention_ms="1d", segment_bytes="2MiB"))
    with LogStore.open(tmp_path, config=config) as store:
        log = store.create("orders", 0)
        changes = {"retention_ms": -1, "segment_bytes": 1024}
        assert store.set_config("orders", 0, changes).retention_ms is None
        store.set_config("orders", 0, dict.fromkeys(changes))
        assert log.config == config.log_config


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"retention": 1}, TypeError, "did you mean 'retention_ms'"),
        ({"retension_ms": None}, TypeError, "did you mean 'retention_ms'"),
        ({"segment.bytes": 1}, TypeError, "did you mean 'segment_bytes'"),
        ({"segment_bytes": 1}, ValueError, r"segment_bytes=1 is not in 256\.\.2147483647"),
        ({"retention_ms": "soon"}, ValueError, "retention_ms"),
        ({"flush_messages": 1.5}, TypeError, "flush_messages"),
        ({"compression_type": "rar"}, ValueError, "choose from"),
        ({"compression_type": "gzip"}, ValueError, "needs record_format='kafka'"),
        ({"cleanup_policy": "compacted"}, ValueError, "choose from 'delete', 'compact'"),
        ({1: 2}, TypeError, "a key of changes must be text"),
        (["retention_ms"], TypeError, "changes must be a mapping"),
        (LogConfig(), TypeError, "changes must be a mapping"),
    ],
)
def test_a_wrong_change_changes_nothing(
    tmp_path: Path, changes: Any, error: type[Exception], message: str
) -> None:
    """If one key is wrong, the other keys are not changed either."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        beside = {"retention_bytes": 5, **changes} if type(changes) is dict else changes
        with pytest.raises(error, match=message):
            store.set_config("orders", 0, beside)
        assert log.config == stored(log.directory) == LogConfig()


def test_a_codec_of_kafkas_is_taken_with_its_layout(tmp_path: Path) -> None:
    """Two keys that are valid only together can be changed and reset together."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        log.append(b"plain")
        both = {"compression_type": "gzip", "record_format": "kafka"}
        store.set_config("orders", 0, both)
        log.append(b"kafka")
        with pytest.raises(ValueError, match="needs record_format='kafka'"):
            store.set_config("orders", 0, {"record_format": None})
        store.set_config("orders", 0, dict.fromkeys(both))
        log.append(b"plain again")
        assert [record.value for record in log] == [b"plain", b"kafka", b"plain again"]
        assert len(list(Path(log.directory).glob("*.log"))) == 3
        assert log.verify() == []


def test_the_next_append_rolls_by_the_new_size(tmp_path: Path) -> None:
    """A segment that is already larger is sealed."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        for _ in range(20):
            log.append(b"x" * 40)
        store.set_config("orders", 0, {"segment_bytes": 256})
        assert len(host.segments_of(log)) == 1
        log.append(b"x")
        assert len(host.segments_of(log)) == 2
        store.set_config("orders", 0, {"segment_bytes": None})
        for _ in range(20):
            log.append(b"x" * 40)
        assert len(host.segments_of(log)) == 2


def test_the_next_append_rolls_by_the_new_age(tmp_path: Path) -> None:
    """The age counts from the first record, even if no age was configured then."""
    clock = Clock()
    with LogStore.open(tmp_path, clock=clock) as store:
        log = store.create("orders", 0, config=LogConfig(segment_ms=None))
        log.append(b"a")
        clock.ms += 5000
        store.set_config("orders", 0, {"segment_ms": 6000})
        log.append(b"b")
        assert len(host.segments_of(log)) == 1
        store.set_config("orders", 0, {"segment_ms": 4000})
        log.append(b"c")
        assert len(host.segments_of(log)) == 2
        store.set_config("orders", 0, {"segment_ms": -1})
        clock.ms += 10**9
        log.append(b"d")
        assert len(host.segments_of(log)) == 2


def test_the_next_check_drops_by_the_new_retention(tmp_path: Path) -> None:
    """Retention drops nothing before its next check, and then all segments that are due."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=LogConfig(segment_bytes=256))
        for _ in range(20):
            log.append(b"x" * 40)
        assert log.apply_retention() == 0
        store.set_config("orders", 0, {"retention_bytes": 0})
        assert log.log_start_offset == 0
        assert log.apply_retention() > 0


def test_the_next_append_flushes_by_the_new_count(tmp_path: Path) -> None:
    """Records that already wait for a flush are counted."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        for _ in range(5):
            log.append(b"x")
        store.set_config("orders", 0, {"flush_messages": 3})
        assert log.recovery_point == 0
        log.append(b"x")
        assert log.recovery_point == 6


def test_sizes_and_times_are_those_of_the_new_one(tmp_path: Path) -> None:
    """From the next append on, the new size limit and LogAppendTime are used."""
    clock = Clock()
    with LogStore.open(tmp_path, clock=clock) as store:
        log = store.create("orders", 0)
        log.append(b"x" * 500, timestamp=1)
        changes = {"max_message_bytes": 300, "message_timestamp_type": "LogAppendTime"}
        store.set_config("orders", 0, changes)
        with pytest.raises(RecordTooLargeError):
            log.append(b"x" * 500)
        log.append(b"y", timestamp=1)
        assert [record.timestamp for record in log] == [1, clock.now_ms()]
        store.set_config("orders", 0, {"message_timestamp_type": None})
        with pytest.raises(RecordTooLargeError):
            log.append(b"x" * 500)


def test_what_was_gathered_before_is_appended(tmp_path: Path) -> None:
    """A smaller limit refuses the next record, but no record that an appender has accepted."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        with log.appender(linger=60) as appender:
            futures = [appender.append(b"x" * 100) for _ in range(20)]
            store.set_config("orders", 0, {"max_message_bytes": 500})
            with pytest.raises(RecordTooLargeError):
                appender.append(b"x" * 1000)
            futures += [appender.append(b"y" * 100) for _ in range(20)]
            appender.flush()
            assert [future.result() for future in futures] == list(range(40))
        counts = [len(batch) for batch in log.read_batches()]
        assert counts[0] == 20 and max(counts[1:]) <= 500 // 100


@pytest.mark.parametrize("way", ["append", "extend"])
def test_a_batch_that_was_encoded_before_keeps_its_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The batch was encoded outside the lock, so it goes into a segment of its own layout."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        log.append(b"first", key=b"k")
        store.set_config("orders", 0, {"record_format": "kafka"})
        log.append(b"second")
        build = appending.build
        changes = [{"record_format": "columnar"}, {"record_format": "kafka"}]

        def late(*given: Any, **options: Any) -> Any:
            payload = build(*given, **options)
            if changes:
                store.set_config("orders", 0, changes.pop(0))
            return payload

        monkeypatch.setattr(appending, "build", late)
        for value in (b"third", b"fourth"):
            if way == "append":
                log.append(value, key=b"k")
            else:
                log.extend([value])
        log.append(b"fifth")
        values = [b"first", b"second", b"third", b"fourth", b"fifth"]
        assert [record.value for record in log] == values
        assert log.verify() == []
    with LogStore.open(tmp_path) as store:
        assert store.recovery_report.is_sound
        assert [record.value for record in store["orders", 0]] == values


def test_appends_beside_it_see_the_old_or_the_new(tmp_path: Path) -> None:
    """Plain, keyed, gathered and durable appends run during changes of layout, codec and sizes."""
    configs: list[dict[str, Any]] = [
        {"record_format": "kafka", "compression_type": "gzip", "segment_bytes": 4096},
        {"record_format": None, "compression_type": "lz4", "flush_messages": 2},
        {"compression_type": None, "segment_ms": 1, "index_interval_bytes": 0},
        {"message_timestamp_type": "LogAppendTime", "segment_bytes": 1024},
        dict.fromkeys(OTHER),
    ]
    odd: list[BaseException] = []
    is_over = threading.Event()
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        done: list[list[int]] = [[] for _ in range(4)]

        def work(number: int) -> None:
            try:
                with log.appender() as appender:
                    while not is_over.is_set():
                        if number == 0:
                            done[0].append(log.append(b"plain"))
                        elif number == 1:
                            done[1] += log.extend([b"some", b"more"], keys=[b"k", None])
                        elif number == 2:
                            done[2].append(log.append(b"durable", durable=True))
                        else:
                            done[3].append(appender.append(b"gathered").result())
            except BaseException as error:  # noqa: BLE001 - the test looks at them
                odd.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for turn in range(60):
            store.set_config("orders", 0, configs[turn % len(configs)])
        is_over.set()
        for thread in threads:
            thread.join()
        assert odd == []
        offsets = sorted(offset for each in done for offset in each)
        assert offsets == list(range(log.log_end_offset))
        assert log.verify() == []
        assert sum(1 for _ in log) == len(offsets)
    with LogStore.open(tmp_path) as store:
        assert store.recovery_report.is_sound and store.recovery_report.was_clean
        assert store.verify().is_sound


def test_a_partition_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The error is the same as for every other call."""
    with LogStore.open(tmp_path) as store, pytest.raises(UnknownPartitionError):
        store.set_config("orders", 0, {"segment_bytes": 512})


def test_a_view_sees_it_and_may_not_do_it(tmp_path: Path) -> None:
    """A view sees the change after its next listing."""
    with LogStore.open(tmp_path) as store:
        store.create("orders", 0).append(b"a")
        with LogStore.open(tmp_path, read_only=True) as view:
            seen = view.log("orders", 0)
            assert len(list(seen)) == 1
            store.set_config("orders", 0, {"retention_ms": 5})
            assert len(list(seen)) == 1
            assert seen.config == LogConfig(retention_ms=5)
            with pytest.raises(ReadOnlyStoreError):
                view.set_config("orders", 0, {"retention_ms": 6})


def test_what_is_the_same_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may set the same configuration at each start."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=LogConfig(retention_ms=5))
        calls = crash_at(monkeypatch, 0)
        assert store.set_config("orders", 0, {"retention_ms": 5}) == log.config
        assert store.set_config("orders", 0, {}) == log.config
        assert calls == []
        monkeypatch.undo()
