"""Make disks of a set speed: loop devices over images in memory, throttled, with file systems.

Needs root, losetup, the mkfs of each file system, and the blkio controller of cgroup v1.

Everything is below one directory, whose name holds the process that made it. What there is to
undo is read from the kernel and not remembered, so that it can be undone from any state: by the run
itself, wherever it was interrupted, or by the next one when it was killed.
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
START_TIME = 19  # of a process, among the fields of its `stat` behind the name
MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,nodiscard"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
    "btrfs": ["mkfs.btrfs", "-q", "-f", "-K"],
}


def command(*words: str) -> str:
    """Run a command and give what it printed; a failure shows what it said.

    It has a session of its own: a Ctrl-C at the terminal is not for it.
    """
    environment = {**os.environ, "PATH": SEARCH_PATH}
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env=environment, start_new_session=True
    )
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def what_is_missing() -> list[str]:
    """Say what prevents making disks here."""
    missing = [f"{words[0]} is not installed" for words in MAKE.values()
               if not shutil.which(words[0], path=SEARCH_PATH)]  # fmt: skip
    if os.geteuid() != 0:
        missing.append("loop devices and mounts need root")
    if not (THROTTLES / "blkio.throttle.write_bps_device").exists():
        missing.append(f"no throttles of cgroup v1 in {THROTTLES}")
    return missing


class Device:
    """A loop device over an image in memory, which is a small file system of its own.

    Attributes:
        path: of the device.
    """

    def __init__(self, memory: Path, size_bytes: int) -> None:
        """Make both; an error or an interrupt leaves it to `undo`."""
        self._memory = memory
        self._image = memory / "image"
        memory.mkdir()
        size = f"size={size_bytes + (1 << 20)}"
        command("mount", "-t", "tmpfs", "-o", size, "tmpfs", str(memory))
        with self._image.open("wb") as file:
            file.truncate(size_bytes)
        self.path = command("losetup", "-f", "--show", str(self._image))

    def throttle(self, bytes_per_second: int) -> None:
        """Hold reads and writes to a rate; 0 lifts it."""
        throttle(self.path, bytes_per_second)

    def cut(self) -> None:
        """Kill the disk: reads and writes behind its first 64 KiB say EIO from now on.

        The image is cut for the reads, and its memory taken away for the writes.
        """
        os.truncate(self._image, DEAD_BYTES)
        command("mount", "-o", f"remount,size={DEAD_BYTES + (64 << 10)}", str(self._memory))


def throttle(device: str, bytes_per_second: int) -> None:
    """Hold a device's reads and writes to a rate; 0 lifts it."""
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
    """Give `count` devices with a file system each, or with one over all (a btrfs profile)."""
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
    """Name a process so that another one with its number has another name; "" when it ended."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return f"{pid}-{facts.rpartition(')')[2].split()[START_TIME]}"


def mounts_below(base: Path) -> list[Path]:
    """List what is mounted below a directory."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    places = [Path(line.split()[1]) for line in lines]
    return [place for place in places if base in place.parents]


def devices_below(base: Path) -> list[str]:
    """List the loop devices over files below a directory."""
    pairs = [
        line.split(None, 1)
        for line in command("losetup", "-n", "-l", "-O", "NAME,BACK-FILE").splitlines()
    ]
    return [pair[0] for pair in pairs if len(pair) == 2 and pair[1].startswith(f"{base}/")]


def undo(base: Path) -> None:
    """Undo everything below a directory: throttles, mounts, devices, memory; twice is allowed.

    Throttles come first, so that unmounting need not write at the set speed.
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
            with contextlib.suppress(OSError):  # it went with its mount
                command("losetup", "-d", device)
        for place in memories:
            unmount(place)
        shutil.rmtree(base, ignore_errors=True)


def unmount(place: Path) -> None:
    """Unmount; where a dead disk or a process still holds it, as soon as that lets go."""
    try:
        command("umount", str(place))
    except OSError:
        with contextlib.suppress(OSError):  # it is gone already
            command("umount", "-l", str(place))


def sweep() -> list[str]:
    """Undo what killed runs left behind, and say what that was."""
    swept = []
    for base in MEMORY.glob(f"{PREFIX}*"):
        owner = base.name.removeprefix(PREFIX)
        number = owner.partition("-")[0]
        if number.isdigit() and process_name(int(number)) != owner:
            undo(base)
            swept.append(base.name)
    return swept
