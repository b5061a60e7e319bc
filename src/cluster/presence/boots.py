"""Identify the present boot of the machine, and the present mount of a file system.

While neither the boot nor the mount changes, the data that a killed process has written still
exists, because it is in the page cache. If a log dir was written during another boot, data that was
not synced may be lost.
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
    """Return the id of this boot of the machine; "" if the system has none."""
    return read_table(BOOT_ID).decode("ascii", errors="replace").strip()


def mount_id(path: str) -> str:
    """Return the id of the mount that a directory is on. Each mount has its own id.

    After a mount has ended, the kernel may use its number again, so the device is a part of the id.
    If the mount is not found, the id is "".
    """
    fields = _mount_of(path)
    if not fields:
        return ""
    return (b"%s %s" % (fields[0], fields[2])).decode("ascii", errors="replace")


def mount_type(path: str) -> str:
    """Return the type of the file system of a directory, such as "tmpfs"; "" if unknown."""
    fields = _mount_of(path)
    after = fields[fields.index(b"-") + 1 :] if b"-" in fields else []
    return after[0].decode("ascii", errors="replace") if after else ""


def _mount_of(path: str) -> list[bytes]:
    """Return the fields of a directory's mount, as in proc(5); no fields without a mount."""
    wanted, found = os.fsencode(files.real_path(path)), (b"", list[bytes]())
    for line in read_table(MOUNT_INFO).splitlines():
        fields = line.split(b" ")
        if len(fields) < 5:
            continue
        point = fields[4].decode("unicode_escape", errors="replace").encode("latin-1", "replace")
        is_above = wanted == point or wanted.startswith(point.rstrip(b"/") + b"/")
        if is_above and len(point) >= len(found[0]):  # a later mount covers earlier mounts
            found = point, fields
    return found[1]


def sync_file_system(path: str) -> None:
    """Write all unwritten data of a directory's file system to the disk.

    The kernel also reports here if it could not write the data of a process that was killed.

    Raises:
        OSError: some data could not be written.
    """
    fd = files.open_file(path, files.DIRECTORY)
    try:
        if _libc.syncfs(ctypes.c_int(fd)) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)
    finally:
        files.close(fd)
