"""No new log dir is made inside another store's log dir or partition directory, nor around one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logstore import LogDirIdentityError, LogStore


@pytest.fixture
def outer(tmp_path: Path) -> Path:
    """Make a log dir with a partition, of a store that is closed."""
    path = tmp_path / "data" / "a"
    with LogStore.open(path) as store:
        store.create("orders", 0).append(b"x")
    return path


def names(path: Path) -> list[str]:
    return sorted(str(found) for found in path.rglob("*"))


@pytest.mark.parametrize("below", ["sub", "orders-0", "orders-0/sub", "sub/sub/sub"])
@pytest.mark.parametrize("is_there", [True, False])
def test_regression_no_store_is_made_inside_a_log_dir(
    outer: Path, below: str, is_there: bool
) -> None:
    """Its files would go with the partition; the error names the outer log dir."""
    path = outer / below
    if is_there:
        path.mkdir(parents=True, exist_ok=True)
    before = names(outer)
    with pytest.raises(LogDirIdentityError, match=f"lies inside the log dir {outer}: give it"):
        LogStore.open(path)
    assert names(outer) == before
    with LogStore.open(outer) as store:
        assert store["orders", 0][0].value == b"x"


@pytest.mark.parametrize("inner", ["a", "b/a"])
def test_regression_no_store_is_made_around_a_log_dir(tmp_path: Path, inner: str) -> None:
    """Whoever deletes the outer one deletes the inner one."""
    path = tmp_path / "data" / inner
    LogStore.open(path).close()
    with pytest.raises(LogDirIdentityError, match=f"lies around the log dir {path}: give it"):
        LogStore.open(tmp_path / "data")
    assert not (tmp_path / "data" / "meta.properties").exists()


def test_regression_a_symbolic_link_hides_no_log_dir(outer: Path, tmp_path: Path) -> None:
    """What counts is where the path leads."""
    link = tmp_path / "link"
    link.symlink_to(outer)
    with pytest.raises(LogDirIdentityError, match=f"lies inside the log dir {outer}:"):
        LogStore.open(link / "sub")
    around = tmp_path / "around"
    around.symlink_to(outer.parent)
    with pytest.raises(LogDirIdentityError, match=f"lies around the log dir {outer}:"):
        LogStore.open(around)


def test_regression_a_partition_directory_alone_is_no_place(outer: Path) -> None:
    """Its log dir has lost its identity; the partition is there."""
    (outer / "meta.properties").unlink()
    with pytest.raises(LogDirIdentityError, match=r"inside the partition directory .*orders-0"):
        LogStore.open(outer / "orders-0" / "sub")


@pytest.mark.parametrize("way", ["open", "add_dir"])
def test_no_log_dir_joins_a_store_from_inside_another(
    outer: Path, tmp_path: Path, way: str
) -> None:
    """A store that exists refuses it too, and stays as it was."""
    own, path = tmp_path / "own", outer / "sub"
    with LogStore.open(own) as store, pytest.raises(LogDirIdentityError, match="lies inside"):
        if way == "add_dir":
            store.add_dir(path)
        else:
            store.close()
            LogStore.open([own, path], format_new=True)
    assert not path.exists()
    LogStore.open(own).close()


def test_a_link_to_a_log_dir_is_not_around_it(outer: Path, tmp_path: Path) -> None:
    """To delete the link deletes nothing else."""
    new = tmp_path / "new"
    new.mkdir()
    (new / "link").symlink_to(outer)
    LogStore.open(new).close()


def test_log_dirs_that_are_nested_already_still_open(outer: Path, tmp_path: Path) -> None:
    """Only a new one is refused: what an earlier version made stays readable."""
    elsewhere = tmp_path / "elsewhere"
    with LogStore.open(elsewhere) as store:
        store.create("old", 0).append(b"y")
    os.rename(elsewhere, outer / "sub")
    with LogStore.open(outer / "sub") as store:
        assert store["old", 0][0].value == b"y"
