"""An old copy with nothing in doubt stays one, until its user gives the log dir up for it."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from logstore import LogStore
from logstore.disk import files
from logstore.disk.ballast import BALLAST_NAME
from logstore.disk.documents.generations import GENERATION_NAME
from logstore.errors import LogDirError, ReplicaIncompleteError
from support.hanging import QUIET
from support.two_disks import ORDERS, PAYMENTS, Disks, opened


def state_of(store: LogStore, path: str) -> str:
    return store.describe_dirs(log_dirs=[path]).log_dirs[0].state


def give_up(store: LogStore, path: str) -> None:
    store.take_offline(path)
    store.remove_dir(path, lost=True)


class EmptyDisks:
    """Log dirs without partitions; an old copy of the first can be put in its place."""

    def __init__(self, root: Path, count: int) -> None:
        self.dirs = [str(root / f"d{number}") for number in range(count)]
        self.dir, self.copy = self.dirs[0], f"{self.dirs[0]}.copy"
        opened(self.dirs).close()
        shutil.copytree(self.dir, self.copy)
        for _ in range(2):
            opened(self.dirs).close()  # the others see later generations

    def put_in(self) -> None:
        os.rename(self.dir, f"{self.dir}.right")
        os.rename(self.copy, self.dir)

    def take_out(self) -> None:
        os.rename(self.dir, self.copy)
        os.rename(f"{self.dir}.right", self.dir)


def test_regression_a_name_that_no_catalog_has_is_not_given_out_beside_an_old_copy(
    tmp_path: Path,
) -> None:
    """The right disk ran alone for a while; its partition was created again, on the copy."""
    disks = EmptyDisks(tmp_path, 2)
    other = disks.dirs[1]
    os.rename(other, f"{other}.away")
    with opened(disks.dirs) as store:
        store.create(*ORDERS, is_new=True).append(b"precious", durable=True)
    os.rename(f"{other}.away", other)
    disks.put_in()
    for _ in range(2):
        with opened(disks.dirs) as store:
            assert state_of(store, disks.dir) == "outdated"
            with pytest.raises(LogDirError, match="is an old copy"):
                store.create(*ORDERS)
    disks.take_out()
    with opened(disks.dirs) as store:
        assert store.log(*ORDERS).append(b"next") == 1


def test_a_copy_is_taken_in_at_a_start(tmp_path: Path) -> None:
    """Its user gave the log dir up, and names it with `format_new`."""
    disks = EmptyDisks(tmp_path, 2)
    disks.put_in()
    with opened(disks.dirs) as store:
        give_up(store, disks.dir)
    for is_joining in (True, False):
        with LogStore.open(
            disks.dirs, config=QUIET, admin_socket=False, format_new=is_joining
        ) as store:
            assert state_of(store, disks.dir) == "online"


def test_a_copy_that_was_taken_in_is_not_outdated_when_a_witness_returns(
    tmp_path: Path,
) -> None:
    """The witness was away: nobody told it that the log dir had been given up."""
    disks = EmptyDisks(tmp_path, 3)
    witness = disks.dirs[2]
    disks.put_in()
    os.rename(witness, f"{witness}.away")
    store = opened(disks.dirs)
    give_up(store, disks.dir)
    store.add_dir(disks.dir, format_new=True)
    log = store.create(*ORDERS, log_dir=disks.dir, is_new=True)
    os.rename(f"{witness}.away", witness)
    store.reopen_dir(witness)
    assert log.append(b"0", durable=True) == 0
    store.close()
    with opened(disks.dirs) as store:
        assert store.recovery_report.is_sound and not store.recovery_report.warnings
        give_up(store, disks.dir)
    disks.take_out()
    with opened(disks.dirs[1:]) as store:  # the right disk is taken in after all
        store.add_dir(disks.dir, format_new=True)
        assert state_of(store, disks.dir) == "online"


@pytest.mark.parametrize("is_damaged", [False, True])
def test_regression_a_copy_with_doubts_is_taken_in_as_it_is(
    tmp_path: Path, is_damaged: bool
) -> None:
    """The log dir is no old copy any more; what was in doubt in it, and is known, still is."""
    disks = Disks(tmp_path)
    with opened(disks.dirs) as store:
        store.log(*ORDERS).append(b"1", durable=True)
    disks.put_in()
    with opened(disks.dirs) as store:
        give_up(store, disks.dirs[0])
        if is_damaged:
            Path(disks.dirs[0], GENERATION_NAME).write_bytes(b"{")
        store.add_dir(disks.dirs[0], format_new=True)
        assert state_of(store, disks.dirs[0]) == "online"
        for key in () if is_damaged else (ORDERS, PAYMENTS):
            with pytest.raises(ReplicaIncompleteError, match="when it was accepted"):
                store.log(*key).append(b"x")
            assert store.promote(*key)
        assert store.log(*ORDERS).append(b"again") == 5
    with opened(disks.dirs) as store:
        assert store.recovery_report.is_sound and not store.recovery_report.warnings


def test_regression_a_copy_is_taken_in_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kept the generation of an old copy: after a start it was one again."""
    disks, real = EmptyDisks(tmp_path, 2), files.rename
    disks.put_in()

    def rename(source: str, target: str) -> None:
        is_there = os.path.exists(f"{disks.dir}/{BALLAST_NAME}")
        if is_there and target == f"{disks.dir}/{GENERATION_NAME}":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)
        real(source, target)

    with opened(disks.dirs) as store:
        give_up(store, disks.dir)
        with monkeypatch.context() as patch:
            patch.setattr(files, "rename", rename)
            store.add_dir(disks.dir, format_new=True)
        log = store.create(*ORDERS, log_dir=disks.dir)
        assert log.append(b"0", durable=True) == 0
    with opened(disks.dirs) as store:
        assert store.log(*ORDERS).append(b"1", durable=True) == 1
