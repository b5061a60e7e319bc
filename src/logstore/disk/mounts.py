"""Tell whether a directory lies below a mount point whose disk is not mounted now.

    /etc/fstab           what the administrator wants mounted, and where
    /proc/self/mounts    what this process has mounted

Both are a line per file system, fields apart by blanks, the second one the mount point; blanks in a
name are written in octal. Only the nearest mount point that fstab names at or above a directory
says where it ought to be, unless something is mounted nearer still, by hand or by a unit. `noauto`
counts as any: who puts a log dir there means the disk, whoever mounts it. What no fstab names (a
mount unit, a container) cannot be told.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from logstore.disk import files

FSTAB = "/etc/fstab"
MOUNTS = "/proc/self/mounts"
TABLE_BYTES_MAX = 1 << 20

_OCTAL = re.compile(rb"\\([0-7]{3})")


def mount_points(table: bytes) -> list[str]:
    """Name the mount points of a table; lines that name none (swap, comments) are left out."""
    found = []
    for line in table.splitlines():
        fields = line.split()
        if len(fields) > 1 and not fields[0].startswith(b"#") and fields[1].startswith(b"/"):
            name = _OCTAL.sub(lambda octal: bytes([int(octal[1], 8) & 255]), fields[1])
            found.append(os.path.normpath(os.fsdecode(name)))
    return found


def unmounted_point(path: str) -> str | None:
    """Give the mount point in fstab that a resolved path ought to be below, if nothing is there.

    Raises:
        OSError: the tables are there and cannot be read.
    """
    named = mount_points(_read(FSTAB))
    mounted = set(mount_points(_read(MOUNTS))) if named else set()
    if not mounted:  # it is not known what is mounted, or nothing ought to be
        return None
    resolved = [point if point in mounted else files.real_path(point) for point in named]
    nearest = _nearest(path, resolved)
    return nearest if len(nearest) > len(_nearest(path, mounted)) else None


def _nearest(path: str, points: Iterable[str]) -> str:
    """Give the last mount point on the way to a path; "" for none but the root."""
    above = (point for point in points if path == point or path.startswith(f"{point}/"))
    return max(above, key=len, default="")


def _read(path: str) -> bytes:
    """Read a table, as far as there is one; the kernel's has no size that could be asked for."""
    try:
        fd = files.open_file(path, files.READ)
    except (FileNotFoundError, PermissionError):
        return b""
    try:
        return files.read_up_to(fd, TABLE_BYTES_MAX, 0)
    except IsADirectoryError:  # a container was given a file that its host does not have
        return b""
    finally:
        files.close(fd)
