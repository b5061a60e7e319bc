"""The owner changes a log at every point at which a second process looks at it.

Owner and view live in one process here. Before the n-th call of the view to the disk, for every n,
the owner does what would have raced, and at the n-th one of the look that follows from it again.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logstore import LogConfig, LogStore, OffsetOutOfRangeError, UnknownPartitionError
from logstore.disk import files
from logstore.log import host
from support.places import fast_directory

CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=256)
CALLS = ("scandir", "lstat", "stat", "fstat", "open_file", "pread")
Act = Callable[[Any], None]


def value_of(offset: int, generation: int) -> bytes:
    """Make a value that contains the record's number."""
    return b"%d|%d|" % (offset, generation) + b"~" * (offset * 7 % 50)


class Owner:
    """Appends, and counts the truncations of the log."""

    def __init__(self, store: LogStore) -> None:
        self.log = store.create("orders", 0, config=CONFIG)
        self.generation = 0

    def append(self, count: int = 1) -> None:
        end = self.log.log_end_offset
        self.log.extend([value_of(end + i, self.generation) for i in range(count)])

    def fill(self, segments: int) -> None:
        """Append until this many more segments were begun."""
        wanted = len(self.log._state.segments) + segments
        while len(self.log._state.segments) < wanted:
            self.append()

    def cut(self, records: int) -> None:
        """Truncate, into the segment before the active one if the log is long enough."""
        self.log.truncate_to(self.log.log_end_offset - records)
        self.generation += 1

    def cut_and_meet(self) -> None:
        """Truncate into the last sealed segment, then roll at the same offset as before."""
        base = self.log._state.view[1][-1]
        self.log.truncate_to(base - 2)
        self.generation += 1
        self.append(2)
        self.fill(1)


def roll(owner: Owner) -> None:
    """Begin two segments."""
    owner.fill(2)


def cut_and_go_on(owner: Owner) -> None:
    """Drop more than a segment, and append as much again."""
    owner.cut(owner.log.log_end_offset - owner.log._state.view[1][-1] + 3)
    owner.fill(2)


def cut_twice(owner: Owner) -> None:
    """Replace one file two times."""
    owner.cut(owner.log.log_end_offset - owner.log._state.view[1][-1] + 2)
    owner.append(3)
    owner.cut(2)
    owner.append(4)


def delete_first(owner: Owner) -> None:
    """Drop the first segment."""
    owner.log.delete_records_before(owner.log._state.view[1][1])
    owner.append()


ACTS = {
    "roll": roll,
    "cut and go on": cut_and_go_on,
    "cut twice": cut_twice,
    "cut and meet": Owner.cut_and_meet,
    "delete": delete_first,
}


class Between:
    """Runs an action before chosen disk calls of the view."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls, self.is_watching, self.plan = 0, False, dict[int, Callable[[], None]]()
        for name in CALLS:
            patch.setattr(files, name, self._wrapped(getattr(files, name)))

    def _wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if self.is_watching:
                self.calls += 1
                act = self.plan.pop(self.calls, None)
                if act is not None:
                    self.is_watching = False
                    act()
                    self.is_watching = True
            return real(*arguments, **options)

        return call

    def watch(self, read: Callable[[], object], plan: dict[int, Callable[[], None]]) -> bool:
        """Read with actions at the given calls; False if the read made fewer calls."""
        self.calls, self.plan, self.is_watching = 0, plan, True
        try:
            read()
        finally:
            self.is_watching = False
        return not self.plan


def judge(records: list[Any]) -> None:
    """Check that the records have their offsets, in order."""
    for record in records:
        offset, generation, _ = record.value.split(b"|")
        assert int(offset) == record.offset
        assert record.value == value_of(record.offset, int(generation))
    assert all(a.offset < b.offset for a, b in itertools.pairwise(records))


def reads(view: Any, owner: Owner) -> Iterator[tuple[str, Callable[[], object]]]:
    """Return ways to read at places that actions change."""
    last = owner.log._state.view[1][-1]
    yield "the end of a sealed segment", lambda: judge([view[last - 1]])
    yield "over the edge", lambda: judge(view.read(last - 3, max_bytes=4096))
    yield "all", lambda: judge(list(view))
    yield "by time", lambda: view.offset_for_timestamp(1)


def run(
    base: Path, between: Between, act: Act, second: Act | None, n: int, m: int, way: int
) -> bool:
    """Look with an action at the n-th call and one m calls later; then look undisturbed."""
    with LogStore.open(base) as store:
        owner = Owner(store)
        owner.fill(3)
        owner.append(3)
        with LogStore.open(base, read_only=True) as reader:
            view: Any = reader.log("orders", 0)
            view.read(0)
            owner.fill(1)
            owner.append(2)
            plan = {n: lambda: act(owner)}
            if second is not None:
                plan[n + m] = lambda: second(owner)
            read = list(reads(view, owner))[way][1]
            try:
                was_hit = between.watch(read, plan)
            except OffsetOutOfRangeError:
                was_hit = True
            expected = {record.offset: record.value for record in owner.log}
            assert {record.offset: record.value for record in view} == expected
            for offset, value in expected.items():
                assert view[offset].value == value
            owner.fill(1)
            assert view.read(view.log_end_offset - 2)[-1].value == owner.log[-1].value
    return was_hit


@pytest.mark.parametrize("name", ACTS)
@pytest.mark.parametrize("way", range(4))
def test_an_act_at_each_call(name: str, way: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An action of the owner at any call of the view is never reported as damage."""
    between = Between(monkeypatch)
    with fast_directory() as base:
        for n in itertools.count(1):
            if not run(base / str(n), between, ACTS[name], None, n, 0, way):
                break
        assert n > 10


