"""Whatever kind of file has one of our names, opening ends, says so, and harms nothing."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore import LogStore
from logstore.config import LogConfig
from logstore.disk import files
from logstore.errors import LogStoreError
from logstore.log.segments.search import find_batch
from support import strange_files
from support.strange_files import STRANGE, stopped_after

KAFKA = Path(__file__).parents[1] / "format" / "kafka_golden"
SECONDS = 20
CONFIG = LogConfig(segment_bytes=2048, index_interval_bytes=256)


def make(path: Path) -> None:
    """Make a store of two partitions with sealed segments, closed in order."""
    with LogStore.open([path / "a", path / "b"]) as store:
        for number in range(2):
            log = store.create("t", number, config=CONFIG)
            for first in range(0, 60, 5):
                log.extend([b"%d" % offset * 20 for offset in range(first, first + 5)])
                if first == 25:
                    log._state.replication.leader_epoch = 3
            log.delete_records_before(7)


def values(store: LogStore, number: int) -> list[int]:
    """Read the offsets of a partition."""
    return [record.offset for record in store["t", number]]


def names(path: Path) -> list[Path]:
    """List every file of the store, by its path from the top."""
    found = [each for each in path.rglob("*") if stat.S_ISREG(each.lstat().st_mode)]
    return sorted(each.relative_to(path) for each in found)


@pytest.mark.parametrize("harm", STRANGE, ids=lambda harm: harm.__name__)
@pytest.mark.parametrize("read_only", [False, True], ids=["owner", "view"])
def test_regression_a_special_file_under_any_of_our_names(
    tmp_path: Path, harm: Callable[[Path], None], read_only: bool
) -> None:
    """Nothing hangs or dies; the other replicas serve, and what is odd is reported."""
    make(tmp_path / "whole")
    for name in one_of_each(names(tmp_path / "whole")):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "whole", copy)
        harm(copy / name)
        with stopped_after(SECONDS):
            check(copy, name, read_only=read_only)
        for target in copy.rglob("precious-*"):
            assert target.read_bytes() == b"precious"
        for inside in copy.rglob("inside"):
            assert inside.read_bytes() == b"kept"
        shutil.rmtree(copy)


def check(copy: Path, name: Path, *, read_only: bool) -> None:
    """Open the store: at most the replica with the file is not served, or its log dir."""
    with LogStore.open([copy / "a", copy / "b"], read_only=read_only) as store:
        report = store.recovery_report
        for number in range(2):
            try:
                got = values(store, number)
            except LogStoreError as error:
                assert report.offline or report.offline_dirs or read_only, (name, error)
                assert name.name in (".lock", "meta.properties") or name.suffix == ".log"
            else:
                assert got == list(range(7, 60)), (name, number)
        store.verify()
        assert len(store.describe_dirs().log_dirs) == 2


@pytest.mark.parametrize("harm", STRANGE, ids=lambda harm: harm.__name__)
def test_regression_a_special_file_in_a_brokers_log_dir(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    """`open_kafka` reads the other logs, and `verify` names the file, whatever kind it is."""
    source = KAFKA / "stopped"
    for name in one_of_each(names(source)):
        copy = tmp_path / "copy"
        shutil.copytree(source, copy)
        harm(copy / name)
        with stopped_after(SECONDS):
            look_at_broker(copy, name)
        shutil.rmtree(copy)


def one_of_each(found: list[Path]) -> list[Path]:
    """Keep one file of each name or suffix."""
    kinds = {name.suffix if name.name[0].isdigit() else name.name: name for name in found}
    return list(kinds.values())


def look_at_broker(copy: Path, name: Path) -> None:
    """Read the logs of a broker of which one file is none."""
    try:
        store = LogStore.open_kafka([copy / "a", copy / "b"])
    except LogStoreError as error:
        assert name.name == "meta.properties", (name, error)
        return
    with store:
        told = [str(store.recovery_report), str(store.verify())]
        assert len(store.describe_dirs().log_dirs) == 2
        is_needed = name.suffix in (".log", ".index") or name.name.endswith("-checkpoint")
        assert not is_needed or name.name in " ".join(told), (name, told)


def test_regression_a_device_is_not_read() -> None:
    """/dev/zero has no end."""
    with stopped_after(SECONDS), pytest.raises(files.UnfitError, match="it is a device"):
        files.read_file("/dev/zero")


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o027, 0o077])
def test_regression_no_file_is_executable(tmp_path: Path, umask: int) -> None:
    """The mode of each file is what the umask leaves of 0666; version 0.1.0 made them 0755."""
    before = os.umask(umask)
    try:
        make(tmp_path / "s")
        with LogStore.open([tmp_path / "s" / "a", tmp_path / "s" / "b"]) as store:
            store["t", 0].truncate_to(33)
    finally:
        os.umask(before)
    modes = {stat.S_IMODE((tmp_path / "s" / name).stat().st_mode) for name in names(tmp_path / "s")}
    assert modes == {0o666 & ~umask}


def test_a_hole_of_a_terabyte_is_passed_in_one_step(tmp_path: Path) -> None:
    """No byte of it is read, and what follows it is found."""
    make(tmp_path / "s")
    (segment,) = (tmp_path / "s").rglob("t-0/00000000000000000000.log")
    batches = segment.read_bytes()
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 40)
        file.write(batches)
    fd = files.open_regular(str(path), files.READ)
    try:
        with stopped_after(SECONDS):
            assert find_batch(fd, 8, path.stat().st_size) == (1 << 40, 0)
            assert find_batch(fd, 8, 1 << 40) is None
    finally:
        files.close(fd)


def test_a_small_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    """Its size is looked at first."""
    path = tmp_path / "file"
    strange_files.sparse(path)
    with pytest.raises(files.UnfitError, match="1099511627776 bytes, but at most 1048576"):
        files.read_file(str(path))
