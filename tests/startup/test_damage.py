"""Whatever is done to the small files, the store opens and every read is right."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore.config import LogConfig
from logstore.store.store import LogStore

PARTITIONS = 4
RECORDS = 120
DELETED = 50


def value(partition: int, offset: int) -> bytes:
    """Give the value of one record."""
    return b"record %d of partition %d " % (offset, partition) * 3


def make(dirs: list[str]) -> None:
    """Make a store with rolled segments and deleted records, and close it in order."""
    config = LogConfig(segment_bytes=4096, index_interval_bytes=256)
    with LogStore.open(dirs) as store:
        for number in range(PARTITIONS):
            log = store.create("orders", number, config=config)
            for first in range(0, RECORDS, 5):
                log.extend([value(number, offset) for offset in range(first, first + 5)])
            log.delete_records_before(DELETED)


def check(dirs: list[str], *, read_only: bool = False) -> LogStore:
    """Open the store and read everything: nothing lost, nothing invented, nothing back."""
    with LogStore.open(dirs, read_only=read_only) as store:
        assert [str(key) for key in store] == [f"orders-{n}" for n in range(PARTITIONS)]
        for number in range(PARTITIONS):
            log = store["orders", number]
            assert (log.log_start_offset, log.log_end_offset) == (DELETED, RECORDS)
            got = [(record.offset, record.value) for record in log]
            assert got == [(offset, value(number, offset)) for offset in range(DELETED, RECORDS)]
            assert log[77].value == value(number, 77)
            assert log.offset_for_timestamp(0) == DELETED
    return store


def zeroed(path: Path) -> None:
    """Fill it with zeros."""
    path.write_bytes(bytes(path.stat().st_size))


def garbage(path: Path) -> None:
    """Fill it with noise."""
    path.write_bytes(random.Random(path.name).randbytes(path.stat().st_size + 7))


def emptied(path: Path) -> None:
    """Leave nothing in it."""
    path.write_bytes(b"")


def cut(path: Path) -> None:
    """Cut it in half."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def extended(path: Path) -> None:
    """Add a line."""
    path.write_bytes(path.read_bytes() + b"more\n")


def shuffled(path: Path) -> None:
    """Put its bytes in another order."""
    data = bytearray(path.read_bytes())
    random.Random(path.name).shuffle(data)
    path.write_bytes(bytes(data))


def removed(path: Path) -> None:
    """Remove it."""
    path.unlink()


HARMS = (zeroed, garbage, emptied, cut, extended, shuffled, removed)


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    """Make a store over two dirs."""
    paths = [str(tmp_path / f"disk{number}") for number in range(2)]
    make(paths)
    return paths


def small_files(dirs: list[str]) -> list[Path]:
    """List every file that is not record data."""
    found = [path for one in dirs for path in Path(one).rglob("*") if path.is_file()]
    return sorted(path for path in found if path.suffix != ".log")


@pytest.mark.parametrize("harm", HARMS)
def test_each_small_file_of_the_log_dirs_harmed_alone(
    dirs: list[str], harm: Callable[[Path], None]
) -> None:
    """meta.properties, .lock, .clean-shutdown and both checkpoints, one at a time."""
    for path in small_files(dirs):
        if path.parent == Path(dirs[0]):
            harm(path)
            check(dirs, read_only=True)
            check(dirs)


@pytest.mark.parametrize("harm", HARMS)
def test_every_small_file_of_the_log_dirs_harmed_at_once(
    dirs: list[str], harm: Callable[[Path], None]
) -> None:
    """All of them, in all log dirs."""
    for path in small_files(dirs):
        if str(path.parent) in dirs:
            harm(path)
    check(dirs, read_only=True)
    store = check(dirs)
    assert store.recovery_report.warnings
    assert check(dirs).recovery_report.was_clean


