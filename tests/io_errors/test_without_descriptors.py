"""A change that a small file makes is made, or is not, when the process runs out of descriptors."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logstore import Log, LogConfig, LogStore, LogStoreError
from logstore.disk.documents import checkpoint
from support.faulty import FAULTS, FaultyFiles
from support.inside import abandon
from support.keepers import wait_for_keepers
from support.places import fast_directory

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=256)
(EMFILE,) = [fault for fault in FAULTS if fault.name == "EMFILE"]
COUNT, NTH_MAX = 40, 200

Change = Callable[[Log], object]
CHANGES: dict[str, Change] = {
    "within the first segment": lambda log: log.delete_records_before(2),
    "in a later segment": lambda log: log.delete_records_before(23),
    "all records": lambda log: log.delete_records_before(COUNT),
}


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


def open_store(base: Path) -> LogStore:
    return LogStore.open(base / "a", admin_socket=False)


def make(base: Path) -> None:
    """Make a log of several segments."""
    with open_store(base) as store:
        log = store.create("t", 0, config=CONFIG)
        for number in range(COUNT):
            log.append(b"%d" % number * 40)


def seen(log: Log) -> tuple[int, list[int]]:
    """Give where a log says that it begins, and what is read of it."""
    return log.log_start_offset, [record.offset for record in log]


def on_disk(log: Log) -> int:
    """Give where the small file says that the log begins."""
    document = checkpoint.read_document(f"{log.directory}/partition.metadata")
    assert document is not None
    start: int = document["log_start_offset"]
    return start


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
def test_regression_a_deletion_without_descriptors_is_whole_or_none(
    base: Path, change: Change, is_killed: bool
) -> None:
    """The start was on the disk, and the log went on with the old one until it was opened again."""
    make(base)
    shutil.copytree(base / "a", base / "pristine")
    for nth in range(1, NTH_MAX):
        shutil.rmtree(base / "a")
        shutil.copytree(base / "pristine", base / "a")
        store = open_store(base)
        log = store["t", 0]
        wait_for_keepers(store)
        before = seen(log)
        with FaultyFiles(str(base), EMFILE, nth) as faulty:
            try:
                change(log)
            except LogStoreError as error:
                assert error.retriable, error
                assert seen(log) == before
            else:
                assert seen(log) != before
        now = seen(log)
        assert on_disk(log) == now[0]
        abandon(store) if is_killed else store.close()
        with open_store(base) as again:
            assert seen(again["t", 0]) == now
        if not faulty.injected:
            assert nth > 2
            return
    raise AssertionError("a deletion opens no end of files")


@pytest.mark.parametrize("seed", range(4))
def test_deletions_between_shortages_never_surprise(base: Path, seed: int) -> None:
    """Whatever was refused before, a log begins where its owner last saw it begin."""
    rng = random.Random(seed)
    print(f"seed {seed}")
    make(base)
    start = 0
    for _ in range(6):
        with open_store(base) as store:
            log = store["t", 0]
            wait_for_keepers(store)
            assert log.log_start_offset == start
            for _ in range(4):
                offset = rng.randrange(start, COUNT + 1)
                with FaultyFiles(str(base), EMFILE, rng.randrange(1, 6)):
                    try:
                        log.delete_records_before(offset)
                        start = offset
                    except LogStoreError as error:
                        assert error.retriable, error
                assert seen(log) == (start, list(range(start, COUNT)))
                assert on_disk(log) == start
