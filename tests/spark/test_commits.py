"""A batch is appended exactly once, cut at whatever call to the disk; no Spark is needed for it."""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logstore import LogConfig, LogStore, LogStoreError
from logstore.disk import files
from logstore.spark.write.commits import CommitLog, commit, read_records
from logstore.spark.write.staging import Run, Stage
from support.inside import abandon, keepers_of

CALLS = ("pwritev", "pwrite", "fsync", "fdatasync", "rename", "unlink", "open_file", "mkdir")
# `make spark-kill` cuts at every call.
CUT_STEP = int(os.environ.get("LOGSTORE_SPARK_CUT_STEP", "4"))
QUERY = "7d1f4a3e-0c55-4c1b-9a8e-2f6f3f8f0b11"


class Killed(BaseException):
    """The process ended here."""


class Killer:
    """End the main thread at the n-th call that changes a disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        self.calls = 0
        for name in CALLS:
            monkeypatch.setattr(files, name, self._watch(getattr(files, name)))

    def _watch(self, call: Any) -> Any:
        def watched(*args: Any, **options: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                self.calls += 1
                if self.left is not None:
                    self.left -= 1
                    if self.left < 0:
                        raise Killed
            return call(*args, **options)

        return watched


def make_store(root: Path) -> LogStore:
    """Open the store of these tests: small segments, so that a commit rolls, in both layouts."""
    store = LogStore.open([root / "a", root / "b"], admin_socket=False)
    for partition in range(3):
        if ("t", partition) not in store:
            layout = "kafka" if partition == 2 else "columnar"
            config = LogConfig(segment_bytes=4096, record_format=layout)
            store.create("t", partition, config=config, log_dir=root / "ab"[partition % 2])
    return store


def stage(store: LogStore, values: list[bytes], task: int = 0, size: int = 40) -> list[Run]:
    """Stage values as a task does, a few of them in each encoded batch."""
    staged = Stage(store, QUERY, "t", task)
    for start in range(0, len(values), size):
        staged._sort(pa.record_batch([pa.array(values[start : start + size])], names=["value"]))
        staged._write_held()
    staged._finish()
    return staged.message.runs


def contents(store: LogStore) -> Counter[bytes | None]:
    """Count every value of the store."""
    return Counter(record.value for key in store for record in store[key])


def die(store: LogStore) -> None:
    """Leave the store as a killed process does."""
    for keeper in keepers_of(store).values():
        keeper.stop()
    abandon(store)


def values_of(batch: int) -> list[bytes]:
    """Make the values of a batch."""
    return [b"%d-%d-%s" % (batch, number, bytes(40)) for number in range(120)]


def run_batches(root: Path, killer: Killer, first_cut: int | None, second_cut: int | None) -> bool:
    """Commit two batches, cutting the second at one call and its recovery at another.

    After a cut somebody else appends, and the batch is staged anew, as Spark does it.
    """
    with make_store(root) as store:
        commit(store, QUERY, 0, stage(store, values_of(0)))
    is_cut = False
    for cut in (first_cut, second_cut, None):
        store = make_store(root)
        runs = stage(store, values_of(1), task=is_cut + 1)
        killer.left = cut
        try:
            commit(store, QUERY, 1, runs)
        except Killed:
            is_cut = True
        finally:
            killer.left = None
        if not is_cut or cut is None:
            store.close()
            break
        die(store)
        with make_store(root) as store:
            store["t", 0].append(b"from elsewhere")
    expected = Counter(values_of(0) + values_of(1))
    with make_store(root) as store:
        found = contents(store)
        found.pop(b"from elsewhere", None)
        assert found == expected
        again = stage(store, values_of(1))
        assert commit(store, QUERY, 1, again) is False
        assert not any(Path(run.path).exists() for run in again)
        assert sum(contents(store).values()) - contents(store)[b"from elsewhere"] == 240
        assert commit(store, QUERY, 2, stage(store, values_of(2)))
        assert not any((root / name / ".spark" / "staged" / QUERY).exists() for name in "ab")
    return is_cut


def test_a_commit_cut_anywhere_is_completed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost and nothing doubled, at whichever call the process ends."""
    killer = Killer(monkeypatch)
    cut = 0
    while run_batches(tmp_path / str(cut), killer, cut, None):
        cut += CUT_STEP
    assert cut > 30


@pytest.mark.parametrize("second", [7, 40])
def test_a_recovery_cut_anywhere_is_completed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: int
) -> None:
    """Neither does a second end, while the first is seen to."""
    killer = Killer(monkeypatch)
    for cut in range(8, 60, 3 * CUT_STEP):
        run_batches(tmp_path / str(cut), killer, cut, second)


def test_a_batch_that_was_committed_is_dropped(tmp_path: Path) -> None:
    """Spark repeats a batch when it does not know that it was committed."""
    with make_store(tmp_path) as store:
        assert commit(store, QUERY, 5, stage(store, values_of(5)))
        assert not commit(store, QUERY, 5, stage(store, values_of(5)))
        assert not commit(store, QUERY, 4, stage(store, values_of(4)))
        assert commit(store, QUERY, 6, stage(store, values_of(6)))
        assert contents(store) == Counter(values_of(5) + values_of(6))


