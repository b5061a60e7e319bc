"""A log dir that returns is loaded while users work, and users may be faster."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from logstore import (
    Log,
    LogDirError,
    LogDirOfflineError,
    LogStore,
    ReplicaOfflineError,
    UnknownPartitionError,
)
from logstore.disk import files
from logstore.disk.log_dir import LogDir
from logstore.names import TopicPartition
from logstore.store.doubts import decisions
from logstore.store.replicas import Replicas
from logstore.store.start import replica_facts
from logstore.store.start.loader import Loader
from logstore.store.start.startup_table import Decision, ReplicaFacts
from support.bad_disk import failing
from support.hanging import QUIET


def test_a_replica_that_is_deleted_as_its_dir_comes_back_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user opened the replica before the loader did, and deleted it: it is not offline."""
    dirs = [str(tmp_path / name) for name in ("a", "b")]
    real = Loader._open_beside_callers

    def late(loader: Loader, key: TopicPartition, log_dir: LogDir, facts: ReplicaFacts) -> None:
        real(loader, key, log_dir, facts)
        store.delete(*key)
        real(loader, key, log_dir, facts)

    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        store.create("orders", 1, log_dir=dirs[1]).append(b"x")
        store.take_offline(dirs[1])
        monkeypatch.setattr(Loader, "_open_beside_callers", late)
        store.reopen_dir(dirs[1])
        with pytest.raises(UnknownPartitionError):
            store.log("orders", 1)
        assert store.metrics().OfflineReplicaCount == 0
        assert store.create("orders", 1, log_dir=dirs[1]).append(b"anew") == 0


def test_a_return_that_ctrl_c_broke_off_leaves_the_dir_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dir that is only half loaded, without a keeper, does not serve; it can be reopened."""
    dirs = [str(tmp_path / name) for name in ("a", "b")]

    def interrupted(loader: Loader, log_dir: LogDir) -> None:
        raise KeyboardInterrupt

    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        store.create("orders", 1, log_dir=dirs[1]).append(b"x")
        store.take_offline(dirs[1])
        with monkeypatch.context() as patch:
            patch.setattr(Loader, "load_dir", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.reopen_dir(dirs[1])
        with pytest.raises(LogDirOfflineError):
            store.log("orders", 1)
        store.reopen_dir(dirs[1])
        assert store.log("orders", 1).append(b"y") == 1


def test_a_dir_is_not_half_added_for_want_of_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shortage appears at another log dir; no dir is blamed, and the call works later."""
    old, new = str(tmp_path / "a"), str(tmp_path / "b")
    with LogStore.open([old], config=QUIET, admin_socket=False) as store:
        with monkeypatch.context() as patch:
            patch.setattr(files, "names", failing("names", old, errno.EMFILE))
            with pytest.raises(LogDirError) as raised:
                store.add_dir(new)
        assert raised.value.retriable
        assert [entry.path for entry in store.host.replicas.log_dirs if entry.is_offline] == []
        store.add_dir(new)
        assert store.create("fresh", 0, log_dir=new).append(b"x", durable=True) == 0


def test_what_is_open_elsewhere_is_not_looked_at_when_a_dir_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading a thousand replicas would slow the appends to these replicas."""
    dirs = [str(tmp_path / name) for name in ("a", "b")]
    looked: list[str] = []
    real = files.entry_of

    def watched(path: str, name: str) -> files.Entry | None:
        if path == dirs[0]:
            looked.append(name)
        return real(path, name)

    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        for number in range(4):
            store.create("orders", number, log_dir=dirs[number % 2]).append(b"x")
        store.take_offline(dirs[1])
        monkeypatch.setattr(files, "entry_of", watched)
        store.reopen_dir(dirs[1])
        assert "meta.properties" in looked and not {"orders-0", "orders-2"} & {*looked}
        assert [store.log("orders", number)[0].value for number in range(4)] == [b"x"] * 4


def test_regression_a_bug_in_one_replica_does_not_stop_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The check of an old copy raises: this replica is offline, and the traceback is logged."""
    dirs = [str(tmp_path / name) for name in ("a", "b")]
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        for number in range(4):
            store.create("orders", number, log_dir=dirs[number % 2]).append(b"x")
    real = decisions.judge

    def judge(
        replicas: Replicas, log_dir: LogDir, facts: ReplicaFacts, log: Log, before: Log | None
    ) -> Decision | None:
        if facts.partition == 2:
            raise RuntimeError("a bug")
        return real(replicas, log_dir, facts, log, before)

    with monkeypatch.context() as patch:
        patch.setattr(decisions, "judge", judge)
        store = LogStore.open(dirs, config=QUIET, admin_socket=False)
    with store:
        assert [store.log("orders", number)[0].value for number in (0, 1, 3)] == [b"x"] * 3
        with pytest.raises(ReplicaOfflineError, match="RuntimeError: a bug"):
            store.log("orders", 2)
        assert store.metrics().OfflineReplicaCount == 1
        assert store.recovery_report is not None
        assert "orders-2 is offline: " in str(store.recovery_report)
    assert any(one.exc_info is not None for one in caplog.records)


def test_regression_a_bug_in_one_copy_does_not_stop_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of a copy that a move left cannot be read: the live replica opens."""
    dirs = [str(tmp_path / name) for name in ("a", "b")]
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        store.create("orders", 0, log_dir=dirs[0]).append(b"x")
    shutil.copytree(tmp_path / "a" / "orders-0", tmp_path / "b" / f"orders-0.{'c' * 32}.move")

    def read(*_: object) -> int:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(replica_facts, "end_offset_of", read)
        store = LogStore.open(dirs, config=QUIET, admin_socket=False)
    with store:
        assert store.log("orders", 0)[0].value == b"x"
    assert any(one.exc_info is not None for one in caplog.records)
