"""What can go wrong with the disk of one broker, and how it is mended.

The disk is a file system on a loop device. It can lose what is not flushed, as in a loss of power.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from jepsen.scene import Fault, Scene
from support.loop_disk import LoopDisk

RELEASE_SECONDS, LOOK_SECONDS = 10.0, 0.05


class Notice:
    """Count whether a broker says something about its disk while a fault lasts."""

    def __init__(self, scene: Scene) -> None:
        assert scene.disk is not None
        self._scene, self._process = scene, scene.cluster.processes[scene.sick]
        self._mount, self._before = str(scene.disk.mount), len(self._process.said())

    def count(self, effect: str) -> None:
        """Count an effect if the broker has noticed the fault."""
        lines = self._process.said()[self._before :].splitlines()
        if any(self._mount in line and not line.startswith("---") for line in lines):
            self._scene.count(effect)


def disk_dies(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Let a disk lose all that is not flushed, and answer EIO; then it comes back."""
    assert scene.disk is not None
    notice, before = Notice(scene), bytes_of(scene.disk)
    scene.disk.cut_power()
    yield f"disk of {scene.sick} dies"
    notice.count("a broker noticed that its disk had died")
    remount(scene)
    _count_loss(scene, before)
    scene.lost_dirs.add(scene.disk.mount / "logs")
    scene.return_dirs()


def power_cut(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Let a broker end without a word, and its disk lose all that is not flushed."""
    assert scene.disk is not None
    process = scene.cluster.processes[scene.sick]
    process.kill()
    before = bytes_of(scene.disk)
    scene.disk.cut_power()
    remount(scene)
    _count_loss(scene, before)
    yield f"power of {scene.sick} is cut"
    process.launch()
    scene.lost_dirs.add(scene.disk.mount / "logs")  # if the broker was started meanwhile
    scene.return_dirs()


def bytes_of(disk: LoopDisk) -> int:
    """Count the bytes of all logs on a disk; what cannot be read counts as nothing."""
    found = 0
    with suppress(OSError):
        for path in Path(disk.mount).rglob("*.log"):
            found += path.stat().st_size
    return found


def _count_loss(scene: Scene, before: int) -> None:
    assert scene.disk is not None
    if (lost := before - bytes_of(scene.disk)) > 0:
        scene.count("a disk lost records that were not flushed")
        scene.note(f"the disk of {scene.sick} lost {lost} bytes")


def remount(scene: Scene) -> None:
    """Mount a dead disk anew. A broker that does not release the disk is killed for it."""
    assert scene.disk is not None
    process, pause = scene.cluster.processes[scene.sick], threading.Event()
    deadline, is_killed = time.monotonic() + RELEASE_SECONDS, False
    while not _mounts_anew(scene.disk):
        if time.monotonic() > deadline:
            assert not is_killed, "the dead disk cannot be mounted anew"
            scene.note(f"{process.broker} holds its dead disk, and is killed")
            process.kill()
            deadline, is_killed = time.monotonic() + RELEASE_SECONDS, True
        pause.wait(LOOK_SECONDS)


def _mounts_anew(disk: LoopDisk) -> bool:
    """Try to mount a dead disk; it stays dead if anybody on the machine still has it mounted."""
    try:
        disk.unmount()
        disk.mount_at(disk.mount)
        balloon_of(disk).unlink(missing_ok=True)  # its removal may have been lost
        (disk.mount / "probe").write_bytes(b"probe")
    except OSError:
        return False
    return True


def balloon_of(disk: LoopDisk) -> Path:
    """Give the file that fills a disk."""
    return disk.mount / "balloon"


def disk_hangs(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Let all changes of a file system hang."""
    assert scene.disk is not None
    scene.disk.freeze()
    yield f"disk of {scene.sick} hangs"
    if scene.cluster.processes[scene.sick].waits_for_disk:
        scene.count("a thread of a broker waited for its disk that hung")
    scene.disk.thaw()
    scene.lost_dirs.add(scene.disk.mount / "logs")
    scene.return_dirs()


def disk_fills(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Fill a disk to its last byte with another file."""
    assert scene.disk is not None
    balloon, notice = balloon_of(scene.disk), Notice(scene)
    with balloon.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    yield f"disk of {scene.sick} is full"
    notice.count("a broker noticed that its disk was full")
    balloon.unlink(missing_ok=True)


DISK: list[Fault] = [disk_dies, disk_hangs, disk_fills, power_cut]
