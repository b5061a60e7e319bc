"""When a replica is deleted, the copies that moves left are deleted, too."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from logstore import LogStore
from logstore.disk import files
from mover import ReplicaMover
from mover.state import MoveState
from mover.swap import Swap
from support.keepers import wait_for_keepers, wait_until_idle


def swaps_wait(patch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Make swaps wait after their preparation, and then find that the copy must catch up."""
    began, go_on = threading.Event(), threading.Event()

    def run(swap: Swap) -> bool:
        swap.prepare()
        began.set()
        assert go_on.wait(60)
        return False

    patch.setattr(Swap, "run", run)
    return began, go_on


@pytest.mark.parametrize("is_closed", [False, True])
def test_regression_a_deletion_cancels_a_move_and_takes_the_copy_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    """This holds if the copy could not be removed, and if its mover was closed."""
    dirs = [tmp_path / "disk0", tmp_path / "disk1"]
    with LogStore.open(dirs, admin_socket=False) as store:
        store.create("orders", 0, log_dir=dirs[0]).extend([b"x"] * 50)
        mover = ReplicaMover(store)
        began, go_on = swaps_wait(monkeypatch)
        move = mover.move("orders", 0, dirs[1])
        assert began.wait(60)
        ending = threading.Thread(
            target=mover.close if is_closed else store.delete,
            args=() if is_closed else ("orders", 0),
        )
        removing = files.remove_if_there

        def remove(path: str) -> None:
            if ".move/" in path and path.endswith("partition.metadata"):
                raise OSError(errno.EMFILE, "Too many open files", path)
            removing(path)

        with monkeypatch.context() as patch:
            patch.setattr(files, "remove_if_there", remove)
            ending.start()
            while move.wanted is None:
                threading.Event().wait(0.001)
            go_on.set()
            ending.join(60)
            # The deletion cancels the move before it waits for it; it does not sit the swap out.
            assert move.state is (MoveState.PAUSED if is_closed else MoveState.CANCELLED)
        if is_closed:
            store.delete("orders", 0)
        mover.close()
        wait_until_idle(store)
    with LogStore.open(dirs, admin_socket=False) as store:
        assert list(store) == []
        # The record of the deletion is removed after the copy on the other disk; a close in between
        # would leave it to the next start.
        wait_for_keepers(store)
    assert not [path for disk in dirs for path in disk.iterdir() if path.is_dir()]
