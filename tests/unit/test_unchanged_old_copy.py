"""Nothing in an old copy of a log dir changes: no log, no offsets checkpoint, no segment."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore import Log, LogStore
from logstore.disk.documents.offset_checkpoints import KINDS
from logstore.disk.log_dir import LogDir
from logstore.errors import LogDirError, LogStoreError, ReplicaIncompleteError
from logstore.format import layouts
from logstore.log import host
from logstore.log.write import encode
from logstore.store.dirs import old_copies
from support.inside import keepers_of
from support.keyed_logs import COMPACTED, Keyed
from support.two_disks import ORDERS, OTHER, Disks, opened


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return Disks(tmp_path)


def checkpoint(store: LogStore) -> None:
    for keeper in keepers_of(store).values():
        keeper.run_one("checkpoint")


def test_the_offsets_checkpoints_of_an_old_copy_stay_as_they_are(disks: Disks) -> None:
    """Its logs are not open for writing, so the keeper would remove all their rows."""
    with opened(disks.dirs) as store:
        for offset in (1, 3):
            store.log(*ORDERS).advance_high_watermark(offset)
    shutil.rmtree(disks.copy)
    shutil.copytree(disks.dirs[0], disks.copy)
    with opened(disks.dirs) as store:
        store.log(*ORDERS).append(b"1")
        store.log(*ORDERS).advance_high_watermark(6)
    disks.put_in()
    before = {kind: Path(disks.dirs[0], kind).read_bytes() for kind in KINDS}
    for _ in range(2):
        with opened(disks.dirs) as store:
            checkpoint(store)
        assert {kind: Path(disks.dirs[0], kind).read_bytes() for kind in KINDS} == before
    disks.take_out()
    with opened(disks.dirs) as store:
        assert store.log(*ORDERS).high_watermark == 6
    disks.put_in()
    with opened(disks.dirs) as store:
        assert store.promote(*ORDERS) and store.log(*ORDERS).high_watermark == 3
        checkpoint(store)
        assert {kind: Path(disks.dirs[0], kind).read_bytes() for kind in KINDS} != before


def encoded(log: Log) -> bytes:
    how = {"now_ms": 0, "codec_id": 0, "is_log_append_time": False}
    payload = encode.build([b"x"], [b"k"], None, None, **how)  # type: ignore[arg-type]
    return b"".join(layouts.frame(payload, log.log_end_offset, 0))


CHANGES: dict[str, Callable[[Log], object]] = {
    "append": lambda log: log.append(b"x", key=b"k"),
    "append_encoded": lambda log: log.append_encoded(encoded(log)),
    "append_as_follower": lambda log: log.append_as_follower(encoded(log)),
    "advance_high_watermark": lambda log: log.advance_high_watermark(4),
    "compact": lambda log: log.compact(),
    "truncate_to": lambda log: log.truncate_to(2),
    "delete_records_before": lambda log: log.delete_records_before(2),
    "apply_retention": lambda log: log.apply_retention(),
    "repair": lambda log: log.repair(),
    "set_config": lambda log: host.set_config(log, lambda config: config),
}


def refused(log: Log, name: str, kind: type[LogStoreError]) -> None:
    """Make a change that must be refused, and check that nothing has changed."""
    before = {path: path.read_bytes() for path in Path(log.directory).rglob("*")}
    with pytest.raises(kind) as refusal:
        CHANGES[name](log)
    assert refusal.value.is_written is (False if name in ENCODED else None)
    assert {path: path.read_bytes() for path in Path(log.directory).rglob("*")} == before
    assert log.log_start_offset == 0 and len(list(log)) == 5


ENCODED = ("append_encoded", "append_as_follower")


def compacted(store: LogStore) -> Log:
    log = store.log(*ORDERS)
    log.advance_high_watermark(1)
    host.set_config(
        log, lambda config: config.replace(cleanup_policy="compact,delete", retention_ms=1 << 40)
    )
    return log


@pytest.mark.parametrize("name", CHANGES)
def test_an_incomplete_replica_refuses_every_change(disks: Disks, name: str) -> None:
    """The exception of an append of encoded batches says that no batch is in the log."""
    with opened(disks.dirs) as store:
        compacted(store)
    disks.put_in()
    with opened(disks.dirs) as store:
        refused(store.log(*ORDERS), name, ReplicaIncompleteError)


@pytest.mark.parametrize("name", CHANGES)
def test_a_log_that_is_still_open_in_an_old_copy_refuses_every_change(
    disks: Disks, name: str
) -> None:
    """Some time passes between the recognition of an old copy and the closing of its logs."""
    with opened(disks.dirs) as store:
        log = compacted(store)
        old_copies.count_as_old(store.host.replicas.dir_of(disks.dirs[0]), "it is old")
        refused(log, name, LogDirError)


def test_no_metadata_of_a_log_are_changed_in_an_old_copy(disks: Disks) -> None:
    """A deletion that came back would raise the generation of a log that is still open."""
    with opened(disks.dirs) as store:
        log = store.log(*ORDERS)
        old_copies.count_as_old(store.host.replicas.dir_of(disks.dirs[0]), "it is old")
        with pytest.raises(LogDirError):
            host.change_metadata(log, lambda metadata: {"generation": metadata.generation + 1})


def test_a_deletion_is_told_to_log_dirs_that_are_no_old_copies(
    disks: Disks, tmp_path: Path
) -> None:
    """Two dirs get the deletion at once; the catalog of an old copy may be lost with it."""
    dirs = [*disks.dirs, *(str(tmp_path / name) for name in "cd")]
    with opened(disks.dirs) as store:
        for path in dirs[2:]:
            store.add_dir(path)
        store.log(*ORDERS).append(b"1")
    disks.put_in()
    with opened(dirs) as store:
        asked: list[str] = []
        real = store.host.replicas.catalog.write

        def write(log_dir: LogDir) -> None:
            asked.append(log_dir.path)
            real(log_dir)

        store.host.replicas.catalog.write = write  # type: ignore[method-assign]
        store.delete(*OTHER)
        assert {*dirs[2:]} <= {*asked} and dirs[0] not in asked


def test_an_added_log_dir_knows_which_other_is_an_old_copy(disks: Disks, tmp_path: Path) -> None:
    """The dirs that recorded this may be given up, and the copy may be replaced."""
    old, other = disks.dirs
    backup, added = shutil.copytree(disks.copy, tmp_path / "backup"), str(tmp_path / "c")
    with opened(disks.dirs) as store:
        store.log(*ORDERS).append(b"1")
    disks.put_in()
    with opened(disks.dirs) as store:
        store.add_dir(added)
        checkpoint(store)
        store.take_offline(other)
        store.remove_dir(other, lost=True)
    shutil.rmtree(old)
    backup.rename(old)
    with opened([old, added]) as store, pytest.raises(ReplicaIncompleteError):
        store.log(*ORDERS).append(b"x")


def test_the_background_compacts_nothing_in_an_old_copy(disks: Disks) -> None:
    """A running compaction ends, and no log is reported as not compactable."""
    with opened(disks.dirs) as store:
        log_dir = store.host.replicas.dir_of(disks.dirs[0])
        log = Keyed(store.create("keyed", 0, log_dir=disks.dirs[0], config=COMPACTED))
        log.append(60)
        compactor = keepers_of(store)[disks.dirs[0]].compactor
        assert host.compaction_plan(log.log).is_due
        segments = host.segments_of(log.log)
        real, paces = compactor._pace, []

        def then_old(size_bytes: int) -> None:
            paces.append(size_bytes)
            old_copies.count_as_old(log_dir, "it is old")
            real(size_bytes)

        compactor._pace = then_old  # type: ignore[method-assign]
        compactor.run_due()
        assert compactor._next() is None
        assert len(paces) == 1 and host.segments_of(log.log) == segments
        assert not compactor.set_aside
