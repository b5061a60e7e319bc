"""Replay a record on real file systems, and take what their disks have at any moment.

Each log dir is on a loop disk of its own. A power cut is a copy of the images while the file
systems are mounted and at work: what is in them is what a disk would have. The copies are mounted,
each replays its journal, and what they hold is laid out for the check. So one replay gives as many
cuts as it has calls, at the price of a copy and a mount each.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import os
import random
import select
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from .crash_model import Op
from .loop_disk import LoopDisk, command, loop_disk

BLKFLSBUF = 0x1261
COPY_BYTES = 1 << 20
COPIES_MAX = 50
UNMOUNT_SECONDS_MAX = 30.0
DISK_BYTES = {"ext4": 16 << 20, "xfs": 320 << 20}
_libc = ctypes.CDLL(None, use_errno=True)


class Replay:
    """Does the operations of a record below a directory, with plain system calls."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fds: dict[int, int] = {}

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def apply(self, op: Op) -> None:
        """Do one operation; the first word says which."""
        getattr(self, "do_" + op[0].replace(" ", "_"))(*op[1:])

    def do_create(self, path: str, number: int) -> None:
        self.fds[number] = os.open(self.path(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)

    def do_mkdir(self, path: str) -> None:
        with suppress(FileExistsError):  # a mount point
            os.mkdir(self.path(path))

    def do_remove(self, path: str) -> None:
        try:
            os.unlink(self.path(path))
        except IsADirectoryError:
            os.rmdir(self.path(path))

    def do_rename(self, old: str, new: str) -> None:
        os.rename(self.path(old), self.path(new))

    def do_link(self, old: str, new: str) -> None:
        os.link(self.path(old), self.path(new))

    def do_write(self, number: int, position: int, data: bytes) -> None:
        assert os.pwrite(self.fds[number], data, position) == len(data)

    def do_truncate(self, number: int, size: int) -> None:
        os.ftruncate(self.fds[number], size)

    def do_sync(self, number: int) -> None:
        os.fsync(self.fds[number])

    def do_sync_dir(self, path: str) -> None:
        fd = os.open(self.path(path), os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, name: str) -> None:
        """Let a file system write all it has, as it does by itself every few seconds."""
        fd = os.open(self.path(name), os.O_RDONLY)
        try:
            assert _libc.syncfs(fd) == 0
        finally:
            os.close(fd)

    def close(self) -> None:
        for fd in self.fds.values():
            os.close(fd)
        self.fds.clear()


def copy_image(source: LoopDisk, target: LoopDisk) -> None:
    """Give a disk that is not mounted the bytes of another one, of one moment.

    The file system is at work, and its journal may go on while it is copied: a copy whose parts are
    of different moments is none that a power cut leaves. So it is compared, and made again.
    """
    with (
        free(target.device),
        source.image.open("rb") as old,
        target.image.open("r+b") as new,
    ):
        size = os.fstat(old.fileno()).st_size
        for _ in range(COPIES_MAX):
            new.truncate(0)
            new.truncate(size)
            for start, data in data_of(old.fileno(), size):
                assert os.pwrite(new.fileno(), data, start) == len(data)
            if is_copied(old.fileno(), new.fileno(), size):
                return
        raise TimeoutError(f"{source.image} changes all the time")


@contextmanager
def free(device: str) -> Iterator[None]:
    """Hold a disk that nothing else uses, to change its bytes; the kernel forgets the old ones.

    A process that began a mount namespace meanwhile has its own copy of each mount. Until it ends,
    the file system lives on: it would write over the new bytes when it is unmounted at last, or the
    next mount would show its state mixed with them. Both are damage that no power cut leaves. So
    the disk is taken before its first byte is changed.
    """
    deadline = time.monotonic() + UNMOUNT_SECONDS_MAX
    while True:
        try:
            fd = os.open(device, os.O_RDONLY | os.O_EXCL)
            break
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            if time.monotonic() > deadline:
                reason = f"{device} is mounted in another mount namespace, too: end what began it"
                raise TimeoutError(reason) from error
        select.select([], [], [], 0.01)
    try:
        yield
        fcntl.ioctl(fd, BLKFLSBUF, 0)
    finally:
        os.close(fd)


def data_of(fd: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Give what is in a sparse file, by position."""
    position = 0
    while position < size:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
        except OSError:  # only a hole is left
            return
        position = os.lseek(fd, start, os.SEEK_HOLE)
        while start < position:
            data = os.pread(fd, min(COPY_BYTES, position - start), start)
            yield start, data
            start += len(data)


def is_copied(old: int, new: int, size: int) -> bool:
    """Tell whether a copy has what its source has now, also where it was a hole."""
    return all(os.pread(new, len(data), start) == data for start, data in data_of(old, size))


def mount(device: str, place: Path, kind: str) -> None:
    """Mount a copy beside what it is a copy of, without a process of its own: there are many."""
    options = b"nouuid" if kind == "xfs" else b""
    if _libc.mount(device.encode(), bytes(place), kind.encode(), 0, options) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), device)


def unmount(place: Path) -> None:
    """Unmount, once nothing holds it any more: a descriptor lives as long as what refers to it.

    Never lazily: the next copy would be laid under a file system that is mounted still, and what is
    read then would be of the check before.
    """
    deadline = time.monotonic() + UNMOUNT_SECONDS_MAX
    while os.path.ismount(place) and _libc.umount2(bytes(place), 0) != 0:
        code = ctypes.get_errno()
        if code != errno.EBUSY or time.monotonic() > deadline:
            raise OSError(code, os.strerror(code), str(place))
        gc.collect()
        select.select([], [], [], 0.01)


class Disks:
    """Some real file systems below one root, and what is left of them after a power cut.

    Attributes:
        root: where the record is replayed: one mount point a disk.
    """

    def __init__(self, kind: str, names: Sequence[str], base: Path, stack: ExitStack) -> None:
        self.root, self.cut_root = base / "root", base / "cut"
        self.kind = kind
        self.pairs: dict[Path, tuple[LoopDisk, LoopDisk]] = {}
        for name in names:
            disk, spare = (stack.enter_context(loop_disk(kind, DISK_BYTES[kind])) for _ in "12")
            for one in (disk, spare):
                one.unmount()
            with free(disk.device):  # its journal is mostly zeros
                command("fallocate", "--dig-holes", str(disk.image))
            for root in (self.root, self.cut_root):
                (root / name).mkdir(parents=True)
            disk.mount_at(self.root / name)
            self.pairs[self.cut_root / name] = (disk, spare)

    @contextmanager
    def cut(self) -> Iterator[Path]:
        """Give what a power cut at this moment leaves, mounted anew."""
        for disk, spare in self.pairs.values():
            copy_image(disk, spare)
        with ExitStack() as stack:
            for place, (_, spare) in self.pairs.items():
                stack.callback(unmount, place)  # first: a signal may end the mount
                mount(spare.device, place, self.kind)
            yield self.cut_root


def cuts_of(
    kind: str,
    names: Sequence[str],
    ops: Sequence[Op],
    base: Path,
    moments: set[int],
    rng: random.Random,
    on_mark: Callable[[Op], None],
) -> Iterator[Path]:
    """Replay a record on real disks; give what each cut after so many operations leaves."""
    base.mkdir()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        disks = Disks(kind, names, base, stack)
        replay = Replay(disks.root)
        stack.callback(replay.close)
        for number, op in enumerate(ops, 1):
            if op[0] == "mark":
                on_mark(op)
            elif op[0] not in ("begin sync", "end sync"):
                replay.apply(op)
            if number in moments:
                for name in names:
                    if rng.random() < 0.2:
                        replay.sync_all(name)
                with disks.cut() as root:
                    yield root
