"""The faults: how a disk comes to fail, what its log dir is called then, and how it is mended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import NamedTuple

from support.loop_disk import LoopDisk, command

from .scene import Scene

CUT_BYTES = 2 << 20


class Fault(NamedTuple):
    """One way in which a disk fails under a running store.

    Attributes:
        reason: a word of the reason that the log dir gives.
        was_cut: what was not synced may be gone.
    """

    name: str
    strike: Callable[[Scene], None]
    mend: Callable[[Scene], None]
    reason: str
    was_cut: bool = True


def cut_power(scene: Scene) -> None:
    with scene.worker.held():
        scene.sick.cut_power()


def remount(scene: Scene) -> None:
    scene.sick.unmount()
    scene.sick.mount_at(scene.sick.mount)


def cut_file(scene: Scene) -> None:
    """Cut the image under the disk: what is written or read behind the cut fails."""
    scene.sick.cut(CUT_BYTES)


def mend_file(scene: Scene) -> None:
    scene.sick.unmount()
    scene.sick.mend()
    scene.sick.mount_at(scene.sick.mount)


def abort(scene: Scene) -> None:
    """Make the file system read-only the hard way: it aborts its journal (XFS: it shuts down)."""
    if scene.sick.kind != "ext4":
        cut_power(scene)
        return
    with scene.worker.held():
        command("mount", "-o", "remount,abort", str(scene.sick.mount))


def close_up(scene: Scene) -> None:
    """Take every permission away; what is open goes on working, so a roll must notice it."""
    os.chmod(scene.log_dirs[0], 0)
    for name in os.listdir(scene.log_dirs[0]):
        with contextlib.suppress(NotADirectoryError):
            os.chmod(os.path.join(scene.log_dirs[0], name), 0)


def open_up(scene: Scene) -> None:
    os.chmod(scene.log_dirs[0], 0o755)
    for name in os.listdir(scene.log_dirs[0]):
        path = os.path.join(scene.log_dirs[0], name)
        os.chmod(path, 0o755 if os.path.isdir(path) else 0o644)


def fill(scene: Scene) -> None:
    """Fill a disk to its last byte with another file."""
    with open(scene.sick.mount / "balloon", "wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass


def empty(scene: Scene) -> None:
    """Give the room back."""
    os.unlink(scene.sick.mount / "balloon")


def swap(first: LoopDisk, second: LoopDisk) -> None:
    """Mount two disks in each other's place."""
    places = first.mount, second.mount
    first.unmount()
    second.unmount()
    first.mount_at(places[1])
    second.mount_at(places[0])


FAULTS = (
    Fault("power cut", cut_power, remount, "EIO"),
    Fault("backing file cut", cut_file, mend_file, "E"),
    Fault("remount read-only", abort, remount, "E"),
    Fault("chmod 000", close_up, open_up, "EACCES", was_cut=False),
)
