"""Create disks of a set speed: loop devices over images in memory, throttled, with file systems.

This needs root, losetup, the mkfs of each file system, and the blkio controller of cgroup v1.

Everything is below one directory, whose name identifies the process that created it. The list of
devices and mounts to remove comes from the kernel, not from the memory of the process. So they can
be removed in any state. An interrupted run removes them itself. After a kill, the next run removes
them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.layouts.interrupts import held_back

MEMORY = Path("/dev/shm")
PREFIX = "logstore-layouts-"
SEARCH_PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
THROTTLES = Path("/sys/fs/cgroup/blkio")
IMAGE_BYTES = 768 << 20
DEAD_BYTES = 64 << 10
START_TIME = 19  # the index of a process's start time in `stat`, among the fields after the name
MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,nodiscard"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
    "btrfs": ["mkfs.btrfs", "-q", "-f", "-K"],
}


def command(*words: str) -> str:
    """Run a command and return its output; if it fails, raise OSError with its error message.

    The command runs in its own session, so that Ctrl-C at the terminal does not reach it.
    """
    environment = {**os.environ, "PATH": SEARCH_PATH}
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env=environment, start_new_session=True
    )
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def what_is_missing() -> list[str]:
    """List the reasons why disks cannot be created on this machine."""
    missing = [f"{words[0]} is not installed" for words in MAKE.values()
               if not shutil.which(words[0], path=SEARCH_PATH)]  # fmt: skip
    if os.geteuid() != 0:
        missing.append("loop devices and mounts need root")
    if not (THROTTLES / "blkio.throttle.write_bps_device").exists():
        missing.append(f"no throttles of cgroup v1 in {THROTTLES}")
    return missing


class Device:
    """Hold a loop device over an image in memory; the image is alone on a small tmpfs.

    Attributes:
        path: the path of the device.
    """

    def __init__(self, memory: Path, size_bytes: int) -> None:
        """Create the tmpfs, the image and the device; after an error, `undo` removes them."""
        self._memory = memory
        self._image = memory / "image"
        memory.mkdir()
        size = f"size={size_bytes + (1 << 20)}"
        command("mount", "-t", "tmpfs", "-o", size, "tmpfs", str(memory))
        with self._image.open("wb") as file:
            file.truncate(size_bytes)
        self.path = command("losetup", "-f", "--show", str(self._image))

    def throttle(self, bytes_per_second: int) -> None:
        """Limit reads and writes to a rate; 0 removes the limit."""
        throttle(self.path, bytes_per_second)

    def cut(self) -> None:
        """Kill the disk: from now on, reads and writes after its first 64 KiB fail with EIO.

        Reads fail because the image is cut. Writes fail because the tmpfs has no more memory.
        """
        os.truncate(self._image, DEAD_BYTES)
        command("mount", "-o", f"remount,size={DEAD_BYTES + (64 << 10)}", str(self._memory))


def throttle(device: str, bytes_per_second: int) -> None:
    """Limit a device's reads and writes to a rate; 0 removes the limit."""
    number = os.stat(device).st_rdev
    line = f"{os.major(number)}:{os.minor(number)} {bytes_per_second}"
    for what in ("read", "write"):
        (THROTTLES / f"blkio.throttle.{what}_bps_device").write_text(line)


@contextlib.contextmanager
def mounted(
    kind: str,
    count: int,
    bytes_per_second: int,
    profile: str = "",
    *,
    image_bytes: int = IMAGE_BYTES,
) -> Iterator[tuple[list[Device], list[Path]]]:
    """Provide `count` devices, each with a file system; with a profile, one btrfs spans all."""
    base = MEMORY / f"{PREFIX}{process_name(os.getpid())}"
    try:
        base.mkdir()
        devices = [Device(base / f"memory{number}", image_bytes) for number in range(count)]
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
            places.append(place)
        for device in devices:
            device.throttle(bytes_per_second)
        yield devices, places
    finally:
        undo(base)


# --- undoing --------------------------------------------------------------------------------------


def process_name(pid: int) -> str:
    """Return a name that no later process with the same id has, or "" if the process has ended."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return f"{pid}-{facts.rpartition(')')[2].split()[START_TIME]}"


def mounts_below(base: Path) -> list[Path]:
    """List the mount points below a directory."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    places = [Path(line.split()[1]) for line in lines]
    return [place for place in places if base in place.parents]


def devices_below(base: Path) -> list[str]:
    """List the loop devices whose images are below a directory."""
    pairs = [
        line.split(None, 1)
        for line in command("losetup", "-n", "-l", "-O", "NAME,BACK-FILE").splitlines()
    ]
    return [pair[0] for pair in pairs if len(pair) == 2 and pair[1].startswith(f"{base}/")]


def undo(base: Path) -> None:
    """Remove everything below a directory: throttles, mounts, devices, images.

    The function may be called more than once. It removes the throttles first, so that the writes of
    an unmount are not slowed.
    """
    with held_back():
        devices = devices_below(base)
        for device in devices:
            throttle(device, 0)
        memories = [place for place in mounts_below(base) if place.name.startswith("memory")]
        for place in mounts_below(base):
            if place not in memories:
                unmount(place)
        for device in devices:
            with contextlib.suppress(OSError):  # the unmount may have removed the device
                command("losetup", "-d", device)
        for place in memories:
            unmount(place)
        shutil.rmtree(base, ignore_errors=True)


def unmount(place: Path) -> None:
    """Unmount; if a dead disk or a process still uses the mount, the unmount ends later."""
    try:
        command("umount", str(place))
    except OSError:
        with contextlib.suppress(OSError):  # nothing is mounted there any more
            command("umount", "-l", str(place))


def sweep() -> list[str]:
    """Remove the disks that killed runs left; return the names of their directories."""
    swept = []
    for base in MEMORY.glob(f"{PREFIX}*"):
        owner = base.name.removeprefix(PREFIX)
        number = owner.partition("-")[0]
        if number.isdigit() and process_name(int(number)) != owner:
            undo(base)
            swept.append(base.name)
    return swept
