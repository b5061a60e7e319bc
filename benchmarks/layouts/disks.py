"""Make disks of a set speed: loop devices over images in memory, throttled, with file systems.

Needs root, losetup, the mkfs of each file system, and the blkio controller of cgroup v1. Every name
holds the process id, so that what a killed run left is found and undone by the next one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

MEMORY = Path("/dev/shm")
PREFIX = "logstore-layouts-"
SEARCH_PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
THROTTLES = Path("/sys/fs/cgroup/blkio")
IMAGE_BYTES = 768 << 20
DEAD_BYTES = 64 << 10
MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,nodiscard"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
    "btrfs": ["mkfs.btrfs", "-q", "-f", "-K"],
}


def command(*words: str) -> str:
    """Run a command and give what it printed; a failure shows what it said."""
    environment = {**os.environ, "PATH": SEARCH_PATH}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def what_is_missing() -> list[str]:
    """Say what stands in the way of making disks here."""
    missing = [f"{words[0]} is not installed" for words in MAKE.values()
               if not shutil.which(words[0], path=SEARCH_PATH)]  # fmt: skip
    if os.geteuid() != 0:
        missing.append("loop devices and mounts need root")
    if not (THROTTLES / "blkio.throttle.write_bps_device").exists():
        missing.append(f"no throttles of cgroup v1 in {THROTTLES}")
    return missing


class Device:
    """A loop device over an image in memory, which is a small file system of its own."""

    def __init__(self, memory: Path) -> None:
        self._memory = memory
        self._image = memory / "image"
        self.path = ""
        memory.mkdir()
        command(
            "mount", "-t", "tmpfs", "-o", f"size={IMAGE_BYTES + (1 << 20)}", "tmpfs", str(memory)
        )

    def attach(self) -> None:
        """Make the image and the device."""
        with self._image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        self.path = command("losetup", "-f", "--show", str(self._image))

    def throttle(self, bytes_per_second: int) -> None:
        """Hold reads and writes to a rate; 0 lifts it."""
        number = os.stat(self.path).st_rdev
        line = f"{os.major(number)}:{os.minor(number)} {bytes_per_second}"
        for what in ("read", "write"):
            (THROTTLES / f"blkio.throttle.{what}_bps_device").write_text(line)

    def cut(self) -> None:
        """Kill the disk: reads and writes behind its first 64 KiB say EIO from now on.

        The image is cut for the reads, and its memory taken away for the writes.
        """
        os.truncate(self._image, DEAD_BYTES)
        command("mount", "-o", f"remount,size={DEAD_BYTES + (64 << 10)}", str(self._memory))

    def detach(self) -> None:
        """Lift the throttle, let go of the device and of its memory."""
        if self.path:
            _lift(self)
            command("losetup", "-d", self.path)
        unmount(self._memory)


def unmount(place: Path) -> None:
    """Unmount, lazily where a dead disk does not let go."""
    try:
        command("umount", str(place))
    except OSError:
        command("umount", "-l", str(place))


@contextlib.contextmanager
def mounted(kind: str, count: int, bytes_per_second: int, profile: str = "") -> Iterator[
    tuple[list[Device], list[Path]]
]:  # fmt: skip
    """Give `count` devices with a file system each, or with one over all (a btrfs profile)."""
    with contextlib.ExitStack() as stack:
        base = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=MEMORY))
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        devices: list[Device] = []
        for number in range(count):
            device = Device(base / f"memory{number}")
            stack.callback(device.detach)
            device.attach()
            devices.append(device)
        groups = [devices] if profile else [[device] for device in devices]
        places = []
        for number, group in enumerate(groups):
            place = base / f"disk{number}"
            place.mkdir()
            names = [device.path for device in group]
            choice = ["-d", profile, "-m", profile] if profile else []
            command(*MAKE[kind], *choice, *names)
            if len(names) > 1:
                command("btrfs", "device", "scan", *names)
            command("mount", "-t", kind, names[0], str(place))
            stack.callback(unmount, place)
            places.append(place)
        for device in devices:
            device.throttle(bytes_per_second)
        # Undone first, so that unmounting need not write at the set speed.
        for device in devices:
            stack.callback(_lift, device)
        yield devices, places


def _lift(device: Device) -> None:
    with contextlib.suppress(OSError):
        device.throttle(0)


def sweep() -> list[str]:
    """Undo what killed runs left behind, and say what that was."""
    swept = []
    for base in MEMORY.glob(f"{PREFIX}*"):
        owner = base.name.removeprefix(PREFIX).split("-")[0]
        if Path(f"/proc/{owner}").exists():
            continue
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
        places = [Path(line.split()[1]) for line in mounts]
        mine = [place for place in places if base in place.parents]
        for place in mine:
            if not place.name.startswith("memory"):
                unmount(place)
        for place in mine:
            if place.name.startswith("memory"):
                for line in command("losetup", "-j", str(place / "image")).splitlines():
                    command("losetup", "-d", line.partition(":")[0])
                unmount(place)
        shutil.rmtree(base, ignore_errors=True)
        swept.append(base.name)
    return swept
