"""Log dirs that return cause no wrong decision about each other, or about open replicas."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore import LogDirOfflineError, LogStore
from logstore.disk.log_dir import LogDir
from logstore.log.metadata import COPYING, MoveRecord, PartitionMetadata
from logstore.names import TopicPartition, move_dir_name
from logstore.store.start import reconcile
from logstore.store.start.listing import Listing, list_log_dir
from logstore.store.start.loader import Loader
from support.hanging import QUIET, Caller
from support.inside import keepers_of

KEY = TopicPartition("orders", 0)
MOVE_ID = "1f" * 16


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    """Return three log dirs."""
    return [str(tmp_path / name) for name in ("a", "b", "c")]


@pytest.fixture
def store(dirs: list[str]) -> Iterator[LogStore]:
    """Return a store with an unfinished copy of orders-0 in b, and the whole replica in c.

    Both of these log dirs are offline.
    """
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        log = store.create(*KEY, log_dir=dirs[2])
        log.append(b"first")
        store.flush()
        copy = os.path.join(dirs[1], move_dir_name(*KEY, MOVE_ID))
        shutil.copytree(log.directory, copy)
        metadata = PartitionMetadata.read(copy)
        assert metadata is not None
        record = MoveRecord(MOVE_ID, store.host.replicas.log_dirs[2].directory_id, COPYING, 1)
        metadata.with_move_record(record).write(copy)
        log.append(b"second")
        for path in dirs[1:]:
            store.take_offline(path)
    # Opened anew, it knows of orders-0 by its catalog alone.
    away = [shutil.move(path, path + ".away") for path in dirs[1:]]
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        assert [row.state for row in store.describe_dirs().log_dirs] == ["online"] + 2 * ["offline"]
        for path, there in zip(dirs[1:], away, strict=True):
            shutil.move(there, path)
        yield store


def once(patch: pytest.MonkeyPatch, where: Any, name: str, work: Callable[[], object]) -> None:
    """Do something before the first call of a function."""
    real, left = getattr(where, name), [work]

    def first(*arguments: Any, **options: Any) -> Any:
        if left:
            left.pop()()
        return real(*arguments, **options)

    patch.setattr(where, name, first)


def check_is_served_once(store: LogStore, dirs: list[str]) -> None:
    """Check that orders-0 is served from c, complete, and has no other record."""
    assert [row.state for row in store.describe_dirs().log_dirs] == ["online"] * 3
    assert [record.value for record in store.log(*KEY)] == [b"first", b"second"]
    assert list(store) == [KEY] and len(store) == 1
    assert store.metrics().OfflineReplicaCount == 0
    store.promote(*KEY)
    assert not os.path.exists(os.path.join(dirs[1], "orders-0"))


def test_what_another_dir_brought_meanwhile_is_not_offline(
    store: LogStore, dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dir was bad at the decision, and was back before the decision was recorded."""
    once(monkeypatch, Loader, "_take", lambda: store.reopen_dir(dirs[2]))
    store.reopen_dir(dirs[1])
    check_is_served_once(store, dirs)