@pytest.mark.parametrize("harm", HARMS)
def test_each_small_file_of_one_partition_harmed_alone(
    dirs: list[str], harm: Callable[[Path], None]
) -> None:
    """Metadata, epochs and every index, one at a time."""
    for path in small_files(dirs):
        if path.parent == Path(dirs[0], "orders-0") and path.exists():
            harm(path)
            check(dirs, read_only=True)
            check(dirs)


@pytest.mark.parametrize("harm", HARMS)
def test_every_index_and_checkpoint_harmed_at_once(
    dirs: list[str], harm: Callable[[Path], None]
) -> None:
    """All hints of the whole store."""
    for path in small_files(dirs):
        if path.name not in ("meta.properties", "partition.metadata"):
            harm(path)
    check(dirs, read_only=True)
    check(dirs)


@pytest.mark.parametrize("harm", HARMS)
def test_every_metadata_file_harmed_at_once(dirs: list[str], harm: Callable[[Path], None]) -> None:
    """The partitions' metadata is gone; the checkpoints keep deleted records deleted."""
    for path in small_files(dirs):
        if path.name == "partition.metadata":
            harm(path)
    check(dirs, read_only=True)
    check(dirs)


def test_checkpoints_swapped_within_and_between_dirs(dirs: list[str]) -> None:
    """A whole file in the wrong place says nothing."""
    names = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint")
    paths = [Path(one, name) for one in dirs for name in names]
    data = [path.read_bytes() for path in paths]
    for turn in range(1, len(paths)):
        for number, path in enumerate(paths):
            path.write_bytes(data[(number + turn) % len(paths)])
        check(dirs, read_only=True)
        check(dirs)


def test_identities_swapped_between_dirs(dirs: list[str]) -> None:
    """Each disk then answers to the other's id, and everything is served."""
    one, two = (Path(path, "meta.properties") for path in dirs)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    check(dirs)
    two.write_bytes(second)
    one.write_bytes(first)
    check(dirs)


def test_foreign_names_in_every_place_are_reported_and_survive(dirs: list[str]) -> None:
    """lost+found, files, symlinks and directories that are not ours."""
    for place in (Path(dirs[0]), Path(dirs[0], "orders-0")):
        (place / "lost+found").mkdir()
        (place / ".DS_Store").write_bytes(b"x")
        (place / "link").symlink_to("/etc/passwd")
        (place / "orders-x").mkdir()
        (place / "notes.txt").write_bytes(b"mine")
    (Path(dirs[0]) / "orders-9").symlink_to(Path(dirs[0], "orders-0"))
    Path(dirs[0], f"orders-0.{'0' * 32}.move").mkdir()
    Path(dirs[0], f"orders-0.{'0' * 32}.stray").mkdir()
    store = check(dirs)
    text = str(store.recovery_report)
    for name in ("lost+found", ".DS_Store", "link", "orders-x", "notes.txt", "orders-9"):
        assert f"{dirs[0]}/{name}" in text
    for name in (".move", ".stray"):
        assert name in text
    assert Path(dirs[0], "notes.txt").read_bytes() == b"mine"
    assert Path(dirs[0], "orders-0", "notes.txt").read_bytes() == b"mine"


def test_a_log_start_offset_behind_the_end_is_not_believed(dirs: list[str]) -> None:
    """A checkpoint that would delete everything keeps everything."""
    from logstore.disk.documents import checkpoint
    from logstore.disk.documents.meta_properties import decode_meta
    from logstore.names import TopicPartition

    for one in dirs:
        meta_path = os.path.join(one, "meta.properties")
        meta = decode_meta(Path(meta_path).read_bytes(), meta_path)
        offsets = {TopicPartition("orders", number): 2**40 for number in range(PARTITIONS)}
        name = checkpoint.LOG_START_OFFSETS
        found = checkpoint.Offsets(offsets, {})
        checkpoint.write_offsets(os.path.join(one, name), name, meta.directory_id, found)
    store = check(dirs)
    assert "in the checkpoint is not used" in str(store.recovery_report)
