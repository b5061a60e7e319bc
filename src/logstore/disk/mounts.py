"""Check whether a directory is below a mount point whose disk is not mounted at present.

    /etc/fstab the file systems that the administrator wants mounted, and where /proc/self/mounts
    the file systems that are mounted for this process

Both files have a line per file system, with fields separated by blanks. The second field is the
mount point; blanks in a name are written in octal. A directory belongs to the nearest mount point
at or above the directory: a mount point in fstab, or a mounted file system that fstab does not
list. This includes a mount point with the option `noauto`, because a log dir below the mount point
is meant for that disk. Some mounts are not in fstab, for example the mounts of a systemd unit or a
container. If a mount that is not in fstab is missing, this module cannot notice the fault.
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
    """List the mount points of a table; skip lines without a mount point (swap, comments)."""
    found = []
    for line in table.splitlines():
        fields = line.split()
        if len(fields) > 1 and not fields[0].startswith(b"#") and fields[1].startswith(b"/"):
            name = _OCTAL.sub(lambda octal: bytes([int(octal[1], 8) & 255]), fields[1])
            found.append(os.path.normpath(os.fsdecode(name)))
    return found


def unmounted_point(path: str) -> str | None:
    """Return the fstab mount point to which a resolved path belongs, if nothing is mounted there.

    Raises:
        OSError: a table exists, but cannot be read.
    """
    named = mount_points(read_table(FSTAB))
    mounted = set(mount_points(read_table(MOUNTS))) if named else set()
    if not mounted:  # fstab has no mount point, or the list of mounts is unknown
        return None
    resolved = [point if point in mounted else files.real_path(point) for point in named]
    nearest = _nearest(path, resolved)
    return nearest if len(nearest) > len(_nearest(path, mounted)) else None


def _nearest(path: str, points: Iterable[str]) -> str:
    """Return the nearest mount point at or above a path; "" if only the root is above the path."""
    above = (point for point in points if path == point or path.startswith(f"{point}/"))
    return max(above, key=len, default="")


def read_table(path: str) -> bytes:
    """Read at most `TABLE_BYTES_MAX` bytes of a table; return b"" if the table is missing.

    The size of the table is ignored, because /proc reports no size.
    """
    try:
        fd = files.open_file(path, files.READ)
    except (FileNotFoundError, PermissionError):
        return b""
    try:
        return files.read_up_to(fd, TABLE_BYTES_MAX, 0)
    except IsADirectoryError:  # in a container, the path of the table can be a directory
        return b""
    finally:
        files.close(fd)
