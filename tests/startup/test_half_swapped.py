"""A store that was killed while a replica was swapped opens by itself, whole and with one copy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore import (
    LogClosedError,
    LogConfig,
    LogDirOfflineError,
    LogStore,
    ReplicaIncompleteError,
    UnknownPartitionError,
)
from startup.killed_mover import ENDED
from support.keepers import wait_for_keepers
from support.moves import StagedMove, metadata_of
from support.places import environment, fast_directory

RECORDS = 100_000
KEY = ("orders", 0)


def value(offset: int) -> bytes:
    """Give the value of one record."""
    return b"record %d" % offset


def made(base: Path, records: int = RECORDS, dirs: int = 2) -> list[Path]:
    """Make a store with one partition on its first disk, and close it."""
    disks = [base / f"disk{number}" for number in range(dirs)]
    with LogStore.open(disks) as store:
        log = store.create(*KEY, log_dir=disks[0], config=LogConfig(segment_bytes="256KiB"))
        for first in range(0, records, 1000):
            log.extend([value(n) for n in range(first, min(first + 1000, records))])
    return disks


def check(disks: list[Path], where: Path, records: int = RECORDS) -> None:
    """Open the store: every record is there, it goes on, and soon there is one copy."""
    with LogStore.open(disks) as store:
        assert store.recovery_report.is_sound, str(store.recovery_report)
        assert list(store) == [KEY]
        log = store.log(*KEY)
        assert log.log_dir == str(where)
        got = [v for batch in log.read_batches() for v in batch.values]
        assert len(got) == records
        assert all(v == value(n) for n, v in enumerate(got))
        assert log.append(b"goes on") == records
        wait_for_keepers(store)
    with LogStore.open(disks) as store:
        assert store.log(*KEY)[records].value == b"goes on"
        assert not store.recovery_report.warnings
    left = sorted(path for disk in disks for path in disk.glob("orders*"))
    assert left == [where / "orders-0"]


def test_two_live_copies_resolve_themselves(tmp_path: Path) -> None:
    """Kafka refuses to start in this state; here the later generation is the one."""
    with fast_directory() as base:
        disks = made(base)
        move = StagedMove(disks[0], disks[1], *KEY, RECORDS).name().copy().catch_up()
        move.rename_target()
        with LogStore.open(disks) as store:
            assert store.log(*KEY).log_dir == str(disks[1])
            told = "\n".join(store.recovery_report.warnings)
            assert "older generation" in told and "the catalog recorded" in told
        (stray,) = disks[0].glob("*.stray")
        assert metadata_of(stray).generation == 0
        for path in stray.iterdir():
            path.unlink()
        stray.rmdir()
        check(disks, disks[1])


def test_a_crash_between_the_two_renames_is_completed() -> None:
    """Kafka erases the partition in this state; here the copy that was caught up is the one."""
    with fast_directory() as base:
        disks = made(base)
        StagedMove(disks[0], disks[1], *KEY, RECORDS).name().copy().catch_up().rename_source()
        check(disks, disks[1])


def test_what_a_killed_mover_leaves_between_its_renames_is_completed() -> None:
    """The mover itself made this state, in a process that was gone the next moment."""
    with fast_directory() as base:
        disks = made(base)
        command = [sys.executable, str(Path(__file__).with_name("killed_mover.py"))]
        done = subprocess.run([*command, *map(str, disks)], env=environment(), check=False)
        assert done.returncode == ENDED
        left = sorted(path.suffix for disk in disks for path in disk.glob("orders*"))
        assert left == [".delete", ".move"]
        check(disks, disks[1])


@pytest.mark.parametrize(
    ("steps", "target"),
    [
        (lambda m: m.name(), 0),
        (lambda m: m.name().copy().rename_source().rename_target(), 1),
        (lambda m: m.copy(), 0),
        (lambda m: m.copy().catch_up(), 0),
        (lambda m: m.name().copy().catch_up().rename_source().rename_target(), 1),
    ],
)
def test_every_step_of_a_move_leaves_a_store_that_opens(
    tmp_path: Path, steps: Callable[[StagedMove], object], target: int
) -> None:
    """Wherever it is cut, one copy with every record is served, and no other is left over."""
    disks = made(tmp_path, 1000)
    move = StagedMove(disks[0], disks[1], *KEY, 1000)
    steps(move)
    if move.delete.exists() and metadata_of(move.delete).superseded_by is None:
        assert target == 1  # not a step of this engine: nobody knows why it was renamed
        with LogStore.open(disks) as store:
            assert len(store.log(*KEY)) == 1000
        assert move.delete.exists()
        return
    check(disks, disks[target], 1000)


def test_a_move_that_is_named_waits_for_its_mover(tmp_path: Path) -> None:
    """A caught-up one is marked as copying again, durably: the source may go on without it."""
    disks = made(tmp_path, 1000)
    move = StagedMove(disks[0], disks[1], *KEY, 1000).name().copy().catch_up()
    with LogStore.open(disks) as store:
        found = store.host.replicas.copies.moves[store.log(*KEY).topic, 0]  # type: ignore[index]
        assert found.path == str(move.move)
        record = metadata_of(move.move).move_record
        assert record is not None and not record.is_caught_up
        store.log(*KEY).append(b"more")
    assert move.move.exists()


def test_a_truncation_ends_the_move_on_record(tmp_path: Path) -> None:
    """Its copy has records that are gone: it is purged, not resumed over other bytes."""
    disks = made(tmp_path, 1000)
    move = StagedMove(disks[0], disks[1], *KEY, 1000).name().copy().catch_up()
    with LogStore.open(disks) as store:
        store.log(*KEY).truncate_to(500)
        assert metadata_of(move.live).moving is None
    with LogStore.open(disks) as store:
        assert not store.host.replicas.copies.moves
        wait_for_keepers(store)
    assert not move.move.exists()


def test_with_a_disk_missing_nothing_is_touched(tmp_path: Path) -> None:
    """The live copy may be on it: its users are told so, and nothing is created in its place."""
    disks = made(tmp_path, 1000, dirs=3)
    move = StagedMove(disks[0], disks[1], *KEY, 1000).name().copy().catch_up().rename_source()
    with LogStore.open(disks[:2]) as store, pytest.raises(LogDirOfflineError):
        store.log(*KEY)
    assert move.move.exists() and move.delete.exists()
    with LogStore.open(disks[:2]) as store, pytest.raises(LogDirOfflineError):
        store.create(*KEY)
    check(disks, disks[1], 1000)


def incomplete(tmp_path: Path) -> tuple[list[Path], StagedMove]:
    """Make a store whose only copy is half a move: its source is gone with its disk."""
    disks = made(tmp_path, 1000)
    move = StagedMove(disks[0], disks[1], *KEY, 2000).name().copy()
    for path in move.live.iterdir():
        path.unlink()
    move.live.rmdir()
    return disks, move


def test_a_half_copy_is_read_but_not_written(tmp_path: Path) -> None:
    """It says what is missing, and nothing is renamed or purged."""
    disks, move = incomplete(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in move.move.iterdir()}
    with LogStore.open(disks) as store:
        assert not store.recovery_report.is_sound
        missing = "offsets 1000 to 2000, which its source in log dir"
        assert missing in str(store.recovery_report)
        log = store.log(*KEY)
        assert len(list(log)) == 1000 and KEY in store and len(store) == 1
        for write in (
            lambda: log.append(b"x"),
            lambda: log.extend([b"x"]),
            lambda: log.truncate_to(3),
            log.flush,
        ):
            with pytest.raises(ReplicaIncompleteError, match=missing):
                write()
        store.flush()
    assert before == {path: path.stat().st_mtime_ns for path in move.move.iterdir()}


def test_a_promoted_copy_is_whole_and_stays_so(tmp_path: Path) -> None:
    """It is live, writable, of a generation above all that are known; twice changes nothing."""
    disks, move = incomplete(tmp_path)
    with LogStore.open(disks) as store:
        reader = store.log(*KEY)
        for _ in range(2):
            store.promote(*KEY)
        log = store.log(*KEY)
        assert log.append(b"goes on", durable=True) == 1000
        with pytest.raises(LogClosedError, match="promoted"):
            reader.read(5)
    assert not move.move.exists()
    metadata = metadata_of(disks[1] / "orders-0")
    assert (metadata.generation, metadata.moving, metadata.move_record) == (2, None, None)
    with LogStore.open(disks) as store:
        assert store.recovery_report.is_sound
        assert store.log(*KEY)[1000].value == b"goes on"


def test_an_incomplete_replica_can_be_deleted(tmp_path: Path) -> None:
    """With everything that is left of it; then it may be created anew."""
    disks, _ = incomplete(tmp_path)
    with LogStore.open(disks) as store:
        store.delete(*KEY)
        with pytest.raises(UnknownPartitionError):
            store.log(*KEY)
        wait_for_keepers(store)
        store.create(*KEY).append(b"anew")
    assert len([path for disk in disks for path in disk.glob("orders*")]) == 1


def test_a_deletion_takes_the_superseded_copy_with_it(tmp_path: Path) -> None:
    """Its own directory goes last, so that no crash brings the older one to life."""
    disks = made(tmp_path, 1000)
    move = StagedMove(disks[0], disks[1], *KEY, 1000).name().copy().catch_up()
    move.rename_source().rename_target()
    for path in move.new_live.glob("*.log"):
        path.write_bytes(b"")
    for path in move.new_live.glob("*index"):
        path.unlink()
    with LogStore.open(disks) as store:
        assert len(store.log(*KEY)) < 1000 and move.delete.exists()
        store.delete(*KEY)
        wait_for_keepers(store)
    assert not [path for disk in disks for path in disk.glob("orders*")]
