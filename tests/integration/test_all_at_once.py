"""Let everything go on at once over four disks, of which one fills and gets room again.

Logs are appended to, read, flushed, truncated, shortened at the start, retained, compacted and
moved, all at the same time (`make soak`: for 60 seconds).
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logstore import (
    Log,
    LogConfig,
    LogDirError,
    LogStore,
    LogStoreError,
    OffsetOutOfRangeError,
    StoreConfig,
)
from mover import MoveState, ReplicaMover
from support.gate import SECONDS_MAX
from support.layers import demand
from support.loop_disk import LoopDisk, loop_disk, why_not
from support.moving import settle

SECONDS = float(os.environ.get("LOGSTORE_SOAK_SECONDS", "6"))
SEED = int(os.environ.get("LOGSTORE_SEED", "0"))
DISK_BYTES = 32 << 20
RETENTION_BYTES = 512 << 10
SLACK_BYTES = 16 << 10  # the newest records, which a truncation may remove after a retention
KEYS = 50
PLUG_BYTES = (1 << 20, 64 << 10, 4 << 10)
STORE = StoreConfig(
    log_cleaner_backoff_ms=20,
    log_retention_check_interval_ms=20,
)
COMMON = LogConfig(segment_bytes=32 << 10, index_interval_bytes=1024)
CONFIGS = {
    "compacted": COMMON.replace(cleanup_policy="compact", min_cleanable_dirty_ratio=0.2),
    "both": COMMON.replace(
        cleanup_policy="compact,delete",
        min_cleanable_dirty_ratio=0.2,
        retention_bytes=RETENTION_BYTES,
    ),
    "deleted": COMMON.replace(retention_bytes=RETENTION_BYTES),
}


class Busy:
    """One log, those who work on it, and what was acknowledged.

    Attributes:
        lock: held by who appends and by who truncates, so that `records` is what the log was given.
        records: key and value of each record that was appended and not truncated, by offset.
        start: where the user's deletions let the log begin.
        refused: how often a full disk refused something.
    """

    def __init__(self, log: Log, seed: int) -> None:
        self.log, self.rng, self.lock = log, random.Random(seed), threading.Lock()
        self.is_compacted = log.config.is_compacted
        self.records: dict[int, tuple[bytes, bytes]] = {}
        self.start = self.refused = 0
        self.is_over = threading.Event()
        self.errors: list[BaseException] = []
        self.rounds = dict.fromkeys(("write", "read", "flush", "cut"), 0)

    def work(self, name: str, step: Callable[[], None], pause: float) -> None:
        try:
            while not self.is_over.is_set():
                try:
                    step()
                    self.rounds[name] += 1
                except LogStoreError as error:
                    if not error.retriable:
                        raise
                    self.refused += 1
                    self.is_over.wait(0.02)
                self.is_over.wait(pause)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.errors.append(error)

    def append(self, keys: list[bytes], *, durable: bool) -> int:
        """Append records, and note what is in the log, also if the disk refused to sync it."""
        first = self.log.log_end_offset
        rows = [(key, b"%d:" % (first + n) + b"v" * 90) for n, key in enumerate(keys)]
        values = [value for _, value in rows]
        try:
            self.log.extend(values, keys=keys, durable=durable)
        finally:
            count = self.log.log_end_offset - first
            assert count in (0, len(rows))
            self.records.update(enumerate(rows[:count], first))
        return first

    def write(self) -> None:
        number = self.rounds["write"]
        keys = [b"key %d" % self.rng.randrange(KEYS) for _ in range(8)]
        with self.lock:
            self.append(keys, durable=number % 8 == 0)

    def read(self) -> None:
        last = -1
        with contextlib.suppress(OffsetOutOfRangeError):  # deleted, or cut meanwhile
            for record in self.log.read(self.log.log_start_offset, max_bytes=64 << 10):
                assert record.value is not None and record.offset > last
                assert record.value.startswith(b"%d:" % record.offset)
                last = record.offset

    def flush(self) -> None:
        self.log.flush()

    def cut(self) -> None:
        """Truncate records whose keys no others have; delete a few at the start."""
        number = self.rounds["cut"]
        with self.lock:
            first = self.append([b"tail %d" % n for n in range(5)], durable=number % 2 == 0)
            self.log.truncate_to(first)
            self.records = {at: row for at, row in self.records.items() if at < first}
            if number % 5 == 0:
                start = min(self.log.log_start_offset + 20, first)
                self.start = max(self.start, start)
                self.log.delete_records_before(start)

    def threads(self) -> list[threading.Thread]:
        pauses = {"write": 0.002, "read": 0.005, "flush": 0.02, "cut": 0.3}
        return [
            threading.Thread(target=self.work, args=(name, getattr(self, name), pause))
            for name, pause in pauses.items()
        ]

    def check(self) -> None:
        """Hold what is read against what was acknowledged."""
        log = self.log
        start = log.log_start_offset
        found = {r.offset: (r.key, r.value) for r in log}
        assert all(self.records[offset] == row for offset, row in found.items())
        given = {offset: row for offset, row in self.records.items() if offset >= start}
        if self.is_compacted:
            latest = {key: offset for offset, (key, _) in sorted(given.items())}
            assert set(latest.values()) <= found.keys()
        else:
            assert found.keys() == given.keys()
        if start > self.start:  # retention deleted records: only those above its bound
            assert log.config.retention_bytes is not None
            assert self.is_compacted or log.size_bytes > RETENTION_BYTES - SLACK_BYTES
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.verify() == []


def move_about(store: LogStore, dirs: list[Path], until: float, states: list[MoveState]) -> None:
    """Move logs from dir to dir; a move to the full disk may fail."""
    rng = random.Random(SEED)
    keys = [key for key in store if key.partition]
    with ReplicaMover(store, num_replica_move_threads=2) as mover:
        while time.monotonic() < until:
            moves = []
            for key in rng.sample(keys, 2):
                others = [path for path in dirs if str(path) != store[key].log_dir]
                with contextlib.suppress(LogDirError):  # there is no room for it
                    moves.append(mover.move(*key, rng.choice(others)))
            for move in moves:
                states.append(move.wait(SECONDS_MAX))
                if states[-1] is not MoveState.DONE:
                    assert isinstance(move.error, LogDirError) and move.error.retriable, move.error


@contextlib.contextmanager
def filled(place: Path) -> Iterator[None]:
    """Take all room of a disk; for a moment others find it full wherever they are."""
    plug = place / "plug"
    fd = os.open(plug, os.O_WRONLY | os.O_CREAT)
    try:
        for size_bytes in PLUG_BYTES:
            with contextlib.suppress(OSError):
                while True:
                    os.posix_fallocate(fd, os.fstat(fd).st_size, size_bytes)
        yield
    finally:
        os.close(fd)
        plug.unlink()


@pytest.mark.timeout(120 + 4 * SECONDS)
def test_everything_goes_on_at_once_while_a_disk_fills(capsys: pytest.CaptureFixture[str]) -> None:
    """No acknowledged record is lost above retention's bound, none comes back, no dir is blamed."""
    demand("four disks, of which one fills", why_not())
    states: list[MoveState] = []
    with contextlib.ExitStack() as stack:
        disks = [stack.enter_context(loop_disk("ext4", DISK_BYTES)) for _ in range(4)]
        dirs = [disk.mount / "logs" for disk in disks]
        with LogStore.open(dirs, config=STORE, admin_socket=False) as store:
            busy = [
                Busy(store.create(name, number, log_dir=dirs[number], config=config), SEED + number)
                for number in range(4)
                for name, config in of_layout(number).items()
            ]
            let_work(store, disks, dirs, busy, states)
            settle(store)
            assert all(one.is_live for one in store.describe_dirs().log_dirs)
            for one in busy:
                one.log.append(b"%d:" % one.log.log_end_offset, key=b"room", durable=True)
                end = one.log.log_end_offset
                one.records[end - 1] = (b"room", b"%d:" % (end - 1))
                one.check()
        with LogStore.open(dirs, config=STORE, admin_socket=False) as store:
            assert store.recovery_report.is_sound
            for one in busy:
                one.log = store.log(one.log.topic, one.log.partition)
                one.check()
        left = [path.name for one in dirs for path in one.rglob("*")]
        ends = (".cleaned", ".swap", ".move", ".delete", ".tmp")
        assert [name for name in left if name.endswith(ends)] == []
    rounds = {name: sum(one.rounds[name] for one in busy) for name in busy[0].rounds}
    refused = [one.refused for one in busy]
    with capsys.disabled():
        print(f"\nall at once: {rounds}, {len(states)} moves, {states.count(MoveState.DONE)} done")
        print(f"refused while a disk was full: {refused}")
    assert sum(refused) and states.count(MoveState.DONE)


def of_layout(number: int) -> dict[str, LogConfig]:
    """Give the configurations of the logs of one partition number, in one of the two layouts."""
    layout = ("columnar", "kafka")[number % 2]
    return {name: config.replace(record_format=layout) for name, config in CONFIGS.items()}


def let_work(
    store: LogStore,
    disks: list[LoopDisk],
    dirs: list[Path],
    busy: list[Busy],
    states: list[MoveState],
) -> None:
    """Start everybody, fill the first disk in the middle third of the time, and end everybody."""
    until = time.monotonic() + SECONDS
    threads = [thread for one in busy for thread in one.threads()]
    errors: list[BaseException] = []

    def moving() -> None:
        try:
            move_about(store, dirs, until, states)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            errors.append(error)

    threads.append(threading.Thread(target=moving))
    is_over = threading.Event()
    for thread in threads:
        thread.start()
    try:
        is_over.wait(SECONDS / 3)
        with filled(disks[0].mount):
            is_over.wait(SECONDS / 3)
        is_over.wait(max(until - time.monotonic(), 0))
    finally:
        for one in busy:
            one.is_over.set()
        for thread in threads:
            thread.join(SECONDS_MAX)
    for error in (*errors, *(error for one in busy for error in one.errors)):
        raise error
