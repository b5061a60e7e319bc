"""Make every system call that touches a disk, but for maps (see `mapped`).

The first part names the bare calls; fault tests replace them here, one by one, and nothing else in
the project may call the operating system's file functions. The second part builds the few loops
and orders on top of them that storage code gets wrong when it writes them each time anew:
short reads and writes, probe after sync, sync of the directory after a change of names.

Everything here raises plain `OSError`; `LogDir.failed` is the one place that converts it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat as stat_module
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import NamedTuple

_libc = ctypes.CDLL(None, use_errno=True)


def _libc_sync_file_range(fd: int, position: int, size_bytes: int, flags: int) -> None:
    """Call sync_file_range(2), which Python does not name; the lock is given up meanwhile."""
    arguments = (ctypes.c_int(fd), ctypes.c_int64(position), ctypes.c_int64(size_bytes))
    if _libc.sync_file_range(*arguments, ctypes.c_uint(flags)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


# --- the bare calls -------------------------------------------------------------------------------

open_file = os.open
close = os.close
pread = os.pread
pwrite = os.pwrite
pwritev = os.pwritev
fstat = os.fstat
stat = os.stat
lstat = os.lstat
fdatasync = os.fdatasync
fsync = os.fsync
ftruncate = os.ftruncate
rename = os.rename
unlink = os.unlink
rmdir = os.rmdir
mkdir = os.mkdir
scandir = os.scandir
sendfile = os.sendfile
statvfs = os.statvfs
link = os.link
fadvise = os.posix_fadvise
flock = fcntl.flock
ioctl = fcntl.ioctl
real_path = os.path.realpath
sync_file_range = _libc_sync_file_range

READ = os.O_RDONLY | os.O_CLOEXEC
READ_WRITE = os.O_RDWR | os.O_CLOEXEC
CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
REPLACE = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

IOV_MAX = 1024
COPY_BYTES = 1 << 20
SYNC_FILE_RANGE_WRITE = 2
CLONE_FILE = 0x40049409  # FICLONE of linux/fs.h


class Entry(NamedTuple):
    """One name in a directory, as `lstat` sees it."""

    name: str
    is_dir: bool
    is_file: bool
    is_symlink: bool
    size_bytes: int
    inode: int
    mtime_ns: int


# --- reading --------------------------------------------------------------------------------------


def read_up_to(fd: int, size_bytes: int, position: int) -> bytes:
    """Read `size_bytes` at `position`; fewer only when the file ends there."""
    data = pread(fd, size_bytes, position)
    if len(data) == size_bytes or not data:
        return data
    parts = [data]
    done = len(data)
    while done < size_bytes:
        data = pread(fd, size_bytes - done, position + done)
        if not data:
            break
        parts.append(data)
        done += len(data)
    return b"".join(parts)


def read_file(path: str) -> bytes:
    """Read a whole small file."""
    fd = open_file(path, READ)
    try:
        return read_up_to(fd, fstat(fd).st_size, 0)
    finally:
        close(fd)


# --- writing --------------------------------------------------------------------------------------


def write_fully(fd: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
    """Write all of `buffers` at `position` and return how many bytes that was.

    Short writes are continued; the error that stops one (ENOSPC, say) is raised with part of the
    bytes in the file, and the caller cuts them off again.
    """
    total = sum(map(len, buffers))
    if len(buffers) <= IOV_MAX:
        done = pwritev(fd, buffers, position)
        if done == total:
            return total
    else:
        done = 0
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    while done < total:
        rest, skip = [], done
        for view in views:
            if skip >= len(view):
                skip -= len(view)
            else:
                rest.append(view[skip:])
                skip = 0
                if len(rest) == IOV_MAX:
                    break
        written = pwritev(fd, rest, position + done)
        if written == 0:
            raise OSError(errno.EIO, "the disk took no byte of a write and gave no error")
        done += written
    return total


def probe(fd: int) -> None:
    """Ask a file for its state and a byte: a dying disk says so here when a sync did not (R1)."""
    fstat(fd)
    pread(fd, 1, 0)


class SyncError(OSError):
    """Say that a sync failed: whatever its errno, what was written before it cannot be trusted."""

    @classmethod
    def of(cls, error: OSError) -> SyncError:
        """Take over what an error says."""
        return cls(error.errno, error.strerror, error.filename)


def sync_data(fd: int) -> None:
    """Make a file's data and size durable, then probe it (R1)."""
    try:
        fdatasync(fd)
        fstat(fd)
        pread(fd, 1, 0)
    except OSError as error:
        raise SyncError.of(error) from error


def sync_file(fd: int) -> None:
    """Make a new file durable, then probe it (R1, R2)."""
    try:
        fsync(fd)
        fstat(fd)
        pread(fd, 1, 0)
    except OSError as error:
        raise SyncError.of(error) from error


def sync_dir(path: str) -> None:
    """Make the names in a directory durable; its state is asked for after the sync (R8)."""
    fd = open_file(path, DIRECTORY)
    try:
        sync_names(fd)
    finally:
        close(fd)