def test_a_dir_that_was_not_listed_counts_as_bad(
    store: LogStore, dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dir returned after the listing: the unfinished copy may not be the only one left."""
    is_there, go_on = threading.Event(), threading.Event()
    others: list[Caller] = []

    def wait() -> None:
        is_there.set()
        assert go_on.wait(60)

    def begin() -> None:
        once(monkeypatch, Loader, "load_dir", wait)
        others.append(Caller(lambda: store.reopen_dir(dirs[2])))
        assert is_there.wait(60)

    def end() -> None:
        go_on.set()
        others[0].outcome()

    once(monkeypatch, reconcile, "complete", begin)
    once(monkeypatch, Loader, "_take", end)
    report = store.reopen_dir(dirs[1])
    assert others[0].error is None and not report.incomplete
    check_is_served_once(store, dirs)


def test_regression_what_another_dir_is_about_to_write_is_no_leftover(
    store: LogStore, dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dir returned just before the listing, serves, and is writing a small file."""
    half_written = Path(dirs[2]) / "meta.properties.0badcafe.tmp"

    def come_back() -> None:
        store.reopen_dir(dirs[2])
        half_written.write_bytes(b"half")

    once(monkeypatch, reconcile, "_names_by_dir", come_back)
    store.reopen_dir(dirs[1])
    assert half_written.read_bytes() == b"half"
    check_is_served_once(store, dirs)


def test_regression_what_a_dir_brings_is_known_before_it_is_open(
    store: LogStore, dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its log dir is opened, the replica is neither unknown nor created again."""
    told: list[str] = []

    def look() -> None:
        with pytest.raises(LogDirOfflineError) as raised:
            store.log(*KEY)
        told.append(str(raised.value))
        with pytest.raises(LogDirOfflineError):
            store.create(*KEY, is_new=True)
        assert KEY in store and list(store) == [KEY]

    once(monkeypatch, Loader, "_open_beside_callers", look)
    store.reopen_dir(dirs[2])
    store.reopen_dir(dirs[1])
    assert dirs[2] in told[0] and "it is being opened" in told[0]
    check_is_served_once(store, dirs)


def test_regression_a_deletion_that_comes_back_leaves_what_is_open_alone(tmp_path: Path) -> None:
    """Its records were appended before the deletion was known; the next start keeps them."""
    a, b, c = dirs = [str(tmp_path / name) for name in ("a", "b", "c")]
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        store.create(*KEY, log_dir=b).append(b"first", durable=True)
        store.take_offline(a)  # as long as it is, deletions stay on record
        shutil.copytree(f"{b}/orders-0", tmp_path / "earlier")
        store.delete(*KEY)
    (deletion,) = Path(b).glob("*.delete")
    shutil.copytree(deletion, tmp_path / "deleted")
    shutil.move(deletion, c)
    shutil.move(tmp_path / "earlier", f"{b}/orders-0")
    shutil.move(c, tmp_path / "away")
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        log = store.log(*KEY)
        shutil.move(tmp_path / "away", c)
        report = store.reopen_dir(c)
        warning = f"{b}/orders-0: a recorded deletion of this replica came back; "
        warning += "the replica is open, so it stays"
        assert warning in report.warnings
        assert log.append(b"second", durable=True) == 1
        assert log.directory == f"{b}/orders-0" and os.path.isdir(log.directory)
        keepers_of(store)[c].wait_idle(60)
        assert not [*Path(c).glob("*.delete")]
    # As if a crash had come before it was gone.
    shutil.copytree(tmp_path / "deleted", Path(c) / deletion.name)
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        assert [record.value for record in store.log(*KEY)] == [b"first", b"second"]


def test_who_deletes_and_creates_all_the_time_does_not_keep_a_dir_from_coming_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the dirs change while they are listed, they are listed once more, and no more."""
    dirs = [str(tmp_path / name) for name in ("a", "b")]
    listed: list[str] = []
    real = list_log_dir

    def churning(log_dir: LogDir, *rest: Any) -> Listing:
        if log_dir.path == dirs[0]:
            assert len(listed) < 9, "it goes on for ever"
            here.delete("orders", 0)
            here.create("orders", 0, log_dir=dirs[0], is_new=True).append(b"anew")
            listed.append(log_dir.path)
        return real(log_dir, *rest)

    with LogStore.open(dirs, config=QUIET, admin_socket=False) as here:
        here.create("orders", 0, log_dir=dirs[0])
        here.create("orders", 1, log_dir=dirs[1]).append(b"x")
        here.take_offline(dirs[1])
        with monkeypatch.context() as patch:
            patch.setattr(reconcile, "list_log_dir", churning)
            here.reopen_dir(dirs[1])
        assert len(listed) == 2
        assert here.log("orders", 0)[0].value == b"anew"
        assert here.log("orders", 1)[0].value == b"x"
