"""A directory below an unmounted mount point is distinguished from any other directory."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from logstore import LogDirIdentityError, LogStore
from logstore.disk import files, mounts
from logstore.disk.mounts import mount_points, unmounted_point
from support.hanging import QUIET


class Tables:
    """An fstab and a table of mounts that replace the system's tables."""

    def __init__(self, base: Path, patch: pytest.MonkeyPatch) -> None:
        self.fstab, self.mounts = base / "fstab", base / "mounts"
        patch.setattr(mounts, "FSTAB", str(self.fstab))
        patch.setattr(mounts, "MOUNTS", str(self.mounts))
        self.name()
        self.mount()

    def name(self, *points: str | Path) -> None:
        lines = ["# a comment /nowhere", "", "UUID=1 none swap sw 0 0", "UUID=2 / ext4 defaults"]
        lines += [f"UUID={point} {point} xfs noatime 0 2" for point in points]
        self.fstab.write_text("\n".join(lines))

    def mount(self, *points: str | Path) -> None:
        self.mounts.write_text("\n".join(f"dev {point} xfs rw 0 0" for point in ("/", *points)))


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """Use tables that name only the root file system."""
    return Tables(tmp_path, monkeypatch)


def test_the_tables_are_read_as_the_kernel_writes_them() -> None:
    """Comments, swap and short lines name no mount point; blanks in names are in octal."""
    table = b"#/dev/sdz /no\n\nLABEL=a\t/my\\040disk/  ext4\nswap none swap\nproc /proc proc\nx\n"
    assert mount_points(table) == ["/my disk", "/proc"]


def test_the_nearest_mount_point_counts(tables: Tables) -> None:
    """A mounted file system counts, whatever is above it, and so does a path not in fstab."""
    tables.name("/data", "/data/d1", "/data/d10")
    tables.mount("/data/d1")
    assert unmounted_point("/data/d1/logs") is None
    assert unmounted_point("/data/d10") == "/data/d10"
    assert unmounted_point("/data/d2/logs") == "/data"
    assert unmounted_point("/database") is None


def test_a_disk_that_is_mounted_below_one_that_is_not_is_there(tables: Tables) -> None:
    """A disk that was mounted by hand or by a unit, further down, is the disk of the path."""
    tables.name("/data", "/data/d1/logs")
    tables.mount("/data/d1", "/data/d2")
    assert unmounted_point("/data/d2/logs") is None
    assert unmounted_point("/data/d1") is None
    assert unmounted_point("/data/d1/logs/x") == "/data/d1/logs"
    assert unmounted_point("/data/d3") == "/data"


def test_a_directory_in_place_of_a_table_tells_nothing(tables: Tables) -> None:
    """A container gets a directory if the host does not have the file that is shared."""
    tables.fstab.unlink()
    tables.fstab.mkdir()
    assert unmounted_point("/data/d1") is None


def test_a_mount_point_behind_a_symlink_is_the_one_it_leads_to(
    tables: Tables, tmp_path: Path
) -> None:
    """The kernel reports the real path, and fstab has the path with the symlink."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    tables.name(tmp_path / "link")
    assert unmounted_point(str(tmp_path / "real" / "logs")) == str(tmp_path / "real")
    tables.mount(tmp_path / "real")
    assert unmounted_point(str(tmp_path / "real" / "logs")) is None


@pytest.mark.parametrize("gone", ["fstab", "mounts"])
def test_nothing_is_told_without_a_table(tables: Tables, gone: str) -> None:
    """A container has no fstab; without the kernel's table, the mounts are unknown."""
    tables.name("/data/d1")
    os.unlink(getattr(tables, gone))
    assert unmounted_point("/data/d1") is None


def test_the_tables_of_this_system_can_be_read() -> None:
    """The kernel's table reports no size, but can be read."""
    assert "/" in mount_points(mounts.read_table("/proc/self/mounts"))


def dirs_of(base: Path) -> list[str]:
    return [str(base / "data" / name) for name in ("d1", "d2")]


def test_a_store_whose_disks_are_all_unmounted_is_not_formatted_anew(
    tables: Tables, tmp_path: Path
) -> None:
    """Nothing is written to the file system below, and a read-only open gives the reason, too."""
    dirs = dirs_of(tmp_path)
    tables.name(*dirs)
    for is_there in (False, True):
        if is_there:
            for path in dirs:
                os.makedirs(path)
        for read_only in (False, True):
            with pytest.raises(LogDirIdentityError, match=r"d1.*d2 are listed in /etc/fstab and"):
                LogStore.open([os.path.join(path, "logs") for path in dirs], read_only=read_only)
        assert not is_there or [os.listdir(path) for path in dirs] == [[], []]
    tables.mount(*dirs)
    LogStore.open(dirs, config=QUIET, admin_socket=False).close()


def test_one_unmounted_disk_is_offline_and_comes_back(tables: Tables, tmp_path: Path) -> None:
    """The reason names the mount point; after a mount, the dir serves again."""
    dirs = dirs_of(tmp_path)
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        store.create("orders", 0, log_dir=dirs[1]).append(b"x")
    os.rename(dirs[1], dirs[1] + ".away")
    os.mkdir(dirs[1])
    tables.name(*dirs)
    tables.mount(dirs[0])
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        reason = store.describe_dirs().log_dirs[1].reason or ""
        assert f"{dirs[1]} is listed in /etc/fstab and is not mounted" in reason
        with pytest.raises(LogDirIdentityError, match="listed in /etc/fstab"):
            store.reopen_dir(dirs[1])
        assert os.listdir(dirs[1]) == []
        os.rmdir(dirs[1])
        os.rename(dirs[1] + ".away", dirs[1])
        tables.mount(*dirs)
        store.reopen_dir(dirs[1])
        assert len(store["orders", 0]) == 1


def test_what_is_said_to_be_new_is_formatted(tables: Tables, tmp_path: Path) -> None:
    """The user may say this of a store and of a replaced disk; a further dir is refused."""
    dirs = dirs_of(tmp_path)
    tables.name(*dirs, tmp_path / "data" / "d3")
    with LogStore.open(dirs, config=QUIET, admin_socket=False, format_new=True) as store:
        with pytest.raises(LogDirIdentityError, match=r"d3 is listed .*: mount it"):
            store.add_dir(tmp_path / "data" / "d3")
        store.take_offline(dirs[1])
        for entry in Path(dirs[1]).iterdir():
            entry.unlink()
        store.reopen_dir(dirs[1], format_new=True)
        assert not store.host.replicas.dir_of(dirs[1]).is_offline


def test_a_dir_that_is_formatted_asks_for_no_table(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables are read only if a dir would be formatted; their errors are reported."""
    tables.name("/data")
    LogStore.open(tmp_path / "a", config=QUIET, admin_socket=False).close()
    real = files.open_file

    def open_file(path: str, *rest: int) -> int:
        if path == str(tables.fstab):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return real(path, *rest)

    monkeypatch.setattr(files, "open_file", open_file)
    LogStore.open(tmp_path / "a", config=QUIET, admin_socket=False).close()
    with pytest.raises(OSError, match="Input/output"):
        unmounted_point(str(tmp_path / "b"))
