"""The records of failed log dirs are on tmpfs, or the broker does not start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from cluster.errors import ClusterStartError
from cluster.presence import boots
from cluster.presence.records_place import records_dir
from logstore.disk import files


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """Let a directory of this test look like a tmpfs, and everything else like a disk."""
    table = tmp_path / "mountinfo"
    place = tmp_path / "run"
    place.mkdir()
    table.write_text(f"1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:9 / {place} rw - tmpfs tmpfs rw\n")
    with patch.object(boots, "MOUNT_INFO", str(table)):
        yield place


def test_the_directory_is_made_and_kept(in_memory: Path) -> None:
    """With its missing parents; what is in it stays."""
    path = Path(records_dir(str(in_memory / "logstore"), "abc"))
    assert path == in_memory / "logstore" / "abc" and not [*path.iterdir()]
    (path / "dir-1").write_bytes(b"0")
    assert records_dir(str(in_memory / "logstore"), "abc") == str(path)
    assert (path / "dir-1").read_bytes() == b"0"


def test_brokers_that_start_at_once_share_the_parent(in_memory: Path) -> None:
    """Another broker makes the directory between the look and the making."""
    make = files.make_dir

    def make_twice(path: str) -> None:
        make(path)
        make(path)

    with patch.object(files, "make_dir", make_twice):
        path = Path(records_dir(str(in_memory / "logstore"), "abc"))
    assert path.is_dir()


def test_a_disk_is_refused(in_memory: Path) -> None:
    """Nothing is made there, and the error says what to do."""
    place = in_memory.parent / "disk"
    with pytest.raises(ClusterStartError, match=r"is on ext4, not on tmpfs.*--records") as error:
        records_dir(str(place), "abc")
    assert "RuntimeDirectoryPreserve=yes" in error.value.reason and not place.exists()


def test_a_directory_that_cannot_be_written_is_refused(in_memory: Path) -> None:
    """The error has the reason of the system."""
    with (
        patch.object(
            files, "write_atomically", side_effect=PermissionError(13, "Permission denied")
        ),
        pytest.raises(ClusterStartError, match=r"cannot be written \(Permission denied\)"),
    ):
        records_dir(str(in_memory), "abc")
