"""Handle bytes and names in bulk: copy in the kernel, pass holes, drop caches, remove trees.

Everything here raises plain `OSError`, as `files` does.
"""

from __future__ import annotations

import errno
import os

from logstore.disk import files

COPY_BYTES = 1 << 20
SYNC_FILE_RANGE_WRITE = 2
CLONE_FILE = 0x40049409  # FICLONE of linux/fs.h


def next_data(fd: int, position: int, end: int) -> int:
    """Find the first byte at or after `position` that is in no hole; `end` if there is none.

    A sparse file of 1 TiB is skipped in one call. A file system without holes gives `position`.
    """
    try:
        return min(files.lseek(fd, position, os.SEEK_DATA), end)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return end
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return position
        raise


def send(target_fd: int, source_fd: int, position: int, size_bytes: int) -> int:
    """Copy bytes of one file to the same position of another, in the kernel; returns how many.

    Fewer than requested is usual; 0 means that the source ends there.
    """
    files.lseek(target_fd, position, os.SEEK_SET)
    return files.sendfile(target_fd, source_fd, position, size_bytes)


def start_writeback(fd: int, position: int, size_bytes: int) -> None:
    """Start writing bytes to the disk now, so that the sync that waits for them is short.

    It promises nothing, so if the kernel or the file system does not know it, nothing is done.
    """
    try:
        files.sync_file_range(fd, position, size_bytes, SYNC_FILE_RANGE_WRITE)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP):
            raise files.SyncError.of(error) from error


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
        OSError: EOPNOTSUPP, EINVAL, ENOTTY or EXDEV if this is impossible.
    """
    files.ioctl(target_fd, CLONE_FILE, source_fd)


def forget_clean(path: str) -> None:
    """Drop the pages of a file that the kernel holds as written.

    Until then, the kernel shows the bytes of a failed sync, which the disk does not have.
    """
    fd = files.open_regular(path, files.READ)
    try:
        files.fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        files.close(fd)


def drop_cache(path: str) -> None:
    """Drop the kernel's pages of a file, so that the next read goes to the disk.

    Unwritten bytes are synced first: that may fail as any flush may, and is then final.
    """
    fd = files.open_regular(path, files.READ)
    try:
        files.sync_data(fd)
        files.fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        files.close(fd)


def sync_path(path: str) -> None:
    """Make a file durable that other code wrote, as `sync_file` does."""
    fd = files.open_regular(path, files.READ)
    try:
        files.sync_file(fd)
    finally:
        files.close(fd)


def remove_tree(path: str) -> None:
    """Remove a directory and all in it, durably; symlinks are removed, never followed.

    If a removal is not synced, a power cut may undo it after other steps relied on it.
    """
    _remove_tree(path)
    files.sync_dir(os.path.dirname(path))


def _remove_tree(path: str) -> None:
    for entry in files.entries(path):
        child = os.path.join(path, entry.name)
        if entry.is_dir:
            _remove_tree(child)
        else:
            files.remove_if_there(child)
    files.rmdir(path)
