"""What is adopted shares files with a broker's disk: nothing that is done with it reaches them."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from logstore import LogStore, PartitionExistsError, StoreEvent, TopicPartition
from logstore.disk import bulk, files
from logstore.log.metadata import DELETED_BY_USER, DELETION, SPARSE_OFFSETS, PartitionMetadata
from logstore.log.recovery.report import DamageName
from logstore.store.kafka.adoption import Adopted, adopt
from logstore.store.kafka.broker_listing import parse_replica
from logstore.store.kafka.export import export
from logstore.store.upkeep.events import StoreEventKind
from support.kafka_golden import given, log_dirs
from support.keepers import wait_for_keepers

SEGMENTS = TopicPartition("segments", 0)


def bytes_below(place: Path) -> dict[str, bytes]:
    """Give every file below a directory."""
    return {str(path): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def adopted(place: Path, key: TopicPartition, show: Callable[[int], object] = id) -> Adopted:
    """Take one partition of the golden broker into a store of two disks."""
    dirs = log_dirs("stopped", place / "broker")
    stores = [place / "ours1", place / "ours2"]
    with LogStore.open_kafka(dirs) as source, LogStore.open(stores) as store:
        return adopt(store, source, key, show)


def truncate(store: LogStore, end: int) -> None:
    """Cut the log, and go on with it."""
    log = store[SEGMENTS]
    log.truncate_to(end)
    assert log.append(b"another", durable=True) == end
    log.extend([b"and more"] * 20)


def begin_later(store: LogStore, start: int) -> None:
    """Delete records at the start."""
    store[SEGMENTS].delete_records_before(start)
    store[SEGMENTS].apply_retention()


def delete(store: LogStore, _: int) -> None:
    """Delete the partition."""
    store.delete(*SEGMENTS)


@pytest.mark.parametrize("end", range(7))
@pytest.mark.parametrize("change", [truncate, begin_later, delete])
def test_no_change_reaches_the_source(
    tmp_path: Path, change: Callable[[LogStore, int], None], end: int
) -> None:
    """Cutting at each offset, deleting, appending, and opening anew leave the broker's files."""
    assert adopted(tmp_path, SEGMENTS).linked_bytes > 0
    before = bytes_below(tmp_path / "broker")
    for _ in range(2):
        with LogStore.open([tmp_path / "ours1", tmp_path / "ours2"]) as store:
            if SEGMENTS in store:
                change(store, min(end, store[SEGMENTS].log_end_offset))
        assert bytes_below(tmp_path / "broker") == before


def test_regression_an_adopted_partition_is_told_to_listeners(tmp_path: Path) -> None:
    """It was served without the event that a creation posts; one that fails posts none."""
    told: list[StoreEvent] = []
    with (
        LogStore.open_kafka(log_dirs("stopped", tmp_path / "broker")) as source,
        LogStore.open(tmp_path / "ours") as store,
    ):
        store.add_listener(told.append)
        adopt(store, source, SEGMENTS, id)
        with pytest.raises(PartitionExistsError):
            adopt(store, source, SEGMENTS, id)
    ours = str(tmp_path / "ours")
    assert told == [StoreEvent(StoreEventKind.REPLICA_CREATED, ours, "", *SEGMENTS)]


@pytest.mark.parametrize("segment", range(6))
def test_repair_does_not_reach_the_source(tmp_path: Path, segment: int) -> None:
    """Damage that came with a linked file is taken out of the store's log alone."""
    dirs = log_dirs("stopped", tmp_path / "broker")
    path = tmp_path / "broker/a/segments-0" / f"{segment:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    before = bytes_below(tmp_path / "broker")
    ours = tmp_path / "ours"
    with LogStore.open_kafka(dirs) as source, LogStore.open(ours) as store:
        adopt(store, source, SEGMENTS, id)
    with LogStore.open(ours) as store:
        log = store[SEGMENTS]
        if not store.recovery_report.offline:
            log.repair()
            assert not log.verify()
            log.append(b"goes on", durable=True)
            values = [record.value for record in log]
            assert values == [b"s" * n for n in range(6) if n != segment] + [b"goes on"]
    assert bytes_below(tmp_path / "broker") == before


