"""Handle bytes and names in bulk: copy in the kernel, skip holes, drop caches, remove trees.

Every function here raises plain `OSError`, like the functions of `files`.
"""

from __future__ import annotations

import errno
import os

from logstore.disk import files

COPY_BYTES = 1 << 20
SYNC_FILE_RANGE_WRITE = 2
CLONE_FILE = 0x40049409  # FICLONE of linux/fs.h


def next_data(fd: int, position: int, end: int) -> int:
    """Find the first byte from `position` on that is not in a hole.

    If all bytes before `end` are in a hole, return `end`. One call can skip a hole of any size. On
    a file system without holes, the result is `position`.
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
    """Copy bytes to the same position of another file, inside the kernel; return how many.

    The call may copy fewer bytes than requested. The result 0 means that the source ends at
    `position`.
    """
    files.lseek(target_fd, position, os.SEEK_SET)
    return files.sendfile(target_fd, source_fd, position, size_bytes)


def start_writeback(fd: int, position: int, size_bytes: int) -> None:
    """Start to write a range of a file to the disk, so that a later sync takes less time.

    The call is only a hint: if the kernel or the file system does not support it, nothing happens.
    """
    try:
        files.sync_file_range(fd, position, size_bytes, SYNC_FILE_RANGE_WRITE)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP):
            raise files.SyncError.of(error) from error


def copy_range(source_fd: int, target_fd: int, start: int, end: int) -> None:
    """Copy the bytes `start..end` to the same positions of another file, inside the kernel."""
    position = start
    while position < end:
        copied = send(target_fd, source_fd, position, min(COPY_BYTES, end - position))
        if copied == 0:
            raise OSError(errno.EIO, f"the file ends at position {position}, before position {end}")
        position += copied


def clone(source_fd: int, target_fd: int) -> None:
    """Copy a file to an empty file on XFS or btrfs: both files share each unchanged block.

    Raises:
        OSError: EOPNOTSUPP, EINVAL, ENOTTY or EXDEV if the files cannot share blocks.
    """
    files.ioctl(target_fd, CLONE_FILE, source_fd)


def forget_clean(path: str) -> None:
    """Drop the cached pages of a file, except pages that the kernel still has to write.

    Call this function after a failed sync: a cached page may then contain bytes that are not on the
    disk.
    """
    fd = files.open_regular(path, files.READ)
    try:
        files.fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        files.close(fd)


def drop_cache(path: str) -> None:
    """Drop the cached pages of a file, so that the next read goes to the disk.

    Unwritten bytes are synced first. A failure of this sync counts as a failed flush.
    """
    fd = files.open_regular(path, files.READ)
    try:
        files.sync_data(fd)
        files.fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        files.close(fd)


def sync_path(path: str) -> None:
    """Sync a file that other code wrote, in the same way as `sync_file`."""
    fd = files.open_regular(path, files.READ)
    try:
        files.sync_file(fd)
    finally:
        files.close(fd)


def remove_tree(path: str) -> None:
    """Remove a directory with its contents, durably; symlinks are removed, never followed.

    Without a sync, a power cut could undo the removal even after later steps that rely on it.
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
