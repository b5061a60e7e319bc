"""Tell one boot of the machine, and one mount of a file system, from the others.

What a killed process has written is still there as long as neither changes: it is in the page
cache. A log dir that was written in another boot may have lost what was not synced.
"""

from __future__ import annotations

import ctypes
import os

from logstore.disk import files
from logstore.disk.mounts import read_table

BOOT_ID = "/proc/sys/kernel/random/boot_id"
MOUNT_INFO = "/proc/self/mountinfo"

_libc = ctypes.CDLL(None, use_errno=True)


def boot_id() -> str:
    """Give the id of this boot of the machine; "" if the system has none."""
    return read_table(BOOT_ID).decode("ascii", errors="replace").strip()


def mount_id(path: str) -> str:
    """Give the id of the mount that a directory is on: it changes with each mount.

    The kernel gives the number of an ended mount out again, so the device is part of the id. The
    id is "" if the mount is not found.
    """
    fields = _mount_of(path)
    if not fields:
        return ""
    return (b"%s %s" % (fields[0], fields[2])).decode("ascii", errors="replace")


def mount_type(path: str) -> str:
    """Give the kind of the file system that a directory is on, such as "tmpfs"; "" if unknown."""
    fields = _mount_of(path)
    after = fields[fields.index(b"-") + 1 :] if b"-" in fields else []
    return after[0].decode("ascii", errors="replace") if after else ""


def _mount_of(path: str) -> list[bytes]:
    """Give the fields of the mount that a directory is on, as in proc(5); none if not found."""
    wanted, found = os.fsencode(files.real_path(path)), (b"", list[bytes]())
    for line in read_table(MOUNT_INFO).splitlines():
        fields = line.split(b" ")
        if len(fields) < 5:
            continue
        point = fields[4].decode("unicode_escape", errors="replace").encode("latin-1", "replace")
        is_above = wanted == point or wanted.startswith(point.rstrip(b"/") + b"/")
        if is_above and len(point) >= len(found[0]):  # the last one lies over the earlier ones
            found = point, fields
    return found[1]


def sync_file_system(path: str) -> None:
    """Write back the whole file system of a directory.

    The kernel reports here also what it could not write for a process that was killed.

    Raises:
        OSError: something could not be written.
    """
    fd = files.open_file(path, files.DIRECTORY)
    try:
        if _libc.syncfs(ctypes.c_int(fd)) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)
    finally:
        files.close(fd)
