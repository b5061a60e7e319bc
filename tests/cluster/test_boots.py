"""A boot and a mount are told apart from others."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from unittest.mock import patch

import pytest

from cluster.presence import boots


def test_a_boot_has_an_id() -> None:
    """The same one each time, and none where the system has none."""
    assert boots.boot_id() == boots.boot_id() != ""
    with patch.object(boots, "BOOT_ID", "/does/not/exist"):
        assert boots.boot_id() == ""


TABLE = rb"""22 28 0:21 / /sys rw - sysfs sysfs rw
30 1 8:1 / / rw - ext4 /dev/sda1 rw
41 30 8:2 / /data rw - xfs /dev/sdb rw
42 41 8:3 / /data/with\040blank rw - ext4 /dev/sdc rw
43 30 8:4 / /data rw - ext4 /dev/sdd rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/home", "30 8:1"),
        ("/data", "43 8:4"),
        ("/data/kafka", "43 8:4"),
        ("/database", "30 8:1"),
        ("/data/with blank/logs", "42 8:3"),
    ],
)
def test_the_nearest_mount_counts(tmp_path: Path, path: str, mount: str) -> None:
    """Of two mounts at one point, the later one, which lies over the other."""
    table = tmp_path / "mountinfo"
    table.write_bytes(TABLE)
    with patch.object(boots, "MOUNT_INFO", str(table)):
        assert boots.mount_id(path) == mount
        assert boots.mount_type(path) == ("xfs" if mount == "41 8:2" else "ext4")
    with patch.object(boots, "MOUNT_INFO", str(tmp_path / "missing")):
        assert boots.mount_id(path) == "" == boots.mount_type(path)


def test_a_real_mount_is_found(tmp_path: Path) -> None:
    """Its device is that of the directory."""
    device = os.stat("/dev/shm").st_dev
    assert boots.mount_id("/dev/shm").endswith(f" {os.major(device)}:{os.minor(device)}")
    assert boots.mount_id(str(tmp_path))


def test_a_file_system_is_synced(tmp_path: Path) -> None:
    """An error is raised with its number."""
    boots.sync_file_system(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        boots.sync_file_system(str(tmp_path / "missing"))

    class Failing:
        """A library whose call fails."""

        def syncfs(self, fd: object) -> int:
            ctypes.set_errno(errno.EIO)
            return -1

    with patch.object(boots, "_libc", Failing()), pytest.raises(OSError, match="Input/output"):
        boots.sync_file_system(str(tmp_path))
