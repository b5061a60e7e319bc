"""What is in a log dir is listed for what it is, and what is foreign is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from logstore import LogStore
from logstore.disk.documents import checkpoint
from logstore.disk.log_dir import LogDir
from logstore.log.metadata import DELETED_BY_USER, DELETION
from logstore.store.start.listing import (
    list_log_dir,
    purge_tree,
    remove_leftovers,
)
from support.keepers import wait_for_keepers

UNIQUE = "0123456789abcdef" * 2


def make_replica(path: Path, **facts: object) -> None:
    """Make a replica's directory with its metadata."""
    path.mkdir()
    document = {"version": 1, "topic": "orders", "partition": 0, "topic_id": "00" * 16, **facts}
    (path / "partition.metadata").write_bytes(checkpoint.encode_document(document))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("lost+found", "dir"),
        ("orders-x", "dir"),
        (".Trash", "dir"),
        ("orders-0", "file"),
        (".DS_Store", "file"),
        ("x" * 255, "file"),
        ("orders-0", "symlink"),
        ("meta.properties", "dir"),
        ("orders-00", "dir"),
        ("-0", "dir"),
        ("orders-0.tmp", "file"),
    ],
)
def test_a_foreign_name_is_a_warning(fs: FakeFilesystem, name: str, kind: str) -> None:
    """It is named, and left alone."""
    fs.create_dir("/logs")
    path = f"/logs/{name}"
    if kind == "dir":
        fs.create_dir(path)
    elif kind == "file":
        fs.create_file(path)
    else:
        fs.create_dir("/elsewhere")
        fs.create_symlink(path, "/elsewhere")
    listing = list_log_dir(LogDir("/logs"))
    assert listing.replicas == []
    assert listing.leftovers == []
    (warning,) = listing.warnings
    assert path in warning
    remove_leftovers(listing, LogDir("/logs"))
    assert fs.exists(path)


def test_our_own_files_are_no_warnings(fs: FakeFilesystem) -> None:
    """Identity, lock, marker and checkpoints are known."""
    for name in (
        "meta.properties",
        ".lock",
        ".clean-shutdown",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
    ):
        fs.create_file(f"/logs/{name}")
    assert list_log_dir(LogDir("/logs")) == ([], [], [], [])


def test_what_a_crash_left_of_small_files_is_removed(tmp_path: Path) -> None:
    """Half-written small files and probe files, and nothing else."""
    for name in (".probe-0a1b2c3d", ".probe-0a1b2c3d.tmp", "meta.properties.0a1b2c3d.tmp"):
        (tmp_path / name).touch()
    (tmp_path / "notes.tmp").touch()
    listing = list_log_dir(LogDir(str(tmp_path)))
    remove_leftovers(listing, LogDir("/logs"))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.tmp"]


def test_replicas_of_every_kind_are_found(tmp_path: Path) -> None:
    """Live, move, delete and stray, each with what its metadata says."""
    make_replica(tmp_path / "orders-0")
    make_replica(tmp_path / f"ord-0.{UNIQUE}.delete", **{DELETION: DELETED_BY_USER})
    make_replica(tmp_path / f"orders-0.{UNIQUE}.move", topic_id="ab" * 16)
    make_replica(tmp_path / f"orders-0.{UNIQUE}.stray")
    make_replica(tmp_path / "x.move-7")
    found = {facts.dir_name: facts for facts in list_log_dir(LogDir(str(tmp_path))).replicas}
    assert found["orders-0"].kind == "live"
    deleted = found[f"ord-0.{UNIQUE}.delete"]
    assert (deleted.topic, deleted.is_deleted_by_user) == ("orders", True)
    assert found[f"orders-0.{UNIQUE}.move"].topic_id == "ab" * 16
    assert found[f"orders-0.{UNIQUE}.stray"].kind == "stray"
    assert (found["x.move-7"].topic, found["x.move-7"].partition) == ("x.move", 7)


def test_a_deleted_replica_without_reason_is_not_known_as_deleted(tmp_path: Path) -> None:
    """Garbage in its metadata is no reason to purge; an empty directory is a purge cut short."""
    for number, garbage in enumerate((b"", b"\0" * 100, b"garbage")):
        path = tmp_path / f"orders-{number}.{UNIQUE}.delete"
        path.mkdir()
        (path / "partition.metadata").write_bytes(garbage)
    (tmp_path / f"gone-0.{UNIQUE}.delete").mkdir()
    listing = list_log_dir(LogDir(str(tmp_path)))
    known = {facts.topic: facts.is_deleted_by_user for facts in listing.replicas}
    assert known == {"orders": False, "gone": True}


