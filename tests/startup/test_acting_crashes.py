"""A crash at any call of what the start-up table asks for, or of a promotion, loses nothing."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore import LogStore
from support.crashing import CrashError, crash_at
from support.inside import abandon, keepers_of
from support.keepers import wait_for_keepers
from support.moves import StagedMove
from support.places import fast_directory

KEY = ("orders", 0)
RECORDS = [b"record %d" % number for number in range(10)]


def half_swapped(move: StagedMove) -> None:
    """Stop between the two renames."""
    move.name().copy().catch_up().rename_source()


def resumable(move: StagedMove) -> None:
    """Stop before the first rename."""
    move.name().copy().catch_up()


def cancelled(move: StagedMove) -> None:
    """Leave a caught-up copy that no live one names."""
    move.copy().catch_up()


def two_live(move: StagedMove) -> None:
    """Leave two live copies, one of them superseded."""
    move.name().copy().catch_up().rename_target()


def swapped(move: StagedMove) -> None:
    """Leave the source behind, to be purged."""
    move.name().copy().catch_up().rename_source().rename_target()


def half_copied(move: StagedMove) -> None:
    """Leave a copy under way, its source gone with its disk."""
    move.name().copy()
    shutil.rmtree(move.live)


def settle(disks: list[Path]) -> None:
    """Live through a start, the purges behind it, and an orderly close."""
    store = LogStore.open(disks, admin_socket=False)
    try:
        for keeper in [*keepers_of(store).values()] * 2:
            while keeper._thread.is_alive() and not keeper.wait_idle(0.01):
                pass
        store.close()
    except BaseException:
        let_go(store)
        raise


def promote(disks: list[Path]) -> None:
    """Make a half copy whole."""
    store = LogStore.open(disks, admin_socket=False)
    try:
        if store.host.replicas.incomplete:
            store.promote(*KEY)
        store.close()
    except BaseException:
        let_go(store)
        raise


def delete(disks: list[Path]) -> None:
    """Delete the partition with all that is left of it."""
    store = LogStore.open(disks, admin_socket=False)
    try:
        if KEY in store:
            store.delete(*KEY)
        store.close()
    except BaseException:
        let_go(store)
        raise


def let_go(store: LogStore) -> None:
    """Let go of what a dead process would not hold."""
    for keeper in keepers_of(store).values():
        keeper.stop()
        keeper.join(10)
    abandon(store)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("leave", "work"),
    [
        (half_swapped, settle),
        (resumable, settle),
        (cancelled, settle),
        (two_live, settle),
        (swapped, settle),
        (half_copied, promote),
        (half_copied, delete),
        (swapped, delete),
        (resumable, delete),
    ],
)
def test_a_crash_at_any_call_loses_nothing(
    leave: Callable[[StagedMove], None], work: Callable[[list[Path]], None]
) -> None:
    """The next start serves every record, or knows that the partition was deleted."""
    with fast_directory() as base:
        template = base / "template"
        disks = [template / f"disk{n}" for n in range(2)]
        with LogStore.open(disks, admin_socket=False) as store:
            store.create(*KEY, log_dir=disks[0]).extend(RECORDS)
        leave(StagedMove(disks[0], disks[1], *KEY, len(RECORDS)))
        for number in range(500):
            root = base / str(number)
            shutil.copytree(template, root)
            disks = [root / f"disk{n}" for n in range(2)]
            with pytest.MonkeyPatch.context() as patch:
                calls = crash_at(patch, number)
                with contextlib.suppress(CrashError):
                    work(disks)
            check(disks, is_deleted=work is delete, is_done=len(calls) < number)
            shutil.rmtree(root)
            if len(calls) < number:
                return
    raise AssertionError("too many calls")


def check(disks: list[Path], *, is_deleted: bool, is_done: bool) -> None:
    """Open after the crash: all records are there, or the partition is gone for good."""
    with LogStore.open(disks, admin_socket=False) as store:
        if KEY in store:
            assert not (is_deleted and is_done)
            assert [record.value for record in store.log(*KEY)] == RECORDS
            assert not store.host.replicas.offline
        else:
            assert is_deleted
            wait_for_keepers(store)
    if is_deleted and is_done:
        assert not [path for disk in disks for path in disk.glob("orders*")]
