"""Run a swap step by step: changes at the last moment, and failures halfway."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logstore import Log, LogStore, LogStoreError
from logstore.disk import files
from logstore.log import relocation
from logstore.log.metadata import PartitionMetadata
from mover.job import Job
from mover.swap import LOCKED_BYTES_MAX, Swap
from support.moving import check_whole, fill, job_of, replica_dirs


@pytest.fixture
def job(store: LogStore, log: Log, base: Path) -> Job:
    """Return a job to the second log dir whose copy is complete."""
    job = job_of(store, base / "b", lambda log_dir, path: None)
    job.begin()
    job.copy()
    job.catch_up()
    return job


def swap_of(job: Job, change: Callable[[], object] = lambda: None) -> Swap:
    """Make a swap during which something happens just before it asks for the lock."""

    class Late(Swap):
        def prepare(self) -> None:
            super().prepare()
            change()

        def run(self) -> bool:
            is_done = super().run()
            if is_done:  # the store knows of it, as a job has it know
                job.replicas.moved(job.move.key, job.ends.target)
            return is_done

    return Late(job.log, job.target, job.ends, job.move.key)


def new_epoch(log: Log) -> None:
    """Begin a leader epoch."""
    log.leader_epoch = 9
    log.append(b"%d:x" % log.log_end_offset)


def test_a_change_of_the_configuration_at_the_last_moment_goes_along(
    store: LogStore, log: Log, job: Job
) -> None:
    """The copy has the old configuration: it is marked again, and ends with the new one."""
    changes = {"retention_ms": 5, "record_format": "kafka", "segment_bytes": 4096}
    late = swap_of(job, lambda: store.set_config("orders", 0, changes))
    assert not late.run()
    job.catch_up()
    assert swap_of(job).run()
    found = PartitionMetadata.read(log.directory)
    assert found is not None and found.config == log.config
    assert {key: log.config.to_dict()[key] for key in changes} == changes
    assert log.append(b"after") == log.log_end_offset - 1
    assert log.verify() == []


def test_the_copy_takes_the_name_of_the_source(log: Log, base: Path, job: Job) -> None:
    """The source waits for its purge under another name; the log object stays usable."""
    before = list(log)
    swap = swap_of(job)
    assert swap.run() and not swap.is_undecided
    assert replica_dirs(base) == [os.path.relpath(swap.doomed_path, base), "b/orders-0"]
    assert list(log) == before
    check_whole(log, base, "b")
    fill(log, 2)
    check_whole(log, base, "b")


def test_a_few_bytes_are_taken_along_under_the_lock(log: Log, base: Path, job: Job) -> None:
    """An append just before the lock does not delay the swap."""
    assert swap_of(job, lambda: log.append(b"%d:late" % log.log_end_offset)).run()
    check_whole(log, base, "b")


CHANGES: dict[str, Callable[[Log], object]] = {
    "a truncation": lambda log: log.truncate_to(590),
    "a leader epoch": new_epoch,
    "a roll": lambda log: fill(log, 40),
    "too many bytes": lambda log: log.append(bytes(LOCKED_BYTES_MAX + 1)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_the_mark_does_not_cover_puts_the_swap_off(
    log: Log, base: Path, job: Job, name: str
) -> None:
    """The log is still served from the source; after the copy catches up, the swap succeeds."""
    swap = swap_of(job, lambda: CHANGES[name](log))
    assert not swap.run()
    assert (log.log_dir, swap.is_undecided) == (str(base / "a"), False)
    log.append(b"%d:on" % log.log_end_offset, durable=True)
    job.catch_up()
    again = swap_of(job)
    assert again.run()
    assert log.log_dir == str(base / "b")
    assert [r.offset for r in log] == list(range(log.log_end_offset))
    assert log.verify() == []


class Refusing:
    """Let renames fail: given paths, and how often each."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int) -> None:
        self.number, self.refused, self.rename = number, list[str](), files.rename
        self.paths: list[str] = []
        patch.setattr(files, "rename", self)

    def __call__(self, source: str, target: str) -> Any:
        if source in self.paths:
            self.refused.append(source)
            raise OSError(self.number, os.strerror(self.number), source)
        return self.rename(source, target)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC, errno.EACCES])
@pytest.mark.parametrize("which", ["source", "target"])
def test_a_rename_that_is_refused_leaves_the_log_where_it_was(
    log: Log, base: Path, job: Job, monkeypatch: pytest.MonkeyPatch, which: str, number: int
) -> None:
    """The source has its name, and outranks the copy that was to become live."""
    before, generation = list(log), relocation.metadata_of(log).generation
    swap, refusing = swap_of(job), Refusing(monkeypatch, number)
    refusing.paths = [swap.live_path if which == "source" else job.target.path]
    with pytest.raises(LogStoreError):
        swap.run()
    assert refusing.refused == refusing.paths
    assert (log.log_dir, swap.is_undecided) == (str(base / "a"), False)
    raised = relocation.metadata_of(log).generation - generation
    assert raised == (2 if which == "target" else 0)
    monkeypatch.undo()
    assert list(log) == before
    assert log.append(b"600:on", durable=True) == 600
    check_whole(log, base, "a")


def test_a_source_that_gets_no_name_back_is_served_no_more(
    store: LogStore, log: Log, base: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the next start can find out which directory is the log; no copy is removed."""
    swap, refusing = swap_of(job), Refusing(monkeypatch, errno.EMFILE)
    refusing.paths = [job.target.path, swap.doomed_path]
    with pytest.raises(LogStoreError):
        swap.run()
    assert refusing.refused == refusing.paths and swap.is_undecided
    monkeypatch.undo()
    with pytest.raises(LogStoreError, match="between its two renames"):
        log.append(b"x")
    job._swap = swap
    job.give_up(is_cancelled=True)
    left = [os.path.relpath(path, base) for path in (swap.doomed_path, job.target.path)]
    assert replica_dirs(base) == left
    with pytest.raises(LogStoreError, match="between its two renames"):
        store.close()


def test_a_swap_that_broke_off_is_ended_by_the_next_start(
    store: LogStore, log: Log, base: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is complete and the source has lost its name, so the copy becomes the log."""
    before = list(log)
    swap, refusing = swap_of(job), Refusing(monkeypatch, errno.EMFILE)
    refusing.paths = [job.target.path, swap.doomed_path]
    with pytest.raises(LogStoreError):
        swap.run()
    monkeypatch.undo()
    with pytest.raises(LogStoreError, match="between its two renames"):
        store.close()
    with LogStore.open([base / "a", base / "b", base / "c"]) as again:
        assert list(again["orders", 0]) == before
        check_whole(again["orders", 0], base, "b")