def sync_names(fd: int) -> None:
    """Make the names in an open directory durable, as `sync_dir` does."""
    try:
        fsync(fd)
        fstat(fd)
    except OSError as error:
        raise SyncError.of(error) from error


def write_new(path: str, data: bytes) -> None:
    """Write a file durably under its own name, replacing one left by a crash."""
    fd = open_file(path, REPLACE)
    try:
        write_fully(fd, [data], 0)
        sync_file(fd)
    finally:
        close(fd)


# Entered where a file takes the place of another; its entry raises where that may not be any more.
Guard = Callable[[], AbstractContextManager[object]]


def write_atomically(path: str, data: bytes, guard: Guard = nullcontext) -> None:
    """Replace a small file whole: after a crash it is the old one or the new one (R4).

    Args:
        guard: held over the rename. The sync before it may have hung for so long that somebody
            else has written a newer file: the guard raises then, and nothing is replaced.
    """
    temporary = f"{path}.{os.urandom(4).hex()}.tmp"
    try:
        write_new(temporary, data)
        with guard():
            rename(temporary, path)
    except Exception:
        remove_if_there(temporary)
        raise
    sync_dir(os.path.dirname(path))


def send(target_fd: int, source_fd: int, position: int, size_bytes: int) -> int:
    """Copy bytes of one file to the same position of another, in the kernel; give how many.

    Fewer than asked for is usual; 0 says that the source ends there.
    """
    os.lseek(target_fd, position, os.SEEK_SET)
    return sendfile(target_fd, source_fd, position, size_bytes)


def start_writeback(fd: int, position: int, size_bytes: int) -> None:
    """Ask for written bytes to go to the disk now, so that the sync that waits for them is short.

    It promises nothing, so where the kernel or the file system does not know it, nothing is done.
    """
    try:
        sync_file_range(fd, position, size_bytes, SYNC_FILE_RANGE_WRITE)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP):
            raise SyncError.of(error) from error


def copy_range(source_fd: int, target_fd: int, start: int, end: int) -> None:
    """Copy the bytes `start..end` of one file to the same positions of another, in the kernel."""
    position = start
    while position < end:
        copied = send(target_fd, source_fd, position, min(COPY_BYTES, end - position))
        if copied == 0:
            raise OSError(errno.EIO, f"the file ends at {position}, before {end}")
        position += copied


def clone(source_fd: int, target_fd: int) -> None:
    """Let an empty file share the blocks of another until one of them is written (XFS, btrfs).

    Raises:
        OSError: EOPNOTSUPP, EINVAL, ENOTTY or EXDEV where this cannot be done.
    """
    ioctl(target_fd, CLONE_FILE, source_fd)


def forget_clean(path: str) -> None:
    """Have the kernel forget what it keeps of a file and takes for written.

    Of what a failed sync dropped it shows the bytes that the disk does not have, until then.
    """
    fd = open_file(path, READ)
    try:
        fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        close(fd)


def drop_cache(path: str) -> None:
    """Have the kernel forget what it keeps of a file, so that the next read goes to the disk.

    What is not written yet is synced first: that may fail as any flush may, and is then final.
    """
    fd = open_file(path, READ)
    try:
        sync_data(fd)
        fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        close(fd)


# --- names ----------------------------------------------------------------------------------------


def exists(path: str) -> bool:
    """Tell whether a name is there; only ENOENT says no, any other error is raised (R15)."""
    try:
        lstat(path)
    except FileNotFoundError:
        return False
    return True


def entries(path: str) -> list[Entry]:
    """List a directory with kinds and sizes; a name that vanishes meanwhile is left out."""
    found = (entry_of(path, name) for name in names(path))
    return [entry for entry in found if entry is not None]


def entry_of(path: str, name: str) -> Entry | None:
    """Look at one name in a directory; None when it vanished."""
    try:
        facts = lstat(os.path.join(path, name))
    except FileNotFoundError:
        return None
    mode = facts.st_mode
    return Entry(
        name,
        stat_module.S_ISDIR(mode),
        stat_module.S_ISREG(mode),
        stat_module.S_ISLNK(mode),
        facts.st_size,
        facts.st_ino,
        facts.st_mtime_ns,
    )


def names(path: str) -> list[str]:
    """List a directory by its names alone."""
    with scandir(path) as found:
        return [entry.name for entry in found]


def make_dir(path: str) -> None:
    """Make a directory whose name survives a power cut (R3)."""
    mkdir(path)
    sync_dir(os.path.dirname(path))


def remove_if_there(path: str) -> None:
    """Unlink a file; that it is gone already is fine."""
    with suppress(FileNotFoundError):
        unlink(path)


def remove_tree(path: str) -> None:
    """Remove a directory and all in it; symlinks are removed, never followed."""
    for entry in entries(path):
        child = os.path.join(path, entry.name)
        if entry.is_dir:
            remove_tree(child)
        else:
            remove_if_there(child)
    rmdir(path)
