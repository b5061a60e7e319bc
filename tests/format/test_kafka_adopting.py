"""What is adopted shares files with a broker's disk: nothing that is done with it reaches them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logstore import LogStore, TopicPartition
from logstore.disk import files
from logstore.store.kafka_adopting import Adopted, adopt
from logstore.store.kafka_exporting import export
from support.kafka_golden import given, log_dirs

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
    assert taken["cloned"][2:] == (0, 355, 74) and calls == [files.CLONE_FILE] * 5
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
        assert not [path for path in ours.iterdir() if "adopting" in path.name]
        adopt(store, source, SEGMENTS, id)
        assert len(list(store[SEGMENTS])) == 6


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
