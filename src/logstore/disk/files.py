"""Make every system call that touches a disk, except for maps (see `mapped`).

The first part of this module gives each system call a name. Fault tests replace single calls by
name. No other module may call the operating system's file functions. A call that changes the disk
passes the gate of its log dir (`gates`). The second part has operations that are easy to get wrong:
loops for short reads and writes, a probe after a sync, a sync of a directory after a rename.

Every function here raises plain `OSError`; `LogDir.failed` converts an `OSError`.
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

from logstore.disk import gates

_libc = ctypes.CDLL(None, use_errno=True)


def _libc_sync_file_range(fd: int, position: int, size_bytes: int, flags: int) -> None:
    """Call sync_file_range(2), which `os` lacks, without holding the interpreter's lock."""
    arguments = (ctypes.c_int(fd), ctypes.c_int64(position), ctypes.c_int64(size_bytes))
    if _libc.sync_file_range(*arguments, ctypes.c_uint(flags)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


# The mode before the umask: no file is executable. The default of `os.open` is 0o777.
FILE_MODE = 0o666

Buffer = bytes | memoryview

# --- the bare calls -------------------------------------------------------------------------------

open_file = gates.opening(os.open, os.close, FILE_MODE)
lseek = os.lseek
close = gates.closing(os.close)
pread = os.pread
pwrite = gates.writing(os.pwrite)
pwritev = gates.writing(os.pwritev)
fstat = os.fstat
stat = os.stat
lstat = os.lstat
fdatasync = gates.syncing(os.fdatasync)
fsync = gates.syncing(os.fsync)
ftruncate = gates.changing_fd(os.ftruncate)
rename = gates.changing_two_names(os.rename)
unlink = gates.changing_name(os.unlink)
rmdir = gates.changing_name(os.rmdir)
mkdir = gates.changing_name(os.mkdir)
scandir = os.scandir
sendfile = gates.changing_fd(os.sendfile)
statvfs = os.statvfs
link = gates.changing_two_names(os.link)
change_owner = gates.changing_fd(os.fchown)
change_mode = gates.changing_fd(os.fchmod)
fadvise = os.posix_fadvise
flock = fcntl.flock
ioctl: Callable[[int, int, int], int] = gates.changing_fd(fcntl.ioctl)
real_path = os.path.realpath
sync_file_range = _libc_sync_file_range

READ = os.O_RDONLY | os.O_CLOEXEC
READ_WRITE = os.O_RDWR | os.O_CLOEXEC
CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
REPLACE = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Do not wait for the other end of a FIFO, and do not follow a link to another user's file.
GUARDED = os.O_NONBLOCK | os.O_NOFOLLOW

# Size limits for a document, and for a document with a long list. A larger file counts as damaged.
DOCUMENT_BYTES_MAX = 1 << 20
LIST_BYTES_MAX = 64 << 20
IOV_MAX = 1024


class Entry(NamedTuple):
    """One name in a directory, as `lstat` sees it."""

    name: str
    is_dir: bool
    is_file: bool
    is_symlink: bool
    size_bytes: int
    inode: int
    mtime_ns: int

    @property
    def kind(self) -> str:
        """The kind of the entry as a word, for messages."""
        if self.is_dir or self.is_file:
            return "directory" if self.is_dir else "file"
        return "symlink" if self.is_symlink else "special file"


# --- opening --------------------------------------------------------------------------------------


class UnfitError(OSError):
    """Report a file that is not regular, or is larger than a file with this name can be."""

    @property
    def reason(self) -> str:
        """The fault of the file, for messages."""
        return self.strerror or ""


def _kind_of(mode: int) -> str | None:
    """Describe the kind of a file that is not regular; return None if the file is regular."""
    if stat_module.S_ISREG(mode):
        return None
    kinds = {"d": "a directory", "l": "a symlink", "p": "a FIFO", "s": "a socket"}
    return kinds.get(stat_module.filemode(mode)[0], "a device")


def open_regular(path: str, flags: int, mode: int = FILE_MODE) -> int:
    """Open a regular file; never wait for a FIFO, never follow a symlink.

    Raises UnfitError if a FIFO, a device, a socket, a directory or a symlink has this name.
    """
    try:
        fd = open_file(path, flags | GUARDED, mode)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV, errno.ELOOP, errno.EISDIR):
            kind = _kind_of(lstat(path).st_mode)
            if kind is not None:
                raise UnfitError(errno.EINVAL, f"it is {kind}, not a regular file", path) from None
        raise
    try:
        kind = _kind_of(fstat(fd).st_mode)
        if kind is not None:
            raise UnfitError(errno.EINVAL, f"it is {kind}, not a regular file", path)
    except BaseException:
        close(fd)
        raise
    return fd


def replace_file(path: str, mode: int = FILE_MODE) -> int:
    """Open an empty file at a path; if another kind of object is there, rename it first."""
    try:
        return open_regular(path, REPLACE, mode)
    except UnfitError:
        set_aside(path)
        return open_regular(path, REPLACE, mode)


def set_aside(path: str) -> None:
    """Rename an object that is in the way of a file; no code reads the renamed object."""
    rename(path, f"{path}.{os.urandom(4).hex()}.quarantine")


def open_spare() -> int:
    """Open a descriptor that needs no disk; `close_spare` closes it."""
    return os.open(os.devnull, READ)


def close_spare(fd: int) -> None:
    """Close the descriptor of `open_spare`."""
    os.close(fd)


