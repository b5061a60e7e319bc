"""A disk that hangs at the start keeps no other one from serving."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import LogDirOfflineError, LogDirSuspectError, LogStore
from support.faulty import no_thread_leaks
from support.hanging import QUIET, Caller, DeadDisk, Watch
from support.moves import StagedMove
from support.places import fast_directory

RECORDS = [b"record %d" % number for number in range(10)]
EVERY = int(os.environ.get("LOGSTORE_HANG_EVERY", "11"))
TOPICS = ("half", "old", "orders", "resumed", "swapped", "twice")


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    """Make a store that crashed on three disks; the second has every kind of directory."""
    with fast_directory() as base:
        disks = [base / f"disk{number}" for number in range(3)]
        with LogStore.open(disks, admin_socket=False) as store:
            for number, disk in enumerate(disks):
                store.create("orders", number, log_dir=disk).extend(RECORDS)
            for topic in ("old", "resumed", "swapped", "twice"):
                store.create(topic, 0, log_dir=disks[1]).extend(RECORDS)
            store.create("half", 0, log_dir=disks[0]).extend(RECORDS)
        moves = {
            topic: StagedMove(disks[1], disks[2], topic, 0, len(RECORDS))
            for topic in ("old", "resumed", "swapped", "twice")
        }
        for move in moves.values():
            move.name().copy().catch_up()
        moves["old"].rename_source().rename_target()
        moves["swapped"].rename_source()
        moves["twice"].rename_target()
        half = StagedMove(disks[0], disks[1], "half", 0, len(RECORDS)).name().copy()
        shutil.rmtree(half.live)
        for disk in disks:
            (disk / ".clean-shutdown").unlink()
        yield base


def open_and_check(dirs: list[str], disk: DeadDisk) -> LogStore:
    """Open the store while its second disk hangs: the others serve, that one refuses."""
    opening = Caller(lambda: LogStore.open(dirs, config=QUIET, admin_socket=False))
    store = opening.outcome()
    assert isinstance(store, LogStore), repr(store)
    assert store["orders", 0].append(b"x") == store["orders", 2].append(b"x") == 10
    if disk.began.is_set():
        bad = store.host.replicas.dir_of(dirs[1])
        if not bad.is_refusing:  # it began when the store was open: housekeeping met it
            Watch(store).look()
        assert bad.is_refusing
        with pytest.raises((LogDirOfflineError, LogDirSuspectError)):
            store.log("orders", 1).append(b"x")
        others = [row.is_live for row in store.describe_dirs().log_dirs if row.path != dirs[1]]
        assert others == [True, True]
    return store


def check_whole(dirs: list[str]) -> None:
    """Open the store once its disk is back: every record is there."""
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        assert sorted({topic for topic, _ in store}) == sorted(TOPICS)
        for topic in TOPICS:
            assert [record.value for record in store.log(topic, 0)][:10] == RECORDS, topic
        for number in (1, 2):
            assert [record.value for record in store.log("orders", number)][:10] == RECORDS


def test_the_others_start_without_it(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever call of a start hangs, the others serve, and the disk is whole once it is back.

    Every so many calls here; `make hanging-start` tries all of them.
    """
    met = 0
    for number in range(1, 2000, EVERY):
        with fast_directory() as base:
            shutil.copytree(template, base, dirs_exist_ok=True)
            dirs = [str(base / f"disk{disk}") for disk in range(3)]
            disk = DeadDisk(dirs[1], number)
            with no_thread_leaks(120):
                with monkeypatch.context() as patch:
                    disk.install(patch)
                    try:
                        store = open_and_check(dirs, disk)
                    finally:
                        disk.released.set()
                store.close()
            if not disk.began.is_set():
                break
            met += 1
            check_whole(dirs)
    assert met * EVERY > 100
