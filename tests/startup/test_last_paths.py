"""A log dir that is missing is named by the path where it was last, as well as by its id."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logstore import LogDirOfflineError, LogStore, TopicPartition
from logstore.disk.documents import checkpoint
from logstore.disk.documents.generations import WITNESS_NAME, last_paths
from support.inside import abandon
from support.moves import directory_id_of


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    """Make a store of three log dirs with a partition in the last, and close it."""
    paths = [tmp_path / name for name in "abc"]
    with LogStore.open(paths, admin_socket=False) as store:
        store.create("t", 0, log_dir=paths[2]).append(b"1")
    return paths


def warnings(paths: list[Path], *, read_only: bool = False) -> str:
    """Open the store and give what its report warns of."""
    with LogStore.open(paths, read_only=read_only, admin_socket=read_only) as store:
        return "\n".join(store.recovery_report.warnings)


@pytest.mark.parametrize("read_only", [False, True], ids=["owner", "view"])
def test_regression_a_missing_log_dir_is_named_by_its_path(
    dirs: list[Path], read_only: bool
) -> None:
    """Only its id was known, which no one can mount."""
    missing = directory_id_of(dirs[2])
    told = f"log dir {missing} (last at {dirs[2]}) is missing: its partitions are offline; mount it"
    for _ in range(2):  # a start without it forgets nothing
        assert told in warnings(dirs[:2], read_only=read_only)


def test_regression_errors_name_the_path_of_a_missing_log_dir(dirs: list[Path]) -> None:
    """The error of a partition that is there, and the report of a log dir that is added."""
    with LogStore.open(dirs[:2], admin_socket=False) as store:
        with pytest.raises(LogDirOfflineError) as caught:
            store.log("t", 0)
        assert f"(last at {dirs[2]})" in str(caught.value)
        report = store.add_dir(dirs[0].parent / "d")
        assert f"(last at {dirs[2]}) is still missing" in str(report)


def test_the_path_follows_a_log_dir_that_is_mounted_elsewhere(dirs: list[Path]) -> None:
    """The last start counts."""
    elsewhere = dirs[2].with_name("elsewhere")
    dirs[2].rename(elsewhere)
    assert "is missing" not in warnings([*dirs[:2], elsewhere])
    assert f"(last at {elsewhere})" in warnings(dirs[:2])


def test_a_log_dir_that_was_away_knows_less_than_the_others(dirs: list[Path]) -> None:
    """A log dir that was removed is named by nobody; one that joined is known to the others."""
    with LogStore.open(dirs, admin_socket=False) as store:
        store.delete("t", 0)
    with LogStore.open(dirs, admin_socket=False) as store:
        store.remove_dir(dirs[2])
        store.add_dir(dirs[0].with_name("d"))
    assert set(last_paths(str(dirs[0])).values()) == {str(dirs[1]), str(dirs[0].with_name("d"))}
    assert str(dirs[2]) not in warnings(dirs[:2])


@pytest.mark.parametrize(
    "rows", [None, 7, [], {"x": "/disk"}, {"0" * 32: 7}, "damaged", "absent"], ids=repr
)
def test_a_witness_without_paths_is_read(dirs: list[Path], rows: object) -> None:
    """One of version 0.1.0 has none: then the id alone is told, and nothing else changes."""
    missing = directory_id_of(dirs[2])
    for path in (dirs[0] / WITNESS_NAME, dirs[1] / WITNESS_NAME):
        if rows == "damaged":
            path.write_bytes(b"damaged")
        elif rows == "absent":
            path.unlink()
        else:
            document = checkpoint.read_document(str(path))
            assert document is not None
            document.pop("paths")
            if rows is not None:
                document["paths"] = rows
            checkpoint.write_document(str(path), document)
    assert f"log dir {missing} is missing: its partitions are offline" in warnings(dirs[:2])
    assert "is missing" not in warnings(dirs)
    assert f"log dir {missing} (last at {dirs[2]}) is missing" in warnings(dirs[:2])


def test_regression_a_log_dir_that_is_added_learns_of_one_that_is_missing(dirs: list[Path]) -> None:
    """If it is all that is left, it names the missing one, its replicas and an old copy of it."""
    shutil.copytree(dirs[2], dirs[2].with_name("backup"))
    with LogStore.open(dirs, admin_socket=False) as store:
        store["t", 0].append(b"2", durable=True)
    missing, added = directory_id_of(dirs[2]), dirs[0].with_name("d")
    shutil.rmtree(dirs[2])
    store = LogStore.open(dirs[:2], admin_socket=False)
    store.add_dir(added)
    abandon(store)
    assert last_paths(str(added))[missing] == str(dirs[2])
    with LogStore.open([added], admin_socket=False) as store:
        assert list(store) == [TopicPartition("t", 0)]
        with pytest.raises(LogDirOfflineError, match=f"last at {dirs[2]}"):
            store.log("t", 0)
    dirs[2].with_name("backup").rename(dirs[2])
    with LogStore.open([added, dirs[2]], admin_socket=False) as store:
        (entry,) = store.recovery_report.incomplete
        assert "offsets 1 to 2, which were durable, are missing" in str(entry.error)
