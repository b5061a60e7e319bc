"""Measure how long an open takes after a crash and after an orderly close, and its memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks import children, peers
from benchmarks.compare import GIGABYTES, SECONDS, Side
from benchmarks.conftest import Ledger
from benchmarks.engine import TOPIC
from benchmarks.report import Row, at_least, at_most
from benchmarks.workload import Sizes
from logstore import LogConfig, LogStore
from logstore.disk import files

NewDir = Callable[[], str]


class Crashed:
    """Keep a log dir in the state that a killed process left, so that it can be opened often."""

    def __init__(self, path: str, kept: str) -> None:
        self.path = path
        self.segments = peers.segment_files(path)
        self._kept = kept
        shutil.copytree(path, kept, ignore=self._segments_of, dirs_exist_ok=True)
        for segment in self.segments:
            with open(segment, "rb") as file:
                os.fdatasync(file.fileno())

    def _segments_of(self, folder: str, names: list[str]) -> set[str]:
        return {name for name in names if os.path.join(folder, name) in self.segments}

    def stage(self) -> str:
        """Restore all files except the segments to their state after the kill."""
        for folder, _, names in os.walk(self.path):
            for name in names:
                path = os.path.join(folder, name)
                if path not in self.segments:
                    os.unlink(path)
        shutil.copytree(self._kept, self.path, dirs_exist_ok=True)
        return self.path


def open_store(path: str) -> LogStore:
    """Open a store; this includes the whole recovery."""
    return LogStore.open(path)


def bench_recovery_scan(ledger: Ledger, sizes: Sizes, new_dir: NewDir) -> None:
    """Open a store whose process was killed with 1 GiB not flushed, in batches of 64 KiB."""
    path = new_dir()
    children.run("fill_and_die", path, str(sizes.recover_bytes), str(sizes.recover_batch_bytes))
    crashed = Crashed(path, new_dir())
    size = sum(map(os.path.getsize, crashed.segments))
    held: list[LogStore] = []

    def close(_: object) -> None:
        store = held.pop()
        assert size >= sizes.recover_bytes // 2 and store.log(TOPIC, 0).log_end_offset
        store.close()

    engine = Side(
        "engine",
        lambda path: held.append(open_store(path)),
        size,
        prepare=crashed.stage,
        finish=close,
    )
    bare = Side(
        "populate + xxh3",
        lambda _: peers.populate_and_hash(crashed.segments),
        size,
        goal=at_least(0.5),
    )
    ledger.compare(
        f"recovery scan, {size / 2**30:.1f} GiB not flushed", GIGABYTES, engine, [bare],
        sizes.recover_rounds, bytes=size,
    )  # fmt: skip
    peers.remove(path)


def build_segments(
    path: str, partitions: int, segments: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Create partitions with many small segments, and close the store; sync only at the end."""
    with monkeypatch.context() as patch:
        patch.setattr(files, "fdatasync", lambda _: None)
        patch.setattr(files, "fsync", lambda _: None)
        with LogStore.open(path) as store:
            for partition in range(partitions):
                log = store.create(TOPIC, partition, config=LogConfig(segment_bytes=4096))
                for _ in range(segments // partitions):
                    log.append(bytes(3000))
    os.sync()


@pytest.mark.parametrize("partitions", [1, 100])
def bench_clean_open(
    ledger: Ledger,
    sizes: Sizes,
    new_dir: NewDir,
    partitions: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Open a store of 10,000 closed segments; measure the memory of an open in a new process."""
    partitions = min(partitions, sizes.segments)
    path = new_dir()
    build_segments(path, partitions, sizes.segments, monkeypatch)
    assert len(peers.segment_files(path)) >= sizes.segments
    held: list[LogStore] = []
    engine = Side(
        "engine",
        lambda _: held.append(open_store(path)),
        1,
        finish=lambda _: held.pop().close(),
        goal=at_most(1),
    )
    shape = f"{partitions} x {sizes.segments // partitions} segments"
    weights = [children.run("weigh_open", path) for _ in range(sizes.segment_rounds)]
    ledger.compare(
        f"clean open, {shape}", SECONDS, engine, [], sizes.segment_rounds, weights=weights
    )
    added = median(weight["added_mib"] for weight in weights)
    peak = median(weight["added_peak_mib"] for weight in weights)
    ledger.note(
        [
            Row(
                f"memory of clean open, {shape}", "MiB over numpy", added,
                goal=at_most(30), note=f"peak {peak:.0f}",
            )
        ],
        weights=weights,
    )  # fmt: skip
    peers.remove(path)


def bench_import(ledger: Ledger, sizes: Sizes, benchmark: BenchmarkFixture) -> None:
    """Import logstore in new interpreters that have already imported numpy."""
    children.run("time_import")
    taken: list[float] = []
    pedantic: Any = benchmark.pedantic  # this function has no type annotations
    pedantic(
        lambda: taken.append(children.run("time_import")["seconds"]), rounds=sizes.import_rounds
    )
    ledger.note([Row("import logstore, behind numpy", "ms", median(taken) * 1e3, goal=at_most(15))])
