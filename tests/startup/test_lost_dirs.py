"""A log dir that is away at a start is given up, or replaced, by the path where it was last."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from logstore import LogDirError, LogStore, TopicPartition
from logstore.disk.documents import checkpoint
from logstore.disk.documents.generations import WITNESS_NAME
from logstore.store.admin.commands import remove_dir
from support.inside import state_of
from support.moves import directory_id_of

KEY = TopicPartition("orders", 0)


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    """Make a store of three log dirs; the last, which holds a replica, is empty now."""
    paths = [tmp_path / name for name in "abc"]
    with LogStore.open(paths, admin_socket=False) as store:
        store.create(*KEY, log_dir=paths[2]).append(b"1")
    paths[2].rename(tmp_path / "dead")
    paths[2].mkdir()
    return paths


def forget_paths(disks: list[Path]) -> None:
    """Take the paths out of the witnesses, as version 0.1.0 wrote them."""
    for disk in disks[:2]:
        document = checkpoint.read_document(str(disk / WITNESS_NAME))
        assert document is not None
        document.pop("paths")
        checkpoint.write_document(str(disk / WITNESS_NAME), document)


@pytest.mark.parametrize("is_named", [True, False], ids=["configured", "left out"])
def test_regression_the_path_of_a_missing_log_dir_gives_it_up(
    disks: list[Path], is_named: bool
) -> None:
    """It was reported as a success, and the store went on missing the log dir."""
    with LogStore.open(disks if is_named else disks[:2], admin_socket=False) as store:
        assert store.remove_dir(disks[2], lost=True) == (KEY,)
        assert not store.host.replicas.is_a_dir_bad()
        store.create(*KEY)
    with LogStore.open(disks[:2], admin_socket=False) as store:
        assert store.recovery_report.is_sound and not store.recovery_report.warnings


def test_a_path_that_names_no_missing_log_dir_for_sure_is_refused_with_the_ids(
    disks: list[Path],
) -> None:
    """Without the paths, any missing log dir may have been there."""
    missing = directory_id_of(disks[2].with_name("dead"))
    forget_paths(disks)
    with LogStore.open(disks, admin_socket=False) as store:
        with pytest.raises(LogDirError, match=missing):
            store.remove_dir(disks[2], lost=True)
        assert KEY in store and str(disks[2]) in store.log_dirs
        assert store.remove_dir(missing, lost=True) == (KEY,)


def test_a_path_where_no_missing_log_dir_was_is_dropped(disks: list[Path]) -> None:
    """A new disk that was configured by mistake takes nothing along."""
    stray = disks[0].with_name("stray")
    stray.mkdir()
    with LogStore.open([*disks[:2], stray], admin_socket=False) as store:
        assert store.remove_dir(stray, lost=True) == ()
        assert store.host.replicas.missing_ids == (directory_id_of(disks[2].with_name("dead")),)


def test_replicas_are_given_up_through_the_socket_only_if_that_is_said(disks: list[Path]) -> None:
    """A client of before does not know the question; the answer names the replicas."""
    with LogStore.open(disks, admin_socket=False) as store:
        for name in (str(disks[2]), store.host.replicas.missing_ids[0]):
            with pytest.raises(LogDirError, match="orders-0") as caught:
                remove_dir(state_of(store), name, lost=True)
            assert caught.value.facts["lost"] == [["orders", 0]]
            assert KEY in store
        row = remove_dir(state_of(store), str(disks[2]), lost=True, may_lose=True)
        assert row["lost"] == [["orders", 0]]


def test_a_log_dir_that_serves_names_the_one_that_was_there_before(disks: list[Path]) -> None:
    """Its path is that of two: the user means the one that is gone."""
    missing = directory_id_of(disks[2].with_name("dead"))
    with (
        LogStore.open(disks, format_new=True, admin_socket=False) as store,
        pytest.raises(LogDirError, match=f"it serves.*remove-dir --lost {missing}"),
    ):
        store.remove_dir(disks[2], lost=True)


def test_an_empty_disk_replaces_the_one_that_a_start_missed(disks: list[Path]) -> None:
    """The path tells which one it replaces, so nothing is missing afterwards."""
    with LogStore.open(disks, admin_socket=False) as store:
        report = store.reopen_dir(disks[2], format_new=True)
        assert report.lost == [KEY] and "still missing" not in str(report)
        store.create(*KEY)
    with LogStore.open(disks, admin_socket=False) as store:
        assert store.recovery_report.is_sound and not store.recovery_report.warnings


@pytest.mark.parametrize("read_only", [False, True], ids=["owner", "view"])
@pytest.mark.parametrize("kind", ["empty", "absent", "file"])
def test_regression_one_remedy_is_named_once_and_everywhere(
    disks: list[Path], kind: str, read_only: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The start advised to mount, to format, to add, to reopen and to remove at the same time."""
    missing = directory_id_of(disks[2].with_name("dead"))
    disks[2].rmdir()
    if kind == "empty":
        disks[2].mkdir()
    elif kind == "file":
        disks[2].touch()
    remedy = f"mount it, or, if the disk is lost for good: logstore remove-dir --lost {missing}"
    if kind == "empty":
        command = f"logstore reopen {disks[2]} --format-new"
        remedy = f"mount the disk, or, if this empty disk replaces it: {command}"
    with caplog.at_level(logging.WARNING), LogStore.open(disks, read_only=read_only) as store:
        (row,) = [row for row in store.describe_dirs().log_dirs if row.path == str(disks[2])]
        with pytest.raises(LogDirError) as caught:
            store.log(*KEY)
        texts = [str(store.recovery_report), str(row.reason), str(caught.value)]
        texts += [record.getMessage() for record in caplog.records]
    assert len(texts) == 4
    for text in texts:
        told = text.replace(f"orders-0 is offline: {caught.value}", "")
        assert told.count(remedy) == 1, text
        rest = told.replace(remedy, "").replace("not formatted", "")
        for other in ("format", "reopen", "--log-dirs", "correct the path", "remove-dir"):
            assert other not in rest, text


def test_the_remedy_of_a_log_dir_that_is_not_configured_is_the_same(disks: list[Path]) -> None:
    """It is missing without a path; the report, the error and the addition of another agree."""
    missing = directory_id_of(disks[2].with_name("dead"))
    shutil.rmtree(disks[2])
    end = f"or, if the disk is lost for good: logstore remove-dir --lost {missing}"
    remedy = f"mount it and add it to --log-dirs, {end}"
    with LogStore.open(disks[:2], admin_socket=False) as store:
        with pytest.raises(LogDirError) as caught:
            store.log(*KEY)
        with pytest.raises(LogDirError) as refused:
            store.create("new", 0)
        added = str(store.add_dir(disks[0].with_name("d")))
        for text in (*store.recovery_report.warnings, caught.value, refused.value, added):
            assert str(text).count(remedy) == 1
