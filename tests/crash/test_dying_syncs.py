"""Let a disk die within a sync that says all is well, at every sync of a move (R1, R8).

Of the disk that dies nothing arrives any more: that sync changes nothing and returns, whatever is
asked of the disk afterwards is an I/O error. Only who asks the disk after a sync finds out in time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crash.checks import PowerCutViolation
from crash.move_checks import check_image
from crash.move_cut import DIRS, MovingHistory, open_store
from crash.power_cut import replay
from logstore import LogStoreError
from logstore.disk import files
from mover import MoveState
from support.crash_model import CrashModel, Directory, Image, Node, Op
from support.inside import abandon, keepers_of
from support.places import fast_directory
from support.recorder import RECORDED, Recorder

SYNCS = ("fsync", "fdatasync")
ASKED = ("pread", "fstat", "stat", "lstat", "scandir", "statvfs")
BY_FD = ("pread", "pwrite", "pwritev", "fstat", "ftruncate", "sendfile", *SYNCS)
NTH_MAX = 200


class DyingDisk(Recorder):
    """Records what arrives; one of the log dirs dies within its n-th sync from `arm` on."""

    def __init__(self, root: Path, where: str, nth: int) -> None:
        super().__init__(root)
        self.place = os.path.join(self.root, where)
        self.left, self.is_armed, self.is_dead = nth, False, False

    def __enter__(self) -> DyingDisk:
        super().__enter__()
        for name in ASKED:
            self._originals[name] = getattr(files, name)
            setattr(files, name, self._wrapper(name, self._originals[name]))
        return self

    def _wrapper(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        done = super()._wrapper(name, original) if name in RECORDED else original

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.is_armed or not self._is_here(name, args):
                return done(*args, **kwargs)
            if self.is_dead:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if name in SYNCS:
                self.left -= 1
                if self.left == 0:
                    self.is_dead = True
                    return None
            return done(*args, **kwargs)

        return call

    def _is_here(self, name: str, args: tuple[Any, ...]) -> bool:
        path = os.readlink(f"/proc/self/fd/{args[0]}") if name in BY_FD else os.fspath(args[0])
        return path == self.place or path.startswith(self.place + "/")


def move_and_die(root: Path, where: str, nth: int) -> tuple[list[Op], bool]:
    """Append, move, append, purge; give what arrived, and whether the disk died."""
    root.mkdir()
    with DyingDisk(root, where, nth) as disk:
        store = open_store(root)
        history = MovingHistory(disk, store, 3)
        history.is_busy = False
        history.extend(8, durable=True)
        disk.is_armed = True
        try:
            history.extend(2, durable=True)
            if history.move(store.log_dirs[1]) is MoveState.DONE:
                history.purge_all()
            history.extend(2, durable=True)
        except (LogStoreError, OSError):
            pass  # the disk is dead, and somebody noticed
        abandon(store)
        for keeper in keepers_of(store).values():
            keeper.stop()
    return disk.ops, disk.is_dead


def nodes_below(directory: Directory) -> Iterator[Node]:
    """Give a directory and all that it holds, for the process or on the disk."""
    yield directory
    for child in (*directory.live.values(), *directory.disk.values()):
        if isinstance(child, Directory):
            yield from nodes_below(child)
        else:
            yield child


def what_is_left(model: CrashModel, where: str) -> Image:
    """Give what a start finds: of the dead disk what was synced, of the other one everything."""
    place = model.find(where)
    assert isinstance(place, Directory)
    dead = {id(node) for node in nodes_below(place)}
    model.commit([many for many in model.changes if all(id(one) not in dead for one, *_ in many)])
    image: Image = {}
    model.draw(
        model.root, "", image, lambda file: file.disk if id(file) in dead else bytes(file.live)
    )
    return image


def die_everywhere(base: Path) -> int:
    """Let each disk die in each of its syncs; look at what a start makes of it."""
    deaths = 0
    for where in DIRS:
        for nth in range(1, NTH_MAX):
            ops, is_dead = move_and_die(base / f"{where}-{nth}", where, nth)
            if not is_dead:
                break
            deaths += 1
            *_, (model, known) = replay(ops)
            image = what_is_left(model, where)
            check_image(base / "after", image, known, is_thorough=False)
    return deaths


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


@pytest.mark.timeout(120)
def test_a_disk_that_dies_within_a_sync_takes_nothing(base: Path) -> None:
    """Whichever sync of a move lies, there is one whole log with all that was acknowledged."""
    deaths = die_everywhere(base)
    print(f"crash: moves: {deaths} lying syncs")
    assert deaths > 20


def without_probe_of_data(fd: int) -> None:
    """Sync a file and believe it."""
    files.fdatasync(fd)


def without_probe_of_names(fd: int) -> None:
    """Sync a directory and believe it."""
    files.fsync(fd)


WORSE = {"sync_data": without_probe_of_data, "sync_names": without_probe_of_names}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", WORSE)
def test_a_missing_probe_is_found(base: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Without the question after the sync something acknowledged is lost, or the log is."""
    monkeypatch.setattr(files, name, WORSE[name])
    with pytest.raises(PowerCutViolation):
        die_everywhere(base)