@pytest.mark.parametrize("first", ACTS)
@pytest.mark.parametrize("name", ACTS)
def test_two_acts_in_one_look(first: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second action meets the second look, which the first action made necessary."""
    between = Between(monkeypatch)
    with fast_directory() as base:
        for n, m in itertools.product(range(2, 30, 7), (1, 5, 12)):
            run(base / f"{n}-{m}", between, ACTS[first], ACTS[name], n, m, (n // 2 + m) % 4)


def give_one_inode_to_all(patch: pytest.MonkeyPatch) -> None:
    """Be a file system that gives every new file the inode number of a removed file."""

    def same_inode(facts: os.stat_result) -> Any:
        names = ("st_mode", "st_size", "st_mtime_ns", "st_dev", "st_blocks")
        return SimpleNamespace(st_ino=1, **{name: getattr(facts, name) for name in names})

    for name in ("stat", "lstat", "fstat"):
        real = getattr(files, name)
        patch.setattr(files, name, lambda where, real=real: same_inode(real(where)))


def test_an_inode_that_is_given_again_is_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system may give a new file the inode number of a removed file."""
    with LogStore.open(tmp_path) as store:
        owner = Owner(store)
        owner.append(3)
        with LogStore.open(tmp_path, read_only=True) as reader, monkeypatch.context() as patch:
            give_one_inode_to_all(patch)
            view: Any = reader.log("orders", 0)
            assert [record.value for record in view] == [record.value for record in owner.log]
            state = view._state
            state.segments[-1].forget(state.environment)  # who holds a file keeps its number
            owner.cut(2)
            owner.append(5)
            assert [record.value for record in view] == [record.value for record in owner.log]


def read_while_made_anew(base: Path, between: Between, n: int, *, is_sealed: bool) -> bool:
    """Read a topic; before the n-th call of the view, it is deleted and created again."""
    with LogStore.open(base, admin_socket=False) as store:
        owner = Owner(store)
        owner.fill(3)
        owner.append(3)
        count = len(owner.log)
        if not is_sealed:
            for path in (base / "orders-0").glob("*index"):
                path.unlink()
        for path in (base / "orders-0", *(base / "orders-0").iterdir()):
            os.utime(path, (0, 0))  # so the new files have other times, as on a slower machine
        with LogStore.open(base, read_only=True) as reader:
            view: Any = reader.log("orders", 0)
            old_id, found = view.topic_id, []

            def make_anew() -> None:
                store.delete("orders", 0)
                new = Owner(store)
                new.generation = 1
                new.append(count)

            def read() -> None:
                for batch in view.read_batches(0):
                    if view.topic_id != old_id:
                        break
                    found.extend(batch.records())

            try:
                was_hit = between.watch(read, {n: make_anew})
            except (OffsetOutOfRangeError, UnknownPartitionError):
                was_hit = True
            judge(found)
            generations = {record.value.split(b"|")[1] for record in found}
            assert generations <= {b"0"}, f"call {n}: records of the new topic were read"
    return was_hit


@pytest.mark.parametrize("is_sealed", [True, False])
def test_regression_a_topic_made_anew_is_never_read_under_the_old_topic_id(
    monkeypatch: pytest.MonkeyPatch, is_sealed: bool
) -> None:
    """A new file that had the old file's inode number was read, if no index file was sealed."""
    give_one_inode_to_all(monkeypatch)
    between = Between(monkeypatch)
    with fast_directory() as base:
        for n in itertools.count(1):
            if not read_while_made_anew(base / str(n), between, n, is_sealed=is_sealed):
                break
        assert n > 10


def test_readers_of_one_view_share_its_looks(tmp_path: Path) -> None:
    """If a thread finds damage in an old view, it looks in another thread's new view."""
    with LogStore.open(tmp_path) as store:
        owner = Owner(store)
        owner.fill(2)
        with LogStore.open(tmp_path, read_only=True) as reader:
            view: Any = reader.log("orders", 0)
            batches = view.read_batches(0)
            found = next(batches).records()
            owner.log.truncate_to(3)
            owner.generation += 1
            owner.fill(2)
            assert len(list(view)) == len(owner.log)
            for batch in batches:
                found += batch.records()
            judge(found)
            assert [r.value for r in found[3:]] == [r.value for r in owner.log[3 : len(found)]]


@pytest.mark.parametrize("way", ["verify", "verify_segment"])
def test_regression_damage_by_a_write_into_a_file_is_found(tmp_path: Path, way: str) -> None:
    """The view took the file for another one, whose segment was no longer there to check."""
    with LogStore.open(tmp_path, admin_socket=False) as store:
        owner = Owner(store)
        owner.fill(4)
        for path in (tmp_path / "orders-0", *(tmp_path / "orders-0").iterdir()):
            os.utime(path, (1, 1))  # the directory seems unchanged
        with LogStore.open(tmp_path, read_only=True) as reader:
            view: Any = reader.log("orders", 0)
            assert not view.verify()
            segments = view._state.segments[:-1]
            for segment in segments:
                segment.forget(view._state.environment)
                path = Path(segment.log_path)
                data = bytearray(path.read_bytes())
                data[200] ^= 4
                path.write_bytes(data)
            os.utime(tmp_path / "orders-0", (1, 1))
            if way == "verify":
                assert len(view.verify()) == len(segments)
            for segment in segments:
                end = view.log_end_offset
                assert len(host.verify_segment(view, segment.base_offset, end)) == 1
