"""Make real disks that fail or are slow: loop devices over images in memory, with a file system.

Needs root, `losetup`, and `mkfs.ext4` or `mkfs.xfs`. Every name carries the process that made it.
Everything is undone at the end, also when the test fails or is told to end (SIGTERM): freezes and
limits first, then mounts, then devices, then images. What a killed process left is swept before
the first disk is made.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from .places import SHARED_MEMORY

MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K", "-s", "size=4096"],
}
DISK_BYTES = {"ext4": 64 << 20, "xfs": 320 << 20}
SEARCH_PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
THROTTLES = Path("/sys/fs/cgroup/blkio")
PREFIX = "logstore-disk-"

SHUTDOWN, SHUTDOWN_NO_LOG_FLUSH = 0x8004587D, 2  # what is not synced is lost, as in a power cut
FREEZE, THAW = 0xC0045877, 0xC0045878


def kinds() -> list[str]:
    """List the file systems that can be made here."""
    return [kind for kind, command in MAKE.items() if shutil.which(command[0], path=SEARCH_PATH)]


def why_not() -> str | None:
    """Say why no such disk can be made here, or None when it can."""
    if os.geteuid() != 0:
        return "loop devices need root"
    if not shutil.which("losetup", path=SEARCH_PATH):
        return "losetup is not installed"
    if not kinds():
        return "neither mkfs.ext4 nor mkfs.xfs is installed"
    if not SHARED_MEMORY.is_dir():
        return f"{SHARED_MEMORY} is not there"
    try:
        command("losetup", "-f")
    except OSError as error:
        return f"no loop device can be had: {error}"
    return None


def command(*words: str) -> str:
    """Run a command and give what it printed; a failure shows what it said."""
    environment = {**os.environ, "PATH": SEARCH_PATH}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


class LoopDisk:
    """A mounted file system on a loop device.

    Attributes:
        image: the file that is the disk.
        mount: where it is mounted.
        device: the loop device.
    """

    def __init__(self, kind: str, size_bytes: int | None = None) -> None:
        self.kind = kind
        self.size_bytes = size_bytes or DISK_BYTES[kind]
        self.base = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=SHARED_MEMORY))
        self.memory, self.mount = self.base / "memory", self.base / "mount"
        self.image = self.memory / "image"
        self.memory.mkdir()
        self.mount.mkdir()
        self.device = ""
        self._is_mounted = False

    def attach(self) -> None:
        """Make the file system and mount it."""
        size = f"size={self.size_bytes}"
        command("mount", "-t", "tmpfs", "-o", size, "tmpfs", str(self.memory))
        with self.image.open("wb") as file:
            file.truncate(self.size_bytes)
        command(*MAKE[self.kind], str(self.image))
        self.device = command("losetup", "-f", "--show", str(self.image))
        self.mount_at(self.mount)

    def mount_at(self, place: Path) -> None:
        """Mount it somewhere; its journal is replayed."""
        command("mount", "-t", self.kind, self.device, str(place))
        self.mount = place
        self._is_mounted = True

    def unmount(self) -> None:
        """Unmount it; the mount point stays, empty. Raises OSError when something holds it."""
        command("umount", str(self.mount))
        self._is_mounted = False

    def detach(self) -> None:
        """Undo everything, whatever state it is in."""
        with contextlib.suppress(OSError):
            self.throttle(0)
        if self._is_mounted:
            self.thaw()
            undo(self.mount)
        if self.device:
            command("losetup", "-d", self.device)
        with contextlib.suppress(OSError):
            undo(self.memory)
        shutil.rmtree(self.base, ignore_errors=True)

    # --- faults -----------------------------------------------------------------------------------

    def cut(self, size_bytes: int) -> None:
        """Cut the disk off behind its first bytes: what lies there says EIO from now on.

        The image is cut for the reads, and its memory taken away for the writes.
        """
        self.freeze()  # what was synced is in the image, and what is kept of it is of one moment
        try:
            with self.image.open("rb") as file:
                file.seek(size_bytes)
                self._cut_off = (size_bytes, file.read())
            os.truncate(self.image, size_bytes)
            with self.image.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, size_bytes)  # its holes are room as well
            self._resize(size_bytes)
        finally:
            self.thaw()

    def mend(self) -> None:
        """Put back what was cut off."""
        start, data = self._cut_off
        self._resize(self.size_bytes)
        with self.image.open("r+b") as file:
            file.seek(start)
            file.write(data)

    def _resize(self, size_bytes: int) -> None:
        command("mount", "-o", f"remount,size={size_bytes}", str(self.memory))

    def cut_power(self) -> None:
        """Lose all that is not synced, and let every call from now on say EIO."""
        self._control(SHUTDOWN, struct.pack("I", SHUTDOWN_NO_LOG_FLUSH))

    def freeze(self) -> None:
        """Let every call that changes something hang until `thaw`; reading goes on."""
        self._control(FREEZE, struct.pack("i", 0))

    def thaw(self) -> None:
        """End a freeze; that there is none is fine."""
        with contextlib.suppress(OSError):
            self._control(THAW, struct.pack("i", 0))

    def _control(self, request: int, argument: bytes) -> None:
        fd = os.open(self.mount, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, request, argument)
        finally:
            os.close(fd)

    def remount(self) -> None:
        """Unmount whatever is left of a dead file system and mount it anew."""
        undo(self.mount)
        self.mount_at(self.mount)

    def throttle(self, iops: int) -> None:
        """Allow so many reads and writes a second; 0 lifts the limit."""
        number = os.stat(self.device).st_rdev
        line = f"{os.major(number)}:{os.minor(number)} {iops}"
        for what in ("read", "write"):
            (THROTTLES / f"blkio.throttle.{what}_iops_device").write_text(line)


def undo(mount: Path) -> None:
    """Unmount; where something still holds it, as soon as that lets go."""
    try:
        command("umount", str(mount))
    except OSError:
        command("umount", "-l", str(mount))


_swept = threading.Event()


def sweep() -> None:
    """Undo what killed processes left mounted, frozen or attached; once is enough."""
    if _swept.is_set():
        return
    _swept.set()
    for base in SHARED_MEMORY.glob(f"{PREFIX}*"):
        owner = base.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            _sweep_one(base)


def _sweep_one(base: Path) -> None:
    """Undo one leftover; another sweep may be at it as well."""
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        place = line.split()[1]
        if place.startswith(f"{base}/"):
            _thaw(place)
            with contextlib.suppress(OSError):
                undo(Path(place))
    for line in command("losetup", "-n", "-l", "-O", "NAME,BACK-FILE").splitlines():
        device, _, file = line.partition(" ")
        if file.strip().startswith(f"{base}/"):
            with contextlib.suppress(OSError):
                command("losetup", "-d", device)
    shutil.rmtree(base, ignore_errors=True)


def _thaw(place: str) -> None:
    """Thaw a file system that was left frozen: it could not be unmounted."""
    with contextlib.suppress(OSError):
        fd = os.open(place, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, THAW, struct.pack("i", 0))
        finally:
            os.close(fd)


@contextlib.contextmanager
def orderly_end() -> Iterator[None]:
    """Make SIGTERM end the program through its `finally` blocks, so that disks are undone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def loop_disk(kind: str, size_bytes: int | None = None) -> Iterator[LoopDisk]:
    """Give a fresh disk."""
    sweep()
    with orderly_end():
        disk = LoopDisk(kind, size_bytes)
        try:
            disk.attach()
            yield disk
        finally:
            disk.detach()


@contextlib.contextmanager
def throttles() -> Iterator[None]:
    """Have the throttles of cgroup v1 mounted; raises OSError where the kernel has none."""
    if (THROTTLES / "blkio.throttle.read_iops_device").exists():
        yield
        return
    THROTTLES.mkdir(parents=True, exist_ok=True)
    command("mount", "-t", "cgroup", "-o", "blkio", "cgroup", str(THROTTLES))
    try:
        yield
    finally:
        command("umount", str(THROTTLES))


def forget_pages(directory: Path) -> None:
    """Drop the cached pages of every file below a directory, so that reads go to the disk."""
    for path in directory.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