# --- reading --------------------------------------------------------------------------------------


def read_up_to(fd: int, size_bytes: int, position: int) -> bytes:
    """Read `size_bytes` at `position`; return fewer bytes only at the end of the file."""
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


def read_file(path: str, bytes_max: int = DOCUMENT_BYTES_MAX) -> bytes:
    """Read a whole small file. Raises UnfitError before it reads more than `bytes_max` bytes."""
    fd = open_regular(path, READ)
    try:
        size_bytes = fstat(fd).st_size
        if size_bytes > bytes_max:
            what = f"the file has {size_bytes} bytes, but at most {bytes_max} are allowed"
            raise UnfitError(errno.EINVAL, what, path)
        return read_up_to(fd, size_bytes, 0)
    finally:
        close(fd)


# --- writing --------------------------------------------------------------------------------------


def write_fully(fd: int, buffers: Sequence[Buffer], position: int) -> int:
    """Write all `buffers` one after another at `position`, and return their size in bytes.

    After a short write, write the rest. After an error, the caller must cut off the written part.
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
            raise OSError(errno.EIO, "a write to the disk wrote nothing and reported no error")
        done += written
    return total


def probe(fd: int) -> None:
    """Read a file's status and one byte, which can fail on a dying disk even after a good sync."""
    fstat(fd)
    pread(fd, 1, 0)


class SyncError(OSError):
    """Raised if a sync failed: for any errno, earlier writes may be lost."""

    @classmethod
    def of(cls, error: OSError) -> SyncError:
        """Make a SyncError with the errno, text and path of another error."""
        return cls(error.errno, error.strerror, error.filename)


def sync_data(fd: int) -> None:
    """Make a file's data and size durable, then probe the file."""
    try:
        fdatasync(fd)
        probe(fd)
    except OSError as error:
        raise SyncError.of(error) from error


def sync_file(fd: int) -> None:
    """Make a new file durable, then probe the file."""
    try:
        fsync(fd)
        probe(fd)
    except OSError as error:
        raise SyncError.of(error) from error


def sync_dir(path: str) -> None:
    """Make the names in a directory durable, then read the directory's status as a probe."""
    fd = open_file(path, DIRECTORY)
    try:
        sync_names(fd)
    finally:
        close(fd)


def sync_names(fd: int) -> None:
    """Make the names in an open directory durable, like `sync_dir`."""
    try:
        fsync(fd)
        fstat(fd)
    except OSError as error:
        raise SyncError.of(error) from error


_SYNCING = {one.__code__ for one in (sync_data, sync_file, sync_names)}


def is_of_sync(error: OSError) -> bool:
    """Check whether an error came from a sync, even if the error is not a SyncError yet."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code not in _SYNCING:
        frame = frame.tb_next
    return isinstance(error, SyncError) or frame is not None


def write_new(path: str, data: bytes, mode: int = FILE_MODE) -> None:
    """Write a file durably; if a crash left a file of this name, replace that file."""
    fd = replace_file(path, mode)
    try:
        write_fully(fd, [data], 0)
        sync_file(fd)
    finally:
        close(fd)


# A context manager around a rename; raises if the file must no longer be replaced.
Guard = Callable[[], AbstractContextManager[object]]


def write_atomically(
    path: str, data: bytes, guard: Guard = nullcontext, mode: int = FILE_MODE
) -> None:
    """Replace a small file as a whole: after a crash, the path has the old file or the new file.

    All descriptors are opened before the rename, so a lack of descriptors changes no file.

    Args:
        guard: the rename runs inside this context. If the sync before the rename hung, another
            thread may have written a newer file meanwhile. If such a newer file may exist, the
            guard raises an error, and the newer file stays.
        mode: the mode of the file, before the umask.
    """
    temporary, directory = f"{path}.{os.urandom(4).hex()}.tmp", -1
    try:
        try:
            write_new(temporary, data, mode)
            directory = open_file(os.path.dirname(path), DIRECTORY)
            with guard():
                rename_over(temporary, path)
        except Exception:
            remove_if_there(temporary)
            raise
        sync_names(directory)
    finally:
        if directory >= 0:
            close(directory)


def rename_over(path: str, target: str) -> None:
    """Rename a file over `target`; if a directory is there, first move the directory away."""
    try:
        rename(path, target)
    except IsADirectoryError:
        set_aside(target)
        rename(path, target)


# --- names ----------------------------------------------------------------------------------------


def exists(path: str) -> bool:
    """Check whether a path exists. Raises OSError for any error except ENOENT."""
    try:
        lstat(path)
    except FileNotFoundError:
        return False
    return True


def entries(path: str) -> list[Entry]:
    """List the entries of a directory, and skip names that vanish during the listing."""
    found = (entry_of(path, name) for name in names(path))
    return [entry for entry in found if entry is not None]


def entry_of(path: str, name: str) -> Entry | None:
    """Return the entry of one name in a directory; None if the name has vanished."""
    try:
        facts = lstat(f"{path}/{name}")
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
    """List the names in a directory."""
    with scandir(path) as found:
        return [entry.name for entry in found]


def make_dir(path: str) -> None:
    """Make a directory durably: after a power cut, the directory still exists."""
    mkdir(path)
    sync_dir(os.path.dirname(path))


def remove_if_there(path: str) -> None:
    """Unlink a file, if it exists."""
    with suppress(FileNotFoundError):
        unlink(path)
