"""A crash at any call of a store's life leaves what was acknowledged, and nothing half done."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

import pytest

from logstore.config import LogConfig, StoreConfig
from logstore.names import TopicPartition
from logstore.store.store import LogStore
from support.crashing import CrashError, crash_at
from support.inside import abandon, keepers_of
from support.places import fast_directory

CALLS_MAX = 2000
HOUR_MS = 3_600_000
QUIET = StoreConfig(
    log_flush_scheduler_interval_ms=HOUR_MS,
    log_flush_offset_checkpoint_interval_ms=HOUR_MS,
    log_retention_check_interval_ms=HOUR_MS,
)
CONFIG = LogConfig(segment_bytes=1024)


class Truth(NamedTuple):
    """What was acknowledged; the partition in `doubtful` was being created or deleted."""

    records: dict[TopicPartition, list[bytes]]
    doubtful: list[TopicPartition]


class Life:
    """One life of a store, in which every acknowledged step is noted."""

    def __init__(self, dirs: list[str], truth: Truth) -> None:
        self.dirs, self.truth = dirs, truth
        self.store: LogStore | None = None

    def run(self, turn: int) -> None:
        """Create, append, delete, create anew, close."""
        self.store = LogStore.open(self.dirs, config=QUIET, admin_socket=False)
        for number in range(2):
            self.create(TopicPartition(f"t{turn}", number))
        self.delete(TopicPartition(f"t{turn}", 0))
        self.create(TopicPartition(f"t{turn}", 0))
        if turn:
            self.delete(TopicPartition("t0", 1))
        self.store.close()
        self.store = None

    def create(self, key: TopicPartition) -> None:
        """Create a partition and fill it, durably."""
        assert self.store is not None
        self.truth.doubtful.append(key)
        log = self.store.create(*key, config=CONFIG)
        self.truth.records[key] = []
        self.truth.doubtful.clear()
        for number in range(3):
            value = b"%d" % number * 200
            log.extend([value] * 2, durable=True)
            self.truth.records[key] += [value] * 2

    def delete(self, key: TopicPartition) -> None:
        """Delete a partition."""
        assert self.store is not None
        self.truth.doubtful.append(key)
        self.store.delete(*key)
        del self.truth.records[key]
        self.truth.doubtful.clear()

    def end(self) -> None:
        """Let go of what a dead process would not hold."""
        if self.store is not None:
            for keeper in keepers_of(self.store).values():
                keeper.stop()
                keeper.join(10)
            abandon(self.store)


def check(dirs: list[str], truth: Truth) -> None:
    """Open after the crash: all acknowledged records, no other partition, nothing amiss."""
    with LogStore.open(dirs, config=QUIET) as store:
        report = store.recovery_report
        assert report.is_sound, str(report)
        found = set(store) - set(truth.doubtful)
        assert found == set(truth.records) - set(truth.doubtful)
        for key in found:
            values = [record.value for record in store[key]]
            known = truth.records[key]
            assert values[: len(known)] == known
            assert len(values) <= len(known) + 2
        for key in truth.doubtful:
            if key in store:
                store.delete(*key)
            store.create(*key).append(b"again", durable=True)
    for one in dirs:
        assert not list(Path(one).glob("*.tmp"))
        assert not list(Path(one).glob("*.delete"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("lives", [1, 2])
def test_a_crash_at_any_call_loses_nothing_acknowledged(lives: int) -> None:
    """In the first life of a store, and in a later one that finds what the first has left."""
    with fast_directory() as base:
        for number in range(CALLS_MAX):
            dirs = [str(base / f"{number}-{n}") for n in range(2)]
            life = Life(dirs, Truth({}, []))
            for turn in range(lives - 1):
                life.run(turn)
            with pytest.MonkeyPatch.context() as patch:
                calls = crash_at(patch, number)
                with contextlib.suppress(CrashError):
                    life.run(lives - 1)
                life.end()
            check(dirs, life.truth)
            if len(calls) < number:
                return
    raise AssertionError("a life takes too many calls")
