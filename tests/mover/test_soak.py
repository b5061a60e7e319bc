"""Move logs among four log dirs while other work continues: `make soak-moves`.

Writers append, durably and not; readers read from the start; one thread flushes, one truncates,
deletes and retains. Nothing is timed: the moves are counted, and everybody ends with the last.
"""

from __future__ import annotations

import gc
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore import Log, LogConfig, LogStore, OffsetOutOfRangeError
from mover import MoveState, ReplicaMover
from support.gate import SECONDS_MAX
from support.moving import records_on_disk, settle
from support.places import fast_directory

MOVES = int(os.environ.get("LOGSTORE_MOVES", "90"))
SEED = int(os.environ.get("LOGSTORE_SEED", "0"))
LOGS = 3
CONFIG = LogConfig(segment_bytes=64 << 10, index_interval_bytes=1024, retention_bytes=512 << 10)


class Soak:
    """One log, with all threads that work on it.

    Attributes:
        lock: held by who appends and by who truncates, so that `records` is what the log has.
    """

    def __init__(self, log: Log, seed: int) -> None:
        self.log, self.rng = log, random.Random(seed)
        self.lock = threading.Lock()
        self.records: dict[int, bytes] = {}
        self.is_over = threading.Event()
        self.errors: list[BaseException] = []
        self.rounds = dict.fromkeys(("write", "read", "flush", "cut"), 0)

    def work(self, name: str, step: Callable[[], None]) -> None:
        try:
            while not self.is_over.is_set():
                step()
                self.rounds[name] += 1
                self.is_over.wait(0.0005)  # so that the moves get their turn too
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.errors.append(error)

    def write(self) -> None:
        with self.lock:
            end = self.log.log_end_offset
            values = [b"%d:%d:" % (end + i, self.rounds["write"]) + b"v" * 80 for i in range(8)]
            offsets = self.log.extend(values, durable=self.rounds["write"] % 8 == 0)
            assert offsets[0] == end
            self.records.update(zip(offsets, values, strict=True))

    def read(self) -> None:
        try:
            for record in self.log.read(self.log.log_start_offset, max_bytes=32 << 10):
                assert record.value is not None
                assert record.value.startswith(b"%d:" % record.offset)
        except OffsetOutOfRangeError:
            pass  # retained or cut between the two calls

    def flush(self) -> None:
        self.log.flush()

    def cut(self) -> None:
        with self.lock:
            start, end = self.log.log_start_offset, self.log.log_end_offset
            kind = self.rounds["cut"] % 3
            if kind == 0:
                offset = max(start, end - 20)
                self.log.truncate_to(offset)
                self.records = {o: v for o, v in self.records.items() if o < offset}
            elif kind == 1:
                self.log.delete_records_before(min(start + 50, end))
            else:
                self.log.apply_retention()

    def threads(self) -> list[threading.Thread]:
        steps = {"write": self.write, "read": self.read, "flush": self.flush, "cut": self.cut}
        return [threading.Thread(target=self.work, args=pair) for pair in steps.items()]


@pytest.mark.timeout(120 + MOVES * 5)
def test_logs_move_to_and_fro_under_everybody(capsys: pytest.CaptureFixture[str]) -> None:
    """No record is lost or invented, no log dir goes offline, and no file is left over."""
    with fast_directory() as base:
        dirs = [base / name for name in "abcd"]
        with LogStore.open(dirs) as store:
            logs = [store.create("orders", n, config=CONFIG) for n in range(LOGS)]
            soaks = [Soak(log, SEED + n) for n, log in enumerate(logs)]
            threads = [thread for soak in soaks for thread in soak.threads()]
            for soak in soaks:
                for _ in range(300):
                    soak.write()
            before = set(threading.enumerate())
            for thread in threads:
                thread.start()
            try:
                moves = move_about(store, dirs)
            finally:
                for soak in soaks:
                    soak.is_over.set()
                for thread in threads:
                    thread.join(SECONDS_MAX)
            for soak in soaks:
                if soak.errors:
                    raise soak.errors[0]
            settle(store)
            assert set(threading.enumerate()) == before
            assert all(log_dir.is_live for log_dir in store.describe_dirs().log_dirs)
            check(store, soaks, dirs)
        rounds = {name: sum(soak.rounds[name] for soak in soaks) for name in soaks[0].rounds}
        with capsys.disabled():
            print(f"\nsoak: {moves} moves among 4 log dirs; {rounds}")
        gc.collect()
        assert [fd for fd in opened() if fd.startswith(str(base))] == []


def move_about(store: LogStore, dirs: list[Path]) -> int:
    """Move the logs, some at a time, each to another dir."""
    rng, done = random.Random(SEED), 0
    with ReplicaMover(store, num_replica_move_threads=2) as mover:
        while done < MOVES:
            moves = []
            for number in range(LOGS):
                here = store.log("orders", number).log_dir
                others = [path for path in dirs if str(path) != here]
                moves.append(mover.move("orders", number, rng.choice(others)))
            for move in moves:
                state = move.wait(SECONDS_MAX)
                assert state is MoveState.DONE, (state, move.error)
                done += 1
    return done


def check(store: LogStore, soaks: list[Soak], dirs: list[Path]) -> None:
    """Compare the bytes on the disks, read by FORMAT.md alone, with what was acknowledged."""
    for number, soak in enumerate(soaks):
        log = soak.log
        log.flush()
        expected = sorted((o, v) for o, v in soak.records.items() if o >= log.log_start_offset)
        on_disk = records_on_disk(Path(log.directory))
        assert [row for row in on_disk if row[0] >= log.log_start_offset] == expected
        assert log.verify() == []
        names = [p.name for d in dirs for p in d.glob(f"orders-{number}*")]
        assert names == [f"orders-{number}"]


def opened() -> list[str]:
    """List the files that this process has open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue
    return found