def test_records_of_commits_are_in_every_log_dir_and_the_newest_counts(tmp_path: Path) -> None:
    """A log dir that was away has an older one, and a damaged one is passed over."""
    with make_store(tmp_path) as store:
        commit(store, QUERY, 0, stage(store, values_of(0)))
    old = (tmp_path / "a" / ".spark" / "commits" / QUERY).read_bytes()
    with make_store(tmp_path) as store:
        commit(store, QUERY, 1, stage(store, values_of(1)))
        (tmp_path / "a" / ".spark" / "commits" / QUERY).write_bytes(old)
        assert CommitLog(store).read()[QUERY].last_batch_id == 1
        (tmp_path / "a" / ".spark" / "commits" / QUERY).write_bytes(b"damaged")
        assert CommitLog(store).read()[QUERY].last_batch_id == 1
    assert read_records(store.log_dirs)[QUERY].last_batch_id == 1


def cut_first_commit(base: Path, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Kill a query in its first commit, before its first record; give what it had staged."""
    store = make_store(base)
    runs = stage(store, values_of(0))

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr("logstore.spark.write.commits.append_part", killed)
        commit(store, QUERY, 0, runs)
    die(store)
    return runs


def test_a_staged_file_that_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut commit whose records were thrown away says so, and how to go on."""
    runs = cut_first_commit(tmp_path, monkeypatch)
    Path(runs[0].path).unlink()
    with make_store(tmp_path) as store, pytest.raises(LogStoreError, match="cannot be completed"):
        commit(store, QUERY, 1, stage(store, values_of(1)))


def test_a_cut_commit_is_completed_beside_a_task_of_the_same_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another query completes it, and leaves alone what the query that was cut stages anew."""
    runs = cut_first_commit(tmp_path, monkeypatch)
    with make_store(tmp_path) as store:
        task = Stage(store, QUERY, "t", 0)
        task._sort(pa.record_batch([pa.array(values_of(0))], names=["value"]))
        task._write_held()
        commit(store, "another", 0, stage(store, values_of(7)))
        assert not Path(runs[0].path).exists()
        task._finish()
        assert Path(task.message.path).exists()
        assert not commit(store, QUERY, 0, task.message.runs)
        assert not any(tmp_path.rglob("*.batches"))
        assert contents(store) == Counter(values_of(0) + values_of(7))


def test_a_driver_that_was_left_behind_takes_nothing_from_the_one_that_went_on(
    tmp_path: Path,
) -> None:
    """Its commit waited for the lock meanwhile: its batch is dropped, and its own file alone."""
    with make_store(tmp_path) as store:
        assert commit(store, QUERY, 0, stage(store, values_of(0)))
        late = stage(store, values_of(0))
        live = stage(store, values_of(1))
        assert not commit(store, QUERY, 0, late)
        assert commit(store, QUERY, 1, live)
        assert not any(tmp_path.rglob("*.batches"))
        assert contents(store) == Counter(values_of(0) + values_of(1))


@pytest.mark.parametrize("is_gone", [True, False])
def test_what_is_not_all_there_is_not_begun(tmp_path: Path, is_gone: bool) -> None:
    """A commit that was begun and cannot be completed would stop all others."""
    with make_store(tmp_path) as store:
        runs = stage(store, values_of(0))
        path = Path(runs[0].path)
        if is_gone:
            path.unlink()
        else:
            os.truncate(path, path.stat().st_size - 1)
        with pytest.raises(LogStoreError, match=r"nothing was appended: .*\.batches cannot"):
            commit(store, QUERY, 0, runs)
        assert commit(store, "another", 0, stage(store, values_of(7)))
        assert commit(store, QUERY, 0, stage(store, values_of(0)))
        assert contents(store) == Counter(values_of(0) + values_of(7))


def test_what_a_dead_driver_staged_may_be_removed_when_no_commit_is_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/SPARK.md tells it: a document shows a commit under way, the next write ends it."""

    def pending() -> list[bool]:
        documents = tmp_path.glob("*/.spark/commits/*")
        return ['"pending": null' not in path.read_text() for path in documents]

    cut_first_commit(tmp_path, monkeypatch)
    assert all(pending()) and len(pending()) == 2
    with make_store(tmp_path) as store:
        left = stage(store, values_of(5))  # of a driver that dies before its commit
        other = Stage(store, "another", "t", 0)
        other.write([pa.record_batch([pa.array(values_of(7))], names=["value"])])
        commit(store, "another", 0, other.message.runs)
        assert not any(pending()) and Path(left[0].path).exists()
        for name in "ab":
            shutil.rmtree(tmp_path / name / ".spark" / "staged", ignore_errors=True)
        assert commit(store, QUERY, 1, stage(store, values_of(1)))
        assert contents(store) == Counter(values_of(0) + values_of(1) + values_of(7))


def test_what_spark_keeps_in_a_log_dir_is_no_stranger(tmp_path: Path) -> None:
    """Opening the store does not warn of it."""
    with make_store(tmp_path) as store:
        commit(store, QUERY, 0, stage(store, values_of(0)))
    with make_store(tmp_path) as store:
        assert not store.recovery_report.warnings
