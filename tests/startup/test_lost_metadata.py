"""An incomplete replica is promoted or deleted although its `partition.metadata` is not usable."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from logstore import (
    LogConfig,
    LogStore,
    LogStoreError,
    ReplicaIncompleteError,
    ReplicaOfflineError,
    TopicPartition,
)
from logstore.disk.documents.checkpoint import encode_document
from logstore.log.metadata import COPYING, FILE_NAME, MoveRecord, Superseded
from logstore.log.recovery.report import DamageName
from logstore.names import delete_dir_name, move_dir_name
from support.keepers import wait_for_keepers
from support.moves import directory_id_of, metadata_of
from support.strange_files import STRANGE

KEY = TopicPartition("orders", 0)
ID = "1" * 32
SMALL = LogConfig(segment_bytes=300, index_interval_bytes=256, retention_ms=1 << 40)


def of_a_later_version(path: Path) -> None:
    """Write a document as a later version may write it."""
    path.write_bytes(encode_document({"version": 9, "kind": FILE_NAME}))


HARMS: dict[str, Callable[[Path], object]] = {
    "whole": lambda path: None,
    "missing": Path.unlink,
    "garbage": lambda path: path.write_bytes(b"garbage"),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "another kind": lambda path: path.write_bytes(
        (path.parents[1] / "meta.properties").read_bytes()
    ),
}
REFUSED: dict[str, Callable[[Path], object]] = {
    "later version": of_a_later_version,
    **{harm.__name__: harm for harm in STRANGE},
}
KINDS = ("old copy", "move", "superseded")


def make(base: Path, kind: str) -> tuple[list[Path], Path]:
    """Leave an incomplete replica with 9 records; gives the log dirs and its directory."""
    disks = [base / "b", base / "c"]
    with LogStore.open(disks, admin_socket=False) as store:
        log = store.create(*KEY, config=SMALL, log_dir=disks[0])
        for number in range(9):
            log.append(b"value %d " % number * 10)
        log.flush()
    live = disks[0] / "orders-0"
    if kind == "old copy":
        shutil.copytree(disks[0], base / "backup")
        with LogStore.open(disks, admin_socket=False) as store:
            store[KEY].append(b"lost", durable=True)
        shutil.rmtree(disks[0])
        (base / "backup").rename(disks[0])
        return disks, live
    metadata = metadata_of(live)
    if kind == "move":
        record = MoveRecord(ID, directory_id_of(disks[1]), COPYING, 12)
        metadata.with_move_record(record).write(str(live))
        return disks, live.rename(disks[0] / move_dir_name(*KEY, ID))
    superseded = Superseded(1, directory_id_of(disks[1]))
    metadata.with_superseded_by(superseded).write(str(live))
    return disks, live.rename(disks[0] / delete_dir_name(*KEY, ID))


@pytest.mark.parametrize("act", ["promote", "delete"])
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("kind", KINDS)
def test_regression_it_is_settled(tmp_path: Path, kind: str, harm: str, act: str) -> None:
    """Both raised an AssertionError or a checkpoint's error, or were refused, at each try."""
    disks, directory = make(tmp_path, kind)
    topic_id = metadata_of(directory).topic_id
    HARMS[harm](directory / FILE_NAME)
    with LogStore.open(disks, admin_socket=False) as store:
        log = store.log(*KEY)
        assert len(list(log)) == 9
        with pytest.raises(ReplicaIncompleteError):
            log.append(b"refused")
        if act == "delete":
            store.delete(*KEY)
            assert KEY not in store
            wait_for_keepers(store)
            store.create(*KEY)
        else:
            assert store.promote(*KEY)
    with LogStore.open(disks, admin_socket=False) as store:
        assert not store.recovery_report.offline and not store.recovery_report.incomplete
        names = [damage.name for damage in store[KEY].verify()]
        is_lost = act == "promote" and harm != "whole"
        assert names == [DamageName.LOST_CONFIGURATION] * is_lost
        assert len(list(store[KEY])) == (9 if act == "promote" else 0)
        assert (store[KEY].topic_id == topic_id) is (act == "promote")
        store[KEY].append(b"taken")
        assert len([path for disk in disks for path in disk.glob("orders-0*")]) == 1


@pytest.mark.parametrize("act", ["promote", "delete", "repair"])
@pytest.mark.parametrize("harm", REFUSED)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_ours_is_an_error_that_says_so(
    tmp_path: Path, kind: str, harm: str, act: str
) -> None:
    """A document of a later version, or a special file, is not written over."""
    disks, directory = make(tmp_path, kind)
    REFUSED[harm](directory / FILE_NAME)
    with LogStore.open(disks, admin_socket=False) as store:
        assert KEY in store
        for _ in range(2):
            with suppress(LogStoreError):
                getattr(store, act)(*KEY)
    with LogStore.open(disks, admin_socket=False) as store:
        assert act == "delete" or KEY in store


def test_regression_a_shortened_name_is_no_partition(tmp_path: Path) -> None:
    """Only the metadata has the whole name; the error says what to do without it."""
    disks, _ = make(tmp_path, "move")
    key = TopicPartition("long" * 60, 0)
    with LogStore.open(disks, admin_socket=False) as store:
        store.create(*key, log_dir=disks[1]).append(b"x", durable=True)
    live = disks[1] / f"{key.topic}-0"
    (live / FILE_NAME).unlink()
    move = live.rename(disks[1] / move_dir_name(*key, ID))
    cut = TopicPartition(move.name.partition("-")[0], 0)
    with LogStore.open(disks, admin_socket=False) as store:
        for act in (store.promote, store.delete):
            with pytest.raises(ReplicaOfflineError, match="close the store, and move"):
                act(*cut)