@pytest.mark.parametrize("kind", ["move", "delete", "stray"])
@pytest.mark.parametrize("inside", ["notes", "sub/notes", "half.tmp/notes"])
@pytest.mark.parametrize("topic", ["orders", "other"])
def test_regression_a_directory_of_foreign_files_is_left_alone(
    tmp_path: Path, kind: str, inside: str, topic: str
) -> None:
    """It counted as a purge or a move that a crash had cut short, and was removed."""
    foreign = tmp_path / "a" / f"{topic}-0.{UNIQUE}.{kind}" / inside
    with LogStore.open([tmp_path / "a", tmp_path / "b"], admin_socket=False) as store:
        store.create("orders", 0, log_dir=tmp_path / "a").append(b"1")
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"precious")
    (foreign.parent / "x.tmp").touch()
    for _ in range(2):
        with LogStore.open([tmp_path / "a", tmp_path / "b"], admin_socket=False) as store:
            wait_for_keepers(store)
            assert "holds no log; it was not changed" in str(store.recovery_report)
            assert list(store) == [("orders", 0)] and len(store["orders", 0]) == 1
        assert foreign.read_bytes() == b"precious"


def test_a_replica_that_was_never_finished_is_removed(tmp_path: Path) -> None:
    """A crash between mkdir and the metadata leaves nothing that was ever acknowledged."""
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-1").mkdir()
    (tmp_path / "orders-1" / "partition.metadata.0a1b2c3d.tmp").touch()
    listing = list_log_dir(LogDir(str(tmp_path)))
    assert listing.replicas == []
    assert len(listing.warnings) == 2
    remove_leftovers(listing, LogDir("/logs"))
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_directory_with_a_replicas_name_is_left_alone(tmp_path: Path) -> None:
    """`backup-2024` with somebody's files in it is not a partition."""
    (tmp_path / "backup-2024").mkdir()
    (tmp_path / "backup-2024" / "photo.jpg").touch()
    listing = list_log_dir(LogDir(str(tmp_path)))
    assert listing.replicas == []
    assert "backup-2024" in listing.warnings[0]
    remove_leftovers(listing, LogDir("/logs"))
    assert (tmp_path / "backup-2024" / "photo.jpg").exists()


def test_a_replica_that_lost_its_metadata_is_still_one(tmp_path: Path) -> None:
    """There is a segment in it."""
    (tmp_path / "orders-3").mkdir()
    (tmp_path / "orders-3" / f"{0:020d}.log").touch()
    (facts,) = list_log_dir(LogDir(str(tmp_path))).replicas
    assert (facts.topic, facts.partition, facts.kind) == ("orders", 3, "live")


def test_each_entry_of_a_listing_is_a_sign_of_life(tmp_path: Path) -> None:
    """A dir of many replicas on a slow disk is not taken for one that hangs."""
    for number in range(5):
        make_replica(tmp_path / f"orders-{number}")
    beats: list[None] = []
    list_log_dir(LogDir(str(tmp_path)), lambda: beats.append(None))
    assert len(beats) == 5


def test_a_purge_removes_the_reason_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash at any unlink leaves a directory that the next start purges."""
    from logstore.disk import files

    path = tmp_path / f"orders-0.{UNIQUE}.delete"
    make_replica(path, **{DELETION: DELETED_BY_USER})
    for name in ("a.log", "b.index", "z.quarantine"):
        (path / name).touch()
    gone: list[str] = []
    unlink = files.unlink

    def note(name: str) -> None:
        gone.append(Path(name).name)
        unlink(name)

    monkeypatch.setattr(files, "unlink", note)
    purge_tree(str(path))
    assert gone[-1] == "partition.metadata"
    assert len(gone) == 4
    assert not path.exists()


def test_what_vanishes_while_it_is_listed_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner deletes and purges beside a reader: that is no failure of the disk."""
    from logstore.disk import files

    make_replica(tmp_path / "orders-0")
    make_replica(tmp_path / f"orders-1.{UNIQUE}.delete", **{DELETION: DELETED_BY_USER})
    entry_of = files.entry_of

    def look_then_lose(path: str, name: str) -> files.Entry | None:
        found = entry_of(path, name)
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        return found

    monkeypatch.setattr(files, "entry_of", look_then_lose)
    listing = list_log_dir(LogDir(str(tmp_path)))
    assert [facts.kind for facts in listing.replicas] == ["delete"]
    assert listing.warnings == []
