"""Make real disks that fail or are slow: loop devices over images in memory, with a file system.

Needs root, `losetup`, and `mkfs.ext4` or `mkfs.xfs`. Every name is unique, and everything is undone
at the end, also when the test fails: limits first, then mounts, then devices, then images.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .places import SHARED_MEMORY

MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
}
DISK_BYTES = {"ext4": 64 << 20, "xfs": 320 << 20}
SEARCH_PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
THROTTLES = Path("/sys/fs/cgroup/blkio")


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

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.base = Path(tempfile.mkdtemp(prefix="logstore-disk-", dir=SHARED_MEMORY))
        self.image, self.mount = self.base / "image", self.base / "mount"
        self.mount.mkdir()
        self.device = ""
        self._is_mounted = False

    def attach(self) -> None:
        """Make the file system and mount it."""
        with self.image.open("wb") as file:
            file.truncate(DISK_BYTES[self.kind])
        command(*MAKE[self.kind], str(self.image))
        self.device = command("losetup", "-f", "--show", str(self.image))
        command("mount", "-t", self.kind, self.device, str(self.mount))
        self._is_mounted = True

    def detach(self) -> None:
        """Undo everything, whatever state it is in."""
        with contextlib.suppress(OSError):
            self.throttle(0)
        if self._is_mounted:
            try:
                command("umount", str(self.mount))
            except OSError:
                command("umount", "-l", str(self.mount))
        if self.device:
            command("losetup", "-d", self.device)
        shutil.rmtree(self.base, ignore_errors=True)

    def cut(self, size_bytes: int) -> None:
        """Cut the disk off behind its first bytes: reads beyond them say EIO from now on."""
        os.truncate(self.image, size_bytes)

    def throttle(self, iops: int) -> None:
        """Allow so many reads and writes a second; 0 lifts the limit."""
        number = os.stat(self.device).st_rdev
        line = f"{os.major(number)}:{os.minor(number)} {iops}"
        for what in ("read", "write"):
            (THROTTLES / f"blkio.throttle.{what}_iops_device").write_text(line)


@contextlib.contextmanager
def loop_disk(kind: str) -> Iterator[LoopDisk]:
    """Give a fresh disk."""
    disk = LoopDisk(kind)
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