def refuse(number: int) -> Callable[..., Any]:
    """Make a call that fails."""

    def call(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


def test_where_no_link_can_be_blocks_are_shared_or_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each segment but the last comes by the first of three ways that the disk allows."""
    calls: list[int] = []

    def clone(target_fd: int, request: int, source_fd: int) -> None:
        calls.append(request)
        os.sendfile(target_fd, source_fd, 0, os.fstat(source_fd).st_size)

    expected = given("stopped")[SEGMENTS].uncommitted
    taken = {}
    for way, link, ioctl in (
        ("linked", files.link, refuse(errno.EIO)),
        ("cloned", refuse(errno.EPERM), clone),
        ("copied", refuse(errno.EXDEV), refuse(errno.EOPNOTSUPP)),
    ):
        monkeypatch.setattr(files, "link", link)
        monkeypatch.setattr(files, "ioctl", ioctl)
        shown: list[int] = []
        taken[way] = adopted(tmp_path / way, SEGMENTS, shown.append)
        assert shown == sorted(shown) and shown[-1] == sum(taken[way][2:])
        with LogStore.open([tmp_path / way / "ours1", tmp_path / way / "ours2"]) as store:
            assert [tuple(record[:5]) for record in store[SEGMENTS]] == expected
    assert taken["linked"][2:] == (355, 0, 74)
    assert taken["cloned"][2:] == (0, 355, 74) and calls == [bulk.CLONE_FILE] * 5
    assert taken["copied"][2:] == (0, 0, 429)


def test_a_failed_adoption_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk is full half way, the partition can be adopted once there is room."""
    dirs = log_dirs("stopped", tmp_path / "broker")
    ours = tmp_path / "ours"
    with LogStore.open_kafka(dirs) as source, LogStore.open(ours) as store:
        with monkeypatch.context() as patch:
            patch.setattr(files, "sendfile", refuse(errno.ENOSPC))
            with pytest.raises(Exception, match=r"full|space"):
                adopt(store, source, SEGMENTS, id)
        assert SEGMENTS not in store
        assert not [path for path in ours.iterdir() if path.is_dir()]
        adopt(store, source, SEGMENTS, id)
        assert len(list(store[SEGMENTS])) == 6


STEPS = ("make_dir", "link", "copy_range", "sync_data", "sync_file", "sync_dir", "rename")


def stop_at(patch: pytest.MonkeyPatch, number: int, stop: Callable[[], object]) -> None:
    """Have one of this thread's calls that touch files, counted from 1, stopped."""
    count = [0]

    def stopping(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                count[0] += 1
                if count[0] == number:
                    stop()
            return call(*given)

        return counted

    for name in STEPS:
        module = bulk if name == "copy_range" else files
        patch.setattr(module, name, stopping(getattr(module, name)))


def interrupt() -> None:
    """Press Ctrl-C."""
    raise KeyboardInterrupt


def test_regression_an_interrupted_adoption_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C at every second step: the partition is there as a whole, or nothing of it is."""
    dirs = log_dirs("stopped", tmp_path / "broker")
    before = bytes_below(tmp_path / "broker")
    number, is_whole = 0, False
    while not is_whole:
        number += 2
        ours = tmp_path / f"ours{number}"
        with LogStore.open_kafka(dirs) as source, LogStore.open(ours) as store:
            with pytest.MonkeyPatch.context() as patch:
                stop_at(patch, number, interrupt)
                with suppress(KeyboardInterrupt):
                    adopt(store, source, SEGMENTS, id)
                    is_whole = True
            left = [path.name for path in ours.iterdir() if path.is_dir()]
            assert left in ([], ["segments-0"])
            if not left:
                adopt(store, source, SEGMENTS, id)
        with LogStore.open(ours) as store:
            assert len(list(store[SEGMENTS])) == 6 and store.verify().is_sound
    assert number > 15 and bytes_below(tmp_path / "broker") == before


@pytest.mark.parametrize("first", [1, 2, 3])
def test_regression_a_killed_adoption_is_purged(tmp_path: Path, first: int) -> None:
    """A kill at every third step: the next start has the partition as a whole, or purges it."""
    dirs = log_dirs("stopped", tmp_path / "broker")
    LogStore.open(tmp_path / "ours").close()
    for number in range(first, 80, 3):
        pid = os.fork()
        if pid == 0:
            try:
                with LogStore.open_kafka(dirs) as source, LogStore.open(tmp_path / "ours") as store:
                    stop_at(pytest.MonkeyPatch(), number, lambda: os._exit(9))
                    adopt(store, source, SEGMENTS, id)
            finally:
                os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with LogStore.open(tmp_path / "ours") as store:
            if SEGMENTS in store:
                assert len(list(store[SEGMENTS])) == 6 and store.verify().is_sound
                store.delete(*SEGMENTS)
            wait_for_keepers(store)
            assert not [path for path in (tmp_path / "ours").iterdir() if path.is_dir()]
        if code == 0:
            return
    raise AssertionError("it came to no end")


def test_regression_a_second_adoption_outlives_the_deletion_of_the_first(tmp_path: Path) -> None:
    """Both are of the topic's one id: what is not purged yet takes nothing with it."""
    dirs, ours = log_dirs("stopped", tmp_path / "broker"), tmp_path / "ours"
    with LogStore.open_kafka(dirs) as source, LogStore.open(ours) as store:
        adopt(store, source, SEGMENTS, id)
        kept = tmp_path / "kept"
        shutil.copytree(ours / "segments-0", kept)
        store.delete(*SEGMENTS)
    metadata = PartitionMetadata.read(str(kept))
    assert metadata is not None
    metadata._replace(extra={**metadata.extra, DELETION: DELETED_BY_USER}).write(str(kept))
    with LogStore.open_kafka(dirs) as source, LogStore.open(ours) as store:
        kept.rename(ours / f"segments-0.{'a' * 32}.delete")  # as if its purge were yet to come
        adopt(store, source, SEGMENTS, id)
    with LogStore.open(ours) as store:
        assert len(list(store[SEGMENTS])) == 6


def test_linked_files_are_made_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that was killed had not synced all that it sealed; what is adopted is."""
    synced: list[int] = []
    sync = files.sync_data

    def noted(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        sync(fd)

    monkeypatch.setattr(files, "sync_data", noted)
    adopted(tmp_path, SEGMENTS)
    paths = sorted((tmp_path / "broker/a/segments-0").glob("*.log"))
    assert {path.stat().st_ino for path in paths[:-1]} <= set(synced)


def test_regression_an_interrupted_export_leaves_nothing(tmp_path: Path) -> None:
    """Half a log under a partition's name would be loaded by a broker for the whole of it."""
    dirs, number = log_dirs("stopped", tmp_path / "broker"), 0
    target = tmp_path / "out" / "segments-0"
    target.parent.mkdir()
    while not target.exists():
        number += 1
        with LogStore.open_kafka(dirs) as source, pytest.MonkeyPatch.context() as patch:
            stop_at(patch, number, interrupt)
            with suppress(KeyboardInterrupt):
                export(source[SEGMENTS], str(target))
        assert target.exists() or not list(target.parent.iterdir())
    assert number > 14
    with LogStore.open_kafka(target.parent) as source:
        assert len(list(source[SEGMENTS])) == 6


def test_a_broker_purges_a_killed_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until all of it is there it has the name of a replica that Kafka deleted."""
    dirs = log_dirs("stopped", tmp_path / "broker")
    with LogStore.open_kafka(dirs) as source:
        monkeypatch.setattr(files, "rename", interrupt_at(tmp_path))
        with pytest.raises(KeyboardInterrupt):
            export(source[SEGMENTS], str(tmp_path / "segments-0"))


def interrupt_at(place: Path) -> Callable[[str, str], None]:
    """Look at what there is as it is about to get its name, and interrupt."""

    def rename(path: str, _: str) -> None:
        assert parse_replica(os.path.basename(path)) == (SEGMENTS, "delete")
        assert len(list(Path(path).iterdir())) == 7 and Path(path).parent == place
        raise KeyboardInterrupt

    return rename


def test_committed_reads_go_across_adopted_and_columnar_segments(tmp_path: Path) -> None:
    """What was aborted before stays left out; leader epochs go on, and are exported."""
    key = TopicPartition("transactions", 0)
    (tmp_path / "out").mkdir()
    adopted(tmp_path, key)
    expected = given("stopped")[key].committed
    disks = [tmp_path / "ours1", tmp_path / "ours2"]
    with LogStore.open(disks) as store:
        log = store[key]
        columns = store.create("columns", 0)
        columns.extend([b"in columns", b"and another"])
        log.leader_epoch = 3
        assert log.append_encoded(columns.read_raw(0)) == range(14, 16)
        assert log.append(b"in rows") == 16
    for read_only in (True, False):
        with LogStore.open(disks, read_only=read_only) as store:
            log = store[key]
            rows = [
                tuple(record[:5])
                for batch in log.read_batches(isolation_level="read_committed")
                for record in batch
            ]
            assert rows[: len(expected)] == expected
            assert [row[3] for row in rows[-3:]] == [b"in columns", b"and another", b"in rows"]
            assert log.verify() == []
            if read_only:
                export(log, str(tmp_path / "out" / str(key)))
    with LogStore.open_kafka(tmp_path / "out") as store:
        batches = list(store[key].read_batches())
        epochs = [batch.header.leader_epoch for batch in batches]
        assert epochs == sorted(epochs) and epochs[-1] == 3
        assert [record.value for batch in batches for record in batch][-1] == b"in rows"
        assert store[key].verify() == []


def test_regression_a_compacted_log_is_readable_without_its_metadata(tmp_path: Path) -> None:
    """The file alone said that offsets may be missing; without it, sound records were damage."""
    key = TopicPartition("compacted", 0)
    found = adopted(tmp_path, key)
    stores = [tmp_path / "ours1", tmp_path / "ours2"]
    with LogStore.open(stores) as store:
        records, directory = list(store[key]), Path(store[key].directory)
    assert len(records) < records[-1].offset - records[0].offset + 1, found
    (directory / "partition.metadata").unlink()
    with LogStore.open(stores, read_only=True) as view:
        assert list(view[key]) == records
    for _ in range(2):
        with LogStore.open(stores) as store:
            assert list(store[key]) == records
            (problem,) = store[key].verify()
            assert problem.name is DamageName.LOST_CONFIGURATION
    metadata = PartitionMetadata.read(str(directory))
    assert metadata is not None and metadata.extra[SPARSE_OFFSETS] is True
