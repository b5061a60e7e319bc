"""Facts of a log are durable when a change returns, and move with the log."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from logstore import LogClosedError, LogDirError, LogStore, ReadOnlyStoreError
from logstore.disk import files
from logstore.log.metadata import FILE_NAME, PartitionMetadata
from mover import MoveState, ReplicaMover
from support.inside import abandon


def test_facts_of_a_log_are_a_mapping_that_lasts(tmp_path: Path) -> None:
    """They survive a kill and a change of the configuration; the generation counts changes."""
    store = LogStore.open(tmp_path, admin_socket=False)
    facts = store.create("t", 0).facts
    assert dict(facts) == {} and facts.generation == 0 and facts.damage == ""
    facts["whole_since"] = 12
    facts.update({"boot": ["b", None]}, gone=None)
    facts["boot"].append(3)  # of a copy
    store.set_config("t", 0, {"retention_ms": "7d"})
    store.log("t", 0).delete_records_before(0)
    assert repr(facts) == "<Facts {'whole_since': 12, 'boot': ['b', None]}, generation 2>"
    abandon(store)
    with LogStore.open(tmp_path, admin_socket=False) as store:
        facts = store.log("t", 0).facts
        assert dict(facts) == {"whole_since": 12, "boot": ["b", None]} and facts.generation == 2
        del facts["boot"]
        assert dict(store.log("t", 0).facts) == {"whole_since": 12}
        for wrong in (b"x", float("nan"), "x" * 70_000):
            with pytest.raises((TypeError, ValueError)):
                facts["wrong"] = wrong
        assert facts.generation == 3
    with pytest.raises(LogClosedError):
        facts["whole_since"]
    with pytest.raises(LogClosedError):
        facts["whole_since"] = 13


def test_they_move_with_the_log_and_die_with_it(tmp_path: Path) -> None:
    """This includes facts that are changed during the move."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    with LogStore.open(dirs, admin_socket=False) as store:
        log = store.create("t", 0, log_dir=dirs[0])
        log.append(b"x")
        facts = log.facts
        facts["old"] = 1
        with ReplicaMover(store) as mover:
            move = mover.move("t", 0, dirs[1])
            facts["new"] = 2
            assert move.wait(60) is MoveState.DONE
            assert mover.move("t", 0, dirs[0]).wait(60) is MoveState.DONE
            facts["newer"] = 3
            assert mover.move("t", 0, dirs[1]).wait(60) is MoveState.DONE
    with LogStore.open(dirs, admin_socket=False) as store:
        log = store.log("t", 0)
        assert log.log_dir == str(dirs[1])
        assert dict(log.facts) == {"old": 1, "new": 2, "newer": 3}
        store.delete("t", 0)
        assert dict(store.create("t", 0).facts) == {}


def test_a_disk_that_takes_no_change_leaves_the_old_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The facts in memory change only after they are on the disk."""
    with LogStore.open(tmp_path, admin_socket=False) as store:
        facts = store.create("t", 0).facts
        facts["a"] = 1

        def fail(fd: int, buffers: object, position: int) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            patched.setattr(files, "pwritev", fail)
            with pytest.raises(LogDirError):
                facts["a"] = 2
        assert dict(facts) == {"a": 1} and facts.generation == 1


def test_lost_facts_are_told(tmp_path: Path) -> None:
    """If the file is missing or its facts are invalid, there are none, and `damage` says why."""
    for number, what in enumerate((None, {"generation": -1, "facts": {}})):
        with LogStore.open(tmp_path, admin_socket=False) as store:
            store.create("t", number).facts["a"] = 1
        directory = tmp_path / f"t-{number}"
        if what is None:
            os.unlink(directory / FILE_NAME)
        else:
            metadata = PartitionMetadata.read(str(directory))
            assert metadata is not None
            metadata._replace(extra=metadata.extra | {"facts": what}).write(str(directory))
        with LogStore.open(tmp_path, admin_socket=False) as store:
            facts = store.log("t", number).facts
            assert dict(facts) == {} and "lost or damaged" in facts.damage


def test_another_process_reads_them_and_changes_nothing(tmp_path: Path) -> None:
    """The process reads the facts from the disk at each access."""
    with LogStore.open(tmp_path) as store:
        facts = store.create("t", 0).facts
        facts["a"] = 1
        with LogStore.open(tmp_path, read_only=True) as reader:
            seen = reader.log("t", 0).facts
            assert dict(seen) == {"a": 1}
            facts["a"] = 2
            assert dict(seen) == {"a": 2}
            with pytest.raises(ReadOnlyStoreError):
                seen["a"] = 3
