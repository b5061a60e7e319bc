"""A disk that hangs while its log dir is brought back can be given up, and spoils nothing later."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logstore import LogDirError, LogStore
from logstore.store.dirs import watchdog
from support.faulty import no_thread_leaks
from support.hanging import QUIET, Caller, DeadDisk
from support.places import fast_directory

RECORDS = [b"record %d" % number for number in range(10)]
EVERY = int(os.environ.get("LOGSTORE_HANG_EVERY", "13"))

Change = Callable[[LogStore, str], object]
CHANGES: dict[str, Change] = {
    "reopen": lambda store, path: store.reopen_dir(path),
    "replace": lambda store, path: store.reopen_dir(path, format_new=True),
    "add": lambda store, path: store.add_dir(path),
}


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    """Make a store on three disks that crashed; the second has a torn log, and a half-made one."""
    with fast_directory() as base:
        disks = [base / f"disk{number}" for number in range(3)]
        with LogStore.open(disks, admin_socket=False) as store:
            for number, disk in enumerate(disks):
                store.create("orders", number, log_dir=disk).extend(RECORDS)
            store.create("torn", 0, log_dir=disks[1]).extend(RECORDS)
            store.create("deleted", 0, log_dir=disks[1]).extend(RECORDS)
        with next((disks[1] / "torn-0").glob("*.log")).open("ab") as file:
            file.write(b"torn")
        (disks[1] / "half-0").mkdir()
        for disk in disks:
            (disk / ".clean-shutdown").unlink()
        yield base


class Scene:
    """A store of which one disk is to come back; it hangs for good from its n-th call on."""

    def __init__(self, template: Path, base: Path, change: str, nth: int) -> None:
        shutil.copytree(template, base, dirs_exist_ok=True)
        self.dirs = [str(base / f"disk{number}") for number in range(3)]
        self.bad, self.change = self.dirs[1], CHANGES[change]
        if change == "add":
            self.store = LogStore.open([self.dirs[0], self.dirs[2]], config=QUIET)
        else:
            self.store = LogStore.open(self.dirs, config=QUIET)
            self.store.take_offline(self.bad)
        if change == "replace":
            shutil.rmtree(self.bad)
            os.mkdir(self.bad)
        self.disk = DeadDisk(self.bad, nth)

    def give_up(self) -> None:
        """Bring it back, in vain; then do without it."""
        store = self.store
        outcome = Caller(lambda: self.change(store, self.bad)).outcome()
        if not self.disk.began.is_set():
            return
        assert isinstance(outcome, LogDirError), repr(outcome)
        assert store["orders", 0].append(b"x") == store["orders", 2].append(b"x") == 10
        known = store.host.replicas.find_dir(self.bad)
        assert known is None or known.is_offline
        name = self.bad if known is not None else store.host.replicas.missing_ids[0]
        given_up = Caller(lambda: store.remove_dir(name, lost=True)).outcome()
        assert isinstance(given_up, tuple), repr(given_up)
        assert self.bad not in store.log_dirs
        log = Caller(lambda: store.create("orders", 1, is_new=True)).outcome()
        assert log.append(b"anew", durable=True) == 0

    def check(self) -> None:
        """Close and open again: who was given up is no member, whatever it did when it was back."""
        for number in (0, 2):
            assert [r.value for r in self.store["orders", number]][:10] == RECORDS
        self.store.close()
        with LogStore.open(self.dirs, config=QUIET, admin_socket=False) as store:
            assert [row.is_live for row in store.describe_dirs().log_dirs] == [True, False, True]
            assert [record.value for record in store["orders", 1]] == [b"anew"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_disk_that_hangs_can_be_given_up(
    template: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Whichever call of its return hangs: the change ends, the dir can be removed as lost.

    Every so many calls here; `make hanging-start` tries all of them.
    """
    met = 0
    for number in range(1, 2000, EVERY):
        with fast_directory() as base, no_thread_leaks(120):
            with monkeypatch.context() as patch:
                patch.setattr(watchdog, "LOOK_SECONDS_MAX", 0.002)
                scene = Scene(template, base, change, number)
                scene.disk.install(patch)
                try:
                    scene.give_up()
                finally:
                    scene.disk.released.set()
            if not scene.disk.began.is_set():
                scene.store.close()
                break
            scene.check()
            met += 1
    assert met * EVERY > 20
