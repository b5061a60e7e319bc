"""Compact logs while they are moved, appended to, read, truncated and trimmed.

Nothing is timed: the moves are counted, and all threads end with the last one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from logstore import Log, LogStore, OffsetOutOfRangeError, StoreConfig
from mover import MoveState, ReplicaMover
from support.gate import SECONDS_MAX
from support.keyed_logs import COMPACTED
from support.moving import settle
from support.places import fast_directory

MOVES = int(os.environ.get("LOGSTORE_MOVES", "12"))
KEYS = 40
PAUSES = {"cut": 0.02, "compact": 0.1}  # seconds; the others take turns of 1 ms


def value_of(offset: int) -> bytes:
    return b"%d:" % offset + b"v" * (offset % 70)


class Beside:
    """One compacted log, and all threads that work on it.

    Attributes:
        lock: held by who appends and by who truncates, so that `keys` is what the log has.
        keys: of the records that were appended and not truncated, by offset.
    """

    def __init__(self, log: Log) -> None:
        self.log, self.lock = log, threading.Lock()
        self.keys: dict[int, bytes] = {}
        self.is_over = threading.Event()
        self.errors: list[BaseException] = []
        self.rounds = dict.fromkeys(("write", "read", "cut", "compact"), 0)
        self.replaced = 0

    def work(self, name: str, step: Callable[[], None]) -> None:
        try:
            while not self.is_over.is_set():
                step()
                self.rounds[name] += 1
                self.is_over.wait(PAUSES.get(name, 0.001))
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.errors.append(error)

    def append(self, keys: list[bytes]) -> int:
        end = self.log.log_end_offset
        offsets = range(end, end + len(keys))
        assert self.log.extend(map(value_of, offsets), keys=keys) == offsets
        return end

    def write(self) -> None:
        with self.lock:
            number = self.rounds["write"]
            keys = [b"key %d" % ((number * 7 + i * i) % KEYS) for i in range(6)]
            first = self.append(keys)
            self.keys.update(enumerate(keys, first))
        if number % 10 == 0:
            self.log.flush()

    def read(self) -> None:
        last = -1
        try:
            for record in self.log:
                assert record.value == value_of(record.offset) and record.offset > last
                last = record.offset
        except OffsetOutOfRangeError:
            pass  # deleted, or cut meanwhile

    def cut(self) -> None:
        """Truncate records whose keys no other records have; delete a few records at the start."""
        with self.lock:
            first = self.append([b"tail %d" % n for n in range(5)])
            if self.rounds["cut"] % 2:
                self.log.flush()
            self.log.truncate_to(first)
            if self.rounds["cut"] % 5 == 0:
                self.log.delete_records_before(min(self.log.log_start_offset + 20, first))

    def compact(self) -> None:
        replaced = self.log.compact().segments_replaced
        self.replaced = max(self.replaced, replaced)  # of one compaction

    def check(self) -> None:
        start = self.log.log_start_offset
        latest = {key: offset for offset, key in sorted(self.keys.items()) if offset >= start}
        found = {record.offset: record.key for record in self.log}
        assert set(latest.values()) <= found.keys()
        assert all(self.keys[offset] == key for offset, key in found.items())
        assert self.log.verify() == []

    def threads(self) -> list[threading.Thread]:
        steps = [getattr(self, name) for name in self.rounds]
        pairs = zip(self.rounds, steps, strict=True)
        return [threading.Thread(target=self.work, args=pair) for pair in pairs]


@pytest.mark.timeout(120 + MOVES * 10)
def test_logs_are_compacted_beside_moves_and_all_else() -> None:
    """No key loses its latest record, no log dir goes offline, and no file is left over."""
    config = StoreConfig(log_cleaner_enable=False)
    with fast_directory() as base:
        dirs = [base / name for name in "abc"]
        with LogStore.open(dirs, config=config) as store:
            logs = [
                store.create("orders", n, config=COMPACTED.replace(record_format=layout))
                for n, layout in enumerate(("columnar", "kafka"))
            ]
            all_beside = [Beside(log) for log in logs]
            threads = [thread for beside in all_beside for thread in beside.threads()]
            for beside in all_beside:
                for _ in range(60):
                    beside.write()
            for thread in threads:
                thread.start()
            try:
                move_about(store, dirs, all_beside)
            finally:
                for beside in all_beside:
                    beside.is_over.set()
                for thread in threads:
                    thread.join(SECONDS_MAX)
            for beside in all_beside:
                if beside.errors:
                    raise beside.errors[0]
                beside.check()
                assert beside.replaced > 0
            settle(store)
            assert all(log_dir.is_live for log_dir in store.describe_dirs().log_dirs)
        check_files(dirs)
        with LogStore.open(dirs, config=config) as store:
            assert store.recovery_report.is_sound
            for number, beside in enumerate(all_beside):
                beside.log = store.log("orders", number)
                beside.check()
                beside.log.compact()
                beside.check()
    print(f"soak: compaction: {[(one.replaced, one.rounds) for one in all_beside]}")


def move_about(store: LogStore, dirs: list[Path], all_beside: list[Beside]) -> None:
    """Move the logs in turn; each log is compacted between two of its moves.

    On a slow machine, a truncation or a deletion may end every compaction. So the last compaction
    of each log holds back whoever changes the log.
    """
    with ReplicaMover(store) as mover:
        for number in range(MOVES):
            target = dirs[(number // 2 + 1 + number % 2) % len(dirs)]
            move = mover.move("orders", number % 2, target)
            move.wait(SECONDS_MAX)
            assert move.state is MoveState.DONE, move.error
            beside = all_beside[number % 2]
            with beside.lock if number >= MOVES - 2 else nullcontext():
                beside.compact()


def check_files(dirs: list[Path]) -> None:
    names = [path.name for log_dir in dirs for path in log_dir.rglob("*")]
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".move", ".delete"))]
